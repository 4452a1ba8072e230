"""The host's part of a verdict: exit code, messages and expected ids must agree, whatever arrives on the pipe."""

from __future__ import annotations

import base64
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.grading import GradeJob
from bench.grading.verdict import Forged, judge, messages
from bench.grading.worker.wire import make_sender

KEY = bytes(range(16))
JOB = GradeJob("", "", ("test_a", "test_b"))
PASS = [["ready"], *[["test", t, "passed", "", "", "", "", "", "", ""] for t in JOB.expected], ["end"]]


def sent(parts: list[list[str]], key: bytes = KEY) -> bytes:
    """What the worker writes for these messages, through a real pipe."""
    read, write = os.pipe()
    send = make_sender(write, key)
    for message in parts:
        send(*message)
    os.close(write)
    data = b""
    while chunk := os.read(read, 65536):
        data += chunk
    os.close(read)
    return data


def reply(raw: bytes, **more: Any) -> dict[str, Any]:
    return {
        "raw": base64.b64encode(raw).decode(),
        "status": 0,
        "flags": [],
        "left": 0,
        "output_head": "",
        "wall_ms": 1.0,
        "cpu_ms": 1.0,
    } | more


def test_everything_agrees() -> None:
    assert judge(JOB, reply(sent(PASS)), KEY).passed


@pytest.mark.parametrize(
    ("parts", "more", "outcome"),
    [
        (PASS[:-1], {}, "exited"),
        (PASS, {"status": 1 << 8}, "exited"),
        (PASS, {"status": 97 << 8}, "exited"),
        (PASS, {"status": 9}, "exited"),
        (PASS, {"status": 11}, "exited"),
        (PASS, {"status": None}, "exited"),
        (PASS, {"status": 24}, "timeout"),
        (PASS, {"flags": ["wall"]}, "timeout"),
        (PASS, {"flags": ["memory"]}, "resources"),
        (PASS, {"flags": ["output"]}, "resources"),
        (PASS, {"flags": ["processes"]}, "resources"),
        (PASS, {"flags": ["result_flood"]}, "tampering"),
        (PASS, {"flags": ["host_gone"]}, "not_measured"),
        ([PASS[0], PASS[1], PASS[-1]], {}, "exited"),
        ([PASS[0], PASS[-1]], {}, "exited"),
        ([*PASS[:3], PASS[2], PASS[3]], {}, "tampering"),
        ([*PASS[:3], ["test", "test_z", *PASS[1][2:]], PASS[3]], {}, "tampering"),
        ([*PASS, ["tampering", "Any.__eq__"]], {}, "tampering"),
        (PASS[1:], {}, "not_measured"),
        ([], {}, "not_measured"),
        ([PASS[0], ["test", "test_a", "failed", "assertion", "m", "3", "", "", "", ""], *PASS[2:]], {}, "assertion"),
        ([PASS[0], ["test", "test_a", "skipped", "exited", "skipped: m", "", "", "", "", ""], *PASS[2:]], {}, "exited"),
    ],
)
def test_any_disagreement_is_no_pass(parts: list[list[str]], more: dict[str, Any], outcome: str) -> None:
    verdict = judge(JOB, reply(sent(parts), **more), KEY)
    assert verdict.outcome == outcome and not verdict.passed
    assert [t.test_id for t in verdict.tests] == list(JOB.expected)


def test_a_message_with_another_key_is_forged() -> None:
    assert judge(JOB, reply(sent(PASS, bytes(16))), KEY).outcome == "tampering"
    assert judge(JOB, reply(sent(PASS[:2]) + sent(PASS[2:], bytes(16))), KEY).outcome == "tampering"


@given(st.binary(max_size=300))
def test_bytes_without_the_key_never_pass(raw: bytes) -> None:
    for data in (raw, sent(PASS) + raw, sent(PASS[:2]) + raw, raw + sent(PASS)):
        verdict = judge(JOB, reply(data), KEY)
        assert not verdict.passed or data[: len(sent(PASS))] == sent(PASS)


@given(st.lists(st.lists(st.text(max_size=30), min_size=1, max_size=12), max_size=8), st.integers(0, 400))
def test_messages_survive_the_pipe_and_a_torn_end_is_left_out(parts: list[list[str]], cut: int) -> None:
    data = sent(parts)
    assert messages(data, KEY) == [[p.encode("utf-8", "backslashreplace").decode() for p in m] for m in parts]
    whole = messages(data[: max(0, len(data) - cut)], KEY)
    assert whole == messages(data, KEY)[: len(whole)]


def test_a_short_frame_is_forged() -> None:
    with pytest.raises(Forged):
        messages(bytes(64), KEY)


def test_lone_surrogates_do_not_break_a_report() -> None:
    assert messages(sent([["test", "\ud800x"]]), KEY) == [["test", "\\ud800x"]]
