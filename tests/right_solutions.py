"""Right answers in other styles than the references: hidden tests have to accept every one of them."""

from __future__ import annotations

SMOKE: dict[str, dict[str, str]] = {
    "add": {
        "lambda": "add = lambda a, b: a + b\n",
        "builtin_sum": "def add(a: float, b: float) -> float:\n    return sum([a, b])\n",
        "with_example": (
            'def add(a, b):\n    return a + b\n\nif __name__ == "__main__":\n    print(add(int(input()), 1))\n'
        ),
    },
    "is_even": {
        "bit": "def is_even(n):\n    return not n & 1\n",
        "branches": "def is_even(n):\n    if n % 2 == 0:\n        return True\n    else:\n        return False\n",
        "divmod": "def is_even(n):\n    return divmod(n, 2)[1] == 0\n",
    },
    "maximum": {
        "builtin": "def maximum(numbers):\n    return max(numbers)\n",
        "sorted": "def maximum(numbers):\n    return sorted(numbers)[-1]\n",
        "reduce": (
            "from functools import reduce\n\ndef maximum(numbers):\n"
            "    return reduce(lambda a, b: a if a > b else b, numbers)\n"
        ),
        "infinity": (
            "def maximum(numbers):\n    best = float('-inf')\n    for n in numbers:\n        if n > best:\n"
            "            best = n\n    return best\n"
        ),
    },
    "reverse_string": {
        "join": "def reverse_string(text):\n    return ''.join(reversed(text))\n",
        "loop": "def reverse_string(s):\n    out = ''\n    for c in s:\n        out = c + out\n    return out\n",
        "recursion": "def reverse_string(s):\n    return s if len(s) < 2 else reverse_string(s[1:]) + s[0]\n",
    },
    "count_vowels": {
        "loop": (
            "def count_vowels(text):\n    vowels = 'aeiouAEIOU'\n    count = 0\n    for c in text:\n"
            "        if c in vowels:\n            count += 1\n    return count\n"
        ),
        "count": "def count_vowels(text):\n    return sum(map(text.lower().count, 'aeiou'))\n",
        "regex": "import re\n\ndef count_vowels(text):\n    return len(re.findall('[aeiou]', text))\n",
    },
    "is_palindrome": {
        "letters_only": (
            "def is_palindrome(text):\n    text = ''.join(c.lower() for c in text if c.isalnum())\n"
            "    return text == text[::-1]\n"
        ),
        "two_ends": (
            "def is_palindrome(text):\n    i, j = 0, len(text) - 1\n    while i < j:\n        if text[i] != text[j]:\n"
            "            return False\n        i += 1\n        j -= 1\n    return True\n"
        ),
        "recursion": (
            "def is_palindrome(s):\n    if len(s) <= 1:\n        return True\n"
            "    return s[0] == s[-1] and is_palindrome(s[1:-1])\n"
        ),
    },
    "factorial": {
        "recursion": "def factorial(n):\n    return 1 if n == 0 else n * factorial(n - 1)\n",
        "math": "import math\n\ndef factorial(n):\n    return math.factorial(n)\n",
        "with_check": (
            "def factorial(n):\n    if n < 0:\n        raise ValueError('negative')\n    result = 1\n"
            "    while n > 1:\n        result *= n\n        n -= 1\n    return result\n"
        ),
    },
    "fizzbuzz": {
        "both": (
            "def fizzbuzz(n):\n    if n % 3 == 0 and n % 5 == 0:\n        return 'FizzBuzz'\n    elif n % 3 == 0:\n"
            "        return 'Fizz'\n    elif n % 5 == 0:\n        return 'Buzz'\n    else:\n        return f'{n}'\n"
        ),
        "words": "def fizzbuzz(n):\n    return 'Fizz' * (n % 3 == 0) + 'Buzz' * (n % 5 == 0) or str(n)\n",
        "match": (
            "def fizzbuzz(n):\n    match n % 3, n % 5:\n        case 0, 0: return 'FizzBuzz'\n"
            "        case 0, _: return 'Fizz'\n"
            "        case _, 0: return 'Buzz'\n    return str(n)\n"
        ),
    },
}

