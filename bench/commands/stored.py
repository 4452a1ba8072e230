"""What every command that looks at stored results does first."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

from bench.errors import UsageError
from bench.paths import Places, places
from bench.reporter import Reporter
from bench.store.database import EXIT_BAD_FILES, connect
from bench.store.parts import BadFile


def existing(results: str | None) -> Places:
    """The folders of `--results`. Raises UsageError where a folder was named that is not there: a typing mistake must
    not read like an empty store."""
    where = places(results)
    if results and not where.results.is_dir():
        raise UsageError(f"--results {results}: expected a folder with results, found none; ./invoke bench makes one")
    return where


def opened(results: str | None, out: Reporter) -> tuple[Places, duckdb.DuckDBPyConnection, int]:
    """The folders, the views over them, and the exit code that goes with it: 3 where files were left out, else 0.
    Each file that was left out is named."""
    where = existing(results)
    connection, bad = connect(where.results)
    return where, connection, name_left_out(bad, out)


def name_left_out(bad: Iterable[BadFile], out: Reporter) -> int:
    """Say which files were left out. 3 where there were any, else 0."""
    code = 0
    for file in bad:
        out.warn(f"left out {file.path}: {file.reason}; what it held is missing from every figure")
        code = EXIT_BAD_FILES
    return code
