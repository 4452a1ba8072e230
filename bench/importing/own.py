"""Our own runs: packed into an archive here, and taken in on another machine.

The Parquet files are taken as they are, so every number and every text is the one that was stored. What is added is a
row that says where the run comes from: it is never carried on here, and the report names its origin.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench import __version__
from bench.errors import BenchError, UsageError
from bench.importing import Found, ImportedRun, Skipped, archive
from bench.importing.files import folder
from bench.locks import holder_of
from bench.store.parts import fault, superseded
from bench.store.schema import KEYS, TABLES
from bench.visible import visible

_SUFFIXES = (".tar.gz", ".tgz")
_MOST_ROWS = 50_000_000
_NOT_RUNS = ("_columns",)
_NAMES = ("run_id", "arm_id", "suite_id", "level_id", "lineup_id", "arm_order")
"""Columns with the names that commands take and every table, picture and line shows."""


def pack(results: Path, run_id: str, target: Path) -> Path:
    """Write a run into one archive and return its path. `target` is the file, or the folder to put it into.

    Raises UsageError for a run that is not there, that goes on, or a target that is there; BenchError for a run with a
    file that cannot be read, since half a run would look like a whole one.
    """
    results = Path(results).absolute()
    if holder_of(results, run_id) is not None:
        raise UsageError(f"run {run_id} goes on; export it when it has ended")
    files = [path for table in TABLES for path in _counted(results / table / run_id)]
    if not any(path.parent.parent.name == "runs" for path in files):
        raise UsageError(f"no run '{run_id}' in {results}")
    for path in files:
        if reason := fault(path, path.parent.parent.name):
            raise BenchError(f"cannot export run {run_id}: {path}: {reason}")
    if target.is_dir():
        target = target / f"gguf-bench-{run_id}.tar.gz"
    elif not target.name.endswith(_SUFFIXES):
        raise UsageError(f"{target}: expected a folder, or a file ending in .tar.gz")
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent}: no such folder; make it first")
    named = archive.names(files, results)
    archive.write(target, archive.manifest_text(run_id, named, __version__), named)
    return target


def _counted(place: Path) -> list[Path]:
    """The Parquet files of a run's folder that count."""
    found = [p for p in folder(place) if p.suffix == ".parquet" and p.is_file() and not p.is_symlink()]
    return sorted(set(found) - superseded(found))


def is_archive(path: Path) -> bool:
    """Whether a file is named as an archive is."""
    return path.name.endswith(_SUFFIXES)


def is_results(path: Path) -> bool:
    """Whether a folder is a results folder of this bench, or an archive that somebody unpacked."""
    return (path / archive.MANIFEST).is_file() or any(
        p.suffix == ".parquet" for run in folder(path / "runs") if run.is_dir() for p in folder(run)
    )


def read_archive(path: Path, workspace: Path) -> Found:
    """The run in an archive. Raises UsageError for one that is torn, changed or hostile."""
    archive.unpack(path, workspace)
    return read_folder(workspace, shown=path)


def read_folder(path: Path, shown: Path | None = None) -> Found:
    """The runs in a results folder. One with a file that cannot be used is left out whole, and the file is named."""
    shown = shown or path
    listed = path / archive.MANIFEST
    if listed.is_file():
        if listed.stat().st_size > 16 << 20:
            raise UsageError(f"{listed}: too large for a manifest")
        manifest = archive.read_manifest(listed.read_bytes(), str(listed))
        archive.check_folder(path, manifest)
        ids = [manifest.run_id]
    else:
        ids = [place.name for place in folder(path / "runs") if place.is_dir() and place.name not in _NOT_RUNS]
    runs, skipped = [], []
    for run_id in ids:
        try:
            runs.append(_run(path, run_id, str(shown)))
        except UsageError as e:
            skipped.append(Skipped(run_id, f"{e}; the run is left out whole"))
    if not runs:
        raise UsageError(f"{shown}: no run that can be imported: {'; '.join(map(str, skipped[:3])) or 'it is empty'}")
    return Found(tuple(runs), tuple(skipped))


def _run(path: Path, run_id: str, shown: str) -> ImportedRun:
    if not archive.RUN_ID.match(run_id):
        raise UsageError(f"'{run_id[:60]}' is not a run id")
    if holder_of(path, run_id) is not None:
        raise UsageError("it goes on; import it when it has ended")
    files = {table: tuple(_counted(path / table / run_id)) for table in TABLES}
    files = {table: paths for table, paths in files.items() if paths}
    for table, paths in files.items():
        for file in paths:
            if reason := fault(file, table) or _wrong_rows(file, table, run_id):
                raise UsageError(f"{table}/{run_id}/{file.name}: {reason}")
    states = [row for file in files.get("runs", ()) for row in pq.read_table(file).to_pylist()]
    if not states:
        raise UsageError("it has no row in the table runs")
    last = max(states, key=lambda row: row["event_at"])
    went_on = last["status"] == "running"
    origin: dict[str, Any] = {
        "run_id": run_id,
        # A state of its own just after the last one: nothing of the run's own rows is changed.
        "event_at": last["event_at"] + timedelta(microseconds=1),
        "status": "interrupted" if went_on else last["status"],
        "reason": "imported before it had ended" if went_on else last.get("reason"),
        "origin": _origin(states),
    }
    rows = sum(pq.read_metadata(file).num_rows for file in files.get("generations", ()))
    title = f"run {run_id} of {origin['origin']}: {rows} answers"
    return ImportedRun(run_id, f"{shown}:{run_id}", title, {"runs": [origin]}, files)


def _origin(states: list[dict[str, Any]]) -> str:
    """Where a run was made; what it was imported from before, if it was."""
    before = [row["origin"] for row in states if row.get("origin") not in (None, "bench")]
    host = next((row["host"] for row in states if row.get("host")), None)
    return str(before[-1]) if before else f"gguf-bench on {host or 'another machine'}"


def _wrong_rows(file: Path, table: str, run_id: str) -> str | None:
    """What is wrong with the keys of a file's rows; None when all are this run's and none is NULL."""
    try:
        found = pq.ParquetFile(file)
        if found.metadata.num_rows > _MOST_ROWS:
            return f"{found.metadata.num_rows} rows; at most {_MOST_ROWS} are read"
        names = [name for name in found.schema_arrow.names if name in _NAMES]
        for batch in found.iter_batches(columns=list(dict.fromkeys([*KEYS[table], *names]))):
            for name in KEYS[table]:
                if batch.column(name).null_count:
                    return f"a row without {name}"
            ids = batch.column("run_id").unique().to_pylist()
            if ids != [run_id]:
                other = next((i for i in ids if i != run_id), None)
                return f"rows of another run ({other!r:.60})"
            for name in names:
                if (hidden := _hidden(batch.column(name))) is not None:
                    return f"{name} '{visible(hidden)[:60]}' holds control or invisible characters"
    except (pa.ArrowException, OSError, ValueError) as e:
        return f"cannot be read: {str(e).splitlines()[0][:160] if str(e) else type(e).__name__}"
    return None


def _hidden(column: pa.Array[Any]) -> str | None:
    """The first text of a column, or of its lists, with a character that cannot be seen."""
    values = column.flatten() if isinstance(column, (pa.ListArray, pa.LargeListArray)) else column
    return next((v for v in values.unique().to_pylist() if v is not None and visible(v) != v), None)
