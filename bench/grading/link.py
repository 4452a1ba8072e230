"""The pipe to a sandbox: how the worker's text gets in, and requests and replies after it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

BOOT = """
import builtins, importlib.machinery, json, os, sys, types
def get(n):
    out = b""
    while len(out) < n:
        part = os.read(0, n - len(out))
        if not part: sys.exit(0)
        out += part
    return out
start = json.loads(get(int.from_bytes(get(4), "big")))
own = dict(vars(builtins))  # our modules keep the built-in functions as they were, whatever a solution puts there
def find_spec(name, path=None, target=None):
    if name in start["sources"]:
        return importlib.machinery.ModuleSpec(name, finder, is_package=name == "grader_worker")
def exec_module(module):
    name = module.__name__
    module.__dict__["__builtins__"] = own
    exec(compile(start["sources"][name], "<grader>/" + name, "exec", dont_inherit=True), module.__dict__)
# No class: a solution finds every class by `__subclasses__`, and through a method of it all of this.
finder = types.SimpleNamespace(
    grader=True, find_spec=find_spec, create_module=lambda spec: None, exec_module=exec_module
)
sys.meta_path.insert(0, finder)
from grader_worker import zygote
zygote.main(start["config"])
"""
"""Program of a sandbox's interpreter. It reads the worker's modules from standard input: no file of ours is inside."""

PYTHON_FLAGS = ("-I", "-S", "-B", "-X", "utf8")

_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grader-spawner")
"""bwrap dies with the thread that started it (PR_SET_PDEATHSIG), so one long-lived thread starts them all."""


class LinkBroken(Exception):
    """The sandbox is gone or says nothing."""


class Link(Protocol):
    """A running sandbox."""

    def send(self, message: dict[str, Any]) -> None:
        """Raises LinkBroken."""

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Raises LinkBroken."""

    def close(self) -> None:
        """End the sandbox and everything in it."""


def worker_sources() -> dict[str, str]:
    """Module name -> source of everything that runs inside."""
    folder = Path(__file__).parent / "worker"
    return {
        "grader_worker" if path.stem == "__init__" else f"grader_worker.{path.stem}": path.read_text("utf-8")
        for path in sorted(folder.glob("*.py"))
    }


def frame(message: dict[str, Any]) -> bytes:
    """Four bytes of length, then JSON."""
    body = json.dumps(message).encode()
    return len(body).to_bytes(4, "big") + body


ALLOCATOR = {"MALLOC_ARENA_MAX": "1"}
"""Environment of a sandbox: glibc reserves 64 MiB of address space for a thread's own heap, so that the limit on memory
would end a solution at its fifteenth thread; or leave a new thread without any, and the one that starts it waiting. The
same stands in containers/sandbox/Dockerfile."""


class ProcessLink:
    """A sandbox that is a process of ours, spoken to over its standard input and output."""

    def __init__(self, command: list[str], *, pass_fds: tuple[int, ...] = ()) -> None:
        self._process = _SPAWNER.submit(
            subprocess.Popen,
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=pass_fds,
            start_new_session=True,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", **ALLOCATOR},
        ).result()
        self.pid = self._process.pid

    def send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(frame(message))
            self._process.stdin.flush()
        except OSError as error:
            raise LinkBroken(self._last_words(str(error))) from error

    def receive(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        size = int.from_bytes(self._read(4, deadline), "big")
        message: dict[str, Any] = json.loads(self._read(size, deadline))
        return message

    def _read(self, n: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        data = bytearray()
        while len(data) < n:
            if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise LinkBroken("the sandbox does not answer")
            part = os.read(fd, n - len(data))
            if not part:
                raise LinkBroken(self._last_words("the sandbox ended"))
            data += part
        return bytes(data)

    def _last_words(self, otherwise: str) -> str:
        assert self._process.stderr is not None
        if not select.select([self._process.stderr], [], [], 0.2)[0]:
            return otherwise
        text = os.read(self._process.stderr.fileno(), 65536).decode("utf-8", "replace").strip()
        return text.splitlines()[-1] if text else otherwise

    def close(self) -> None:
        process = self._process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        with contextlib.suppress(OSError):  # it was gone already
            process.stdin.close()
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()
