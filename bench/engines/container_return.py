"""A Docker engine that was there and is gone: how long it is waited for."""

from __future__ import annotations

import time

import docker
import requests
from docker.errors import DockerException

from bench.errors import ArmError

RETURN_LIMIT_S = 60.0
"""How long an engine that went away under a run is waited for, seconds; a restart takes a few."""

RETURNS = 2
"""Times that one start of a server begins anew because the engine went away under it."""

_POLL_S = 0.25


def answers(client: docker.DockerClient) -> bool:
    """Whether the engine answers on a new connection; on an old one an engine that is ending still does."""
    try:
        client.close()  # drops connections that are idle; the next request makes one
        return bool(client.ping())
    except (DockerException, requests.RequestException, OSError):
        return False


def wait_for_return(client: docker.DockerClient, limit_s: float) -> None:
    """Return once the engine answers. Raises ArmError `engine_unavailable` when it does not within `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not answers(client):
        if time.monotonic() >= deadline:
            raise ArmError(
                "engine_unavailable",
                f"the Docker engine went away and did not answer again within {limit_s:g} s",
                advice="start it (`sudo systemctl start docker`); the same command asks what is missing",
            )
        time.sleep(_POLL_S)


def gone_again() -> ArmError:
    """What a start ends with whose engine does not stay."""
    return ArmError(
        "engine_unavailable",
        f"the Docker engine went away {RETURNS + 1} times while the server was started",
        advice="its own log tells why (`journalctl -u docker`)",
    )
