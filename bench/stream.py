"""Server-sent events of a chat completion: from bytes to text, counts and typed failures.

Lines end at CR, LF or CRLF and at nothing else: JSON text may hold U+2028, U+2029 and U+0085. Memory is bounded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MAX_LINE = 8 << 20
"""Longest line of a stream, bytes."""
MAX_TEXT = 64 << 20
"""Most text that one answer may hold, characters."""
_SHOWN = 500

ReplyOutcome = Literal[
    "ok",
    "time_limit",
    "idle_limit",
    "transport_error",
    "server_error",
    "stream_error",
    "template_error",
    "context_overflow",
    "request_refused",
    "protocol_error",
    "cancelled",
]
"""`ok` is a finish reason and `[DONE]`. Only transport_error, server_error, stream_error and idle_limit are asked
again. `cancelled`: this program broke the request off."""

_OVERFLOW = re.compile(r"exceed\w*\b.{0,60}\bcontext|context\b.{0,60}\bexceed|maximum context length", re.I | re.S)
_OVERFLOW_SIZES = re.compile(r"\((\d+) tokens\).{0,80}?\((\d+) tokens\)", re.S)
_TEMPLATE = re.compile(r"\bjinja\b|\bchat[ _-]?template\b|\btemplate\b", re.I)


class StreamError(Exception):
    """The stream breaks its own rules; the message says how."""


@dataclass(frozen=True)
class Failure:
    """Why a request has no complete answer."""

    outcome: ReplyOutcome
    detail: str
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None


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


@dataclass
class Transcript:
    """What a stream has said so far. Times are handed in, ms since the request was sent."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    timings: dict[str, float] = field(default_factory=dict)
    system_fingerprint: str | None = None
    n_chunks: int = 0
    first_token_ms: float | None = None
    first_answer_ms: float | None = None
    last_token_ms: float | None = None
    done: bool = False
    notes: list[str] = field(default_factory=list)
    """Oddities that do not make the answer incomplete."""
    _size: int = 0

    def take(self, kind: str, value: bytes, now_ms: float) -> Failure | None:
        """Take one event in; a Failure ends the stream."""
        if kind == "done":
            self.done = True
            return None
        try:
            event = json.loads(value.decode("utf-8"))
        except UnicodeDecodeError:
            return Failure("protocol_error", f"an event of the stream is not UTF-8: {_shown(value)}"[:_SHOWN])
        except (ValueError, RecursionError):
            if kind == "error":
                return classify_error(_shown(value), None)
            return Failure("protocol_error", f"an event of the stream is not JSON: {_shown(value)}"[:_SHOWN])
        if kind == "error" or (isinstance(event, dict) and _is_error(event)):
            return classify_error(event, None, had_text=self.n_chunks > 0)
        if not isinstance(event, dict):
            return Failure("protocol_error", f"an event of the stream is not an object: {_shown(value)}"[:_SHOWN])
        try:
            self._event(event, now_ms)
        except StreamError as error:
            return Failure("protocol_error", str(error)[:_SHOWN])
        return None

    def _event(self, event: dict[str, Any], now_ms: float) -> None:
        fingerprint = event.get("system_fingerprint")
        if isinstance(fingerprint, str) and fingerprint:
            self.system_fingerprint = fingerprint
        choices = event.get("choices")
        if choices:
            if not isinstance(choices, list) or not isinstance(choices[0], dict):
                raise StreamError(f"`choices` is not a list of objects: {_shown(choices)}")
            for choice in choices:
                if isinstance(choice, dict) and choice.get("index", 0) in (0, None):
                    self._choice(choice, now_ms)
        if self.finish_reason is not None:
            # Earlier timings may be those of the previous request, and earlier counts are not final.
            self._figures(event)

    def _choice(self, choice: dict[str, Any], now_ms: float) -> None:
        delta = choice.get("delta")
        if delta is None:
            if isinstance(choice.get("message"), dict) or isinstance(choice.get("text"), str):
                raise StreamError("expected chunks with `delta`, found a complete answer in the stream")
            delta = {}
        if not isinstance(delta, dict):
            raise StreamError(f"`delta` is not an object: {_shown(delta)}")
        answer = _text(delta.get("content"), "content")
        thought = _text(delta.get("reasoning_content"), "reasoning_content") or _text(
            delta.get("reasoning"), "reasoning"
        )
        other = ""
        for name in ("tool_calls", "function_call", "refusal"):
            if delta.get(name):
                other = name
                note = f"{name}: {_shown(delta[name])}" if name == "refusal" else f"the answer holds {name}, not text"
                if len(self.notes) < 20 and note not in self.notes:
                    self.notes.append(note)
        if answer or thought or other:
            if self.finish_reason is not None:
                raise StreamError("text after the finish reason")
            self._token(answer, thought, now_ms)
        reason = choice.get("finish_reason")
        if reason is not None:
            if not isinstance(reason, str):
                raise StreamError(f"`finish_reason` is not a text: {_shown(reason)}")
            if self.finish_reason not in (None, reason):
                raise StreamError(f"two finish reasons: {self.finish_reason} and {reason}")
            self.finish_reason = reason

    def _token(self, answer: str, thought: str, now_ms: float) -> None:
        self.n_chunks += 1
        self.last_token_ms = now_ms
        if self.first_token_ms is None:
            self.first_token_ms = now_ms
        if thought:
            self.reasoning.append(thought)
        if answer:
            self.content.append(answer)
            if self.first_answer_ms is None:
                self.first_answer_ms = now_ms
        self._size += len(answer) + len(thought)
        if self._size > MAX_TEXT:
            raise StreamError(f"the answer is longer than {MAX_TEXT} characters")

    def _figures(self, event: dict[str, Any]) -> None:
        usage = event.get("usage")
        if isinstance(usage, dict):
            self.prompt_tokens = _count(usage.get("prompt_tokens"), self.prompt_tokens)
            self.completion_tokens = _count(usage.get("completion_tokens"), self.completion_tokens)
        timings = event.get("timings")
        if isinstance(timings, dict):
            good, bad = clean_timings(timings)
            self.timings = good
            if bad:
                self.notes.append(f"timings left out, not finite numbers from 0: {', '.join(bad)}")

    def ended(self) -> Failure | None:
        """Whether the stream, now over, is a complete answer."""
        if not self.done:
            what = "without [DONE]" if self.finish_reason else "without a finish reason and [DONE]"
            return Failure("stream_error", f"the stream ended {what}")
        if self.finish_reason is None:
            return Failure("protocol_error", "the stream ended with [DONE] and without a finish reason")
        return None


