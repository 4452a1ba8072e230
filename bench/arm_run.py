"""One arm of a run: start its engine, put its questions, store what comes back, stop it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from bench.client import Reply, Request, ask_with_retries, count_tokens, decode_rate
from bench.engines import Engine, Server
from bench.errors import ArmError
from bench.grading import Grader, Limits
from bench.host import cores
from bench.judge import judge
from bench.presets import Arm
from bench.reporter import Answered, Reporter
from bench.rows import generation_row, identity_columns
from bench.suites import Level, Suite
from bench.telemetry import Sampler

MAX_RESTARTS = 2
"""Times that an arm's server is started again after it died under a question."""

BUSY_PCT = 10.0
"""Share of all cores that others may use before the report says that the host was busy."""


class RowSink(Protocol):
    """Where rows go: the store."""

    def append(self, table: str, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Store rows, all or none."""


@dataclass(frozen=True)
class Question:
    """A planned request that has no grade yet."""

    level: Level
    iteration: int
    seed: int
    attempts_before: int = 0
    """Attempts that earlier sessions of the run made."""


@dataclass(frozen=True)
class Context:
    """What every arm of a run shares."""

    run_id: str
    suite: Suite
    iterations: int
    store: RowSink
    grader: Grader
    limits: Mapping[str, Limits]
    """Limits of a grade by level, calibrated on this machine."""
    reporter: Reporter
    stop_soon: threading.Event
    """Set by the first Ctrl-C: finish the answer in flight, then stop."""
    stop_now: threading.Event
    """Set by the second: break it off."""
    gpu: Mapping[str, Any]
    gpu_index: int | None
    logs: Path


class ArmRun:
    """An arm from start to stop. Its row in `arms` follows it: every change of state is a new row."""

    def __init__(self, context: Context, arm: Arm, row: dict[str, Any], model: Path, engine: Engine) -> None:
        self._c = context
        self._arm = arm
        self._row = row
        self._model = model
        self._engine = engine
        self._server: Server | None = None
        # A server on the CPU shares its cores with no grader: one grading process took decoding from 90 to 10 tokens a
        # second. Beside a GPU the next answer is generated meanwhile, and grading never holds it up.
        self._pool = ThreadPoolExecutor(1, "grade") if arm.device == "gpu" else None
        self._pending: list[Future[None]] = []

    def save(self, status: str, **changes: Any) -> None:
        """A new row of `arms` with the arm's state."""
        self._row |= {"status": status, "event_at": datetime.now(UTC), **changes}
        self._c.store.append("arms", [self._row])

    def run(self, questions: Sequence[Question]) -> None:
        """Put all questions. Raises ArmError when the arm cannot go on; its server is stopped in any case."""
        sampler = Sampler(
            self._c.run_id,
            self._arm.arm_id,
            lambda rows: self._c.store.append("telemetry", rows),
            self._c.gpu_index if self._arm.device == "gpu" else None,
            lambda: self._server.pids if self._server else (),
        )
        sampler.phase = "baseline"
        sampler.start()
        try:
            sampler.phase = "load"
            self._start()
            sampler.phase = "idle"
            sampler.settle()
            sampler.phase = "generate"
            for question in questions:
                if self._c.stop_soon.is_set():
                    break
                self._ask(question)
            self._drain(0)
        finally:
            sampler.phase = "stop"
            self._stop()
            sampler.stop()
            self._measure(sampler)
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=False)

    def _start(self) -> None:
        self._c.reporter.phase("loading the model")
        log = self._c.logs / f"{self._arm.arm_id}.log"
        self._server = self._engine.start(self._arm, self._model, log)
        threads = cores() if self._arm.threads == "cores" else self._arm.threads
        facts = identity_columns(self._server.identity)
        self.save("running", **facts, load_ms=self._server.load_ms, log_path=str(log), threads=threads)

    def _stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _measure(self, sampler: Sampler) -> None:
        summary = sampler.summary()
        busy = summary.other_cpu_pct
        self._row |= {
            "vram_baseline_bytes": summary.vram_baseline_bytes,
            "vram_idle_bytes": summary.vram_idle_bytes,
            "vram_peak_bytes": summary.vram_peak_bytes,
            "vram_reason": summary.vram_reason,
            "rss_idle_bytes": summary.rss_idle_bytes,
            "rss_peak_bytes": summary.rss_peak_bytes,
            "host_busy": f"others used {busy:.0f} % of the cores" if busy is not None and busy > BUSY_PCT else None,
        }

    def _ask(self, question: Question) -> None:
        level, restarts = question.level, 0
        self._c.reporter.question(question.iteration, self._c.iterations, level.level_id)
        attempt = question.attempts_before
        while True:
            rows: list[dict[str, Any]] = []
            server = self._server
            assert server is not None

            def keep(reply: Reply, number: int, first: int = attempt, rows: list[dict[str, Any]] = rows) -> None:
                rows.append(self._keep(question, first + number, reply))

            reply = ask_with_retries(
                server.base_url,
                self._request(question),
                alive=server.alive,
                on_reply=keep,
                on_token=self._c.reporter.tokens,
                cancel=self._c.stop_now,
            )
            if reply.outcome == "cancelled":
                return
            attempt += len(rows)
            self._check(reply, server)
            if server.alive() or reply.outcome == "ok":
                break
            if restarts == MAX_RESTARTS:
                reason, detail = server.death() or ("server_died", "the server is gone")
                raise ArmError(
                    "server_died", f"{detail} ({reason}, after {MAX_RESTARTS} restarts)", advice="see the log"
                )
            restarts += 1
            self._c.reporter.warn(f"{self._arm.arm_id}: the server died under a question; starting it again")
            self._stop()
            self._start()
        self._grade(question, rows[-1], reply)
        if reply.outcome == "template_error":
            raise ArmError(
                "template_error", reply.detail or "the chat template failed", advice="every question fails alike"
            )

    def _request(self, question: Question) -> Request:
        return Request(
            messages=question.level.messages(),
            max_tokens=self._c.suite.max_tokens,
            seed=question.seed,
            sampler=self._arm.sampler.request_fields(),
            extra={"chat_template_kwargs": dict(self._arm.chat_template_kwargs)}
            if self._arm.chat_template_kwargs
            else {},
            time_limit_s=self._c.suite.request_limit_s,
        )

    def _check(self, reply: Reply, server: Server) -> None:
        wanted, found = server.identity.fingerprint, reply.system_fingerprint
        if wanted is not None and found is not None and wanted != found:
            raise ArmError("wrong_server", f"an answer came from build '{found}', the arm's server is '{wanted}'")

    def _keep(self, question: Question, attempt: int, reply: Reply) -> dict[str, Any]:
        """Store a generation as it came, before anything is made of it."""
        reasoning: int | None = 0
        if reply.reasoning:
            server = self._server
            reasoning = count_tokens(server.base_url, reply.reasoning) if server is not None else None
        if reply.completion_tokens is None:
            reasoning = None
        c = self._c
        row = generation_row(
            self._row, c.gpu, c.suite, question.level, question.iteration, attempt, question.seed, reply, reasoning
        )
        if reply.outcome != "cancelled":
            c.store.append("generations", [row])
        return row

    def _grade(self, question: Question, generation: dict[str, Any], reply: Reply) -> None:
        def work() -> None:
            self._judge(question, generation, reply)

        if self._pool is None:
            work()
            return
        self._pending.append(self._pool.submit(work))
        self._drain(4)

    def _drain(self, keep: int) -> None:
        """Wait until at most so many grades are pending. It bounds memory, and brings the grader's errors here."""
        while len(self._pending) > keep:
            self._pending.pop(0).result()

    def _judge(self, question: Question, generation: dict[str, Any], reply: Reply) -> None:
        level = question.level
        grade, tests = judge(generation, level, self._c.grader, limits=self._c.limits.get(level.level_id))
        # Tests first: a grade is what says that its tests are there.
        if tests:
            self._c.store.append("tests", tests)
        self._c.store.append("grades", [grade])
        self._c.reporter.answered(
            Answered(
                question.iteration,
                self._c.iterations,
                level.level_id,
                grade["outcome"],
                grade["points"],
                grade["max_points"],
                reply.completion_tokens,
                decode_rate(generation["predicted_n"], generation["predicted_ms"]),
                reply.total_ms / 1000,
                grade["detail"] or "",
            )
        )
