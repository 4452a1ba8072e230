"""Which run is meant."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from bench.errors import BenchError, UsageError

_MOST_LISTED = 10


class NoResults(BenchError):
    """There is no run yet."""


def resolve_run(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    """The run that `latest`, an id or a unique prefix of one means.

    Raises NoResults when there is no run at all, UsageError with the candidates otherwise.
    """
    text = (text or "").strip()
    rows = connection.execute("select run_id from runs_latest order by started_at, run_id").fetchall()
    runs = [row[0] for row in rows]
    if not runs:
        raise NoResults("no results yet; make some with: ./invoke bench")
    if text == "latest":
        return str(runs[-1])
    if text in runs:
        return text
    found = [r for r in runs if text and r.startswith(text)]
    if len(found) == 1:
        return str(found[0])
    if found:
        raise UsageError(f"run '{text}' could be {_some(found)}; type more of its id")
    raise UsageError(f"no run '{text}'; expected 'latest' or the start of one of {_some(runs)}")


def _some(runs: Sequence[str]) -> str:
    newest = list(reversed(runs))[:_MOST_LISTED]
    more = len(runs) - len(newest)
    return ", ".join(newest) + (f" and {more} older" if more else "")
