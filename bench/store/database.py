"""DuckDB over the Parquet of a results folder: a database of views, in memory or as results.duckdb.

Parquet is the only stored truth. Every process makes its own views, so nobody shares a database file and nobody waits
for a lock. The views read whatever files are there when they are asked.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from bench.errors import BenchError, UsageError
from bench.ids import new_id
from bench.store.parts import BadFile, check, quarantined, superseded
from bench.store.schema import TABLES, schema
from bench.store.view_template import STORAGE_VERSION, sql_type, text, with_template

EXIT_BAD_FILES = 3
"""Exit code of a command that did its work but had to leave out files that cannot be read."""


def connect(results: Path) -> tuple[duckdb.DuckDBPyConnection, list[BadFile]]:
    """An in-memory database with all views over the results, and the files that had to be left out.

    A folder that is empty or missing gives views without rows. Raises UsageError for a folder that DuckDB cannot name.
    """
    results = _usable(results)
    good, bad = check(results)
    connection = duckdb.connect(":memory:")
    for setting in (
        "python_enable_replacements = false",  # a name in a query means a view, never a variable of this program
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "TimeZone = 'UTC'",
        "preserve_insertion_order = false",
    ):
        # A setting that a DuckDB release does not know is one that it does not need.
        with contextlib.suppress(duckdb.CatalogException, duckdb.InvalidInputException):
            connection.execute(f"set {setting}")
    _create_views(connection, results, good, bad)
    return connection, bad + quarantined(results)


_SNAPSHOT = (
    "runs_latest",
    "arms_latest",
    "named_arms",
    "plan_latest",
    "levels",
    "identities",
    "published",
    "published_once",
    "cells",
)

_FIGURES = (
    "arm_summary", "level_pass_rates", "iteration_scores", "harness_doubt", "arm_intervals", "pairwise", "verdicts",
)  # fmt: skip
"""Views that other views rest on, each after those that it rests on itself."""


def snapshot(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str], *, figures: bool = False) -> None:
    """Fix what the statistics of some runs rest on, in memory, without the texts.

    The views over it then answer at once and agree with each other even while the runs go on; they know no other run.
    With `figures` what most views rest on is worked out once too: worth it for whoever asks many of them.
    A connection can be fixed once; asking again for the same runs changes nothing. Raises ValueError for others.
    """
    fixed = connection.execute("select 1 from duckdb_tables() where table_name = '_wanted' and temporary").fetchone()
    if fixed:
        known = {row[0] for row in connection.execute("select run_id from temp._wanted").fetchall()}
        if known != set(run_ids):
            raise ValueError(f"the connection is fixed on {sorted(known)}, not {sorted(set(run_ids))}: open another")
        return
    connection.execute("create or replace temp table _wanted as select unnest(?::varchar[]) as run_id", [list(run_ids)])
    for name in _SNAPSHOT:
        # A constant reaches the files' statistics, which a join does not: one run of many costs what it holds itself.
        which = f"where run_id = {text(run_ids[0])}" if len(run_ids) == 1 else "semi join _wanted using (run_id)"
        connection.execute(f"create or replace temp table _fixed_{name} as from {name} {which}")
        connection.execute(f"create or replace view {name} as from temp._fixed_{name}")
    for name in _FIGURES if figures else ():
        connection.execute(f"create or replace temp table _fixed_{name} as from {name}")
        connection.execute(f"create or replace view {name} as from temp._fixed_{name}")


@contextlib.contextmanager
def understood(what: str) -> Iterator[None]:
    """Views are asked inside; where they cannot work with a stored value, that is a BenchError about `what`."""
    try:
        yield
    except (duckdb.DataError, duckdb.InvalidInputException) as e:
        raise BenchError(
            f"{what}: a stored value is none that the views can work with ({str(e).splitlines()[0]}); look for it with "
            "invoke sql, and remove or import its run again"
        ) from e


def rebuild(results: Path, database: Path) -> list[BadFile]:
    """Make results.duckdb anew: the same views over absolute paths, and the constant tables. Returns the bad files.

    It is built beside and renamed: whoever has the old one open keeps it, and is in nobody's way. The views find later
    runs by themselves. A file that cannot be read would break them, so it is moved to quarantine/ in the results folder
    first, and named. Raises BenchError when a folder cannot be written to.
    """
    results = _usable(results)
    database = Path(database).absolute()
    temporary = database.with_name(f".{database.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        results.mkdir(parents=True, exist_ok=True)
        _write_anchors(results)
        _, torn = check(results)
        for one in torn:
            _quarantine(results, one)
        good, rest = check(results)
        database.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(database)
        # DuckDB puts its log beside a database by a rule that fails for a path with a question mark: build elsewhere.
        with tempfile.TemporaryDirectory(prefix="gguf-bench-") as plain:
            built = Path(plain) / "results.duckdb"
            _build(built, results, good, rest)
            _copy_durably(built, temporary)
        temporary.replace(database)
        # Left by someone who had the old file open for writing; it belongs to that file and not to this one.
        database.with_name(database.name + ".wal").unlink(missing_ok=True)
    except (OSError, duckdb.IOException) as e:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise BenchError(f"cannot write {database}: {str(e).splitlines()[0]}; check the folder and its space") from e
    return rest + quarantined(results)


def _build(path: Path, results: Path, good: dict[str, list[Path]], bad: Sequence[BadFile]) -> None:
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"attach {text(str(path))} as built (storage_version '{STORAGE_VERSION}')")
        connection.execute("use built")
        _create_views(connection, results, good, bad, "built")
        connection.execute("use memory")
        connection.execute("detach built")


def _copy_durably(source: Path, target: Path) -> None:
    with source.open("rb") as found, target.open("xb") as made:
        shutil.copyfileobj(found, made)
        made.flush()
        os.fsync(made.fileno())


def _usable(results: Path) -> Path:
    results = Path(results).absolute()
    if "\\" in str(results):
        raise UsageError(f"results folder {results}: DuckDB cannot read a path with a backslash; choose another folder")
    if results.exists() and not results.is_dir():
        raise UsageError(f"results folder {results}: it is a file; give a folder")
    return results


def _create_views(
    connection: duckdb.DuckDBPyConnection,
    results: Path,
    good: dict[str, list[Path]],
    bad: Sequence[BadFile],
    catalog: str = "memory",
) -> None:
    with_template(connection, catalog)
    torn = {one.path for one in bad}
    for table in TABLES:
        sources = _sources(results, table, good[table], [p for p in torn if p.parent.parent.name == table])
        base = _base_query(table, sources) if sources else f"from _empty_{table}"
        connection.execute(f"create view {table} as {base}")


def _sources(results: Path, table: str, good: Sequence[Path], torn: Sequence[Path]) -> list[str]:
    """Patterns that find a table's files: all by one pattern, or folder by folder where one holds a bad file.

    A pattern finds what is there when the query runs, so a view outlives merges and new runs. Only in the folders with
    a bad file are the good ones named one by one.
    """
    if not good:
        return []
    if not torn:
        return [_folder_pattern(results, table)]
    bad_folders = {p.parent for p in torn}
    counted = sorted(set(good) - superseded(good))
    patterns = {_pattern(p.parent) + "/*.parquet" for p in counted if p.parent not in bad_folders}
    return sorted(patterns) + [_pattern(p) for p in counted if p.parent in bad_folders]


def _folder_pattern(results: Path, table: str) -> str:
    return f"{_pattern(results)}/{table}/*/*.parquet"


def _pattern(path: Path) -> str:
    """A path in which no character has a meaning to DuckDB's patterns."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in str(path))


