"""How a run stands, from its files alone: another process may be writing them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

RECENT = 20
"""Answers that the estimate rests on."""


@dataclass(frozen=True)
class Progress:
    """A run so far."""

    planned: int
    graded: int
    passed: int
    not_measured: int
    arm: str | None
    """The arm that runs now."""
    asked: str | None
    """The question in flight: `L3, iteration 2`."""
    rate: float | None
    """Mean decode rate of the latest answers, tokens per second."""
    seconds_each: float | None
    """Mean time from one grade to the next, of the latest ones."""
    ends_at: datetime | None
    """Estimated end, UTC; None when nothing tells."""
    faults: Mapping[str, int]
    """Kinds of faults with their counts, of all sessions: a run that was carried on keeps what befell it."""
    last_event_at: datetime | None


def progress(events: Sequence[Mapping[str, Any]], planned: int, already: int = 0) -> Progress:
    """Read a run's events. `already`: verdicts of earlier sessions, which are not in the newest session's events."""
    start = max((i for i, e in enumerate(events) if e["event"] == "run" and e.get("status") == "running"), default=0)
    session = events[start:]
    graded = [e for e in session if e["event"] == "graded"]
    measured = [e for e in graded if e.get("points") is not None]
    running, asked = None, None
    for e in session:
        if e["event"] == "loading":
            running = e.get("arm")
        elif e["event"] == "question":
            asked = f"{e.get('level')}, iteration {e.get('iteration')}"
        elif e["event"] == "graded" and asked == f"{e.get('level')}, iteration {e.get('iteration')}":
            asked = None
        elif e["event"] == "arm" and e.get("status") in ("finished", "failed", "interrupted"):
            running, asked = None, None
    times = [datetime.fromisoformat(str(e["at"])) for e in graded[-RECENT:]]
    each = (times[-1] - times[0]).total_seconds() / (len(times) - 1) if len(times) > 1 else None
    rates = [float(e["rate"]) for e in graded[-RECENT:] if e.get("rate") is not None]
    done = already + len(measured)
    ends = (
        datetime.now(UTC) + timedelta(seconds=each * (planned - done)) if each is not None and planned > done else None
    )
    last = datetime.fromisoformat(str(events[-1]["at"])) if events else None
    return Progress(
        planned=planned,
        graded=done,
        passed=sum(e.get("outcome") == "passed" for e in graded),
        not_measured=len(graded) - len(measured),
        arm=running,
        asked=asked,
        rate=sum(rates) / len(rates) if rates else None,
        seconds_each=each,
        ends_at=ends,
        faults=Counter(str(e.get("fault")) for e in events if e["event"] == "fault"),
        last_event_at=last,
    )
