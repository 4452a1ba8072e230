"""One arm of a run: start its engine, put its questions, store what comes back, stop it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import resume
from bench.client import Reply, Request, ask_with_retries, count_tokens, decode_rate
from bench.engines import Engine, Server
from bench.errors import ArmError
from bench.events import EventLog
from bench.grading import Grader, Limits
from bench.judge import judge
from bench.presets import Arm
from bench.reporter import Answered, Reporter
from bench.rows import generation_row, identity_columns
from bench.store import Store
from bench.suites import Level, Suite
from bench.telemetry import Sampler, TelemetrySummary

MAX_RESTARTS = 2
"""Times that an arm's server is started again after it died under a question, in one session."""

IDLE_S = 0.5
"""How long the loaded server is left alone, so that memory at rest is sampled before the first question."""

MAX_PENDING = 4
"""Answers that may wait for their grade; more would only fill memory."""

BUSY_PCT = 10.0
"""Share of all cores that others may use before the report says that the host was busy."""


@dataclass(frozen=True)
class Question:
    """A planned request."""

    level: Level
    iteration: int
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        return self.level.level_id, self.iteration


@dataclass(frozen=True)
class Context:
    """What every arm of a run shares."""

    run_id: str
    suite: Suite
    iterations: int
    store: Store
    grader: Grader
    limits: Mapping[str, Limits]
    """Limits of a grade by level, calibrated on this machine."""
    reporter: Reporter
    events: EventLog
    stop_soon: threading.Event
    """Set by the first Ctrl-C: finish the answer in flight, then stop."""
    stop_now: threading.Event
    """Set by the second: break it off."""
    gpu: Mapping[str, Any]
    gpu_index: int | str | None
    logs: Path
    slots: int = 1
    """Questions asked at a time."""