L1 = {
    "lists": """
class JobQueue:
    def __init__(self) -> None:
        self.jobs: list = []
        self.results: dict = {}

    def add_job(self, job_id: str, data) -> str:
        self.jobs.append({"id": job_id, "data": data})
        return job_id

    def get_next_job(self):
        if len(self.jobs) == 0:
            return None
        job = self.jobs.pop(0)
        return (job["id"], job["data"])

    def set_result(self, job_id: str, result) -> None:
        self.results[job_id] = result

    def get_result(self, job_id: str):
        if job_id in self.results:
            return self.results[job_id]
        return None
""",
    "ordered_dict_and_known_jobs_only": """
from collections import OrderedDict

_MISSING = object()

class JobQueue:
    def __init__(self):
        self._jobs = OrderedDict()
        self._known = {}

    def add_job(self, job_id, data):
        if job_id in self._known:
            raise ValueError(f"duplicate job {job_id}")
        self._jobs[job_id] = data
        self._known[job_id] = _MISSING
        return job_id

    def get_next_job(self):
        return self._jobs.popitem(last=False) if self._jobs else None

    def set_result(self, job_id, result):
        if job_id not in self._known:
            raise KeyError(job_id)
        self._known[job_id] = result

    def get_result(self, job_id):
        value = self._known.get(job_id, _MISSING)
        return None if value is _MISSING else value
""",
    "job_objects": """
from __future__ import annotations
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any

@dataclass
class _Job:
    job_id: str
    data: Any
    result: Any = None

class JobQueue:
    def __init__(self):
        self._queue: Queue[_Job] = Queue()
        self._index: dict[str, _Job] = {}

    def add_job(self, job_id, data):
        job = _Job(job_id, data)
        self._index[job_id] = job
        self._queue.put(job)
        return job.job_id

    def get_next_job(self):
        try:
            job = self._queue.get_nowait()
        except Empty:
            return None
        return job.job_id, job.data

    def set_result(self, job_id, result):
        self._index[job_id].result = result

    def get_result(self, job_id):
        job = self._index.get(job_id)
        return job.result if job else None
""",
}
L1_V2_ONLY = {
    "nothing_that_takes_a_job": """
class JobQueue:
    def __init__(self):
        self.queue = []
        self.results = {}

    def add_job(self, job_id, data):
        self.queue.append((job_id, data))
        return job_id

    def set_result(self, job_id, result):
        self.results[job_id] = result
        self.queue = [job for job in self.queue if job[0] != job_id]

    def get_result(self, job_id):
        return self.results.get(job_id)
""",
}

