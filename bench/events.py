"""The log of a run: every event as one JSON line, written as it happens, read by `status` while the run goes on."""

from __future__ import annotations

import contextlib
import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.errors import BenchError

NAME = "events.jsonl"


class EventLog:
    """Appends events to `logs/RUN/events.jsonl`. A line is whole, or the torn last one that readers skip."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._lock = threading.Lock()

    def add(self, event: str, **facts: Any) -> None:
        """Write an event with its time, UTC. Raises BenchError when the disk refuses."""
        line = json.dumps({"at": datetime.now(UTC).isoformat(), "event": event, **facts}, default=str, allow_nan=False)
        try:
            with self._lock, open(self.path, "a", encoding="utf-8") as f:
                f.write(line + "\n")
        except OSError as e:
            raise BenchError(
                f"cannot write {self.path}: {e.strerror}; make room or make it writable, then resume"
            ) from e


def read(folder: Path) -> list[dict[str, Any]]:
    """The events so far, oldest first. A torn or foreign line is left out; no file is no events."""
    out: list[dict[str, Any]] = []
    with contextlib.suppress(OSError), open(folder / NAME, encoding="utf-8", errors="replace") as f:
        for line in f:
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and "event" in event:
                    out.append(event)
    return out
