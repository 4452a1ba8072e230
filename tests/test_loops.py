"""Repetition loops in an answer: found where there is one, and only there."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.client.loops import END_CHARACTERS, MIN_CHARACTERS, MIN_REPEATS, WATCH_EVERY, Watch, find

PROGRAM = """def roman(n):
    table = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL")]
    out = ""
    for value, text in table:
        while n >= value:
            out += text
            n -= value
    return out


class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop()
"""


@settings(max_examples=60, deadline=None)
@given(
    st.text("abcdefgh \n", min_size=0, max_size=300),
    st.text("ijklmnop \n", min_size=1, max_size=400).filter(str.strip),
    st.integers(MIN_REPEATS + 1, 40),
    st.integers(0, 400),
)
def test_a_text_that_repeats_is_found_with_its_length(before: str, unit: str, repeats: int, cut: int) -> None:
    text = before + unit * repeats + unit[: cut % len(unit)]
    found = find(text)
    if len(text.rstrip()) - len(before) < MIN_CHARACTERS + len(unit):
        return
    assert found is not None
    assert found.period <= len(unit)
    assert found.repeats >= MIN_REPEATS


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(300, 4000))
def test_a_text_that_counts_on_is_no_loop(start: int, length: int) -> None:
    text = "\n".join(f"line {n * n} of the list" for n in range(start, start + length // 20))
    assert find(text) is None


def test_honest_programs_are_no_loops() -> None:
    assert find(PROGRAM) is None
    assert find(PROGRAM + "# " + "=" * 78 + "\n") is None
    assert find(PROGRAM + "".join(f"assert roman({n}) == '{n}'\n" for n in range(40))) is None
    assert find("") is None
    assert find("yes " * 10) is None


def test_what_small_models_do_when_they_are_stuck_is_found() -> None:
    assert find(PROGRAM + "    return out\n" * 60) is not None
    assert find("Wait, let me think again. " * 100) is not None
    assert find(PROGRAM * 8) is not None
    assert find("0, " * 500) is not None


def test_a_long_answer_takes_little_time() -> None:
    started = time.perf_counter()
    find("a" * 400_000)
    find("ab" * 200_000 + "c")
    assert time.perf_counter() - started < 5


def caught_at(parts: list[str]) -> int | None:
    """Characters after which a watched answer is ended, or None."""
    watch, size = Watch(), 0
    for n, part in enumerate(parts, 1):
        size += len(part)
        if watch.caught(size, parts[:n]) is not None:
            return size
    return None


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 200),
    st.text("ijklmnop \n", min_size=1, max_size=300).filter(lambda text: text.strip() == text),
)
def test_an_answer_that_is_stuck_is_ended_soon_and_not_at_once(lines: int, unit: str) -> None:
    before = "".join(f"line {n * n} of the list\n" for n in range(lines))
    found = caught_at([before, *[unit] * (12_000 // len(unit) + 1)])
    assert found is not None
    assert END_CHARACTERS <= found - len(before) <= END_CHARACTERS + 2 * WATCH_EVERY + 2 * len(unit)


def test_repeats_that_an_honest_answer_gets_over_do_not_end_it() -> None:
    zeros = ["    0, 0, 0, 0, 0, 0, 0, 0,\n"] * 40
    assert find("".join(zeros)) is not None
    assert caught_at([PROGRAM, *zeros, PROGRAM.replace("M", "N"), *zeros, "]\n", PROGRAM.replace("I", "J")]) is None
    assert caught_at([f"line {n * n} of the list\n" for n in range(3000)]) is None
