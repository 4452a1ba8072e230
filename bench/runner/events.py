"""The log of a run: every event as one JSON line, written as it happens, read by `status` while the run goes on."""

from __future__ import annotations

import contextlib
import json
import os
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
        """Write an event with its time, UTC. Raises BenchError when the disk refuses; then nothing of it is there."""
        line = json.dumps({"at": datetime.now(UTC).isoformat(), "event": event, **facts}, default=str, allow_nan=False)
        try:
            with self._lock:
                fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
                try:
                    _append(fd, line.encode("utf-8", "replace") + b"\n")
                finally:
                    os.close(fd)
        except OSError as e:
            raise BenchError(
                f"cannot write {self.path}: {e.strerror}; make room or make it writable, then resume"
            ) from e


def _append(fd: int, data: bytes) -> None:
    """Append all of it or nothing. What a kill left torn is closed off first, so that it spoils no second line."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        data = b"\n" + data
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, size)
        raise


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
