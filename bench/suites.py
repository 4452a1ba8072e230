"""Suites: levels with a prompt, hidden tests and points. Read, check, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Level:
    """One task of a suite."""

    level_id: str
    title: str
    points: int
    entry: tuple[str, ...]
    """Names that an answer must define at module level; the extractor looks for them."""
    prompt: str
    hidden_test: str
    expected: tuple[str, ...]
    """Test ids, in the file's order, read from the hidden test's syntax tree."""
    reference: str
    mutants: Mapping[str, str]
    """Name of a mutant (file stem) -> its source."""
    limit_s: float

    def prompt_hash(self, suite: Suite) -> str:
        """sha256 over the messages and `max_tokens` (template settings belong to the arm and are in its preset_hash)."""
        raise NotImplementedError

    def grading_hash(self) -> str:
        """sha256 over hidden tests, entry, points, limits and the extractor's version; not mutants, not docs."""
        raise NotImplementedError

    def messages(self) -> tuple[dict[str, str], ...]:
        """One user message; no system message."""
        return ({"role": "user", "content": self.prompt},)


@dataclass(frozen=True)
class Suite:
    """Levels that belong together."""

    suite_id: str
    title: str
    path: Path
    max_tokens: int
    request_limit_s: float
    levels: tuple[Level, ...]

    @property
    def max_points(self) -> int:
        return sum(level.points for level in self.levels)


def load_suite(name: str, root: Path) -> Suite:
    """Load a suite by id (below `root`) or by the path of its folder. Raises UsageError with file and key path."""
    raise NotImplementedError


def ambiguities(level: Level) -> list[str]:
    """Names that the hidden tests use on the solution's objects and the prompt never mentions."""
    raise NotImplementedError
