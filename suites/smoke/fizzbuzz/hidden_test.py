from solution import fizzbuzz


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


def test_fizz():
    for n in (3, 6, 99):
        check(fizzbuzz(n), "Fizz")


def test_buzz():
    for n in (5, 10, 100):
        check(fizzbuzz(n), "Buzz")


def test_fizzbuzz():
    for n in (15, 30, 90):
        check(fizzbuzz(n), "FizzBuzz")


def test_other_numbers():
    for n in (1, 2, 7, 98):
        check(fizzbuzz(n), str(n))
