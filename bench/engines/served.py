"""What a running server is to the runner, whether it lives in a process of ours or in a container."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from bench.engines import Identity, logs, ports
from bench.engines.health import Exit


class Life(Protocol):
    """What keeps a server running, sees its end and holds its log."""

    @property
    def log_path(self) -> Path: ...
    @property
    def stopped_by_us(self) -> bool: ...
    def exited(self) -> Exit | None: ...
    def lines(self) -> list[str]: ...
    def last_lines(self, n: int) -> list[str]: ...
    def pids(self) -> tuple[int, ...]: ...
    def stop(self) -> None: ...


class Served:
    """A loaded and proved server (bench.engines.Server)."""

    def __init__(
        self, life: Life, port: int, flags: tuple[str, ...], threads: int, load_ms: float, identity: Identity
    ) -> None:
        self._life = life
        self.port = port
        self.base_url = f"http://{ports.LOOPBACK}:{port}"
        self.flags = flags
        self.threads = threads
        self.load_ms = load_ms
        self.identity = identity
        self.log_path = life.log_path
        self.pids = life.pids()

    def alive(self) -> bool:
        """Whether its process or container runs."""
        return self._life.exited() is None

    def last_lines(self, n: int = 50) -> list[str]:
        """The last lines of its log."""
        return self._life.last_lines(n)

    def death(self) -> tuple[str, str] | None:
        """(reason, detail) once it has ended without being asked to, else None."""
        gone = self._life.exited()
        if gone is None:
            return None
        found = logs.diagnose(
            self._life.lines(),
            gone.code,
            stopped_by_us=self._life.stopped_by_us,
            oom_killed=gone.oom_killed,
            phase="serving",
        )
        return None if found is None else (found.reason, found.detail)

    def stop(self) -> None:
        """Stop it with everything it started; return when its port refuses connections. Never raises."""
        self._life.stop()
        ports.wait_refused(self.port)
