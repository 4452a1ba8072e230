"""Parquet in, nothing overwritten.

An append is one file: written under a name that no reader matches, flushed, fsynced, renamed, and the folder fsynced.
Whatever kills the process, a row is there once and whole, or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.errors import BenchError
from bench.ids import new_id
from bench.locks import folder_lock, run_lock
from bench.store.parts import MERGED, PART, TEMPORARY, fault, superseded, watermark
from bench.store.schema import KEYS, TABLES, schema

GRACE_S = 30.0
"""How long parts stay after a merge, so that a reader that listed them before it can still open them."""

_ROWS_PER_GROUP = 20_000
_BYTES_PER_GROUP = 64 << 20
_RUN_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Store:
    """A results folder, for writing. Safe to use from several threads and several processes."""

    def __init__(self, results: Path) -> None:
        self.results = Path(results).absolute()
        self._swept = False

    def append(self, table: str, rows: Sequence[Mapping[str, Any]]) -> Path | None:
        """Store rows of one run, all or none. Returns the new file, or None for no rows.

        NaN and infinities become NULL. Raises ValueError for a column that the table lacks, a key that is NULL, rows of
        several runs, or a value of the wrong type (all mistakes of the caller); BenchError when the disk refuses.
        """
        if not rows:
            return None
        data = _to_arrow(table, rows)
        run_id = str(rows[0]["run_id"])
        if not self._swept:
            self._swept = True
            self.sweep()
        folder = self._folder(table, run_id)
        with _disk(folder), folder_lock(folder, exclusive=False):
            part = f"part-{_id_above(watermark(_names(folder)))}"

            def write(stream: Any) -> None:
                pq.write_table(data, stream, compression="zstd")

            return _publish(folder, part, write)

    def lock(self, run_id: str) -> contextlib.AbstractContextManager[None]:
        """Hold a run; see `bench.locks.run_lock`."""
        return run_lock(self.results, run_id)

    def logs(self, run_id: str) -> Path:
        """The folder for a run's server logs, made if need be."""
        folder = self.results / "logs" / run_id
        with _disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def merge(self, run_id: str, table: str | None = None) -> list[Path]:
        """Make one file of a run's parts, in one table or in all. Returns the merged files, if anything was to do.

        The parts no longer count from the moment the merged file has its name, and are removed once no reader can
        still be about to open them. A folder that holds a torn file is left as it is.
        """
        out = []
        for name in (table,) if table else TABLES:
            folder = self.results / name / run_id
            if folder.is_dir() and (merged := self._merge(folder, name)) is not None:
                out.append(merged)
        return out

    def _merge(self, folder: Path, table: str) -> Path | None:
        with _disk(folder), folder_lock(folder, exclusive=True):
            files = [folder / name for name in sorted(_names(folder))]
            gone = superseded(files)
            _remove_old(folder, gone, GRACE_S)
            parts = [p for p in files if PART.match(p.name) and p not in gone]
            if len(parts) < 2 or any(fault(p, table) for p in parts):
                return None
            newest = PART.match(parts[-1].name)
            assert newest is not None
            return _publish(folder, f"merged-{newest[1]}", lambda stream: _copy(parts, stream))

    def sweep(self, min_age_s: float = GRACE_S) -> list[Path]:
        """Remove what nobody needs: temporary files of dead writers, and parts that were merged some time ago.

        Called by the first append of a process. Returns what was removed.
        """
        out: list[Path] = []
        for table in TABLES:
            root = self.results / table
            if not root.is_dir():
                continue
            for folder in sorted(root.iterdir()):
                if not folder.is_dir():
                    continue
                with contextlib.suppress(OSError):
                    names = _names(folder)
                    out += [folder / n for n in names if TEMPORARY.match(n) and _remove_dead(folder / n)]
                    gone = superseded(folder / n for n in names)
                    if gone:
                        with folder_lock(folder, exclusive=True):
                            out += _remove_old(folder, gone, min_age_s)
        return out

    def _folder(self, table: str, run_id: str) -> Path:
        folder = self.results / table / run_id
        if not folder.is_dir():
            with _disk(folder):
                _make_folders(folder)
        return folder


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _make_folders(folder: Path) -> None:
    """Make a folder and its parents, each durable before something is put into it."""
    missing = []
    at = folder
    while not at.is_dir():
        missing.append(at)
        at = at.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        _sync_folder(path.parent)


def _id_above(mark: str) -> str:
    """A new id, above a merge's even if the clock went backwards: below it, the rows would not count."""
    found = new_id()
    return found if found > mark else f"{int(mark, 16) + 1 + secrets.randbelow(1 << 40):026x}"


def _publish(folder: Path, stem: str, write: Any) -> Path:
    """Write a file under a temporary name, make it durable, and give it its name."""
    final = folder / f"{stem}.parquet"
    while True:
        temporary = folder / f".{stem}.{os.getpid()}.tmp"
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "wb") as stream:
            # The lock says that the writer lives. A sweep that came between open and lock removed the file: again.
            _try_lock(fd)
            if os.fstat(fd).st_nlink == 0:
                continue
            try:
                write(stream)
                stream.flush()
                os.fsync(fd)
                temporary.replace(final)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
        _sync_folder(folder)
        return final