def _base_query(table: str, sources: Sequence[str]) -> str:
    """The query over a table's files: without parts that a merge replaced, NaN and infinities as NULL, types as now."""
    columns = ",\n    ".join(f'{_read(f)} as "{f.name}"' for f in schema(table))
    files = ", ".join(text(s) for s in sources)
    # Where files are named one by one, those that a merge replaced are not among them.
    patterns = [s for s in sources if s.endswith("/*.parquet")] or [sources[0]]
    globs = " union all ".join(f"from glob({text(p)})" for p in patterns)
    return f"""with files as (
    select file, regexp_extract(file, '^(.*)/[^/]*$', 1) as folder, regexp_extract(file, '[^/]*$') as name
    from ({globs})
),
marks as (
    select folder, max(name[8:33]) as mark
    from files
    where regexp_full_match(name, 'merged-[0-9a-f]{{26}}\\.parquet') group by folder
),
merged as (
    select f.file from files f join marks m using (folder)
    where regexp_full_match(f.name, 'part-[0-9a-f]{{26}}\\.parquet') and f.name[6:31] <= m.mark
)
select
    {columns}
from (
    select * from read_parquet([{files}], union_by_name = true, filename = '_file')
    union all by name
    select * from _empty_{table}
)
where _file is null or _file not in (select file from merged)"""


def _read(field: pa.Field[pa.DataType]) -> str:
    name, kind = f'"{field.name}"', sql_type(field.type)
    if pa.types.is_floating(field.type):
        return f"case when isfinite({name}::double) then {name}::double end"
    if pa.types.is_timestamp(field.type):
        # Plain UTC: shown alike whatever the session's time zone.
        return f"make_timestamp(epoch_us({name}))"
    if pa.types.is_integer(field.type):
        # An older file may hold a float here, and that float may be NaN.
        return f"try_cast({name} as {kind})"
    return f"{name}::{kind}"


def _write_anchors(results: Path) -> None:
    """A file without rows for each table: a pattern that finds nothing is an error in DuckDB."""
    for table in TABLES:
        folder = results / table / "_columns"
        final = folder / "columns.parquet"
        if _holds(final, schema(table)):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".columns.{os.getpid()}.{new_id()}.tmp"
        with temporary.open("xb") as stream:
            pq.write_table(schema(table).empty_table(), stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(final)


def _holds(path: Path, wanted: pa.Schema) -> bool:
    try:
        return bool(pq.read_schema(path).equals(wanted))
    except (OSError, pa.ArrowException):
        return False  # it holds no data: whatever is wrong with it, a new one does


def _quarantine(results: Path, one: BadFile) -> None:
    """Move a bad file out of the way of the views, keeping it and its place."""
    target = results / "quarantine" / one.path.relative_to(results)
    while target.exists():
        target = target.with_name(f"{target.stem}.{secrets.token_hex(2)}{target.suffix}")
    target.parent.mkdir(parents=True, exist_ok=True)
    one.path.replace(target)


def _remove_leftovers(database: Path) -> None:
    """Databases that were being built by processes that are dead."""
    for path in database.parent.glob(f".{database.name}.*.tmp*"):
        pid = path.name.removeprefix(f".{database.name}.").split(".")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            path.unlink(missing_ok=True)
