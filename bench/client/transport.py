"""An HTTP transport with limits that hold while a read blocks: total time, first token, idle, and a call to stop.

It speaks HTTP/1.1 with h11 straight on the socket: one connection for one request, no proxies, no settings from the
environment. httpx's own transport takes a fifth more CPU for each token, and its read limit starts anew with each ping.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator

import h11
import httpx

from bench.client.outcomes import ReplyOutcome

_CONNECT_S = 10.0
_READ_BYTES = 64 << 10
_HEADER_BYTES = 100 << 10
_LOOK_S = 0.1
"""How often a blocked read looks whether it is to stop, seconds."""


class Disconnected(Exception):
    """The connection failed, or what came is no HTTP; the message says how."""

    def __init__(self, detail: str, *, reset: bool = False) -> None:
        super().__init__(detail)
        self.reset = reset
        """The network failed, other than by an end of the data where more was promised."""


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


class _Connection:
    """A socket whose reads and writes keep to the limits."""

    def __init__(self, url: httpx.URL, limits: Limits) -> None:
        self._limits = limits
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            raw = socket.create_connection((url.host, port), min(_CONNECT_S, limits.left()))
            self._socket = _with_tls(raw, url.host) if url.scheme == "https" else raw
        except (OSError, UnicodeError) as error:
            self._limits.left()
            raise Disconnected(f"cannot connect to {url.host}:{port}: {_said(error)}", reset=True) from error
        self._tls = isinstance(self._socket, ssl.SSLSocket)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._socket, select.POLLIN)
        self._writable.register(self._socket, select.POLLOUT)

    def read(self) -> bytes:
        """The next bytes; none at the end."""
        while True:
            try:
                if self._wait(self._readable):
                    return self._socket.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
            except OSError as error:
                raise Disconnected(_said(error), reset=True) from error

    def write(self, data: bytes) -> None:
        """Send all of it. A peer that hangs up early may still have said why: that is for the read to find out."""
        view = memoryview(data)
        while view:
            try:
                if self._wait(self._writable):
                    view = view[self._socket.send(view) :]
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                continue
            except OSError:
                return

    def _wait(self, poll: select.poll) -> bool:
        wait = self._limits.look_s()
        if self._tls and self._socket.pending():  # type: ignore[attr-defined]
            return True  # bytes that TLS has already taken in no longer show on the socket
        return bool(poll.poll(max(1.0, wait * 1000)))

    def close(self) -> None:
        self._socket.close()


class LimitedTransport(httpx.BaseTransport):
    """One request on a connection of its own. Raises LimitReached and Disconnected."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.scheme not in ("http", "https") or not request.url.host:
            raise httpx.UnsupportedProtocol(f"expected http://HOST:PORT, found {str(request.url)[:100]!r}")
        connection = _Connection(request.url, self._limits)
        state = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADER_BYTES)
        body = _Body(connection, state)
        try:
            asked = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
            data = state.send(asked) or b""
            data += state.send(h11.Data(data=request.read())) or b""
            connection.write(data + (state.send(h11.EndOfMessage()) or b""))
            answer = body.event()
            while isinstance(answer, h11.InformationalResponse):
                answer = body.event()
            if not isinstance(answer, h11.Response):
                raise Disconnected("the server hung up without an answer")
        except BaseException:
            connection.close()
            raise
        return httpx.Response(answer.status_code, headers=answer.headers.raw_items(), stream=body)


class _Body(httpx.SyncByteStream):
    def __init__(self, connection: _Connection, state: h11.Connection) -> None:
        self._connection, self._state = connection, state

    def event(self) -> object:
        """The next event of the answer, read as far as that takes."""
        try:
            while (event := self._state.next_event()) is h11.NEED_DATA:
                self._state.receive_data(self._connection.read())
        except h11.RemoteProtocolError as error:
            raise Disconnected(_said(error)) from error
        return event

    def __iter__(self) -> Iterator[bytes]:
        while isinstance(event := self.event(), h11.Data):
            yield bytes(event.data)

    def close(self) -> None:
        self._connection.close()


def _with_tls(raw: socket.socket, host: str) -> ssl.SSLSocket:
    try:
        return ssl.create_default_context().wrap_socket(raw, server_hostname=host)
    except BaseException:
        raw.close()
        raise


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
