"""A peer that speaks HTTP byte by byte as a test scripts it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

Step = bytes | float | str
"""Bytes to send, seconds to wait, or `reset` (close with a TCP reset)."""


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def delta(fields: object, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def head(status: int = 200, kind: str = "text/event-stream", *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", f"Content-Type: {kind}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


DONE = b"data: [DONE]\n\n"


class Peer:
    """Answers each connection with the next script; the last one is used again."""

    def __init__(self, scripts: Sequence[Sequence[Step]]) -> None:
        self.scripts = scripts
        self.requests: list[bytes] = []
        self.hung_up = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        count = 0
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            script = self.scripts[min(count, len(self.scripts) - 1)]
            count += 1
            threading.Thread(target=self._answer, args=(connection, script), daemon=True).start()

    def _answer(self, connection: socket.socket, script: Sequence[Step]) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, contextlib.suppress(OSError):
            if script and script[0] == "deaf":
                time.sleep(float(script[1]))
                return
            self.requests.append(_read_request(connection))
            for step in script:
                if isinstance(step, bytes):
                    connection.sendall(step)
                elif isinstance(step, str):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                    return
                else:
                    connection.settimeout(step)
                    with contextlib.suppress(TimeoutError):
                        if connection.recv(1) == b"":
                            self.hung_up.set()
                            return
                    connection.settimeout(None)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accept; a close alone leaves it listening
        self._listener.close()

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(r.partition(b"\r\n\r\n")[2]) for r in self.requests]


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    headers, _, body = data.partition(b"\r\n\r\n")
    size = next((int(h.split(b":")[1]) for h in headers.split(b"\r\n") if h.lower().startswith(b"content-length")), 0)
    while len(body) < size:
        body += connection.recv(65536)
    return headers + b"\r\n\r\n" + body


@contextlib.contextmanager
def peer(*scripts: Sequence[Step]) -> Iterator[Peer]:
    one = Peer(scripts)
    try:
        yield one
    finally:
        one.close()
