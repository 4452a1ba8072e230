from solution import count_vowels


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
    check(count_vowels("banana"), 3)
    check(count_vowels("winter"), 2)


def test_each_vowel_counts():
    for letter in "aeiou":
        check(count_vowels("x" + letter + "z"), 1)


def test_repeated_vowels_count_each_time():
    check(count_vowels("queueing"), 5)


def test_no_vowels():
    check(count_vowels("xzt"), 0)
    check(count_vowels(""), 0)


def test_several_words():
    check(count_vowels("a red door"), 4)
