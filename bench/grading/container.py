"""The `container` provider: one long-lived container per sandbox, a user of its own for each grade."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import select
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, BuildError, DockerException, ImageNotFound

from bench.errors import BenchError
from bench.grading.bubblewrap import pytest_parts
from bench.grading.link import BOOT, PYTHON_FLAGS, LinkBroken, frame, worker_sources

REPOSITORY = "gguf-bench/sandbox"
DOCKERFILE = Path(__file__).resolve().parents[2] / "containers" / "sandbox" / "Dockerfile"
BASE_VARIABLE = "GGUF_BENCH_SANDBOX_BASE"
"""Environment variable: an image with python3 to build the sandbox on, where the default one cannot be pulled."""

MEMORY_BYTES = 2 << 30
CPUS = 2.0
PIDS = 512
"""Of the whole container; a grade's own limits are tighter and set in it."""

_SYSCTLS = {"kernel.shmmni": "0", "kernel.msgmni": "0", "kernel.sem": "0 0 0 0", "fs.mqueue.queues_max": "0"}
"""No System V objects and no message queues: they would outlive a grade."""


def _context() -> bytes:
    """The build context: the Dockerfile, and pytest as it is in this environment; the same bytes for the same files."""
    buffer = io.BytesIO()

    def clean(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if "__pycache__" in info.name:
            return None
        info.mtime = info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() else 0o644
        return info

    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(DOCKERFILE, "Dockerfile", filter=clean)
        for source, target in pytest_parts():
            tar.add(source, target.lstrip("/"), filter=clean)
    return buffer.getvalue()


def image_tag(context: bytes, base: str) -> str:
    """Name of the image for this context on this base."""
    return f"{REPOSITORY}:{hashlib.sha256(context + base.encode()).hexdigest()[:16]}"


def build_image(client: Any, base: str | None = None) -> str:
    """The sandbox image, built when it is not there yet; returns its tag. Raises BenchError with what to do."""
    base = base or os.environ.get(BASE_VARIABLE, "")
    context = _context()
    tag = image_tag(context, base)
    try:
        client.images.get(tag)
        return tag
    except ImageNotFound:
        pass
    arguments = {"BASE": base} if base else {}
    try:
        client.images.build(fileobj=io.BytesIO(context), custom_context=True, tag=tag, buildargs=arguments, rm=True)
    except (BuildError, APIError) as error:
        raise BenchError(
            f"the sandbox image was not built: {str(error).splitlines()[0]}; where its base cannot be pulled, make "
            f"one with `containers/debian-base.sh sandbox-base python3` and set {BASE_VARIABLE}=sandbox-base"
        ) from error
    return tag


class ContainerLink:
    """A container with a worker as its process 1, spoken to over an attached stream."""

    def __init__(self, client: Any, image: str) -> None:
        api = client.api
        host = api.create_host_config(
            network_mode="none",
            read_only=True,
            tmpfs={
                "/box": "rw,nosuid,nodev,size=512m,mode=1777",
                "/tmp": "rw,nosuid,nodev,size=128m,mode=1777",
                "/dev/shm": "rw,nosuid,nodev,noexec,size=64m,mode=1777",
            },
            cap_drop=["ALL"],
            cap_add=["SETUID", "SETGID", "KILL"],
            security_opt=["no-new-privileges"],
            pids_limit=PIDS,
            mem_limit=MEMORY_BYTES,
            memswap_limit=MEMORY_BYTES,
            nano_cpus=int(min(CPUS, os.cpu_count() or 1) * 1e9),
            sysctls=_SYSCTLS,
            auto_remove=True,
            ipc_mode="private",
        )
        # Not detached: the engine then closes the worker's input when this client goes, and the worker ends.
        self._id: str = api.create_container(
            image,
            command=["python3", *PYTHON_FLAGS, "-c", BOOT],
            detach=False,
            stdin_open=True,
            network_disabled=True,
            host_config=host,
            labels={"gguf-bench": "grading"},
        )["Id"]
        self._api = api
        self._data = bytearray()
        self._errors = bytearray()
        stream = api.attach_socket(self._id, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        self._stream = stream
        self._socket = getattr(stream, "_sock", stream)
        try:
            api.start(self._id)
        except (APIError, OSError):
            self.close()
            raise

    def send(self, message: dict[str, Any]) -> None:
        try:
            self._socket.sendall(frame(message))
        except OSError as error:
            raise LinkBroken(str(error)) from error

    def receive(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        size = int.from_bytes(self._take(4, deadline), "big")
        message: dict[str, Any] = json.loads(self._take(size, deadline))
        return message

    def _take(self, n: int, deadline: float) -> bytes:
        while len(self._data) < n:
            head = self._read(8, deadline)
            body = self._read(int.from_bytes(head[4:8], "big"), deadline)
            if head[0] == 1:
                self._data += body
            else:
                self._errors += body[-4096:]
        out = bytes(self._data[:n])
        del self._data[:n]
        return out

    def _read(self, n: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < n:
            if not select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise LinkBroken("the container does not answer")
            part = self._socket.recv(n - len(data))
            if not part:
                words = self._errors.decode("utf-8", "replace").strip().splitlines()
                raise LinkBroken(words[-1] if words else "the container ended")
            data += part
        return bytes(data)

    def close(self) -> None:
        with contextlib.suppress(APIError, DockerException, OSError):
            self._api.remove_container(self._id, force=True)
        with contextlib.suppress(OSError):
            self._socket.close()
        with contextlib.suppress(OSError):
            self._stream.close()


def starter(client: Any | None = None) -> Callable[[], ContainerLink]:
    """A function that starts a sandbox. Builds the image first. Raises BenchError."""
    try:
        client = client or docker.from_env()
        image = build_image(client)
    except (DockerException, OSError) as error:
        raise BenchError(f"no Docker engine answers: {error}") from error

    def start() -> ContainerLink:
        try:
            link = ContainerLink(client, image)
        except (DockerException, OSError) as error:
            # What requests raises when the engine is away is an OSError too.
            raise LinkBroken(str(error)) from error
        config = {"mode": "container", "pytest_path": ["/pytest"]}
        link.send({"sources": worker_sources(), "config": config})
        return link

    return start


def problem(client: Any | None = None) -> tuple[str, str] | None:
    """(what does not work, how to mend it), or None when a Docker engine answers."""
    try:
        own = client is None
        client = client or docker.from_env()
        client.ping()
        if own:
            client.close()
    except (DockerException, APIError, OSError):
        return "no Docker engine answers", "install and start Docker, and let this user use it"
    return None
