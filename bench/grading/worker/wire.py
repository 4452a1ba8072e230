"""Frames between the host, the parent in the sandbox and the process that runs a solution."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import Any

KEY_BYTES = 16
"""Length of the random key of a grade."""

TEST_FILE = "<hidden tests>"
"""File name in the code objects of the hidden tests. No such file exists."""


def read_exact(fd: int, n: int) -> bytes | None:
    """Read exactly n bytes; None at end of file."""
    parts = []
    while n:
        chunk = os.read(fd, min(n, 1 << 20))
        if not chunk:
            return None
        parts.append(chunk)
        n -= len(chunk)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    """Write everything."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_json(fd: int) -> Any:
    """One frame: four bytes of length, then JSON. None at end of file."""
    head = read_exact(fd, 4)
    body = None if head is None else read_exact(fd, int.from_bytes(head, "big"))
    return None if body is None else json.loads(body)


def write_json(fd: int, value: Any) -> None:
    """One frame: four bytes of length, then JSON."""
    body = json.dumps(value).encode()
    write_all(fd, len(body).to_bytes(4, "big") + body)


def make_sender(fd: int, key: bytes) -> Callable[..., None]:
    """A function that reports to the parent under the grade's key.

    Only methods of built-in types are used on the way: a solution can replace `json.dumps`, but not `bytes.join`.
    A copy of the process (a fork in the solution) cannot report.
    """
    write, getpid, leave, pid = os.write, os.getpid, os._exit, os.getpid()
    lock = threading.Lock()

    def send(*parts: str) -> None:
        if getpid() != pid:
            leave(70)
        body = [key, len(parts).to_bytes(2, "big")]
        for part in parts:
            raw = str.encode(part, "utf-8", "backslashreplace")
            body += [len(raw).to_bytes(4, "big"), raw]
        data = b"".join(body)
        data = len(data).to_bytes(4, "big") + data
        with lock:
            while data:
                data = data[write(fd, data) :]

    return send
