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


def test_add_job_returns_the_id():
    queue = JobQueue()
    check(queue.add_job("a", {"n": 1}), "a")
    check(queue.add_job("b", None), "b")


def test_no_result_before_it_is_stored():
    queue = JobQueue()
    queue.add_job("a", {"n": 1})
    assert queue.get_result("a") is None


def test_no_result_of_an_unknown_job():
    queue = JobQueue()
    queue.add_job("a", {"n": 1})
    assert queue.get_result("elsewhere") is None


def test_stored_result_comes_back():
    queue = JobQueue()
    queue.add_job("a", {"n": 1})
    queue.set_result("a", {"sum": 3, "parts": [1, 2]})
    check(queue.get_result("a"), {"sum": 3, "parts": [1, 2]})


def test_each_job_has_its_own_result():
    queue = JobQueue()
    for name in ("a", "b", "c"):
        queue.add_job(name, name.upper())
    queue.set_result("a", "first")
    queue.set_result("b", "second")
    check(queue.get_result("a"), "first")
    check(queue.get_result("b"), "second")
    assert queue.get_result("c") is None


def test_result_can_be_read_again():
    queue = JobQueue()
    queue.add_job("a", None)
    queue.set_result("a", 42)
    check([queue.get_result("a") for _ in range(3)], [42, 42, 42])


def test_empty_values_are_results():
    for value in (0, "", False, [], {}):
        queue = JobQueue()
        queue.add_job("a", {"n": 1})
        queue.set_result("a", value)
        check(queue.get_result("a"), value)


def test_two_queues_share_nothing():
    one, other = JobQueue(), JobQueue()
    one.add_job("a", 1)
    other.add_job("a", 2)
    one.set_result("a", "of one")
    check(one.get_result("a"), "of one")
    assert other.get_result("a") is None


def take(queue):
    job = queue.get_next_job()
    assert isinstance(job, tuple), f"expected a tuple, got {job!r}"
    return list(job)


def test_jobs_come_in_the_order_of_adding():
    queue = JobQueue()
    for name in ("c", "a", "b"):
        queue.add_job(name, {"name": name})
    check([take(queue) for _ in range(3)], [["c", {"name": "c"}], ["a", {"name": "a"}], ["b", {"name": "b"}]])


def test_order_holds_while_jobs_come_and_go():
    queue = JobQueue()
    queue.add_job("a", 1)
    queue.add_job("b", 2)
    check(take(queue), ["a", 1])
    queue.add_job("c", 3)
    check([take(queue), take(queue)], [["b", 2], ["c", 3]])


def test_none_when_nothing_waits():
    queue = JobQueue()
    assert queue.get_next_job() is None
    queue.add_job("a", 1)
    take(queue)
    assert queue.get_next_job() is None


def test_result_can_be_stored_after_taking():
    queue = JobQueue()
    queue.add_job("a", 1)
    take(queue)
    queue.set_result("a", "done")
    check(queue.get_result("a"), "done")
