import threading
import time
from contextlib import contextmanager

import solution
from solution import JobQueue

REAL_SLEEP, REAL_WAIT = time.sleep, threading.Event.wait
SLEPT_S = 5.0
"""Between the 7 s that honest waiting takes and what a busy machine needs for none."""
slept = []


tester = threading.get_ident()
has_waited = False


def note_sleep(seconds):
    if threading.get_ident() != tester:
        REAL_SLEEP(seconds)
    elif seconds > 0:
        slept.append(seconds)


def note_wait(event, timeout=None):
    if threading.get_ident() != tester or timeout is None or timeout <= 0:
        return REAL_WAIT(event, timeout)
    slept.append(timeout)
    return event.is_set()


@contextmanager
def no_sleeping():
    """Inside, sleeping is noted and takes no time; at the end nothing may have slept."""
    global tester, has_waited
    assert not has_waited, "the delays were slept in an earlier test"
    tester = threading.get_ident()
    slept.clear()
    # A solution may have `sleep` under a name of its own.
    names = [name for name, value in vars(solution).items() if value is REAL_SLEEP]
    time.sleep, threading.Event.wait = note_sleep, note_wait
    for name in names:
        setattr(solution, name, note_sleep)
    begin = time.monotonic()
    try:
        yield
    finally:
        took_s = time.monotonic() - begin
        has_waited = took_s >= SLEPT_S
        time.sleep, threading.Event.wait = REAL_SLEEP, REAL_WAIT
        for name in names:
            setattr(solution, name, REAL_SLEEP)
    assert not slept, f"the delays were slept: {slept}"
    assert not has_waited, f"processing took {took_s:.1f} s: the delays were slept"


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


class Flaky:
    """A processor that fails a number of times before it succeeds, and remembers what it was given."""

    def __init__(self, failures, error=RuntimeError, value="ok"):
        self.failures, self.error, self.value, self.given = failures, error, value, []

    def __call__(self, data):
        self.given.append(data)
        if len(self.given) <= self.failures:
            raise self.error(f"attempt {len(self.given)} fails")
        return self.value


def process(processor, data=None):
    queue = JobQueue()
    queue.add_job("a", data)
    with no_sleeping():
        return queue.process_job("a", processor)


def test_first_attempt_succeeds():
    processor = Flaky(0)
    check(process(processor), True)
    check(len(processor.given), 1)


def test_processor_gets_the_data():
    processor = Flaky(1)
    check(process(processor, {"n": [1, 2]}), True)
    check(processor.given, [{"n": [1, 2]}, {"n": [1, 2]}])


def test_stops_at_the_first_success():
    for failures in (1, 2):
        processor = Flaky(failures)
        check(process(processor), True)
        check(len(processor.given), failures + 1)


def test_fourth_attempt_can_succeed():
    processor = Flaky(3)
    check(process(processor), True)
    check(len(processor.given), 4)


def test_four_failures_are_the_end():
    processor = Flaky(99)
    check(process(processor), False)
    check(len(processor.given), 4)


def test_any_exception_is_a_failure():
    class OwnError(Exception):
        pass

    for error in (ValueError, KeyError, OSError, ZeroDivisionError, OwnError):
        check(process(Flaky(1, error)), True)
        check(process(Flaky(99, error)), False)


def test_any_returned_value_is_a_success():
    for value in (None, False, 0, ""):
        processor = Flaky(0, value=value)
        check(process(processor), True)
        check(len(processor.given), 1)


def test_each_job_has_its_own_attempts_and_data():
    queue = JobQueue()
    for name in ("a", "b", "c"):
        queue.add_job(name, name.upper())
    bad, late, good = Flaky(99), Flaky(3), Flaky(0)
    with no_sleeping():
        check(queue.process_job("b", bad), False)
        check(queue.process_job("a", late), True)
        check(queue.process_job("c", good), True)
    check([bad.given, late.given, good.given], [["B"] * 4, ["A"] * 4, ["C"]])


def seconds(queue):
    """The recorded delays. A whole number may be written as a float."""
    assert type(queue.delays) is list, f"expected a list, got {queue.delays!r}"
    assert all(type(delay) in (int, float) for delay in queue.delays), f"not numbers: {queue.delays!r}"
    return [float(delay) for delay in queue.delays]


def test_add_job_returns_the_id():
    check(JobQueue().add_job("a", 1), "a")


def test_delays_are_recorded():
    for failures, delays in ((0, []), (1, [1.0]), (2, [1.0, 2.0]), (3, [1.0, 2.0, 4.0]), (99, [1.0, 2.0, 4.0])):
        queue = JobQueue()
        check(seconds(queue), [])
        queue.add_job("a", None)
        with no_sleeping():
            queue.process_job("a", Flaky(failures))
        check(seconds(queue), delays)


def test_delays_of_all_jobs_are_kept():
    queue = JobQueue()
    queue.add_job("a", None)
    queue.add_job("b", None)
    with no_sleeping():
        queue.process_job("a", Flaky(2))
        queue.process_job("b", Flaky(99))
    check(seconds(queue), [1.0, 2.0, 1.0, 2.0, 4.0])


def test_each_queue_has_its_own_delays():
    one, other = JobQueue(), JobQueue()
    one.add_job("a", None)
    with no_sleeping():
        one.process_job("a", Flaky(1))
    check([seconds(one), seconds(other)], [[1.0], []])
