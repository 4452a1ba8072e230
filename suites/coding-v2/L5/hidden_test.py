import ast
import dataclasses
import inspect

import solution
from solution import Job, JobQueue, RetryPolicy


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


def pair(value):
    assert isinstance(value, tuple) and len(value) == 2, f"expected a tuple of two, got {value!r}"
    return list(value)


def test_job_is_a_dataclass():
    assert dataclasses.is_dataclass(Job), "Job is not a dataclass"
    check([field.name for field in dataclasses.fields(Job)], ["id", "data", "priority", "retries"])
    job = Job("a", {"n": 1})
    check([job.id, job.data, job.priority, job.retries], ["a", {"n": 1}, 0, 0])
    job = Job(id="b", data=None, priority=2, retries=1)
    check([job.id, job.data, job.priority, job.retries], ["b", None, 2, 1])


def test_policy_counts_its_attempts():
    for failures in (0, 1, 2, 3):
        fn = Flaky(failures)
        check(pair(RetryPolicy().run(fn, {"n": 1})), [True, failures + 1])
        check(fn.given, [{"n": 1}] * (failures + 1))


def test_policy_gives_up_after_four_attempts():
    fn = Flaky(99)
    check(pair(RetryPolicy().run(fn, 7)), [False, 4])
    check(fn.given, [7, 7, 7, 7])


def test_policy_takes_its_number_of_attempts():
    for most in (1, 2, 6):
        fn = Flaky(99)
        check(pair(RetryPolicy(max_attempts=most).run(fn, None)), [False, most])
        check(len(fn.given), most)


def test_policy_can_be_used_again():
    policy = RetryPolicy(2)
    check(pair(policy.run(Flaky(99), None)), [False, 2])
    check(pair(policy.run(Flaky(1), None)), [True, 2])
    check(pair(policy.run(Flaky(0), None)), [True, 1])


def test_only_an_exception_is_a_failure():
    for value in (None, False, 0):
        check(pair(RetryPolicy().run(Flaky(0, value=value), None)), [True, 1])
    for error in (KeyError, OSError, ZeroDivisionError):
        check(pair(RetryPolicy().run(Flaky(1, error), None)), [True, 2])


def test_queue_goes_by_priority_then_by_arrival():
    queue = JobQueue()
    jobs = [("z", 0), ("y", 2), ("x", 1), ("w", 2), ("v", 0), ("u", 1)]
    check([queue.add_job(name, {"of": name}, priority) for name, priority in jobs], list("zyxwvu"))
    check(queue.add_job("t", {"of": "t"}), "t")
    processor = Flaky(0)
    done = [pair(queue.process_next(processor)) for _ in range(7)]
    check([job.id for job, _ in done], list("ywxuzvt"))
    check([job.priority for job, _ in done], [2, 2, 1, 1, 0, 0, 0])
    check(processor.given, [{"of": name} for name in "ywxuzvt"])
    assert queue.process_next(processor) is None


def test_queue_reports_success_and_retries():
    for failures, success, retries in ((0, True, 0), (1, True, 1), (3, True, 3), (99, False, 3)):
        queue, processor = JobQueue(), Flaky(failures)
        queue.add_job("a", [1, 2])
        job, result = pair(queue.process_next(processor))
        assert isinstance(job, Job), f"expected a Job, got {job!r}"
        check([job.id, job.data, job.retries, result], ["a", [1, 2], retries, success])
        check(len(processor.given), retries + 1)
        assert queue.process_next(processor) is None


def test_two_queues_share_nothing():
    one, other = JobQueue(), JobQueue()
    one.add_job("a", 1)
    assert other.process_next(Flaky(0)) is None


def test_queue_leaves_retries_to_the_policy():
    """With the policy's method replaced, the queue must follow the replacement and never call the processor."""
    seen, processor = [], Flaky(0)

    def run(self, fn, data):
        check([isinstance(self, RetryPolicy), callable(fn)], [True, True])
        seen.append(data)
        return len(seen) == 2, 3

    usual = RetryPolicy.run
    RetryPolicy.run = run
    try:
        queue = JobQueue()
        queue.add_job("a", "first")
        queue.add_job("b", "second")
        one, other = pair(queue.process_next(processor)), pair(queue.process_next(processor))
    finally:
        RetryPolicy.run = usual
    check(seen, ["first", "second"])
    check([one[0].retries, one[1], other[0].retries, other[1]], [2, False, 2, True])
    check(processor.given, [])


def test_source_shows_the_composition():
    tree = ast.parse(inspect.getsource(solution))
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    assert "JobQueue" in classes, "the source has no class JobQueue"
    for part in (Job, RetryPolicy):
        assert not issubclass(JobQueue, part), f"JobQueue inherits from {part.__name__}"
    nodes = list(ast.walk(classes["JobQueue"]))
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    assert any(isinstance(call, ast.Name) and call.id == "Job" for call in calls), "JobQueue makes no Job"
    assert "RetryPolicy" in names, "JobQueue does not use RetryPolicy"
    runs = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr == "run"]
    assert runs, "JobQueue does not call the policy's run"
    for method in (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "process_next"):
        arguments = {argument.arg for argument in method.args.args[1:]}
        for loop in (node for node in ast.walk(method) if isinstance(node, (ast.For, ast.While))):
            for node in ast.walk(loop):
                own = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in arguments
                assert not own, "JobQueue repeats the retry logic"
