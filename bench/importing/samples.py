"""JSONL files of samples, as runs: one run for each set of tasks, one arm for each file.

The files do not say how many samples were wanted, so there is no plan: such a run counts what it holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.errors import UsageError
from bench.ids import new_id
from bench.importing import Found, ImportedRun, Rows, Skipped, evalplus, lm_eval
from bench.importing.files import Unusable, decode, digest, folder, import_id, lines, modified, parse_json, safe_id
from bench.importing.published import verdict_row
from bench.importing.sample import Sample

FORMATS: tuple[ModuleType, ...] = (lm_eval, evalplus)
_DEPTH = 3
_MOST_NAMED = 20
"""Broken lines of a file that are named one by one."""


@dataclass(frozen=True)
class _File:
    """The samples of a file."""

    path: Path
    format: ModuleType
    samples: tuple[Sample, ...]
    suite_id: str
    raw: bytes
    """Stands for its content in the digest."""


def sample_files(path: Path) -> list[Path]:
    """JSONL files in a folder and up to three folders below."""
    return [file for file in _walk(path, _DEPTH) if file.suffix == ".jsonl"]


def _walk(path: Path, depth: int) -> list[Path]:
    out: list[Path] = []
    for entry in folder(path):
        if entry.is_symlink():
            continue
        if entry.is_file():
            out.append(entry)
        elif entry.is_dir() and depth > 0:
            out += _walk(entry, depth - 1)
    return out


def read(files: Sequence[Path], suite_name: str | None, top: Path) -> Found:
    """The runs of some files. Raises UsageError where no file holds a usable sample."""
    skipped: list[Skipped] = []
    found: list[_File] = []
    for path in files:
        where = str(path.relative_to(top))
        try:
            found.append(_file(path, where, suite_name, skipped))
        except Unusable as e:
            skipped.append(Skipped(where, str(e)))
    if not found:
        raise UsageError(f"{top}: no samples that can be used: {'; '.join(map(str, skipped[:5]))}")
    groups: dict[tuple[str, str], list[_File]] = {}
    for file in found:
        groups.setdefault((file.suite_id, file.format.ORIGIN), []).append(file)
    runs = tuple(_run(suite_id, origin, group, top) for (suite_id, origin), group in groups.items())
    return Found(runs, tuple(skipped))


def _file(path: Path, where: str, suite_name: str | None, skipped: list[Skipped]) -> _File:
    if path.is_symlink() or not path.is_file():
        raise Unusable("not a plain file")
    form: ModuleType | None = None
    samples: list[Sample] = []
    bad: list[Skipped] = []
    whole = hashlib.sha256()
    for line, raw in lines(path):
        whole.update(raw.strip() + b"\n")
        try:
            row = parse_json(decode(raw))
            if not isinstance(row, dict):
                raise Unusable(f"expected an object, found {type(row).__name__}")
            form = form or next((f for f in FORMATS if f.is_row(row)), None)
            if form is None or not form.is_row(row):
                raise Unusable(f"expected a sample, found the keys {', '.join(sorted(row)[:6]) or 'none'}")
            samples.append(form.sample(row, line))
        except Unusable as e:
            bad.append(Skipped(f"{where}, line {line}", str(e)))
    skipped += bad[:_MOST_NAMED]
    if len(bad) > _MOST_NAMED:
        skipped.append(Skipped(where, f"{len(bad) - _MOST_NAMED} more lines that cannot be used"))
    if form is None or not samples:
        raise Unusable("no line that can be used")
    suite_id = safe_id(suite_name or "") or str(form.task_set(samples, path))
    return _File(path, form, tuple(samples), suite_id, whole.digest())


def _run(suite_id: str, origin: str, files: Sequence[_File], top: Path) -> ImportedRun:
    started = min(modified(file.path) for file in files)
    parts = [(f"{file.path.name}", file.raw) for file in files]
    found = digest([("suite", suite_id.encode()), *parts])
    run_id = import_id(started, found)
    name = files[0].path.name if len(files) == 1 else top.resolve().name
    arm_ids = _arm_ids(files)
    tables: dict[str, Rows] = {table: [] for table in ("runs", "arms", "generations", "grades")}
    for position, (file, arm_id) in enumerate(zip(files, arm_ids, strict=True), 1):
        at = modified(file.path)
        tables["arms"].append(
            {
                "run_id": run_id,
                "arm_id": arm_id,
                "event_at": at,
                "position": position,
                "status": "finished",
                "title": file.format.arm_name(file.path),
                "vram_reason": "the source has no values",
            }
        )
        _answers(run_id, arm_id, suite_id, file, at, tables)
    run = {
        "run_id": run_id,
        "origin": f"{name} ({origin})",
        "suite_id": suite_id,
        "iterations": max(row["iteration"] for row in tables["generations"]),
        "arm_order": arm_ids,
        "settings": json.dumps({"imported": {"layout": origin, "name": name, "digest": found}}, sort_keys=True),
    }
    ended = max(modified(file.path) for file in files)
    tables["runs"] = [
        {**run, "event_at": started, "status": "running"},
        {**run, "event_at": ended, "status": "finished"},
    ]
    n = len(tables["generations"])
    return ImportedRun(run_id, found, f"{name}: {len(arm_ids)} arms, {n} answers, suite {suite_id}", tables)


def _arm_ids(files: Sequence[_File]) -> list[str]:
    """An id for each file; a second file of the same name gets a number."""
    out: list[str] = []
    for file in files:
        base = safe_id(file.format.arm_name(file.path)) or "arm"
        name, n = base, 1
        while name in out:
            n += 1
            name = f"{base}-{n}"
        out.append(name)
    return out


def _answers(run_id: str, arm_id: str, suite_id: str, file: _File, at: datetime, tables: dict[str, Rows]) -> None:
    asked: dict[str, int] = {}
    seen: dict[tuple[str, str, tuple[str, ...]], dict[str, Any]] = {}
    for sample in file.samples:
        key = (sample.level_id, sample.same_as, sample.answers)
        generation = seen.get(key) if sample.same_as else None
        if generation is None:
            for content in sample.answers:
                asked[sample.level_id] = asked.get(sample.level_id, 0) + 1
                generation = {
                    "generation_id": new_id(),
                    "run_id": run_id,
                    "arm_id": arm_id,
                    "suite_id": suite_id,
                    "level_id": sample.level_id,
                    "iteration": asked[sample.level_id],
                    "attempt": 1,
                    "outcome": "ok",
                    "content": content,
                    "started_at": at,
                }
                tables["generations"].append(generation)
                seen[key] = generation
        assert generation is not None
        for metric, passed in sample.verdicts:
            outcome = "passed" if passed else "failed"
            detail = f"{metric} = {int(passed)}"
            row = verdict_row(generation, at, passed, outcome=outcome, detail=detail, code_rule=metric)
            tables["grades"].append(row)
