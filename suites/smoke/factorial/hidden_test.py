from solution import factorial


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


def test_zero_and_one():
    check(factorial(0), 1)
    check(factorial(1), 1)


def test_small_numbers():
    check(factorial(2), 2)
    check(factorial(3), 6)
    check(factorial(5), 120)


def test_large_numbers_are_exact():
    check(factorial(20), 2432902008176640000)
    check(factorial(25), 15511210043330985984000000)
