"""An HTTP transport with limits that hold while a read blocks: total time, first token, idle, and a call to stop."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import httpcore
import httpx

from bench.stream import ReplyOutcome

_CONNECT_S = 10.0
_LOOK_S = 0.1
"""How often a blocked read looks whether it is to stop, seconds."""


class LimitReached(Exception):
    """A limit of the request was reached, or the program asked to stop."""

    def __init__(self, outcome: ReplyOutcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome: ReplyOutcome = outcome
        self.detail = detail


class Limits:
    """The limits of one request, on a monotonic clock that starts now."""

    def __init__(self, total_s: float, first_s: float, idle_s: float, cancel: threading.Event | None) -> None:
        self.started = time.monotonic()
        self._total_s, self._first_s, self._idle_s = total_s, first_s, idle_s
        self._cancel = cancel
        self._token_at: float | None = None

    def token(self, at: float) -> None:
        """A token came: from now on the idle limit counts."""
        self._token_at = at

    def left(self) -> float:
        """Seconds to the nearest limit. Raises LimitReached when there are none, or on a call to stop."""
        now = time.monotonic()
        if self._cancel is not None and self._cancel.is_set():
            raise LimitReached("cancelled", "the program was asked to stop")
        total = self.started + self._total_s - now
        if total <= 0:
            raise LimitReached("time_limit", f"no end of the answer within {self._total_s:g} s")
        if self._token_at is None:
            other = self.started + self._first_s - now
            if other <= 0:
                raise LimitReached("idle_limit", f"no first token within {self._first_s:g} s")
        else:
            other = self._token_at + self._idle_s - now
            if other <= 0:
                raise LimitReached("idle_limit", f"no next token within {self._idle_s:g} s")
        return min(total, other)

    def look_s(self) -> float:
        """How long a read may block before it has to look again."""
        left = self.left()
        return left if self._cancel is None else min(left, _LOOK_S)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, limits: Limits) -> None:
        self._inner, self._limits = inner, limits
        self._socket: socket.socket = inner.get_extra_info("socket")
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        while True:
            wait = self._limits.look_s()
            pending = getattr(self._socket, "pending", None)  # TLS: bytes that the socket itself no longer shows
            if (pending is not None and pending()) or self._poll.poll(max(1.0, wait * 1000)):
                try:
                    return self._inner.read(max_bytes, timeout=max(wait, 0.001))
                except httpcore.ReadTimeout:
                    continue

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        # In pieces: a peer that does not read must not hold us beyond the limit.
        for at in range(0, len(buffer), 65536):
            try:
                self._inner.write(buffer[at : at + 65536], timeout=self._limits.left())
            except httpcore.WriteTimeout:
                time.sleep(0.01)  # the socket's clock may run a moment ahead of ours
                self._limits.left()
                raise

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._limits.left()
        wait = left if timeout is None else min(left, timeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, wait), self._limits)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, limits: Limits) -> None:
        self._inner = httpcore.SyncBackend()
        self._limits = limits

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        wait = min(_CONNECT_S, self._limits.left())
        try:
            inner = self._inner.connect_tcp(host, port, wait, local_address, socket_options or [])
        except httpcore.ConnectTimeout:
            time.sleep(0.01)
            self._limits.left()
            raise
        return _Stream(inner, self._limits)


class LimitedTransport(httpx.BaseTransport):
    """Plain HTTP/1.1 without a pool to share, proxies or settings from the environment.

    Raises LimitReached, and httpcore's exceptions as they are.
    """

    def __init__(self, limits: Limits) -> None:
        self._pool = httpcore.ConnectionPool(network_backend=_Backend(limits))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        url = request.url
        asked = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        got = self._pool.handle_request(asked)
        assert isinstance(got.stream, Iterable)
        return httpx.Response(got.status, headers=got.headers, stream=_Body(got), extensions=got.extensions)

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()
