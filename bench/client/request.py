"""One request to a llama.cpp server: streamed, timed, with a typed outcome."""

from __future__ import annotations

import difflib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.client.loops import Watch
from bench.client.outcomes import Failure, ReplyOutcome, classify_error, whole_text
from bench.client.sse import EventReader, StreamError
from bench.client.stream import Transcript
from bench.client.transport import Disconnected, LimitedTransport, LimitReached, Limits
from bench.errors import UsageError

__all__ = ["ASKED_AGAIN", "Reply", "ReplyOutcome", "Request", "ask", "ask_with_retries", "count_tokens", "decode_rate"]

ASKED_AGAIN: frozenset[str] = frozenset({"transport_error", "server_error", "stream_error", "idle_limit"})
"""Outcomes that say nothing of the model. Reaching the total time limit is not among them: asking again would prefer
short answers."""

_ERROR_BODY = 64 << 10
_SAMPLER_FIELDS = frozenset(
    {"temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p", "top_n_sigma", "typical_p"}
    | {"xtc_probability", "xtc_threshold", "repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty"}
    | {"dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"}
    | {"mirostat", "mirostat_tau", "mirostat_eta", "min_keep", "samplers", "adaptive_target", "adaptive_decay"}
)
_OURS = frozenset({"messages", "max_tokens", "seed", "stream", "stream_options", "cache_prompt"})


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
    end_loops: bool = False
    """Break the answer off once it is caught in a repetition loop; the outcome is `loop_ended` then."""


@dataclass(frozen=True)
class Reply:
    """Everything that came back. Times are ms since the request was sent, on a monotonic clock."""

    outcome: ReplyOutcome
    detail: str | None
    """What the server or the transport said; with `ok`, what was odd about the answer."""
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
    """Chunks with text; not tokens."""
    started_at: float
    """Seconds since the epoch, UTC."""
    first_token_ms: float | None
    first_answer_ms: float | None
    last_token_ms: float | None
    total_ms: float
    n_prompt_tokens: int | None = None
    """For context_overflow: what the server says the prompt needs."""
    n_ctx: int | None = None


def request_body(request: Request) -> bytes:
    """The JSON that is sent.

    Raises UsageError for a sampler field that llama-server does not know (it would be ignored without a word), for an
    `extra` that replaces a field of ours, and for what JSON cannot say.
    """
    for name in request.sampler:
        if name not in _SAMPLER_FIELDS:
            near = difflib.get_close_matches(name, _SAMPLER_FIELDS, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"sampler: expected a request field of llama-server, found {name!r}{hint}")
    taken = sorted(set(request.extra) & (_OURS | _SAMPLER_FIELDS))
    if taken:
        raise UsageError(f"extra request fields: {', '.join(taken)} cannot be set here; use the sampler or the suite")
    body = {
        **request.extra,
        **request.sampler,
        "messages": [dict(m) for m in request.messages],
        "max_tokens": request.max_tokens,
        "seed": request.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": False,
    }
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise UsageError(f"the request cannot be written as JSON: {error}") from None


def ask(
    base_url: str,
    request: Request,
    *,
    on_token: Callable[[int], None] | None = None,
    cancel: threading.Event | None = None,
) -> Reply:
    """Ask once. Never raises for anything the server does. `on_token` gets the number of chunks so far.

    Once `cancel` is set the request is broken off within about 0.1 s, with what came so far and outcome `cancelled`.
    Raises UsageError for a request that cannot be sent as it is meant.
    """
    body = request_body(request)
    said = Transcript()
    started_at = time.time()
    limits = Limits(request.time_limit_s, request.first_token_limit_s, request.idle_limit_s, cancel)
    status: list[int] = []
    try:
        watch = Watch() if request.end_loops else None
        failure = _exchange(base_url, body, said, limits, status, on_token, watch)
    except LimitReached as reached:
        failure = Failure(reached.outcome, reached.detail)
    except StreamError as error:
        failure = Failure("protocol_error", str(error))
    except Disconnected as error:
        # After the headers this is a body that was cut short: a server that died in the middle of an answer.
        outcome: ReplyOutcome = "stream_error" if status and not error.reset else "transport_error"
        failure = Failure(outcome, str(error)[:500])
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        failure = Failure("protocol_error", _said(error))
    total_ms = (time.monotonic() - limits.started) * 1000
    notes = "; ".join(said.notes) or None
    return Reply(
        outcome=failure.outcome if failure else "ok",
        detail=failure.detail if failure else notes,
        status_code=status[0] if status else None,
        content=whole_text(said.content),
        reasoning=whole_text(said.reasoning),
        finish_reason=said.finish_reason,
        prompt_tokens=said.prompt_tokens,
        completion_tokens=said.completion_tokens,
        timings=said.timings,
        system_fingerprint=said.system_fingerprint,
        n_chunks=said.n_chunks,
        started_at=started_at,
        first_token_ms=said.first_token_ms,
        first_answer_ms=said.first_answer_ms,
        last_token_ms=said.last_token_ms,
        total_ms=total_ms,
        n_prompt_tokens=failure.n_prompt_tokens if failure else None,
        n_ctx=failure.n_ctx if failure else None,
    )


