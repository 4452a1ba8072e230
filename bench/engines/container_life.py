"""A server's container: made, started, its log caught from the first line, watched, stopped and removed."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import docker
import psutil
import requests
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container

from bench.engines import logs
from bench.engines.container_errors import as_arm_error
from bench.engines.container_plan import SERVER_PORT, ContainerPlan
from bench.engines.health import Exit
from bench.errors import ArmError

STOP_LIMIT_S = 10
"""How long a server may take to stop by itself, seconds."""
REMOVE_PAUSE_S = 1.0
"""Wait before a removal is tried again, seconds: "removal is already in progress", or the engine is busy."""
_LOG_LIMIT_S = 10.0
_ENGINE_ERRORS = (DockerException, requests.RequestException, OSError)


class ContainerLife:
    """One container (bench.engines.health.Peer). Use `start`."""

    def __init__(self, container: Container, log_path: Path) -> None:
        self._container = container
        self.log_path = log_path
        self.log_start = log_path.stat().st_size if log_path.exists() else 0
        self.name = str(container.name)
        self.stopped_by_us = False
        self.left_behind: bool | None = None
        """Whether `stop` could not remove the container, because the engine was away; None before it."""
        self.lost_engine = False
        """Whether the end is known only from the engine's own: it was stopped, restarted or killed."""
        self._ended = threading.Event()
        self._exit: Exit | None = None
        self._log = threading.Thread(target=self._catch_log, name=f"log of {self.name}", daemon=True)
        self._watch = threading.Thread(target=self._wait_for_end, name=f"end of {self.name}", daemon=True)

    @classmethod
    def start(cls, client: docker.DockerClient, plan: ContainerPlan, log_path: Path) -> ContainerLife:
        """Make and start the container. Raises ArmError for the engine's refusal; nothing is left behind then."""
        log_path.parent.mkdir(parents=True, exist_ok=True)
        try:
            container = client.containers.create(plan.image, list(plan.command), **plan.create_arguments())
            life = cls(container, log_path)
            container.start()
            life._log.start()
            life._watch.start()
        except BaseException as error:
            # By its name: an interrupt may come after the engine made it and before we were told.
            remove(client, plan.name)
            if isinstance(error, APIError | DockerException | requests.RequestException):
                raise as_arm_error(error, plan.image) from error
            raise
        return life

    def port(self) -> int:
        """The port on the loopback interface that reaches the server. Raises ArmError when the container is gone."""
        deadline = time.monotonic() + 5.0
        while True:
            try:
                self._container.reload()
                published = self._container.ports.get(f"{SERVER_PORT}/tcp") or []
            except _ENGINE_ERRORS as error:
                raise as_arm_error(error, self.name) from error
            if published:
                return int(published[0]["HostPort"])
            if self._ended.is_set() or time.monotonic() > deadline:
                raise ArmError("server_died", "the container ended before its port was known")
            time.sleep(0.05)

    def exited(self) -> Exit | None:
        """How the container ended, or None while it runs."""
        if not self._ended.is_set():
            return None
        self._log.join(_LOG_LIMIT_S)  # what it said last is what says why
        return self._exit

    def lines(self) -> list[str]:
        """The log since this start."""
        return logs.read_lines(self.log_path, self.log_start)

    def last_lines(self, n: int = 50) -> list[str]:
        """The last `n` lines of the log since this start."""
        return logs.last_lines(self.log_path, n, self.log_start)

    def pids(self) -> tuple[int, ...]:
        """The container's processes on this machine; none where the engine runs them out of our sight."""
        with contextlib.suppress(*_ENGINE_ERRORS, KeyError, ValueError, psutil.Error):
            self._container.reload()
            pid = int(self._container.attrs["State"]["Pid"])
            # An engine in a virtual machine counts its own ids; only the control group's name proves which they are.
            if pid and str(self._container.id) in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8"):
                below = psutil.Process(pid).children(recursive=True)
                return tuple(sorted([pid, *(process.pid for process in below)]))
        return ()

    def stop(self, limit_s: int = STOP_LIMIT_S) -> None:
        """SIGTERM, after `limit_s` SIGKILL, and removal in any case. Idempotent; does not raise."""
        if not self._ended.is_set():
            self.stopped_by_us = True
            with contextlib.suppress(*_ENGINE_ERRORS):
                self._container.stop(timeout=limit_s)
            if not self._ended.wait(5.0):
                with contextlib.suppress(*_ENGINE_ERRORS):
                    self._container.kill()
                self._ended.wait(5.0)
        self._log.join(_LOG_LIMIT_S)
        for _ in range(3):
            self.left_behind = not remove(self._container.client, self.name)
            if not self.left_behind:
                return
            time.sleep(REMOVE_PAUSE_S)

    def _catch_log(self) -> None:
        with self.log_path.open("ab", buffering=0) as log, contextlib.suppress(*_ENGINE_ERRORS):
            for chunk in self._container.logs(stream=True, follow=True, stdout=True, stderr=True):
                log.write(chunk)

    def _wait_for_end(self) -> None:
        try:
            # On the low level, which takes None as "no limit".
            self._container.client.api.wait(str(self._container.id), timeout=None)  # type: ignore[union-attr]
            self._container.reload()
            state = self._container.attrs["State"]
            self._exit = Exit(int(state["ExitCode"]), bool(state.get("OOMKilled")))
        except (*_ENGINE_ERRORS, KeyError, ValueError) as error:
            # Removed by somebody else, or the engine itself is gone: docker's own code for "docker failed".
            self.lost_engine = not isinstance(error, APIError)
            self._exit = Exit(125, None)
        finally:
            self._ended.set()


def remove(client: docker.DockerClient | None, name: str) -> bool:
    """Remove a container, running or not; False when the engine did not say that it is gone. Does not raise."""
    try:
        client.containers.get(name).remove(force=True, v=True)  # type: ignore[union-attr]
    except NotFound:
        return True
    except _ENGINE_ERRORS:
        return False
    return True
