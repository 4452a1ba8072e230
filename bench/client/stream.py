"""What the events of a chat completion say: text, counts, timings, typed failures. Memory is bounded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.client.outcomes import SHOWN, Failure, classify_error, count, shown
from bench.client.sse import StreamError

MAX_TEXT = 64 << 20
"""Most text that one answer may hold, characters."""


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
    _plain: tuple[bytes, bytes, bool] | None = None
    """What stands before and after the text in the token events of this second, and whether it is reasoning."""

    @property
    def size(self) -> int:
        """Characters so far, of answer and reasoning together."""
        return self._size

    def take(self, kind: str, value: bytes, now_ms: float) -> Failure | None:
        """Take one event in; a Failure ends the stream."""
        if kind == "done":
            self.done = True
            return None
        if self._plain is not None and kind == "data" and self._took_plain(value, now_ms):
            return None
        try:
            event = json.loads(value.decode("utf-8"))
        except UnicodeDecodeError:
            return Failure("protocol_error", f"an event of the stream is not UTF-8: {shown(value)}"[:SHOWN])
        except (ValueError, RecursionError):
            if kind == "error":
                return classify_error(shown(value), None)
            return Failure("protocol_error", f"an event of the stream is not JSON: {shown(value)}"[:SHOWN])
        if kind == "error" or (isinstance(event, dict) and _is_error(event)):
            return classify_error(event, None, had_text=self.n_chunks > 0)
        if not isinstance(event, dict):
            return Failure("protocol_error", f"an event of the stream is not an object: {shown(value)}"[:SHOWN])
        try:
            self._event(event, now_ms)
        except StreamError as error:
            return Failure("protocol_error", str(error)[:SHOWN])
        self._plain = None if self.finish_reason is not None else _frame(event, value)
        return None

    def _took_plain(self, value: bytes, now_ms: float) -> bool:
        """Take in an event that differs from one read before in its text alone, without reading it as JSON.

        Only text that JSON writes as it is goes this way: no quote, no backslash, nothing that is not printable.
        """
        assert self._plain is not None
        before, after, is_thought = self._plain
        if not (value.startswith(before) and value.endswith(after)):
            return False
        raw = value[len(before) : len(value) - len(after)]
        if not raw or b'"' in raw or b"\\" in raw:
            return False
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            return False
        if not text.isprintable():
            return False
        self._token("" if is_thought else text, text if is_thought else "", now_ms)
        return True

    def _event(self, event: dict[str, Any], now_ms: float) -> None:
        fingerprint = event.get("system_fingerprint")
        if isinstance(fingerprint, str) and fingerprint:
            self.system_fingerprint = fingerprint
        choices = event.get("choices")
        if choices:
            if not isinstance(choices, list) or not isinstance(choices[0], dict):
                raise StreamError(f"`choices` is not a list of objects: {shown(choices)}")
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
            raise StreamError(f"`delta` is not an object: {shown(delta)}")
        answer = _text(delta.get("content"), "content")
        thought = _text(delta.get("reasoning_content"), "reasoning_content") or _text(
            delta.get("reasoning"), "reasoning"
        )
        other = ""
        for name in ("tool_calls", "function_call", "refusal"):
            if delta.get(name):
                other = name
                note = f"{name}: {shown(delta[name])}" if name == "refusal" else f"the answer holds {name}, not text"
                if len(self.notes) < 20 and note not in self.notes:
                    self.notes.append(note)
        if answer or thought or other:
            if self.finish_reason is not None:
                raise StreamError("text after the finish reason")
            self._token(answer, thought, now_ms)
        reason = choice.get("finish_reason")
        if reason is not None:
            if not isinstance(reason, str):
                raise StreamError(f"`finish_reason` is not a text: {shown(reason)}")
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
            self.prompt_tokens = count(usage.get("prompt_tokens"), self.prompt_tokens)
            self.completion_tokens = count(usage.get("completion_tokens"), self.completion_tokens)
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


_FRAME_KEYS = frozenset({"choices", "created", "id", "model", "system_fingerprint", "object"})


def _frame(event: dict[str, Any], value: bytes) -> tuple[bytes, bytes, bool] | None:
    """The bytes around the text of an event that holds one piece of text and nothing else that matters."""
    choices = event.get("choices")
    if not choices or len(choices) != 1 or not _FRAME_KEYS.issuperset(event):
        return None
    delta = choices[0].get("delta")
    if choices[0].get("index", 0) != 0 or not isinstance(delta, dict) or len(delta) != 1:
        return None
    name, text = next(iter(delta.items()))
    if name not in ("content", "reasoning_content", "reasoning") or not isinstance(text, str) or not text:
        return None
    for mark in (f'"{name}":"', f'"{name}": "'):
        whole = (mark + text + '"').encode("utf-8", "replace")
        if value.count(whole) == 1 and value.count(mark.encode()) == 1:
            at = value.index(whole)
            return value[: at + len(mark)], value[at + len(whole) - 1 :], name != "content"
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


def _is_error(event: dict[str, Any]) -> bool:
    return bool(event.get("error")) or event.get("object") == "error"


def _text(value: object, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in value):
        return "".join(p["text"] for p in value)
    raise StreamError(f"`{name}` is not a text: {shown(value)}")