def ask_with_retries(
    base_url: str,
    request: Request,
    *,
    attempts: int = 3,
    backoff_s: Sequence[float] = (1, 2),
    alive: Callable[[], bool] = lambda: True,
    on_reply: Callable[[Reply, int], None] | None = None,
    on_token: Callable[[int], None] | None = None,
    cancel: threading.Event | None = None,
) -> Reply:
    """Ask, and ask again what failed by no doing of the model (ASKED_AGAIN): the same request with the same seed.

    `on_reply` gets every attempt's reply and its number from 1. No attempt follows once `alive()` is False or
    `cancel` is set. Returns the last reply.
    """
    for attempt in range(1, max(1, attempts) + 1):
        reply = ask(base_url, request, on_token=on_token, cancel=cancel)
        if on_reply is not None:
            on_reply(reply, attempt)
        if reply.outcome not in ASKED_AGAIN or attempt >= attempts or not alive():
            break
        wait = backoff_s[min(attempt, len(backoff_s)) - 1] if backoff_s else 0.0
        if not _pause(wait, alive, cancel):
            break
    return reply


def decode_rate(n: float | None, ms: float | None) -> float | None:
    """Tokens per second from raw counts: n tokens span n - 1 intervals. None below 2 tokens, or without a time."""
    if n is None or ms is None or n < 2 or not 0 < ms < float("inf"):
        return None
    return (n - 1) / ms * 1000


def count_tokens(base_url: str, text: str, *, limit_s: float = 30.0) -> int | None:
    """How many tokens the server's tokenizer makes of a text, without special tokens. None when it does not say."""
    if not text:
        return 0
    limits = Limits(limit_s, limit_s, limit_s, None)
    try:
        with _client(limits) as client:
            got = client.post(_url(base_url, "/tokenize"), json={"content": text, "add_special": False})
            tokens = got.json()["tokens"] if got.status_code == 200 else None
    except (LimitReached, Disconnected, httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return None
    return len(tokens) if isinstance(tokens, list) else None


def _exchange(
    base_url: str,
    body: bytes,
    said: Transcript,
    limits: Limits,
    status: list[int],
    on_token: Callable[[int], None] | None,
    watch: Watch | None,
) -> Failure | None:
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    with (
        _client(limits) as client,
        client.stream("POST", _url(base_url, "/v1/chat/completions"), content=body, headers=headers) as response,
    ):
        status.append(response.status_code)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code != 200 or kind in ("application/json", "text/html"):
            return _no_stream(response, kind)
        events = EventReader()
        # The stream itself is the cheapest to read; only an encoded body needs decoding (none was asked for).
        encoded = response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")
        assert isinstance(response.stream, httpx.SyncByteStream)
        for data in response.iter_bytes() if encoded else response.stream:
            now = time.monotonic()
            now_ms = (now - limits.started) * 1000
            for field_name, value in events.feed(data):
                before = said.n_chunks
                failure = said.take(field_name, value, now_ms)
                if said.n_chunks > before:
                    limits.token(now)
                    if on_token is not None:
                        on_token(said.n_chunks)
                    if watch is not None and failure is None:
                        loop = watch.caught(said.size, said.content or said.reasoning)
                        if loop is not None:
                            failure = Failure("loop_ended", f"the same {loop.period} characters over and over")
                if failure is not None or said.done:
                    return failure or said.ended()
            limits.left()
        return _at_end(events, said, limits)


def _at_end(events: EventReader, said: Transcript, limits: Limits) -> Failure | None:
    """The body is over without [DONE] on a line of its own: take in what its last bytes say."""
    now_ms = (time.monotonic() - limits.started) * 1000
    for field_name, value in events.close():
        failure = said.take(field_name, value, now_ms)
        if failure is not None and failure.outcome != "protocol_error":
            return failure
        if failure is not None or said.done:
            break  # half an event at the end of a body is a body that was cut
    return said.ended()


def _no_stream(response: httpx.Response, kind: str) -> Failure:
    """The server answered with an error, a page or an answer in one piece."""
    parts: list[bytes] = []
    size = 0
    for data in response.iter_bytes():
        parts.append(data)
        size += len(data)
        if size > _ERROR_BODY:
            break
    text = b"".join(parts)[:_ERROR_BODY].decode("utf-8", "replace")
    payload: object = text
    if not text.lstrip().startswith("<"):
        try:
            payload = json.loads(text)
        except (ValueError, RecursionError):
            payload = text
    code = response.status_code
    if 300 <= code < 400:
        where = response.headers.get("location", "nowhere")[:200]
        return Failure("protocol_error", f"status {code}: the server redirects to {where}")
    if code != 200:
        return classify_error(payload if payload else "(no body)", code)
    if isinstance(payload, dict) and payload.get("error"):
        return classify_error(payload, None)
    return Failure("protocol_error", f"expected an event stream, found {kind}: {' '.join(text.split())[:300]}")


def _client(limits: Limits) -> httpx.Client:
    headers = {"connection": "close", "accept-encoding": "identity", "user-agent": "gguf-bench"}
    # A fresh client for each request: after a stream the server drops the socket, whatever it promised.
    return httpx.Client(
        transport=LimitedTransport(limits), headers=headers, timeout=None, trust_env=False, follow_redirects=False
    )


def _url(base_url: str, path: str) -> str:
    base = base_url.rstrip("/")
    return base.removesuffix("/v1") + path


def _pause(seconds: float, alive: Callable[[], bool], cancel: threading.Event | None) -> bool:
    """Wait; False as soon as there is no use in asking again."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if cancel is not None:
            cancel.wait(min(left, 0.2))
        else:
            time.sleep(min(left, 0.2))
        if (cancel is not None and cancel.is_set()) or not alive():
            return False
    return not (cancel is not None and cancel.is_set())


def _said(error: Exception) -> str:
    text = " ".join(str(error).split())[:400]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
