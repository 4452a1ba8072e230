from solution import is_palindrome


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


def test_palindromes():
    for text in ("level", "noon", "racecar"):
        check(is_palindrome(text), True)


def test_other_words():
    for text in ("window", "ab", "noons"):
        check(is_palindrome(text), False)


def test_ends_alone_are_not_enough():
    check(is_palindrome("abca"), False)
    check(is_palindrome("abcbda"), False)


def test_short_strings():
    check(is_palindrome("q"), True)
    check(is_palindrome("qq"), True)