L2 = {
    "while_loop": """
class JobQueue:
    def __init__(self):
        self.jobs = {}
        self.delays = []

    def add_job(self, job_id, data):
        self.jobs[job_id] = data
        return job_id

    def process_job(self, job_id, processor):
        delay, attempts = 1, 0
        while True:
            try:
                processor(self.jobs[job_id])
                return True
            except Exception:
                attempts += 1
                if attempts == 4:
                    return False
                self.delays.append(delay)
                delay *= 2
""",
    "table_of_delays": """
from collections import OrderedDict

class JobQueue:
    BACKOFF = (1.0, 2.0, 4.0)

    def __init__(self):
        self._jobs = OrderedDict()
        self.results = {}
        self.delays: list[float] = []

    def add_job(self, job_id, data):
        self._jobs[job_id] = {"data": data, "status": "pending"}
        return job_id

    def get_result(self, job_id):
        return self.results.get(job_id)

    def process_job(self, job_id, processor):
        job = self._jobs[job_id]
        for delay in (*self.BACKOFF, None):
            try:
                self.results[job_id] = processor(job["data"])
            except Exception as exc:
                job["error"] = exc
                if delay is not None:
                    self.delays.append(delay)
            else:
                job["status"] = "done"
                return True
        job["status"] = "failed"
        return False
""",
    "recursion": """
class JobQueue:
    def __init__(self):
        self._jobs = []
        self.delays = []

    def add_job(self, job_id, data):
        self._jobs.append((job_id, data))
        return job_id

    def process_job(self, job_id, processor):
        data = next(d for j, d in self._jobs if j == job_id)
        return self._attempt(processor, data, 1)

    def _attempt(self, processor, data, number):
        try:
            processor(data)
        except BaseException:
            if number >= 4:
                return False
            self.delays.append(2 ** (number - 1))
            return self._attempt(processor, data, number + 1)
        return True
""",
}
L2_V2_ONLY = {
    "delays_by_job": """
import time

class JobQueue:
    def __init__(self):
        self.jobs, self.retry_delays = {}, {}

    def add_job(self, job_id, data):
        self.jobs[job_id] = (data, time.time())

    def process_job(self, job_id, processor):
        data, _ = self.jobs[job_id]
        recorded = self.retry_delays.setdefault(job_id, [])
        for attempt in range(4):
            try:
                processor(data)
                return True
            except Exception:
                if attempt < 3:
                    recorded.append(2 ** attempt)
        return False
""",
    "extends_a_base_class": """
import logging
from time import sleep  # kept for production use

class BaseQueue:
    def __init__(self):
        self.jobs = {}

    def add_job(self, job_id, data):
        self.jobs[job_id] = data
        return job_id

class JobQueue(BaseQueue):
    def __init__(self, record_delay=None):
        super().__init__()
        self.delay_log = []
        self.record_delay = record_delay or self.delay_log.append

    def process_job(self, job_id, processor):
        for i in range(1, 5):
            try:
                processor(self.jobs[job_id])
                return True
            except Exception as e:
                logging.debug("attempt %d: %s", i, e)
                if i < 4:
                    self.record_delay(2 ** (i - 1))
        return False
""",
    "sleeper_that_only_records": """
import threading

class RecordingClock:
    def __init__(self):
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(seconds)

class JobQueue:
    def __init__(self, clock=None):
        self.clock = clock if clock is not None else RecordingClock()
        self.lock = threading.RLock()
        self.pending = {}

    def add_job(self, job_id, data):
        with self.lock:
            self.pending[job_id] = data
        return job_id

    def process_job(self, job_id, processor):
        with self.lock:
            data = self.pending[job_id]
        succeeded, attempt = False, 0
        while not succeeded and attempt < 4:
            if attempt:
                self.clock.sleep(1 << (attempt - 1))
            attempt += 1
            try:
                processor(data)
                succeeded = True
            except Exception:
                pass
        return succeeded
""",
}

L3 = {
    "three_deques": """
from collections import deque

class JobQueue:
    def __init__(self):
        self._queues = {p: deque() for p in (2, 1, 0)}

    def add_job(self, job_id, data, priority=0):
        if priority not in self._queues:
            raise ValueError("priority must be 0, 1 or 2")
        self._queues[priority].append((job_id, data))
        return job_id

    def get_next_job(self):
        for queue in self._queues.values():
            if queue:
                return queue.popleft()
        return None
""",
    "priority_queue": """
import itertools
import queue

class JobQueue:
    def __init__(self):
        self._q = queue.PriorityQueue()
        self._n = itertools.count()

    def add_job(self, job_id, data, priority):
        self._q.put((-priority, next(self._n), (job_id, data)))
        return job_id

    def get_next_job(self):
        try:
            return self._q.get_nowait()[2]
        except queue.Empty:
            return None
""",
    "ordered_dataclass": """
import heapq
from dataclasses import dataclass, field
from typing import Any

@dataclass(order=True)
class _Entry:
    rank: int
    number: int
    job_id: str = field(compare=False)
    data: Any = field(compare=False)

class JobQueue:
    def __init__(self):
        self.heap = []
        self.number = 0

    def add_job(self, job_id, data, priority):
        heapq.heappush(self.heap, _Entry(2 - priority, self.number, job_id, data))
        self.number += 1
        return job_id

    def get_next_job(self):
        if self.heap:
            entry = heapq.heappop(self.heap)
            return entry.job_id, entry.data
""",
    "scan_and_named_tuple": """
from typing import Any, NamedTuple

class Next(NamedTuple):
    job_id: str
    data: Any

class JobQueue:
    def __init__(self):
        self.jobs = []

    def add_job(self, job_id, data, priority):
        self.jobs.append((priority, Next(job_id, data)))
        return job_id

    def get_next_job(self):
        if not self.jobs:
            return None
        best = max(range(len(self.jobs)), key=lambda i: (self.jobs[i][0], -i))
        return self.jobs.pop(best)[1]
""",
    "sorted_on_insert": """
from bisect import insort

class JobQueue:
    def __init__(self):
        self.jobs = []

    def add_job(self, job_id, data, priority):
        insort(self.jobs, (job_id, data, priority), key=lambda job: -job[2])
        return job_id

    def get_next_job(self):
        return self.jobs.pop(0)[:2] if self.jobs else None
""",
}

