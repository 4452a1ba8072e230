"""Repetition loops in an answer: found where there is one, and only there."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.client.loops import (
    END_CHARACTERS,
    MIN_BLANK_CHARACTERS,
    MIN_BLANK_LINES,
    MIN_CHARACTERS,
    MIN_REPEATS,
    WATCH_EVERY,
    Watch,
    find,
)

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


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["", PROGRAM, "Let me think"]), st.text(" \t\n", min_size=MIN_BLANK_CHARACTERS, max_size=3000))
def test_white_space_without_end_is_found_however_it_is_mixed(before: str, blank: str) -> None:
    found = find(before + blank)
    assert found is not None
    assert found.blank
    assert found.repeats == len(before + blank) - len((before + blank).rstrip())
    assert str(found) == f"ends in {found.repeats} characters of white space"


def test_empty_lines_without_end_are_found_sooner() -> None:
    assert find(PROGRAM + "\n" * MIN_BLANK_LINES) is not None
    assert find(PROGRAM + "\r\n" * MIN_BLANK_LINES) is not None
    assert find(PROGRAM.rstrip() + "\n" * (MIN_BLANK_LINES - 1)) is None


def test_a_loop_before_some_white_space_is_still_the_loop() -> None:
    found = find("Wait, let me think again.\n" * 100 + "\n" * 20)
    assert found is not None and not found.blank
    assert found.period == len("Wait, let me think again.\n")


CELLS = [(f"case {n}", n * n, "yes" if n % 3 else "no") for n in range(40)]
ASCII_TABLE = "\n".join(
    ["+" + "-" * 90 + "+" + "-" * 90 + "+" + "-" * 90 + "+"]
    + [f"|{a:<90}|{b:>90}|{c:^90}|" for a, b, c in CELLS]
    + ["+" + "-" * 90 + "+" + "-" * 90 + "+" + "-" * 90 + "+"]
)
MARKDOWN_TABLE = "| what | square | ok |\n|" + "-" * 120 + "|---:|---|\n"
MARKDOWN_TABLE += "".join(f"| {a:<100} | {b:>20} | {c:<60} |\n" for a, b, c in CELLS)
DEEP = "".join(" " * (4 * n) + f"if x[{n}] > {n * n}:\n" for n in range(70)) + " " * 280
CANVAS = "A point in the corner:\n" + "." + "\n".join([" " * 79] * 4)


def test_long_indentation_and_tables_are_no_loops() -> None:
    for text in (ASCII_TABLE, MARKDOWN_TABLE, DEEP, DEEP + "return x", CANVAS, f"```\n{ASCII_TABLE}\n```\n"):
        assert find(text) is None, text[-100:]
        assert find(text + "\n" * 30) is None
        assert caught_at([PROGRAM, *(text[i : i + 4] for i in range(0, len(text), 4)), "\nDone."]) is None


def test_an_answer_that_is_stuck_in_white_space_is_ended() -> None:
    for unit in ("\n", "\n\n", "        ", " \n", "\t"):
        found = caught_at([PROGRAM, *[unit] * (12_000 // len(unit))])
        assert found is not None, repr(unit)
        assert END_CHARACTERS <= found - len(PROGRAM) <= END_CHARACTERS + 2 * WATCH_EVERY
    assert caught_at([PROGRAM, *["\n"] * (END_CHARACTERS - 100), PROGRAM.replace("M", "N")]) is None


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
