"""A server's process: started below a keeper, watched, stopped with everything it started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from bench.engines import logs
from bench.engines.health import Exit
from bench.errors import ArmError

_KEEPER = Path(__file__).with_name("launch.py")
_PID_LIMIT_S = 30.0
STOP_LIMIT_S = 10.0
"""How long a server may take to stop by itself, seconds."""


class Lifetime:
    """One server process. It dies with this process, however this process ends (see launch.py)."""

    def __init__(self, keeper: subprocess.Popen[bytes], pid: int | None, log_path: Path, log_start: int) -> None:
        self._keeper = keeper
        self._log_start = log_start
        self.log_path = log_path
        self.pid = pid
        """The server's process id; None when it could not even be forked."""
        self.stopped_by_us = False

    @classmethod
    def start(cls, command: Sequence[str], env: Mapping[str, str], log_path: Path) -> Lifetime:
        """Start the command with its output appended to the log, stdin closed, in a session of its own.

        Raises ArmError `engine_unavailable` when no process can be made.
        """
        log_path.parent.mkdir(parents=True, exist_ok=True)
        read_end, write_end = os.pipe()
        try:
            with log_path.open("ab") as log:
                log_start = log.tell()
                keeper = subprocess.Popen(
                    [
                        sys.executable, "-I", "-S", str(_KEEPER),
                        str(os.getpid()), str(write_end), *command,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(env),
                    pass_fds=(write_end,),
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            os.close(read_end)
            os.close(write_end)
            raise ArmError("engine_unavailable", f"cannot start the server's process: {error}") from error
        os.close(write_end)
        try:
            pid = _read_pid(read_end)
        except BaseException:  # Ctrl-C here must not leave the server behind in a program that goes on
            keeper.kill()
            keeper.wait()
            raise
        finally:
            os.close(read_end)
        return cls(keeper, pid, log_path, log_start)

    def exited(self) -> Exit | None:
        """How the server ended, or None while it runs."""
        code = self._keeper.poll()
        return None if code is None else Exit(code)

    def lines(self) -> list[str]:
        """The log since this start."""
        return logs.read_lines(self.log_path, self._log_start)

    def last_lines(self, n: int = 50) -> list[str]:
        """The last `n` lines of the log since this start."""
        return logs.last_lines(self.log_path, n, self._log_start)

    def pids(self) -> tuple[int, ...]:
        """The server's processes: its own, and what it started."""
        try:
            below = psutil.Process(self._keeper.pid).children(recursive=True)
        except psutil.Error:
            return ()
        return tuple(sorted(process.pid for process in below))

    def stop(self, limit_s: float = STOP_LIMIT_S) -> None:
        """SIGTERM, and after `limit_s` SIGKILL for everything the server started. Idempotent; does not raise."""
        if self._keeper.poll() is not None:
            return  # it ended before, by itself or by us: `stopped_by_us` stays what it is
        self.stopped_by_us = True
        self._signal(signal.SIGTERM)
        if self._wait(limit_s):
            return
        self._signal(signal.SIGUSR2)
        if self._wait(10.0):
            return
        if self.pid is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        self._signal(signal.SIGKILL)
        self._wait(10.0)

    def _signal(self, sig: signal.Signals) -> None:
        with contextlib.suppress(OSError):
            self._keeper.send_signal(sig)

    def _wait(self, limit_s: float) -> bool:
        # Not Popen.wait(): its sleeps between looks grow, and a stop is waited for often.
        deadline = time.monotonic() + limit_s
        while self._keeper.poll() is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True


def _read_pid(read_end: int) -> int | None:
    data = b""
    deadline = time.monotonic() + _PID_LIMIT_S
    while not data.endswith(b"\n"):
        ready, _, _ = select.select([read_end], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(read_end, 64) if ready else b""
        if not chunk:
            return None
        data += chunk
    return int(data)