_L4_REST = """
    def add_job(self, job_id, data):
        with self._lock:
            self._waiting.append((job_id, data))
        return job_id

    def get_result(self, job_id):
        with self._lock:
            return self._results.get(job_id)
"""
_L4_CLAIM = """
    def process_next(self, processor):
        with self._lock:
            if not self._waiting:
                return None
            job_id, data = self._waiting.pop(0)
        result = processor(data)
        with self._lock:
            self._results[job_id] = result
        return job_id
"""
_L4_WHOLE = """
    def process_next(self, processor):
        with self._lock:
            if not self._waiting:
                return None
            job_id, data = self._waiting[0]
            self._results[job_id] = processor(data)
            self._waiting.pop(0)
            return job_id
"""
L4 = {
    "lock_by_name": (
        "from threading import Lock\n\nclass JobQueue:\n    def __init__(self):\n        self._lock = Lock()\n"
        "        self._waiting = []\n        self._results = {}\n" + _L4_REST + _L4_CLAIM
    ),
    "lock_held_during_the_work": (
        "import threading\n\nclass JobQueue:\n    def __init__(self):\n        self._lock = threading.Lock()\n"
        "        self._waiting = []\n        self._results = {}\n" + _L4_REST + _L4_WHOLE
    ),
    "reentrant_lock_held": (
        "import threading as th\n\nclass JobQueue:\n    def __init__(self):\n        self._lock = th.RLock()\n"
        "        self._waiting = []\n        self._results = {}\n" + _L4_REST + _L4_WHOLE
    ),
    "condition": (
        "import threading\n\nclass JobQueue:\n    def __init__(self):\n        self._lock = threading.Condition()\n"
        "        self._waiting = []\n        self._results = {}\n" + _L4_REST + _L4_CLAIM
    ),
    "semaphore": (
        "import threading\n\nclass JobQueue:\n    def __init__(self):\n"
        "        self._lock = threading.BoundedSemaphore(1)\n"
        "        self._waiting = []\n        self._results = {}\n" + _L4_REST + _L4_CLAIM
    ),
    "lock_of_the_module": (
        "import threading\n\n_LOCK = threading.RLock()\n\nclass JobQueue:\n    def __init__(self):\n"
        "        self._lock = _LOCK\n"
        "        self._waiting = []\n        self._results = {}\n" + _L4_REST + _L4_CLAIM
    ),
    "dataclass_and_annotations": (
        "from __future__ import annotations\nimport threading\nfrom dataclasses import dataclass, field\n"
        "from typing import Any\n\n"
        "@dataclass\nclass JobQueue:\n    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)\n"
        "    _waiting: list[tuple[str, Any]] = field(default_factory=list)\n"
        "    _results: dict[str, Any] = field(default_factory=dict)\n" + _L4_REST + _L4_CLAIM
    ),
    "token_in_a_queue": (
        "import queue\nfrom contextlib import contextmanager\n\nclass _Token:\n    def __init__(self):\n"
        "        self._q = queue.SimpleQueue()\n        self._q.put(None)\n"
        "    def __enter__(self):\n        self._q.get()\n"
        "    def __exit__(self, *exc):\n        self._q.put(None)\n\nclass JobQueue:\n    def __init__(self):\n"
        "        self._lock = _Token()\n        self._waiting = []\n        self._results = {}\n" + _L4_REST + _L4_CLAIM
    ),
    "queue_of_the_library": """
import queue
import threading

class JobQueue:
    def __init__(self):
        self._jobs = queue.Queue()
        self._results = {}
        self._lock = threading.Lock()

    def add_job(self, job_id, data):
        self._jobs.put((job_id, data))
        return job_id

    def process_next(self, processor):
        try:
            job_id, data = self._jobs.get(block=False)
        except queue.Empty:
            return None
        result = processor(data)
        with self._lock:
            self._results[job_id] = result
        self._jobs.task_done()
        return job_id

    def get_result(self, job_id):
        with self._lock:
            return self._results.get(job_id)
""",
    "atomic_pop": """
from collections import deque

class JobQueue:
    def __init__(self):
        self._waiting = deque()
        self._results = {}

    def add_job(self, job_id, data):
        self._waiting.append((job_id, data))
        return job_id

    def process_next(self, processor):
        try:
            # popleft is atomic: no other thread gets the same job.
            job_id, data = self._waiting.popleft()
        except IndexError:
            return None
        self._results[job_id] = processor(data)
        return job_id

    def get_result(self, job_id):
        return self._results.get(job_id)
""",
    "marked_in_progress": """
import threading

class JobQueue:
    def __init__(self):
        self._lock = threading.Lock()
        self._waiting = []
        self._in_progress = set()
        self._results = {}

    def add_job(self, job_id, data):
        with self._lock:
            self._waiting.append((job_id, data))
            return job_id

    def process_next(self, processor):
        self._lock.acquire()
        try:
            job = next((j for j in self._waiting if j[0] not in self._in_progress), None)
            if job is None:
                return None
            self._in_progress.add(job[0])
        finally:
            self._lock.release()
        result = processor(job[1])
        with self._lock:
            self._waiting.remove(job)
            self._in_progress.discard(job[0])
            self._results[job[0]] = result
        return job[0]

    def get_result(self, job_id):
        with self._lock:
            return self._results.get(job_id)
""",
    "checked_again_under_the_lock": """
import threading

class JobQueue:
    def __init__(self):
        self._lock = threading.Lock()
        self._waiting = []
        self._results = {}

    def add_job(self, job_id, data):
        with self._lock:
            self._waiting.append((job_id, data))
        return job_id

    def _claim(self):
        if not self._waiting:
            return None
        with self._lock:
            return self._waiting.pop(0) if self._waiting else None

    def process_next(self, processor):
        job = self._claim()
        if job is None:
            return None
        result = processor(job[1])
        with self._lock:
            self._results[job[0]] = result
        return job[0]

    def get_result(self, job_id):
        return self._results.get(job_id)
""",
}

