"""Stored answers of other tools, and our own runs from other machines, into the same tables.

Every reader turns files into rows and names what it could not use; `staging` puts the rows of a run into the store,
all or none. Nothing here grades.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.suites.load import Suite

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Skipped:
    """A file, or a part of one, that was not used."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True)
class ImportedRun:
    """The rows of a run, by table."""

    run_id: str
    digest: str
    """sha256 over what was read; the same files again have the same."""
    title: str
    """What it is, for the line that tells of it."""
    tables: Mapping[str, Rows] = field(default_factory=dict)
    files: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    """For our own runs: the Parquet files of each table, taken as they are."""


@dataclass(frozen=True)
class Found:
    """What a path holds."""

    runs: tuple[ImportedRun, ...]
    skipped: tuple[Skipped, ...]


EXPECTED = (
    "a folder with result_ARM.json and artifacts/ARM/iter_NN/L1_response.txt, a JSONL file of samples (EvalPlus: "
    "task_id and solution; lm-evaluation-harness: doc and resps), a results folder of this bench, or an archive made "
    "by ./invoke export"
)


Load = Callable[[str], Suite | None]
"""The suite of a name or path, or None where this bench has none of that id."""


def read(path: Path, suite: str | None, load: Load, workspace: Path) -> Found:
    """What is at a path, as runs. `suite` names the suite that the answers are stored under, if the user did.

    An archive is unpacked into `workspace`, an empty folder that the caller removes. Raises UsageError for a path that
    holds nothing of the kind.
    """
    from bench.importing import own, reference, samples

    if not path.exists():
        raise UsageError(f"{path}: no such file or folder; expected {EXPECTED}")
    if path.is_dir():
        if own.is_results(path):
            return own.read_folder(path)
        if reference.is_layout(path):
            return reference.read(path, suite, load)
        if files := samples.sample_files(path):
            return samples.read(files, suite, path)
    elif own.is_archive(path):
        return own.read_archive(path, workspace)
    elif reference.is_result(path):
        return reference.read(path.parent, suite, load, only=path)
    elif path.suffix == ".jsonl":
        return samples.read([path], suite, path.parent)
    raise UsageError(f"{path}: nothing to import was found there; expected {EXPECTED}")
