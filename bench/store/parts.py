"""The files of the store: how they are named, which of them count, and which are broken.

`results/TABLE/RUN/part-ID.parquet` is one append. `merged-ID.parquet` holds the rows of every part of its folder whose
id is not above its own, so those parts no longer count, whether or not they are still there. Ids sort by time; the
names alone say what counts, so a crash between writing a merged file and removing its parts changes nothing. A file
with any other name (copied in by hand) counts always.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.store.schema import KEYS, TABLES, schema

PART = re.compile(r"^part-([0-9a-f]{26})\.parquet$")
MERGED = re.compile(r"^merged-([0-9a-f]{26})\.parquet$")
TEMPORARY = re.compile(r"^\.(?:part|merged)-[0-9a-f]{26}\.[0-9]+\.tmp$")


@dataclass(frozen=True)
class BadFile:
    """A file in the store that cannot be read, and is left out."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def table_files(results: Path, table: str) -> list[Path]:
    """Every Parquet file of a table, sorted: all that `results/TABLE/*/*.parquet` matches."""
    try:
        return sorted(p for p in (results / table).glob("*/*.parquet") if p.is_file())
    except OSError:
        return []


def watermark(names: Iterable[str]) -> str:
    """The newest id of a folder's merged files; empty without one."""
    return max((m[1] for name in names if (m := MERGED.match(name))), default="")


def superseded(files: Iterable[Path]) -> set[Path]:
    """Parts whose rows are in a merged file beside them."""
    files = list(files)
    marks: dict[Path, str] = {}
    for path in files:
        if m := MERGED.match(path.name):
            marks[path.parent] = max(m[1], marks.get(path.parent, ""))
    return {p for p in files if (m := PART.match(p.name)) and m[1] <= marks.get(p.parent, "")}


def fault(path: Path, table: str) -> str | None:
    """What is wrong with a file, in a few words; None when it can be read as this table. A file that is gone is None.

    The footer is read, not the data: it is written last, so a torn file has none.
    """
    try:
        size = path.stat().st_size
        if size == 0:
            return "empty file"
        found = pq.read_schema(path)
    except FileNotFoundError:
        return None
    except (pa.ArrowException, OSError, ValueError) as e:
        text = str(e)
        if "magic bytes" in text or "footer" in text or "too small" in text:
            return f"not a complete Parquet file ({size} bytes)"
        return f"cannot be read: {text.splitlines()[0][:160] if text else type(e).__name__}"
    if lacking := [name for name in KEYS[table] if name not in found.names]:
        return f"not a file of '{table}': no column {', '.join(lacking)}"
    for field in schema(table):
        if field.name in found.names and not _readable(found.field(field.name).type, field.type):
            return f"column {field.name} is {found.field(field.name).type}, expected {field.type}"
    return None


def _readable(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of one type can be read as the other."""
    t = pa.types
    if t.is_dictionary(found):
        return _readable(found.value_type, wanted)
    if t.is_null(found) or found == wanted:
        return True
    if t.is_list(wanted):
        return (t.is_list(found) or t.is_large_list(found)) and _readable(found.value_type, wanted.value_type)
    if t.is_timestamp(wanted):
        return bool(t.is_timestamp(found))
    if t.is_string(wanted):
        return bool(t.is_string(found) or t.is_large_string(found) or t.is_string_view(found))
    if t.is_boolean(wanted):
        return bool(t.is_boolean(found))
    # Numbers: an older file may hold what is a float now as an integer, and the other way round.
    return bool(t.is_integer(found) or t.is_floating(found) or t.is_decimal(found))


def quarantined(results: Path) -> list[BadFile]:
    """Files that were moved out of the views' way. They are named until somebody takes them away or mends them."""
    out = []
    for table in TABLES:
        for path in table_files(results / "quarantine", table):
            reason = fault(path, table)
            out.append(BadFile(path, reason or "in quarantine, but it can be read: move it back to its table"))
    return out


def check(results: Path) -> tuple[dict[str, list[Path]], list[BadFile]]:
    """The good files of every table, and the bad ones with their reason."""
    good: dict[str, list[Path]] = {}
    bad: list[BadFile] = []
    for table in TABLES:
        good[table] = []
        for path in table_files(results, table):
            reason = fault(path, table)
            if reason is None:
                good[table].append(path)
            else:
                bad.append(BadFile(path, reason))
    return good, bad
