"""A race shows only when a thread is stopped at the wrong moment, so each moment is tried: a thread is held before
its first, second, third ... line of the solution while another one does its work. No luck is involved, and nothing is
assumed about how the queue guards itself."""

import sys
import threading
from contextlib import contextmanager

import solution
from solution import JobQueue

LIMIT_S = 5.0
"""Far more than a call takes; a thread that is not done by then waits for ever."""
LOOK_S, GLANCE_S, LOOKS = 0.5, 0.05, 4
"""How long to wait for the other thread where it is held up by something that is not a lock of `threading`: that
cannot be seen, so after a few long looks short ones have to do."""
REAL = {"Lock": threading.Lock, "RLock": threading.RLock}
waiting_for_lock = {}
"""Thread id -> what to call when that thread has to wait for a lock."""
unseen = 0
"""How often a thread was held up by something else."""


class WatchedLock:
    """A lock that tells when a thread has to wait for it."""

    make = REAL["Lock"]

    def __init__(self):
        self._real = type(self).make()

    def acquire(self, blocking=True, timeout=-1):
        if self._real.acquire(False):
            return True
        if not blocking:
            return False
        waiting_for_lock.get(threading.get_ident(), lambda: None)()
        return self._real.acquire(True, timeout)

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self._real.release()

    def __getattr__(self, name):
        return getattr(self._real, name)


class WatchedRLock(WatchedLock):
    make = REAL["RLock"]


@contextmanager
def watched_locks():
    """Inside, `threading.Lock` and `threading.RLock` make watched locks, also under the solution's names for them."""
    watched = {"Lock": WatchedLock, "RLock": WatchedRLock}
    places = [(threading, name, name) for name in REAL]
    places += [(solution, name, kind) for name, value in vars(solution).items() for kind in REAL if value is REAL[kind]]
    for place, name, kind in places:
        setattr(place, name, watched[kind])
    try:
        yield
    finally:
        for place, name, kind in places:
            setattr(place, name, REAL[kind])


def same(got, want):
    """Equal in value and in type at every depth: an object that calls itself equal to anything proves nothing."""
    if type(got) is not type(want):
        return False
    if type(want) in (list, tuple):
        return len(got) == len(want) and all(map(same, got, want))
    if type(want) is dict:
        return same(list(got.items()), list(want.items()))
    return got == want


def check(got, want):
    assert same(got, want), f"expected {want!r}, got {got!r}"


class Call(threading.Thread):
    """A call in a thread of its own. It can be held before the n-th line that it runs in the solution."""

    stuck = False

    def __init__(self, function, hold_at=0):
        super().__init__(daemon=True)
        self.function, self.hold_at, self.lines = function, hold_at, 0
        self.value = self.error = None
        self.held = False
        self.stopped, self.go_on = threading.Event(), threading.Event()

    def run(self):
        waiting_for_lock[threading.get_ident()] = self.stopped.set
        try:
            if self.hold_at:
                # In this thread alone: Python refuses to let two threads set it at the same moment.
                sys.settrace(self.trace)
            self.value = self.function()
        except BaseException as error:
            self.error = error
        finally:
            if self.hold_at:
                sys.settrace(None)
            waiting_for_lock.pop(threading.get_ident(), None)
            self.stopped.set()

    def trace(self, frame, event, _):
        if frame.f_globals.get("__name__") != "solution":
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.hold_at:
                self.held = True
                self.stopped.set()
                self.go_on.wait()
        return self.trace

    def result(self, limit_s=LIMIT_S):
        """What the call returned. An assertion fails if it raised, or if it does not return."""
        self.join(0.0 if Call.stuck else limit_s)
        if self.is_alive():
            Call.stuck = True
            raise AssertionError("a call does not return: the threads wait for each other")
        if self.error is not None:
            raise AssertionError(f"a call raised {type(self.error).__name__}: {self.error}")
        return self.value


def alone(function):
    """The call in a thread of its own, so that a queue that locks itself out fails and does not hang."""
    call = Call(function)
    call.start()
    call.stopped.wait(LIMIT_S)
    return call.result(1.0)


