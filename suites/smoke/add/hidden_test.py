from solution import add


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


def test_small_numbers():
    check(add(2, 3), 5)
    check(add(10, 1), 11)


def test_zero():
    check(add(0, 0), 0)
    check(add(7, 0), 7)


def test_negative_numbers():
    check(add(-4, 1), -3)
    check(add(5, -9), -4)
    check(add(-2, -6), -8)


def test_fractions():
    check(add(2.5, 0.25), 2.75)