_L5_JOB = """
from dataclasses import dataclass
from typing import Any

@dataclass
class Job:
    id: str
    data: Any
    priority: int = 0
    retries: int = 0
"""
_L5_POLICY = """
class RetryPolicy:
    def __init__(self, max_attempts: int = 4) -> None:
        self.max_attempts = max_attempts

    def run(self, fn, data):
        attempts = 0
        while attempts < self.max_attempts:
            attempts += 1
            try:
                fn(data)
                return True, attempts
            except Exception:
                pass
        return False, attempts
"""
L5 = {
    "policy_in_the_constructor": _L5_JOB
    + _L5_POLICY
    + """
class JobQueue:
    def __init__(self, retry_policy: RetryPolicy | None = None):
        self.retry_policy = retry_policy or RetryPolicy()
        self.jobs: list[Job] = []

    def add_job(self, job_id, data, priority=0):
        self.jobs.append(Job(id=job_id, data=data, priority=priority))
        return job_id

    def process_next(self, processor):
        if not self.jobs:
            return None
        job = max(self.jobs, key=lambda j: j.priority)
        self.jobs.remove(job)
        success, attempts = self.retry_policy.run(fn=processor, data=job.data)
        job.retries = attempts - 1
        return (job, success)
""",
    "policy_as_a_dataclass_and_slots": """
import dataclasses
from collections import deque

@dataclasses.dataclass(slots=True)
class Job:
    id: object
    data: object
    priority: int = 0
    retries: int = 0

@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    max_attempts: int = 4

    def run(self, fn, data):
        for n in range(self.max_attempts):
            try:
                fn(data)
            except Exception:
                continue
            else:
                return (True, n + 1)
        return (False, self.max_attempts)

class JobQueue:
    def __init__(self):
        self._by_priority = {}
        self._policy = RetryPolicy()

    def add_job(self, job_id, data, priority=0):
        self._by_priority.setdefault(priority, deque()).append(Job(job_id, data, priority))
        return job_id

    def _pop(self):
        for priority in sorted(self._by_priority, reverse=True):
            if self._by_priority[priority]:
                return self._by_priority[priority].popleft()
        return None

    def process_next(self, processor):
        job = self._pop()
        if job is None:
            return None
        ok, attempts = self._policy.run(lambda data: processor(data), job.data)
        job.retries = attempts - 1
        return job, ok
""",
    "policy_made_for_each_job": _L5_JOB
    + _L5_POLICY
    + """
class JobQueue:
    def __init__(self):
        self._jobs = []
        self._seq = 0

    def add_job(self, job_id, data, priority=0):
        job = Job(job_id, data, priority, retries=0)
        self._jobs.append((priority, self._seq, job))
        self._seq += 1
        return job.id

    def process_next(self, processor):
        if len(self._jobs) == 0:
            return None
        self._jobs.sort(key=lambda entry: (-entry[0], entry[1]))
        job = self._jobs.pop(0)[-1]
        outcome = RetryPolicy().run(processor, job.data)
        job.retries = outcome[1] - 1
        return job, outcome[0]
""",
    "policy_by_recursion": _L5_JOB
    + """
import heapq, itertools

class RetryPolicy:
    def __init__(self, max_attempts=4):
        self.max_attempts = max_attempts

    def run(self, fn, data, _made=0):
        if _made == self.max_attempts:
            return False, _made
        try:
            fn(data)
        except Exception:
            return self.run(fn, data, _made + 1)
        return True, _made + 1

class JobQueue:
    _counter = itertools.count()

    def __init__(self):
        self.heap = []
        self.policy = RetryPolicy(max_attempts=4)

    def add_job(self, job_id, data, priority=0):
        heapq.heappush(self.heap, (-priority, next(self._counter), Job(job_id, data, priority)))
        return job_id

    def process_next(self, processor):
        while self.heap:
            job = heapq.heappop(self.heap)[2]
            break
        else:
            return None
        success, attempts = self.policy.run(processor, job.data)
        job.retries = max(0, attempts - 1)
        return job, success
""",
}

RIGHT: dict[tuple[str, str], dict[str, str]] = {
    **{("smoke", level): solutions for level, solutions in SMOKE.items()},
    ("coding-v2", "L1"): L1 | L1_V2_ONLY,
    ("coding-v2", "L2"): L2 | L2_V2_ONLY,
    ("coding-v2", "L3"): L3,
    ("coding-v2", "L4"): L4,
    ("coding-v2", "L5"): L5,
    ("coding-v2-strict", "L1"): L1,
    ("coding-v2-strict", "L2"): L2,
    ("coding-v2-strict", "L3"): L3,
    ("coding-v2-strict", "L4"): L4,
    ("coding-v2-strict", "L5"): L5,
}
"""(suite, level) -> name -> source."""
