"""`import-run` and `export`: answers of other tools, and our own runs between machines."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from bench.commands.regrade import show
from bench.commands.stored import existing
from bench.errors import UsageError
from bench.grading import calibrate, open_grader
from bench.importing import Found, ImportedRun, read
from bench.importing.files import safe_id
from bench.importing.own import pack
from bench.importing.staging import already_there, publish, recover
from bench.paths import ROOT, places
from bench.regrade.again import regrade
from bench.report.runs import resolve_run
from bench.reporter import Reporter
from bench.runner.planning import size_text
from bench.store.database import EXIT_BAD_FILES, connect, rebuild
from bench.store.write import Store
from bench.suites.load import Suite, load_suite, suite_ids

_MOST_NAMED = 40


def import_run(path: str, suite: str | None, results: str | None, out: Reporter) -> int:
    """0 when everything was taken in, 3 when files were left out. With `suite` the answers are graded at once."""
    where = places(results)
    for run_id in recover(where.results):
        out.line(f"finished the import of run {run_id}, which was broken off")
    given = _load(suite) if suite is not None else None
    with tempfile.TemporaryDirectory(prefix="gguf-bench-import-") as workspace:
        found = read(Path(path).expanduser(), given.suite_id if given else suite, _load, Path(workspace))
        new = _take_in(found, where.results, out)
    for one in found.skipped[:_MOST_NAMED]:
        out.warn(f"left out {one}")
    if len(found.skipped) > _MOST_NAMED:
        out.warn(f"left out {len(found.skipped) - _MOST_NAMED} more")
    if given is not None and new:
        _grade(given, new, Store(where.results), out)
    rebuild(where.results, where.database)
    there = f" --results {results}" if results else ""
    for run in new:
        if given is None and not run.files:
            out.line(f"next      ./invoke regrade --run {run.run_id}{there}   (grade them by the tests of this bench)")
        else:
            out.line(f"next      ./invoke report --run {run.run_id}{there}")
    return EXIT_BAD_FILES if found.skipped else 0


def _load(name: str) -> Suite | None:
    """The suite of an id or path; None for an id that this bench does not have (a task set of another tool)."""
    root = ROOT / "suites"
    if name in suite_ids(root) or not safe_id(name) or safe_id(name) != name or Path(name).is_dir():
        return load_suite(name, root)
    return None


def _take_in(found: Found, results: Path, out: Reporter) -> list[ImportedRun]:
    new = []
    for run in found.runs:
        there = already_there(results, run)
        if there is not None:
            out.line(f"already there as run {there}, nothing was imported: {run.title}")
            continue
        publish(results, run)
        out.line(f"imported as run {run.run_id}: {run.title}")
        new.append(run)
    return new


def _grade(suite: Suite, runs: list[ImportedRun], store: Store, out: Reporter) -> None:
    workers = len(os.sched_getaffinity(0))
    with contextlib.closing(open_grader("auto", workers)) as grader:
        limits = calibrate(grader, suite).limits
        for run in runs:
            with store.lock(run.run_id):
                end = regrade(
                    store, run.run_id, suite, grader, limits=limits, workers=workers,
                    progress=lambda done, total: out.progress("graded", done, total),
                )  # fmt: skip
            show(end, out)


def export(run: str, to: str | None, results: str | None, out: Reporter) -> int:
    """Write a run into one archive with checksums."""
    where = existing(results)
    connection, _ = connect(where.results)
    with connection:
        run_id = resolve_run(connection, run)
    target = Path(to).expanduser() if to else Path.cwd()
    if to is not None and not to.strip():
        raise UsageError("--to: expected a folder, or a file ending in .tar.gz")
    if not target.exists() and not target.name.endswith(".tar.gz"):
        raise UsageError(
            f"--to {to}: expected a folder, or a file ending in .tar.gz, found no such folder; make it first"
        )
    made = pack(where.results, run_id, target)
    out.line(f"{made} ({size_text(made.stat().st_size)})")
    out.line(f"take it in elsewhere with: ./invoke import-run {made}")
    return 0
