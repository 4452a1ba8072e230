"""What a report is made of, before it is Markdown or HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Value = object
"""A cell: text, a number, or a `Cell` that is sorted by something else than what it shows."""


@dataclass(frozen=True)
class Cell:
    """Text with the number it is sorted by; None sorts last."""

    text: str
    key: float | None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Table:
    """A table; the columns numbered in `right` are set to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    right: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Code:
    """A block of text that others wrote, shown as it is."""

    text: str
    language: str = ""


def table(columns: Sequence[str], rows: Iterable[Sequence[Value]], *, right: Iterable[int] = ()) -> Table:
    """A table from lists."""
    return Table(tuple(columns), tuple(tuple(row) for row in rows), frozenset(right))
