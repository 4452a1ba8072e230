"""What a request can come to, and what a server's error means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

SHOWN = 500
"""Most characters of a server's words that are kept as detail."""

ReplyOutcome = Literal[
    "ok",
    "time_limit",
    "loop_ended",
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
again. `loop_ended`: the answer repeated itself, and the request allowed to end it. `cancelled`: this program broke the
request off."""

_OVERFLOW = re.compile(r"exceed\w*\b.{0,60}\bcontext|context\b.{0,60}\bexceed|maximum context length", re.I | re.S)
_OVERFLOW_SIZES = re.compile(r"\((\d+) tokens\).{0,80}?\((\d+) tokens\)", re.S)
_TEMPLATE = re.compile(r"\bjinja\b|\bchat[ _-]?template\b|\btemplate\b", re.I)


@dataclass(frozen=True)
class Failure:
    """Why a request has no complete answer."""

    outcome: ReplyOutcome
    detail: str
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None


def classify_error(payload: object, status: int | None, *, had_text: bool = False) -> Failure:
    """What an error object, an error text or an error page means. `status` None: it came inside a stream."""
    error: object = payload.get("error", payload) if isinstance(payload, dict) else payload
    kind = str(error.get("type", "")) if isinstance(error, dict) else ""
    message = error.get("message") if isinstance(error, dict) else error
    detail = shown(message if message else payload)
    if kind == "exceed_context_size_error" or _OVERFLOW.search(detail):
        fields = error if isinstance(error, dict) else {}
        sizes = _OVERFLOW_SIZES.search(detail)
        needed = count(fields.get("n_prompt_tokens"), int(sizes[1]) if sizes else None)
        context = count(fields.get("n_ctx"), int(sizes[2]) if sizes else None)
        return Failure("context_overflow", detail, needed, context)
    if isinstance(error, dict | str) and _TEMPLATE.search(detail) and "<html" not in detail.lower():
        return Failure("template_error", detail)
    if status is None:
        refused = kind == "invalid_request_error" and not had_text
        return Failure("request_refused" if refused else "stream_error", detail)
    if status >= 500:
        return Failure("server_error", f"status {status}: {detail}"[:SHOWN])
    if status >= 400:
        return Failure("request_refused", f"status {status}: {detail}"[:SHOWN])
    return Failure("protocol_error", f"status {status}: {detail}"[:SHOWN])


def whole_text(parts: list[str]) -> str:
    """The parts as one text; halves of a surrogate pair are united, lone ones become U+FFFD."""
    text = "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def count(value: object, otherwise: int | None) -> int | None:
    """A count as a server may give it, or `otherwise`."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else otherwise


def shown(value: object) -> str:
    """A value in one line of at most SHOWN characters."""
    if isinstance(value, bytes):
        value = value[: 4 * SHOWN].decode("utf-8", "replace")
    text = value if isinstance(value, str) else repr(value)
    return " ".join(whole_text([text[: 4 * SHOWN]]).split())[:SHOWN]
