"""The views over the tables, made once and copied into every database.

Making them binds some sixty queries, a second of work; copying a catalog that holds them already takes 20 milliseconds.
So they are made once into a small database file in the cache, named by a hash of everything that they are made from.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa

from bench.errors import BenchError
from bench.paths import default_cache
from bench.store.schema import TABLES, schema
from bench.store.stats_tables import constant_tables

SQL = Path(__file__).parent.parent / "sql"

STORAGE_VERSION = "v1.0.0"
"""Of results.duckdb: every DuckDB release since 1.0 opens it."""

_KEPT_S = 7 * 86400
"""Seconds after which a template is removed when another is made: a changed view needs a new one."""

_CREATE = re.compile(r"^create or replace (view|macro) ", re.MULTILINE)


def with_template(connection: duckdb.DuckDBPyConnection, catalog: str) -> None:
    """Give an empty catalog the constant tables, an `_empty_TABLE` for each stored table, and every view of sql/.

    The views read stored tables by their names, which the caller has still to make. Raises BenchError for a statement
    in sql/ that makes neither a view nor a macro.
    """
    path = _template()
    if path is not None:
        # A template that is torn, or of another release of DuckDB, is no harm: the slow way gives the same.
        with contextlib.suppress(duckdb.Error):
            connection.execute(f"attach {text(str(path))} as _template (read_only)")
            connection.execute(f'copy from database _template to "{catalog}"')
            connection.execute("detach _template")
            return
    _fill(connection, catalog)


def _template() -> Path | None:
    """The template's file, made now if it is not there; None where the cache does not take it."""
    path = default_cache() / "views" / f"{_made_from()}.duckdb"
    with contextlib.suppress(OSError, duckdb.IOException):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            for other in path.parent.glob("*.duckdb"):
                if time.time() - other.stat().st_mtime > _KEPT_S:
                    other.unlink()
            _make(path)
        return path
    return None


def _make(path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with duckdb.connect(":memory:") as connection:
            connection.execute(f"attach {text(str(temporary))} as built (storage_version '{STORAGE_VERSION}')")
            connection.execute("use built")
            _fill(connection, "built")
            connection.execute("use memory")
            connection.execute("detach built")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@cache
def _made_from() -> str:
    """Hash of all that the template depends on: SQL, constants, schemas, this module, and the DuckDB that binds it."""
    digest = hashlib.sha256(duckdb.__version__.encode())
    parts = [path.read_bytes() for path in [Path(__file__), *sorted(SQL.iterdir())]]
    parts += [statement.encode() for statement in constant_tables()]
    parts += [f"{table} {schema(table).to_string(show_schema_metadata=False)}".encode() for table in TABLES]
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]


def _fill(connection: duckdb.DuckDBPyConnection, catalog: str) -> None:
    """Make everything anew. Every view is bound to an empty table for what it reads, instead of to all views below it.

    A view keeps its text, so it reads the real ones when it is asked. Bound on top of each other the deepest views
    would take longer to make than most queries to answer.
    """
    for constants in constant_tables():
        connection.execute(constants)
    for table in TABLES:
        columns = ", ".join(f'"{f.name}" {sql_type(f.type)}' for f in schema(table))
        connection.execute(f"create table _empty_{table} ({columns})")
    connection.execute("create schema _stand_in")
    connection.execute(f"set search_path = '{catalog}._stand_in,{catalog}.main'")
    for table in TABLES:
        connection.execute(f"create table _stand_in.{table} as from main._empty_{table}")
    for path in sorted(SQL.glob("*.sql")):
        for statement in connection.extract_statements(path.read_text("utf-8")):
            made = _CREATE.search(statement.query)
            if made is None:
                raise BenchError(f"{path}: expected 'create or replace view' or 'macro', found: {statement.query[:80]}")
            rest = statement.query[made.end() :]
            connection.execute(f"create or replace {made[1]} main.{rest}")
            if made[1] == "view":
                name = re.match(r"\w+", rest)
                assert name is not None
                described = connection.execute(
                    "select column_name, data_type from duckdb_columns() where schema_name = 'main' and table_name = ? "
                    "and database_name = ? order by column_index",
                    [name[0], catalog],
                ).fetchall()
                columns = ", ".join(f'"{column}" {kind}' for column, kind in described)
                connection.execute(f"create table _stand_in.{name[0]} ({columns})")
    connection.execute(f"set search_path = '{catalog}.main'")
    connection.execute("drop schema _stand_in cascade")


def text(value: str) -> str:
    """A string as SQL writes it."""
    return "'" + value.replace("'", "''") + "'"


def sql_type(kind: pa.DataType) -> str:
    """DuckDB's name for the type of a column."""
    if pa.types.is_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return {pa.string(): "varchar", pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean"}[kind]
