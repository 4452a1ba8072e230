import heapq
from dataclasses import dataclass
from itertools import count
from typing import Any


@dataclass
class Job:
    id: str
    data: Any
    priority: int = 0
    retries: int = 0


class RetryPolicy:
    def __init__(self, max_attempts=4):
        self.max_attempts = max_attempts

    def run(self, fn, data):
        for attempt in range(1, self.max_attempts + 1):
            try:
                fn(data)
            except Exception:
                continue
            return True, attempt
        return False, self.max_attempts


class JobQueue:
    _heap = []

    def __init__(self):
        self._policy = RetryPolicy()
        self._arrivals = count()

    def add_job(self, job_id, data, priority=0):
        job = Job(job_id, data, priority)
        heapq.heappush(self._heap, (-priority, next(self._arrivals), job))
        return job_id

    def process_next(self, processor):
        if not self._heap:
            return None
        _, _, job = heapq.heappop(self._heap)
        success, attempts = self._policy.run(processor, job.data)
        job.retries = attempts - 1
        return job, success