class ArmRun:
    """An arm from start to stop. Its row in `arms` follows it: every change of state is a new row."""

    def __init__(self, context: Context, arm: Arm, row: dict[str, Any], model: Path, engine: Engine) -> None:
        self._c = context
        self._arm = arm
        self._row = row
        self._model = model
        self._engine = engine
        self._server: Server | None = None
        self._restarts = 0
        self._restarting = threading.Lock()
        self._attempts: Mapping[tuple[str, int], int] = {}
        # A server on the CPU shares its cores with no grader: one grading process took decoding from 90 to 10 tokens a
        # second. Beside a GPU the next answer is generated meanwhile, and grading never holds it up.
        self._pool = ThreadPoolExecutor(1, "grade") if arm.device == "gpu" else None
        self._pending: list[Future[None]] = []
        self._grading = threading.Lock()

    def save(self, status: str, **changes: Any) -> None:
        """A new row of `arms` with the arm's state."""
        self._row |= {"status": status, "event_at": datetime.now(UTC), **changes}
        self._c.store.append("arms", [self._row])
        reason = {"reason": self._row.get("reason")} if status == "failed" else {}
        self._c.events.add("arm", arm=self._arm.arm_id, status=status, **reason)

    def run(self, wanted: Sequence[Question], *, carried_on: bool) -> None:
        """Put the questions. With `carried_on`, those that have a verdict under the same identity are left out.

        Raises ArmError when the arm cannot go on; its server is stopped in any case.
        """
        sampler = Sampler(
            self._c.run_id,
            self._arm.arm_id,
            lambda rows: self._c.store.append("telemetry", rows),
            self._c.gpu_index,
            lambda: self._server.pids if self._server else (),
        )
        sampler.phase = "baseline"
        sampler.start()
        try:
            time.sleep(IDLE_S)
            sampler.phase = "load"
            self._start()
            sampler.phase = "idle"
            time.sleep(IDLE_S)
            sampler.phase = "generate"
            self._ask_all(self._left(wanted) if carried_on else wanted)
            self._drain(0)
        finally:
            sampler.phase = "stop"
            self._stop()
            if self._pool is not None:
                self._pool.shutdown(wait=True)
            sampler.stop()
            self._measure(sampler.summary())

    def _start(self) -> None:
        self._c.reporter.phase("loading the model")
        self._c.events.add("loading", arm=self._arm.arm_id)
        log = self._c.logs / f"{self._arm.arm_id}.log"
        self._server = server = self._engine.start(self._arm, self._model, log)
        self.save(
            "running",
            **identity_columns(server.identity),
            load_ms=server.load_ms,
            log_path=str(log),
            threads=server.threads,
            flags=list(server.flags),
        )

    def _stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _measure(self, summary: TelemetrySummary) -> None:
        busy = summary.other_cpu_pct
        peaks = {"vram_peak_bytes": summary.vram_peak_bytes, "rss_peak_bytes": summary.rss_peak_bytes}
        for name, value in peaks.items():
            # An arm that runs in rounds keeps the highest of all of them.
            known = [v for v in (value, self._row.get(name)) if v is not None]
            self._row[name] = max(known) if known else None
        for name, used in (("energy_j", summary.energy_j), ("throttled_s", summary.throttled_s)):
            before = self._row.get(name)
            self._row[name] = used if before is None or used is None else before + used
        self._row |= {
            "vram_baseline_bytes": summary.vram_baseline_bytes,
            "vram_idle_bytes": summary.vram_idle_bytes,
            "vram_reason": summary.vram_reason,
            "rss_idle_bytes": summary.rss_idle_bytes,
        }
        if busy is not None and busy > BUSY_PCT:
            self._row["host_busy"] = f"others used {busy:.0f} % of the cores"

    def _left(self, wanted: Sequence[Question]) -> list[Question]:
        """The questions without a verdict under this identity; answers that only lack their grade are graded now."""
        identity = {**self._row, "gpu_name": self._c.gpu.get("gpu_name"), "gpu_driver": self._c.gpu.get("gpu_driver")}
        done = resume.done(self._c.store.results, self._c.run_id, self._arm.arm_id, identity)
        self._attempts = done.attempts
        for question in wanted:
            if question.key in done.ungraded:
                self._judge(question, done.ungraded[question.key])
        return [q for q in wanted if q.key not in done.graded and q.key not in done.ungraded]

    def _ask_all(self, questions: Sequence[Question]) -> None:
        if self._c.slots == 1:
            for question in questions:
                if self._c.stop_soon.is_set():
                    return
                self._ask(question)
            return
        waiting, taking = iter(questions), threading.Lock()
        with ThreadPoolExecutor(self._c.slots, "slot") as pool:

            def work() -> None:
                while not self._c.stop_soon.is_set():
                    with taking:
                        question = next(waiting, None)
                    if question is None:
                        return
                    self._ask(question)

            done, _ = wait([pool.submit(work) for _ in range(self._c.slots)], return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()

    def _ask(self, question: Question) -> None:
        c, level = self._c, question.level
        c.reporter.question(question.iteration, c.iterations, level.level_id)
        c.events.add("question", arm=self._arm.arm_id, level=level.level_id, iteration=question.iteration)
        attempt = self._attempts.get(question.key, 0)
        while True:
            server = self._server
            assert server is not None
            rows: list[dict[str, Any]] = []

            def keep(reply: Reply, number: int, first: int = attempt, rows: list[dict[str, Any]] = rows) -> None:
                rows.append(self._keep(question, first + number, reply))

            reply = ask_with_retries(
                server.base_url,
                self._request(question),
                alive=server.alive,
                on_reply=keep,
                on_token=c.reporter.tokens if c.slots == 1 else None,
                cancel=c.stop_now,
            )
            if reply.outcome == "cancelled":
                return
            attempt += len(rows)
            self._check(reply, server)
            if reply.outcome == "ok" or server.alive():
                break
            self._restart(server)
        self._grade(question, rows[-1])
        if reply.outcome == "template_error":
            text = reply.detail or "the chat template failed"
            raise ArmError("template_error", text, advice="every question would fail alike: mend the template")

    def _restart(self, dead: Server) -> None:
        """Start the server again after it died under a question; with slots, the first to notice does it."""
        with self._restarting:
            if self._server is not dead:
                return
            reason, detail = dead.death() or ("server_died", "the server is gone")
            self._c.events.add("fault", arm=self._arm.arm_id, fault=reason, detail=detail)
            if self._restarts == MAX_RESTARTS:
                raise ArmError(
                    "server_died", f"{reason}: {detail}; started again {MAX_RESTARTS} times", advice="see its log"
                )
            self._restarts += 1
            self._c.reporter.warn(f"{self._arm.arm_id}: the server died under a question ({reason}); starting it again")
            self._stop()
            self._start()

    def _request(self, question: Question) -> Request:
        kwargs = dict(self._arm.chat_template_kwargs)
        return Request(
            messages=question.level.messages(),
            max_tokens=self._c.suite.max_tokens,
            seed=question.seed,
            sampler=self._arm.sampler.request_fields(),
            extra={"chat_template_kwargs": kwargs} if kwargs else {},
            time_limit_s=self._c.suite.request_limit_s,
        )

    def _check(self, reply: Reply, server: Server) -> None:
        wanted, found = server.identity.fingerprint, reply.system_fingerprint
        if wanted is not None and found is not None and wanted != found:
            raise ArmError("wrong_server", f"an answer came from build '{found}', the arm's server is '{wanted}'")

    def _keep(self, question: Question, attempt: int, reply: Reply) -> dict[str, Any]:
        """Store a generation as it came, before anything is made of it."""
        c, server = self._c, self._server
        tokens: int | None = 0
        if reply.completion_tokens is None:
            tokens = None
        elif reply.reasoning:
            tokens = count_tokens(server.base_url, reply.reasoning) if server is not None else None
        row = generation_row(
            self._row, c.gpu, c.suite, question.level, question.iteration, attempt, question.seed, reply, tokens
        )
        if reply.outcome != "cancelled":
            c.store.append("generations", [row])
        if reply.outcome != "ok":
            where = {"arm": self._arm.arm_id, "level": question.level.level_id, "iteration": question.iteration}
            c.events.add("fault", **where, attempt=attempt, fault=reply.outcome, detail=reply.detail)
        return row

    def _grade(self, question: Question, generation: dict[str, Any]) -> None:
        if self._pool is None:
            with self._grading:  # with slots, answers on the CPU are graded one at a time
                self._judge(question, generation)
            return
        with self._grading:
            self._pending.append(self._pool.submit(self._judge, question, generation))
        self._drain(MAX_PENDING)

    def _drain(self, keep: int) -> None:
        """Wait until at most so many grades are pending. It bounds memory, and brings the grader's errors here."""
        while True:
            with self._grading:
                if len(self._pending) <= keep:
                    return
                oldest = self._pending.pop(0)
            oldest.result()

    def _judge(self, question: Question, generation: dict[str, Any]) -> None:
        level = question.level
        grade, tests = judge(generation, level, self._c.grader, limits=self._c.limits.get(level.level_id))
        # Tests first: a grade is what says that its tests are there.
        if tests:
            self._c.store.append("tests", tests)
        self._c.store.append("grades", [grade])
        rate = decode_rate(generation["predicted_n"], generation["predicted_ms"])
        self._c.events.add(
            "graded",
            arm=self._arm.arm_id,
            level=level.level_id,
            iteration=question.iteration,
            outcome=grade["outcome"],
            points=grade["points"],
            tokens=generation["completion_tokens"],
            rate=rate,
            seconds=generation["total_ms"] / 1000,
        )
        self._c.reporter.answered(
            Answered(
                question.iteration,
                self._c.iterations,
                level.level_id,
                grade["outcome"],
                grade["points"],
                grade["max_points"],
                generation["completion_tokens"],
                rate,
                generation["total_ms"] / 1000,
                grade["detail"] or "",
            )
        )
