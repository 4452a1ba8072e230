"""Event streams: every split of the bytes gives the same transcript."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_peer import delta, event

from bench.client.outcomes import Failure, classify_error, whole_text
from bench.client.sse import MAX_LINE, EventReader, StreamError
from bench.client.stream import Transcript, clean_timings

TEXT = "s = 'a\u2028b\u0085c'  # 模型 \U0001f642\n"
RAW = (
    b":\n\n: ping - 1\n\n"
    + event(delta({"role": "assistant", "content": None}))
    + b":\n\n"
    + event(delta({"content": TEXT[:9]}))
    + b"data:\n\n"
    + event(delta({"content": TEXT[9:]}))
    + event(delta({}, "stop"))
    + event(
        {
            "choices": [],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7},
            "timings": {"prompt_n": 11, "predicted_n": 7, "predicted_ms": 100.0},
        }
    )
    + b"data: [DONE]"
)


def read(*pieces: bytes) -> tuple[Transcript, Failure | None]:
    events, said = EventReader(), Transcript()
    for number, piece in enumerate([*pieces, None]):
        for kind, value in events.close() if piece is None else events.feed(piece):
            failure = said.take(kind, value, float(number))
            if failure is not None:
                return said, failure
    return said, said.ended()


def check(said: Transcript, failure: Failure | None) -> None:
    assert failure is None
    assert "".join(said.content) == TEXT
    assert said.finish_reason == "stop"
    assert (said.prompt_tokens, said.completion_tokens) == (11, 7)
    assert said.timings["predicted_n"] == 7
    assert said.n_chunks == 2


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"])
def test_every_split_in_two_and_byte_by_byte(ends: bytes) -> None:
    raw = RAW.replace(b"\n", ends)
    for i in range(1, len(raw)):
        check(*read(raw[:i], raw[i:]))
    check(*read(*(bytes([b]) for b in raw)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=6), st.data())
def test_any_text_in_any_split(parts: list[str], data: st.DataObject) -> None:
    raw = b"".join(event(delta({"content": p})) for p in parts) + event(delta({}, "stop")) + b"data: [DONE]\n\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    said, failure = read(*(raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)))
    assert failure is None
    assert "".join(said.content) == "".join(parts)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([b"data: ", b"\n", b"\r", b"{", b'{"choices":[{}]}'])))
)
def test_any_bytes_are_an_outcome(pieces: list[bytes]) -> None:
    _, failure = read(*pieces)
    assert failure is not None
    assert failure.outcome in (
        "stream_error",
        "protocol_error",
        "context_overflow",
        "template_error",
        "request_refused",
    )


def test_first_token_times_skip_pings_and_the_role() -> None:
    said, _ = read(
        b": ping\n\n",
        event(delta({"role": "assistant", "content": ""})),
        event(delta({"reasoning_content": "hm"})),
        event(delta({"reasoning": " so"})),
        event(delta({"content": "x", "reasoning_content": None})),
        event(delta({"content": "y"}, "length")),
    )
    assert (said.first_token_ms, said.first_answer_ms, said.last_token_ms) == (2.0, 4.0, 5.0)
    assert ("".join(said.reasoning), "".join(said.content), said.finish_reason) == ("hm so", "xy", "length")


LEGAL = {
    "no_blank_lines": RAW.replace(b"\n\n", b"\n"),
    "event_over_lines": b'data: {"choices":\ndata: [{"delta": {"content": "x"}}]}\n\n',
    "no_space": event(delta({"content": "x"})).replace(b"data: ", b"data:"),
    "ids_and_names": b"id: 1\nevent: message\nretry: 5\n" + event(delta({"content": "x"})),
    "byte_order_mark": b"\xef\xbb\xbf" + event(delta({"content": "x"})),
    "content_parts": event(delta({"content": [{"type": "text", "text": "x"}]})),
    "other_choice": event({"choices": [{"index": 1, "delta": {"content": "no"}}]}) + event(delta({"content": "x"})),
    "null_delta": event(delta(None)) + event(delta({"content": "x"})),
    "unknown_object": event({"type": "progress"}) + event(delta({"content": "x"})),
    "same_reason_twice": event(delta({"content": "x"}, "stop")) + event(delta({}, "stop")),
    "null_error": event({"error": None, **delta({"content": "x"})}),
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_but_awkward(name: str) -> None:
    raw = LEGAL[name]
    said, failure = read(raw if b"[DONE]" in raw else raw + event(delta({}, "stop")) + b"data: [DONE]\n")
    assert failure is None
    assert "".join(said.content) in ("x", TEXT)


WRONG = {
    "no_done": (event(delta({"content": "x"}, "stop")), "stream_error"),
    "no_finish": (event(delta({"content": "x"})) + b"data: [DONE]\n\n", "protocol_error"),
    "cut_done": (event(delta({}, "stop")) + b"data: [DO", "protocol_error"),
    "two_reasons": (event(delta({}, "stop")) + event(delta({}, "length")), "protocol_error"),
    "text_after_the_end": (event(delta({}, "stop")) + event(delta({"content": "x"})), "protocol_error"),
    "not_utf8": (b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n', "protocol_error"),
    "not_json": (b"data: <html>\n\n", "protocol_error"),
    "too_deep": (b"data: " + b"[" * 100_000 + b"\n\n", "protocol_error"),
    "not_an_object": (b"data: 5\n\n", "protocol_error"),
    "number_as_text": (event(delta({"content": 5})), "protocol_error"),
    "whole_message": (event({"choices": [{"message": {"content": "x"}}]}), "protocol_error"),
    "choices_not_a_list": (event({"choices": {"0": 1}}), "protocol_error"),
    "reason_not_text": (event(delta({}, 5)), "protocol_error"),  # type: ignore[arg-type]
    "bare_error": (b'{"error": {"message": "boom"}}\n', "stream_error"),
    "named_error": (b'event: error\ndata: {"message": "boom"}\n\n', "stream_error"),
    "error_in_words": (b"error: it broke\n\n", "stream_error"),
    "error_object": (event({"object": "error", "message": "boom"}), "stream_error"),
    "empty": (b"", "stream_error"),
}


@pytest.mark.parametrize("name", WRONG)
def test_incomplete_or_wrong(name: str) -> None:
    raw, outcome = WRONG[name]
    _, failure = read(raw)
    assert failure is not None
    assert failure.outcome == outcome
    assert failure.detail
    assert len(failure.detail) <= 500


TOKENS = st.lists(
    st.one_of(st.text(min_size=1, max_size=5), st.sampled_from([" a", "b", '"', "\\", "\t", "é"])), max_size=20
)


@settings(max_examples=200, deadline=None)
@given(TOKENS, st.sampled_from([(",", ":"), (", ", ": ")]), st.booleans(), st.data())
def test_events_read_by_their_frame_give_the_same_text(
    parts: list[str], separators: tuple[str, str], escaped: bool, data: st.DataObject
) -> None:
    """As llama-server writes them: alike but for the text, the second, and the field."""
    raw, want = b"", {"content": "", "reasoning_content": ""}
    for number, part in enumerate(parts):
        name = data.draw(st.sampled_from(["content", "reasoning_content"]))
        want[name] += part
        whole = {**delta({name: part}), "created": 1000 + number // 5, "system_fingerprint": "b1-x"}
        raw += b"data: " + json.dumps(whole, separators=separators, ensure_ascii=escaped).encode() + b"\n\n"
    said, failure = read(raw, event(delta({}, "stop")), b"data: [DONE]\n\n")
    assert failure is None
    assert ("".join(said.content), "".join(said.reasoning)) == (want["content"], want["reasoning_content"])
    assert said.n_chunks == len(parts)


def test_what_a_frame_must_not_hide() -> None:
    tail = b"data: [DONE]\n\n"
    first = event(delta({"content": "a"}))
    _, failure = read(first, event(delta({"content": "b"})).replace(b'"b"', b'"b", "x": {"content": "c"'), tail)
    assert failure is not None
    _, failure = read(
        first, b'data: {"choices": [{"index": 0, "delta": {"content": "\xff"}, "finish_reason": null}]}\n\n'
    )
    assert failure is not None
    assert failure.outcome == "protocol_error"
    said, failure = read(first, event(delta({}, "stop")), event(delta({"content": "late"})), tail)
    assert failure is not None
    assert "".join(said.content) == "a"
    quoted = event(delta({"content": '"content": "x"'}))
    said, failure = read(first, quoted, quoted, event(delta({}, "stop")), tail)
    assert "".join(said.content) == 'a"content": "x""content": "x"'


def test_a_giant_line_is_refused_before_it_fills_the_memory() -> None:
    events = EventReader()
    with pytest.raises(StreamError, match="longer than"):
        for _ in range(2 * MAX_LINE // 65536):
            list(events.feed(b"x" * 65536))
    assert len(events._tail) <= MAX_LINE


def test_only_final_timings_count_and_only_numbers() -> None:
    early = {**delta({"content": "x"}), "timings": {"predicted_n": 99}, "usage": {"completion_tokens": 99}}
    last = {
        "choices": [],
        "usage": {"prompt_tokens": -1, "completion_tokens": True},
        "timings": {"predicted_n": 3, "predicted_ms": -5.0, "prompt_ms": float("nan"), "cache_n": 0, "note": "x"},
    }
    said, failure = read(event(early), event(delta({}, "stop")), event(last), b"data: [DONE]\n")
    assert failure is None
    assert said.timings == {"predicted_n": 3, "cache_n": 0}
    assert (said.prompt_tokens, said.completion_tokens) == (None, None)
    assert "predicted_ms=-5.0" in said.notes[0]
    assert "prompt_ms=nan" in said.notes[0]
    assert clean_timings({"a": 10**400, "b": float("inf"), "c": True})[0] == {}


def test_tool_calls_and_refusals_are_noted_not_lost() -> None:
    said, failure = read(
        event(delta({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})),
        event(delta({"refusal": "I will not."})),
        event(delta({}, "tool_calls")),
        b"data: [DONE]\n",
    )
    assert failure is None
    assert said.notes == ["the answer holds tool_calls, not text", "refusal: I will not."]
    assert said.first_token_ms == 0.0
    assert said.first_answer_ms is None


def test_surrogate_halves() -> None:
    assert whole_text(["a\ud83d", "\ude42"]) == "a\U0001f642"
    assert whole_text(["\ud83d", "x"]) == "\ufffdx"
    said, _ = read(event(delta({"content": "a"})).replace(b'"a"', b'"\\ud83d"'), event(delta({}, "stop")))
    assert whole_text(said.content) == "\ufffd"


@pytest.mark.parametrize(
    ("message", "status", "outcome", "sizes"),
    [
        (
            "request (9120 tokens) exceeds the available context size (8192 tokens)",
            400,
            "context_overflow",
            (9120, 8192),
        ),
        ("the request exceeds the available context size. try increasing it", 500, "context_overflow", (None, None)),
        ("Jinja Exception: System role not supported", 500, "template_error", (None, None)),
        ("Unable to generate parser for this template", 400, "template_error", (None, None)),
        ("Loading model", 503, "server_error", (None, None)),
        ("invalid top_k", 400, "request_refused", (None, None)),
        ("decode failed", None, "stream_error", (None, None)),
    ],
)
def test_meaning_of_errors(
    message: str, status: int | None, outcome: str, sizes: tuple[int | None, int | None]
) -> None:
    for payload in ({"error": {"message": message}}, {"error": message}, {"message": message}, message):
        failure = classify_error(payload, status)
        assert (failure.outcome, (failure.n_prompt_tokens, failure.n_ctx)) == (outcome, sizes)
        assert message in failure.detail
    assert json.dumps(classify_error({"error": {"code": 1}}, status).detail)
