"""SQL over the results, as text."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from bench.errors import UsageError
from bench.report.values import plain
from bench.store.database import connect, snapshot
from bench.store.parts import BadFile
from bench.visible import visible

FORMATS = ("table", "csv", "json")
_WIDEST = 80

FIX_UP_TO = 100_000
"""Answers up to which the views are fixed in memory before a query."""


def query(results: Path, sql: str, fmt: str = "table", left_out: list[BadFile] | None = None) -> str:
    """The answer to one SELECT over the views, as a table, CSV with a header line, or JSON (a list of objects).

    Only reads: a statement that is no query is refused. Files that had to be left out are added to `left_out`. Raises
    UsageError with what DuckDB says, in one line.
    """
    if fmt not in FORMATS:
        raise UsageError(f"--format {fmt}: expected {', '.join(FORMATS)}")
    connection, bad = connect(results)
    if left_out is not None:
        left_out += bad
    with connection:
        answers = connection.execute("select count(*) from generations").fetchone()
        if answers and 0 < answers[0] <= FIX_UP_TO:
            # Views over views over views are planned anew for every query: seconds for a few rows. Fixed, they answer
            # at once. A store beyond that size is better read as it lies than copied.
            known = [row[0] for row in connection.execute("select run_id from runs_latest").fetchall()]
            snapshot(connection, known)
        columns, rows = select(connection, sql)
    if fmt == "json":
        data = [dict(zip(columns, (plain(v) for v in row), strict=True)) for row in rows]
        return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    if fmt == "csv":
        return _csv(columns, rows)
    return _table(columns, rows)


def select(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names (made unique) and rows of one query. Raises UsageError for anything that is not a single query."""
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1:
            raise UsageError(f"expected one query, found {len(statements)}; give them one at a time")
        kind = statements[0].type
        if kind == duckdb.StatementType.EXPLAIN:
            inner = re.sub(
                r"^\s*explain\s+(\(.*?\)\s*)?(analyze\s+|verbose\s+)*", "", statements[0].query, flags=re.I | re.S
            )
            kind = connection.extract_statements(inner)[0].type
        if kind != duckdb.StatementType.SELECT:
            raise UsageError(f"only queries are run here (select, from, with, show, describe), not {kind.name.lower()}")
        cursor = connection.execute(statements[0])
        names = [d[0] for d in cursor.description or ()]
        return _unique(names), cursor.fetchall()
    except duckdb.Error as e:
        raise UsageError(f"SQL: {_one_line(str(e))}") from None


def _one_line(text: str) -> str:
    """DuckDB's message without the repeated query and its caret."""
    lines = [line.strip() for line in text.split("\n\nLINE ")[0].split("\nLINE ")[0].splitlines()]
    return " ".join(line for line in lines if line)[:500]


def _unique(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return out


def _cell(value: Any) -> str:
    value = plain(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(v) for v in row] for row in rows)
    return out.getvalue().removesuffix("\n")


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns side by side, numbers to the right; long values cut. NULL is shown as NULL."""
    columns = [visible(name) for name in columns]
    texts = [["NULL" if v is None else _printable(_cell(v)) for v in row] for row in rows]
    numeric = [all(isinstance(r[i], (int, float, Decimal)) or r[i] is None for r in rows) for i in range(len(columns))]
    widths = [max(len(c), *(len(t[i]) for t in texts)) if texts else len(c) for i, c in enumerate(columns)]

    def line(cells: Sequence[str]) -> str:
        pairs = zip(cells, widths, numeric, strict=True)
        return "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in pairs).rstrip()

    head = [line(columns), "  ".join("-" * w for w in widths)]
    return "\n".join([*head, *(line(t) for t in texts), f"({len(rows)} row{'' if len(rows) == 1 else 's'})"])


def _printable(text: str) -> str:
    """One line: what a model wrote must not move the cursor or colour the terminal."""
    text = visible(text[: _WIDEST + 1])
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
