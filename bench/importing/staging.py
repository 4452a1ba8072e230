"""Putting a run into the store, all of it or none.

Everything is written below `results/.import/RUN` first. Then a file `ready` is written, and the folders are moved to
their places, the one with the run's own rows last: until then no list of runs has it. What a crash left is finished
by the next import when it was ready, and removed when it was not.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.errors import BenchError, UsageError
from bench.importing import ImportedRun
from bench.locks import run_lock
from bench.regrade.stored import query
from bench.store.schema import TABLES
from bench.store.write import Store

_ROWS = 2000
_ORDER = (*(table for table in TABLES if table not in ("arms", "runs")), "arms", "runs")


def already_there(results: Path, run: ImportedRun) -> str | None:
    """The run that the same files became before, or that has this id; None when there is none."""
    rows = query(
        results,
        "select run_id from runs where run_id = $run or contains(settings, $digest) order by 1 limit 1",
        {"run": run.run_id, "digest": f'"{run.digest}"'},
    )
    return str(rows[0]["run_id"]) if rows else None


def publish(results: Path, run: ImportedRun) -> None:
    """Put a run into the store. Raises BenchError when the disk refuses; then nothing of it is there."""
    staged = results / ".import" / run.run_id
    with run_lock(results, run.run_id), _disk(staged):
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        try:
            for table, paths in run.files.items():
                _copy(table, run.run_id, paths, staged)
            store = Store(staged)
            for table, rows in run.tables.items():
                for at in range(0, len(rows), _ROWS):
                    store.append(table, rows[at : at + _ROWS])
            for table in TABLES:
                if (results / table / run.run_id).exists() and (staged / table / run.run_id).exists():
                    raise BenchError(f"{results / table / run.run_id} is in the way; move it elsewhere")
            (staged / "ready").touch()
            _sync(staged)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise
        _move(results, staged)
    with contextlib.suppress(OSError):
        staged.parent.rmdir()


def recover(results: Path) -> list[str]:
    """Finish what an import had ready when it was killed, and remove what it had not. Returns the runs finished."""
    out = []
    for staged in sorted((results / ".import").glob("*")) if (results / ".import").is_dir() else []:
        try:
            with run_lock(results, staged.name), _disk(staged):
                if (staged / "ready").exists():
                    _move(results, staged)
                    out.append(staged.name)
                else:
                    shutil.rmtree(staged, ignore_errors=True)
        except UsageError:
            continue  # another process is importing it now
    return out


def _copy(table: str, run_id: str, paths: Sequence[Path], staged: Path) -> None:
    target = staged / table / run_id
    target.mkdir(parents=True, exist_ok=True)
    for path in paths:
        with path.open("rb") as source, (target / path.name).open("xb") as made:
            shutil.copyfileobj(source, made, 1 << 20)
            made.flush()
            os.fsync(made.fileno())
    _sync(target)


def _move(results: Path, staged: Path) -> None:
    for table in _ORDER:
        source = staged / table / staged.name
        if source.is_dir():
            (results / table).mkdir(parents=True, exist_ok=True)
            source.rename(results / table / staged.name)
            _sync(results / table)
    shutil.rmtree(staged, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Make a folder's entries durable, where the file system can."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise BenchError(f"cannot write to {folder}: {e.strerror or e}; check the folder and its space") from e
