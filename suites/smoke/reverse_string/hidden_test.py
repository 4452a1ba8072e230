from solution import reverse_string


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


def test_a_word():
    check(reverse_string("stone"), "enots")


def test_a_sentence():
    check(reverse_string("the blue cup"), "puc eulb eht")


def test_capitals_stay():
    check(reverse_string("AbC"), "CbA")


def test_short_strings():
    check(reverse_string(""), "")
    check(reverse_string("x"), "x")
    check(reverse_string("xy"), "yx")