def each_interleaving(make):
    """For each line of a first call: hold it there, let a second call do what it can, and let the first go on.

    `make()` gives a first and a second function and one that checks what they returned.
    """
    global unseen
    hold_at = 0
    while True:
        hold_at += 1
        with watched_locks():
            first_function, second_function, check_both = make()
            first, second = Call(first_function, hold_at), Call(second_function)
            first.start()
            first.stopped.wait(LIMIT_S)
            second.start()
            unseen += not second.stopped.wait(LOOK_S if unseen < LOOKS else GLANCE_S)
            first.go_on.set()
            check_both(first.result(), second.result())
        if not first.held:
            return
        assert hold_at < 300, "the solution runs for ever"


def filled(n):
    queue = JobQueue()
    for k in range(n):
        queue.add_job(f"job {k}", k)
    return queue


def test_one_thread_works_in_order():
    seen = []

    def square(data):
        seen.append(data)
        return data * data

    def work():
        queue = JobQueue()
        check([queue.add_job(name, data) for name, data in (("c", 3), ("a", 1), ("b", 2))], ["c", "a", "b"])
        assert queue.get_result("a") is None
        check([queue.process_next(square) for _ in range(3)], ["c", "a", "b"])
        assert queue.process_next(square) is None
        check(seen, [3, 1, 2])
        check([queue.get_result(name) for name in ("a", "b", "c")], [1, 4, 9])
        assert queue.get_result("elsewhere") is None

    with watched_locks():
        alone(work)


def test_two_threads_take_two_jobs():
    def make():
        queue, seen = filled(3), []

        def work():
            return queue.process_next(lambda data: (seen.append(data), data + 100)[1])

        def check_both(one, other):
            check(sorted([str(one), str(other)]), ["job 0", "job 1"])
            check(sorted(seen), [0, 1])
            check([queue.get_result("job 0"), queue.get_result("job 1")], [100, 101])
            check([alone(work), alone(work)], ["job 2", None])
            check(sorted(seen), [0, 1, 2])

        return work, work, check_both

    each_interleaving(make)


def test_two_threads_and_one_job():
    def make():
        queue, seen = filled(1), []

        def work():
            return queue.process_next(lambda data: seen.append(data) or "done")

        def check_both(one, other):
            check(sorted([str(one), str(other)]), ["None", "job 0"])
            check(seen, [0])
            check(queue.get_result("job 0"), "done")

        return work, work, check_both

    each_interleaving(make)


def test_a_job_added_meanwhile_is_not_lost():
    def make():
        queue, seen = filled(1), []

        def work():
            return queue.process_next(lambda data: seen.append(data) or data)

        def add():
            return queue.add_job("late", "x")

        def check_both(one, other):
            check([one, other], ["job 0", "late"])
            check([alone(work), alone(work)], ["late", None])
            check(seen, [0, "x"])

        return work, add, check_both

    each_interleaving(make)

    def make_other_way_round():
        work, add, check_both = make()
        return add, work, lambda one, other: check_both(other, one)

    each_interleaving(make_other_way_round)


def test_two_threads_add():
    def make():
        queue = JobQueue()

        def check_both(one, other):
            check([one, other], ["a", "b"])
            taken = [alone(lambda: queue.process_next(str)) for _ in range(3)]
            check([sorted(taken[:2]), taken[2]], [["a", "b"], None])

        return lambda: queue.add_job("a", 1), lambda: queue.add_job("b", 2), check_both

    each_interleaving(make)


def test_many_threads():
    n, queue, seen, taken = 200, JobQueue(), [], []

    def work():
        while (job_id := queue.process_next(lambda data: seen.append(data) or -data)) is not None:
            taken.append(job_id)

    def add(numbers):
        for k in numbers:
            queue.add_job(f"job {k}", k)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        add(range(n // 2))
        calls = [Call(work), Call(lambda: add(range(n // 2, n))), Call(work), Call(work)]
        for call in calls:
            call.start()
        for call in calls:
            call.result(3 * LIMIT_S)
    finally:
        sys.setswitchinterval(usual)
    alone(work)
    check(sorted(seen), list(range(n)))
    check(sorted(taken), sorted(f"job {k}" for k in range(n)))
    check([queue.get_result(f"job {k}") for k in range(n)], [-k for k in range(n)])
