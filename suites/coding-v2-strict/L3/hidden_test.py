from solution import JobQueue


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


def take(queue):
    job = queue.get_next_job()
    assert isinstance(job, tuple), f"expected a tuple, got {job!r}"
    return list(job)


def filled(*jobs):
    """A queue of jobs given as (name, priority). Their data are dictionaries, which cannot be ordered."""
    queue = JobQueue()
    for name, priority in jobs:
        queue.add_job(name, {"of": name}, priority)
    return queue


def order(queue, n):
    return [take(queue)[0] for _ in range(n)]


def test_job_and_its_data_come_back():
    queue = JobQueue()
    queue.add_job("a", [1, {"n": 2}], 1)
    check(take(queue), ["a", [1, {"n": 2}]])


def test_higher_priority_comes_first():
    check(order(filled(("low", 0), ("high", 2), ("middle", 1)), 3), ["high", "middle", "low"])
    check(order(filled(("high", 2), ("middle", 1), ("low", 0)), 3), ["high", "middle", "low"])


def test_equal_priorities_keep_their_order():
    for priority in (0, 1, 2):
        names = ["d", "b", "e", "a", "c"]
        check(order(filled(*((name, priority) for name in names)), 5), names)


def test_order_within_each_priority():
    jobs = [("z", 1), ("y", 0), ("x", 2), ("w", 1), ("v", 2), ("u", 0), ("t", 1)]
    check(order(filled(*jobs), 7), ["x", "v", "z", "w", "t", "y", "u"])


def test_jobs_added_in_between():
    queue = filled(("a", 0), ("b", 1))
    check(order(queue, 1), ["b"])
    queue.add_job("c", None, 2)
    queue.add_job("d", None, 0)
    check(order(queue, 1), ["c"])
    queue.add_job("e", None, 1)
    check(order(queue, 3), ["e", "a", "d"])


def test_none_when_empty():
    queue = JobQueue()
    assert queue.get_next_job() is None
    queue.add_job("a", {"n": 1}, 0)
    check(take(queue), ["a", {"n": 1}])
    assert queue.get_next_job() is None
    assert queue.get_next_job() is None


def test_many_jobs():
    jobs = [(f"job {(7 * n) % 60}", (n * n + n // 3) % 3) for n in range(60)]
    wanted = [name for level in (2, 1, 0) for name, priority in jobs if priority == level]
    check(order(filled(*jobs), 60), wanted)


def test_two_queues_share_nothing():
    one, other = filled(("a", 0)), filled(("b", 2))
    check(take(one), ["a", {"of": "a"}])
    check(take(other), ["b", {"of": "b"}])
    assert one.get_next_job() is None


def test_add_job_returns_the_id():
    check(JobQueue().add_job("a", {"n": 1}, 2), "a")
