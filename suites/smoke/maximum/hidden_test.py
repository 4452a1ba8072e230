from solution import maximum


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


def test_largest_in_the_middle():
    check(maximum([1, 9, 4]), 9)


def test_largest_at_either_end():
    check(maximum([8, 2, 5]), 8)
    check(maximum([2, 5, 8]), 8)


def test_one_number():
    check(maximum([6]), 6)


def test_negative_numbers():
    check(maximum([-7, -2, -30]), -2)


def test_equal_numbers():
    check(maximum([3, 5, 5, 1]), 5)


def test_the_list_stays_as_it_was():
    numbers = [4, 7, 1]
    check(maximum(numbers), 7)
    check(numbers, [4, 7, 1])
