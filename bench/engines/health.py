"""From a started server to a ready one: watch the process, follow `/health`, prove that the answer is ours."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import Protocol

import httpx

from bench.engines import Server, logs
from bench.errors import ArmError

POLL_S = 0.1
_PROBE_S = 1.0
DEATH_S = 5.0
"""How long a server that lost a request may take to be seen dead. A killed process closes its connections some moments
before it is gone, and a busy Docker engine tells of a removed container seconds later."""
FOREIGN_GRACE_S = 5.0
"""How long a server with another name may answer on our port before it is `wrong_server`, seconds. Our own process
may meanwhile end with a bind error, which says more."""


@dataclass(frozen=True)
class Exit:
    """How a server ended."""

    code: int
    """Exit code; negative, or above 128, for a signal."""
    oom_killed: bool | None = None
    """What the container engine says; None where nobody says."""


class Peer(Protocol):
    """The process or container behind the port."""

    def exited(self) -> Exit | None:
        """How it ended, or None while it runs."""

    def lines(self) -> list[str]:
        """Its log since it was started."""


def client(timeout_s: float = 5.0) -> httpx.Client:
    """A client for our own server: no proxy from the environment may catch a loopback request."""
    return httpx.Client(trust_env=False, timeout=timeout_s, headers={"Connection": "close"})


def await_death(server: Server, stop: threading.Event, limit_s: float = DEATH_S) -> bool:
    """Whether a server that lost a request is dead. Waits until it is seen to be, it answers, `stop`, or the limit."""
    end = time.monotonic() + limit_s
    with client(_PROBE_S) as http:
        while server.alive() and not stop.is_set() and time.monotonic() < end:
            with contextlib.suppress(httpx.HTTPError):
                http.get(f"{server.base_url}/health")  # whatever it says: a dead one says nothing
                break
            stop.wait(0.05)
    return not server.alive()


def wait_until_ready(
    base_url: str,
    alias: str,
    peer: Peer,
    *,
    started: float,
    limit_s: float,
    commit: str | None = None,
    foreign_grace_s: float | None = None,
) -> float:
    """Wait until the server is ready; returns the load time in ms, from `started` (monotonic seconds) to healthy.

    Ready needs three things: our process is alive, `/health` says 200, and `/v1/models` lists our alias. Raises
    ArmError: what the log and the exit code say as soon as the process ends; `load_timeout`, or what the log says,
    at the limit; `wrong_server` when another server answers.
    """
    deadline = started + limit_s
    healthy_at: float | None = None
    foreign_since: float | None = None
    with client(_PROBE_S) as http:
        while True:
            gone = peer.exited()
            if gone is not None:
                raise load_error(peer, gone, commit)
            now = time.monotonic()
            if now >= deadline:
                raise logs.timed_out(peer.lines(), limit_s).error()
            names: tuple[str, ...] | None = None
            if _healthy(http, base_url):
                healthy_at = healthy_at or time.monotonic()
                names = model_names(http, base_url)
            else:
                healthy_at = None
            if names is not None and alias in names:
                if peer.exited() is None and healthy_at is not None:
                    return (healthy_at - started) * 1000.0
                continue
            if names is None:
                foreign_since = None
            else:
                foreign_since = foreign_since or now
                if now - foreign_since >= (FOREIGN_GRACE_S if foreign_grace_s is None else foreign_grace_s):
                    raise ArmError(
                        "wrong_server",
                        f"another server answers at {base_url}: expected the model {alias}, found"
                        f" {', '.join(names) or 'no model list'}",
                        advice="stop that server, or set port = 0 in the preset for a free port",
                    )
            time.sleep(min(POLL_S, max(0.0, deadline - time.monotonic())))


def load_error(peer: Peer, gone: Exit, commit: str | None = None) -> ArmError:
    """Why a server ended before it was ready."""
    found = logs.diagnose(peer.lines(), gone.code, oom_killed=gone.oom_killed, commit=commit)
    if found is None:  # diagnose() answers None only for a living server or one that we stopped
        raise AssertionError("a server that ended has a diagnosis")
    return found.error()


def model_names(http: httpx.Client, base_url: str) -> tuple[str, ...] | None:
    """Ids and aliases that `/v1/models` lists; empty when a stranger has no such list, None when nobody answers yet."""
    try:
        reply = http.get(f"{base_url}/v1/models")
    except httpx.HTTPError:
        return None
    if reply.status_code == 503:
        return None
    if reply.status_code != 200:
        return ()
    try:
        entries = reply.json()["data"]
        names = [name for entry in entries for name in (entry["id"], *entry.get("aliases", ()))]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()
    return tuple(dict.fromkeys(str(name) for name in names))


def _healthy(http: httpx.Client, base_url: str) -> bool:
    try:
        return http.get(f"{base_url}/health").status_code == 200
    except httpx.HTTPError:
        return False