def _copy(parts: Sequence[Path], stream: Any) -> None:
    """Write the rows of several files as one, in order, without holding them all in memory."""
    columns = pa.unify_schemas([pq.read_schema(p) for p in parts], promote_options="permissive")
    batch: list[pa.Table] = []
    size = total = written = 0
    with pq.ParquetWriter(stream, columns, compression="zstd") as writer:
        for path in parts:
            found = pq.ParquetFile(path).read()
            total += found.num_rows
            missing = [f for f in columns if f.name not in found.column_names]
            for f in missing:
                found = found.append_column(f, pa.nulls(found.num_rows, f.type))
            batch.append(found.select(columns.names).cast(columns))
            size += found.nbytes
            if size > _BYTES_PER_GROUP or sum(t.num_rows for t in batch) >= _ROWS_PER_GROUP:
                written += _flush(writer, batch)
                batch, size = [], 0
        written += _flush(writer, batch)
    if written != total:
        raise BenchError(f"merging {parts[0].parent} wrote {written} of {total} rows; the parts are kept")


def _flush(writer: Any, batch: list[pa.Table]) -> int:
    if not batch:
        return 0
    data = pa.concat_tables(batch).combine_chunks()
    writer.write_table(data)
    return int(data.num_rows)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_dead(path: Path) -> bool:
    """Remove a temporary file unless its writer lives: a writer holds a lock on it, which dies with the process."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not _try_lock(fd):
            return False
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _remove_old(folder: Path, gone: set[Path], min_age_s: float) -> list[Path]:
    """Remove parts that a readable merged file replaced at least `min_age_s` ago. The folder is held by the caller."""
    marks = [p for p in folder.iterdir() if MERGED.match(p.name)]
    if any(fault(p, folder.parent.name) for p in marks):
        return []
    old = watermark(p.name for p in marks if time.time() - p.stat().st_mtime >= min_age_s)
    out = []
    for path in sorted(gone):
        m = PART.match(path.name)
        if m and m[1] <= old:
            path.unlink(missing_ok=True)
            out.append(path)
    return out


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as e:
        # Some network file systems cannot sync a folder; the rename itself is still whole.
        if e.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(fd)


_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EFBIG: "the file would be larger than this process may write (ulimit -f)",
    errno.EROFS: "the file system is read-only; choose another folder with --results",
    errno.EACCES: "no permission to write there; choose another folder with --results",
    errno.EPERM: "not permitted to write there; choose another folder with --results",
    errno.ENOTDIR: "a part of the path is a file; choose another folder with --results",
    errno.EEXIST: "a file is where a folder is needed; choose another folder with --results",
    errno.ENAMETOOLONG: "the path is too long; choose another folder with --results",
    errno.EIO: "the disk reports an error; check it",
}


@contextlib.contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """Turn what the disk says into one line that names the folder and what to do."""
    try:
        yield
    except OSError as e:
        advice = _ADVICE.get(e.errno or 0, "check the folder")
        raise BenchError(f"cannot write to {folder}: {e.strerror or e}; {advice}") from e


def _to_arrow(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    if table not in TABLES:
        raise ValueError(f"no table '{table}'; expected one of {', '.join(TABLES)}")
    columns = schema(table)
    known = set(columns.names)
    for row in rows:
        if unknown := sorted(set(row) - known):
            raise ValueError(f"{table}: unknown column {', '.join(unknown)}")
        if lacking := [k for k in KEYS[table] if row.get(k) is None]:
            raise ValueError(f"{table}: a row without {', '.join(lacking)}")
    runs = {row["run_id"] for row in rows}
    if len(runs) != 1:
        raise ValueError(f"{table}: rows of several runs in one append: {', '.join(sorted(map(str, runs)))}")
    if not isinstance(run := next(iter(runs)), str) or not _RUN_ID.match(run):
        raise ValueError(f"{table}: run_id {run!r} cannot name a folder (letters, digits, . _ + -)")
    arrays = []
    for field in columns:
        values = [_clean(row.get(field.name), field.type) for row in rows]
        try:
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowException, OverflowError, TypeError) as e:
            raise ValueError(f"{table}.{field.name}: {e}") from e
    return pa.Table.from_arrays(arrays, schema=columns)


def _clean(value: Any, kind: pa.DataType) -> Any:
    """A value as it is stored: no NaN, no infinity, no half of a surrogate pair (model output can hold one)."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        if _SURROGATE.search(value):
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone: {value!r}; expected UTC")
        return value.astimezone(UTC)
    if isinstance(value, (list, tuple)):
        return [_clean(v, kind) for v in value]
    if pa.types.is_boolean(kind) and isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f"{value!r} where true or false is expected")
    return value
