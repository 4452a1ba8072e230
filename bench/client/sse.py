"""Server-sent events, from bytes.

Lines end at CR, LF or CRLF and at nothing else: JSON text may hold U+2028, U+2029 and U+0085. Memory is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

MAX_LINE = 8 << 20
"""Longest line of a stream, bytes."""


class StreamError(Exception):
    """The stream breaks its own rules; the message says how."""


class EventReader:
    """Splits bytes into (field, value) events. Fields are `data`, `error` and, once, `done`."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._skip_lf = False
        self._data: list[bytes] = []
        self._event = b""
        self._first = True

    def feed(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """The events that end within `data`. Raises StreamError for a line longer than MAX_LINE."""
        if self._skip_lf and data:
            self._skip_lf = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if (
            data.endswith(b"\n\n")
            and data.find(b"\n") == len(data) - 2
            and data.startswith(b"data: {")
            and not (self._tail or self._data)
        ):
            # One event and nothing else, as nearly every token comes.
            self._first = False
            self._data.append(data[6:-2])
            yield from self._dispatch()
            return
        if len(self._tail) + len(data) > MAX_LINE and data.find(b"\n", 0, max(0, MAX_LINE - len(self._tail))) < 0:
            raise StreamError(f"a line of the stream is longer than {MAX_LINE} bytes")
        if b"\n" not in data:
            self._tail += data
            return
        lines = (bytes(self._tail) + data if self._tail else data).split(b"\n")
        self._tail = bytearray(lines.pop())
        for line in lines:
            yield from self._line(line)

    def close(self) -> Iterator[tuple[str, bytes]]:
        """The events that the end of the body completes."""
        if self._tail:
            line, self._tail = bytes(self._tail), bytearray()
            yield from self._line(line)
        yield from self._dispatch()

    def _line(self, line: bytes) -> Iterator[tuple[str, bytes]]:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            yield from self._dispatch()
            return
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            if value.strip() == b"[DONE]":
                yield from self._dispatch()
                yield "done", b""
                return
            # Some servers leave out the blank line between events: what is complete by itself is an event.
            if self._data and _is_json(b"\n".join(self._data)):
                yield from self._dispatch()
            self._data.append(value)
            if sum(map(len, self._data)) > MAX_LINE:
                raise StreamError(f"an event of the stream is longer than {MAX_LINE} bytes")
        elif line.startswith(b"error:"):
            yield from self._dispatch()
            yield "error", line[6:].strip()
        elif line.startswith(b"event:"):
            self._event = line[6:].strip()
        elif line.startswith(b"{"):
            yield "data", line  # a bare JSON object, as some servers send for an error

    def _dispatch(self) -> Iterator[tuple[str, bytes]]:
        if self._data:
            value = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            kind = "error" if self._event == b"error" else "data"
            self._data = []
            self._event = b""
            if value.strip():
                yield kind, value
        self._event = b""


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True
