"""The container engine: found, spoken to, and whether it runs on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

import docker
import requests
from docker.context import Context, ContextAPI
from docker.errors import DockerException

from bench.errors import ArmError

_START = "start it (`sudo systemctl start docker`), or name one with DOCKER_HOST"


@dataclass(frozen=True)
class DockerHost:
    """Where the engine listens."""

    url: str | None
    """None is docker's default socket."""
    named_by: str
    """Who said so, for messages."""

    @property
    def local(self) -> bool:
        """Whether it runs on this machine as far as its address tells: a socket file, or the loopback interface."""
        if self.url is None:
            return True
        parsed = urlparse(self.url)
        return parsed.scheme in ("unix", "http+unix", "npipe") or (
            parsed.scheme in ("tcp", "http", "https") and parsed.hostname in ("localhost", "127.0.0.1", "::1")
        )


def docker_host() -> DockerHost:
    """Where to look: DOCKER_HOST, then DOCKER_CONTEXT or the current docker context, then the usual sockets (rootless
    ones too). Raises ArmError `engine_unavailable` for a context that does not exist."""
    if url := os.environ.get("DOCKER_HOST"):
        return DockerHost(url, "DOCKER_HOST")
    context = _context()
    if context is not None and context.name != "default" and context.Host:
        return DockerHost(str(context.Host), f"the docker context `{context.name}`")
    default = Path("/var/run/docker.sock")
    rootless = Path(os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")) / "docker.sock"
    if not default.exists() and rootless.exists():
        return DockerHost(f"unix://{rootless}", "the rootless engine")
    return DockerHost(None, "docker's default")


def _context() -> Context | None:
    named = os.environ.get("DOCKER_CONTEXT")
    try:
        found = ContextAPI.get_context(named) if named else ContextAPI.get_current_context()
    except (DockerException, ValueError, KeyError, OSError) as error:
        found = None
        if not named:
            raise ArmError("engine_unavailable", f"docker's current context cannot be read: {error}") from error
    if found is None and named:
        raise ArmError(
            "engine_unavailable",
            f"DOCKER_CONTEXT: expected a docker context, found none named `{named}`",
            advice="`docker context ls` lists them",
        )
    return found


def connect(timeout_s: float = 60) -> docker.DockerClient:
    """A client for the engine. Raises ArmError `engine_unavailable` with one line on what is wrong and what to do."""
    host = docker_host()
    where = f"{host.url or 'unix:///var/run/docker.sock'} ({host.named_by})"
    try:
        if host.named_by == "DOCKER_HOST" or host.url is None:
            client = docker.from_env(timeout=int(timeout_s))
        else:
            context = _context()
            tls = context.TLSConfig if context is not None and context.Host == host.url else None
            client = docker.DockerClient(base_url=host.url, timeout=int(timeout_s), tls=tls or False)
        client.ping()
    except (DockerException, requests.RequestException, OSError, ValueError) as e:
        text = str(e)
        if "Permission denied" in text or isinstance(e, PermissionError):
            detail = f"this user may not use the Docker engine at {where}"
            advice = "add the user to the group `docker` and log in again, or use rootless Docker"
        else:
            detail = f"expected a running Docker engine at {where}, found none: {_short(text)}"
            advice = _START
        raise ArmError("engine_unavailable", detail, advice=advice) from e
    return client


def why_not_here(host: DockerHost) -> str | None:
    """Why arms cannot run on this engine, or None. A remote one can neither see a model file of this machine nor put
    a server on its loopback interface, and its GPU could not be watched from here."""
    if host.local:
        return None
    return (
        f"the Docker engine at {host.url} ({host.named_by}) runs on another machine: model files cannot be mounted "
        "from here, its port is not on our loopback, and its GPU cannot be watched; run the bench on that machine"
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    for mark in ("Connection refused", "No such file or directory", "timed out", "Name or service not known"):
        if mark in line:
            return mark
    return line[:200]