def clean_timings(timings: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    """The raw timings that are finite and not negative, and the names of the others."""
    good: dict[str, float] = {}
    bad: list[str] = []
    for name, value in timings.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if abs(value) > 1e15 or not math.isfinite(value) or value < 0:
            bad.append(f"{name}={value!r:.40}")
        else:
            good[name] = value
    return good, bad


def classify_error(payload: object, status: int | None, *, had_text: bool = False) -> Failure:
    """What an error object, an error text or an error page means. `status` None: it came inside a stream."""
    error: object = payload.get("error", payload) if isinstance(payload, dict) else payload
    kind = str(error.get("type", "")) if isinstance(error, dict) else ""
    message = error.get("message") if isinstance(error, dict) else error
    detail = _shown(message if message else payload)
    if kind == "exceed_context_size_error" or _OVERFLOW.search(detail):
        fields = error if isinstance(error, dict) else {}
        sizes = _OVERFLOW_SIZES.search(detail)
        needed = _count(fields.get("n_prompt_tokens"), int(sizes[1]) if sizes else None)
        context = _count(fields.get("n_ctx"), int(sizes[2]) if sizes else None)
        return Failure("context_overflow", detail, needed, context)
    if isinstance(error, dict | str) and _TEMPLATE.search(detail) and "<html" not in detail.lower():
        return Failure("template_error", detail)
    if status is None:
        refused = kind == "invalid_request_error" and not had_text
        return Failure("request_refused" if refused else "stream_error", detail)
    if status >= 500:
        return Failure("server_error", f"status {status}: {detail}"[:_SHOWN])
    if status >= 400:
        return Failure("request_refused", f"status {status}: {detail}"[:_SHOWN])
    return Failure("protocol_error", f"status {status}: {detail}"[:_SHOWN])


def whole_text(parts: list[str]) -> str:
    """The parts as one text; halves of a surrogate pair are united, lone ones become U+FFFD."""
    text = "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _is_error(event: dict[str, Any]) -> bool:
    return bool(event.get("error")) or event.get("object") == "error"


def _text(value: object, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in value):
        return "".join(p["text"] for p in value)
    raise StreamError(f"`{name}` is not a text: {_shown(value)}")


def _count(value: object, otherwise: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else otherwise


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        value = value[: 4 * _SHOWN].decode("utf-8", "replace")
    text = value if isinstance(value, str) else repr(value)
    return " ".join(whole_text([text[: 4 * _SHOWN]]).split())[:_SHOWN]
