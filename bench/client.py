"""One request to a llama.cpp server: streamed, timed, with a typed outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

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
]
"""`ok` is a finish reason and `[DONE]`. Only transport_error, server_error, stream_error and idle_limit are asked again."""


@dataclass(frozen=True)
class Request:
    """What is asked, complete: nothing is left to the server's defaults."""

    messages: tuple[Mapping[str, str], ...]
    max_tokens: int
    seed: int
    sampler: Mapping[str, float | int]
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further request fields, such as `chat_template_kwargs`."""
    time_limit_s: float = 900.0
    """Total, from sending to the last byte. Reaching it is an outcome."""
    idle_limit_s: float = 120.0
    """Longest wait for the next token once one has come; pings do not count."""
    first_token_limit_s: float = 600.0
    """Longest wait for the first token (the prompt is read meanwhile)."""


@dataclass(frozen=True)
class Reply:
    """Everything that came back. Times are ms since the request was sent, on a monotonic clock."""

    outcome: ReplyOutcome
    detail: str | None
    status_code: int | None
    content: str
    reasoning: str
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    timings: Mapping[str, float]
    """The server's own, raw; only from the final chunk. Empty when none came."""
    system_fingerprint: str | None
    n_chunks: int
    started_at: float
    """Seconds since the epoch, UTC."""
    first_token_ms: float | None
    first_answer_ms: float | None
    last_token_ms: float | None
    total_ms: float
    n_prompt_tokens: int | None = None
    """For context_overflow: what the server says the prompt needs."""
    n_ctx: int | None = None


def ask(base_url: str, request: Request, *, on_token: Callable[[int], None] | None = None) -> Reply:
    """Ask once. Never raises for anything the server does. `on_token` gets the number of chunks so far."""
    raise NotImplementedError
