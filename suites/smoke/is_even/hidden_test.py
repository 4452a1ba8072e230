from solution import is_even


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


def test_even_numbers():
    for n in (2, 4, 10, 1000):
        check(is_even(n), True)


def test_odd_numbers():
    for n in (1, 3, 7, 999):
        check(is_even(n), False)


def test_zero_is_even():
    check(is_even(0), True)


def test_negative_numbers():
    check(is_even(-6), True)
    check(is_even(-5), False)
