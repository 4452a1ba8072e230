"""A sample of another tool's file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """The answers to one task."""

    level_id: str
    """The task's name as an id of a level: `HumanEval/0` is `HumanEval_0`."""
    answers: tuple[str, ...]
    verdicts: tuple[tuple[str, bool], ...] = ()
    """(metric and filter, whether it passed) where the file says so of the single answer."""
    same_as: str = ""
    """Lines with the same text here are the same answers, seen through another filter; empty: every line is its own."""
