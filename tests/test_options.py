"""What a person types."""

from __future__ import annotations

import pytest

from bench.errors import UsageError
from bench.options import names, one_of, whole_number


@pytest.mark.parametrize("text", ["five", "", "1.5", "0", "-3", "1e3", "9999999999", "nan"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"--iterations takes a whole number from 1 to 1000000, not") as e:
        whole_number("iterations", text, 5)
    assert e.value.exit_code == 2
    assert "\n" not in str(e.value)


def test_numbers() -> None:
    assert whole_number("iterations", None, 5) == 5
    assert whole_number("iterations", " 7 ", 5) == 7


def test_names_repeated_or_with_commas() -> None:
    assert names(["a,b", "c", "a", " d , "]) == ["a", "b", "c", "d"]
    assert names(None) == []


def test_the_nearest_name_is_offered() -> None:
    with pytest.raises(UsageError, match="did you mean 'process'"):
        one_of("--engine", "proces", ("auto", "process"))
