"""The clock of a run's states. The newest state counts, so it must not go backwards when the machine's clock does."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.store.database import connect


class RunClock:
    """UTC that only goes forward: the wall clock at the start, and a monotonic one from there on."""

    def __init__(self, after: datetime | None = None) -> None:
        now = datetime.now(UTC)
        self._start = now if after is None else max(now, after + timedelta(milliseconds=1))
        self._began = time.monotonic()

    def now(self) -> datetime:
        """The time, later than every state of the run that was stored before."""
        return self._start + timedelta(seconds=time.monotonic() - self._began)


def newest_state(results: Path, run_id: str) -> datetime | None:
    """When the newest stored state of a run or one of its arms was reached, UTC; None where there is none."""
    connection, _ = connect(results)
    row = connection.execute(
        "select max(event_at) from (select event_at from runs where run_id = $1 "
        "union all select event_at from arms where run_id = $1)",
        [run_id],
    ).fetchone()
    found = row[0] if row else None
    if not isinstance(found, datetime):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
