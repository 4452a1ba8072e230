"""One arm of a run: start its engine, put its questions, store what comes back, stop it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.client.request import ASKED_AGAIN, Reply, Request, ask, count_tokens
from bench.engines import Engine, Server
from bench.engines.health import await_death
from bench.errors import ArmError
from bench.grading import Grader, Limits
from bench.host import cores
from bench.presets.load import Arm
from bench.probe.run import Probe
from bench.reporter import Reporter
from bench.runner import resume
from bench.runner.clock import RunClock
from bench.runner.events import EventLog
from bench.runner.grade_queue import GradeQueue, may_run_beside
from bench.runner.stopping import Stopping
from bench.store.rows import generation_row, identity_columns
from bench.store.write import Store
from bench.suites.load import Level, Suite
from bench.telemetry.sampler import Sampler, TelemetrySummary

ATTEMPTS = 3
"""Times that a question is asked when no doing of the model kept its answer from coming."""

MAX_RESTARTS = 4
"""Times in a row that an arm's server is started again without a whole answer between."""

LOST: frozenset[str] = frozenset({"transport_error", "stream_error"})
"""Outcomes of a connection that broke, as a dying server breaks it."""

UNANSWERED_IN_A_ROW = 3
"""Questions in a row that came to nothing, by no doing of the model, before the arm is given up."""

PAUSES_S = (1.0, 2.0, 5.0, 10.0)
"""Waits before a question is asked again; the last one is used from there on."""

IDLE_S = 0.5
"""How long the loaded server is left alone, so that memory at rest is sampled before the first question."""

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
    stopping: Stopping
    gpu: Mapping[str, Any]
    gpu_index: int | str | None
    logs: Path
    slots: int = 1
    """Questions asked at a time."""
    idle_limit_s: float = 120.0
    """Longest wait for a next token."""
    first_token_limit_s: float = 600.0
    """Longest wait for a first token."""
    beside: bool | None = None
    """Whether grading runs beside the server; None decides by the arm and the cores."""
    probe: bool = True
    """Whether the speed is measured apart from the questions."""
    clock: RunClock = field(default_factory=RunClock)


class ArmRun:
    """An arm from start to stop. Its row in `arms` follows it: every change of state is a new row."""

    def __init__(self, context: Context, arm: Arm, row: dict[str, Any], model: Path, engine: Engine) -> None:
        self._c = context
        self._arm = arm
        self._row = row
        self._model = model
        self._engine = engine
        self._server: Server | None = None
        self._guard = threading.Lock()
        self._restarts = 0
        self._unanswered = 0
        self.not_measured = 0
        """Questions of this session that came to nothing, by no doing of the model."""
        self._attempts: Mapping[tuple[str, int], int] = {}
        self._grades = GradeQueue(context, arm.arm_id)

    def save(self, status: str, **changes: Any) -> None:
        """A new row of `arms` with the arm's state."""
        self._row |= {"status": status, "event_at": self._c.clock.now(), **changes}
        self._c.store.append("arms", [self._row])
        reason = {"reason": self._row.get("reason")} if status == "failed" else {}
        self._c.events.add("arm", arm=self._arm.arm_id, status=status, **reason)

    def run(self, wanted: Sequence[Question], *, carried_on: bool) -> None:
        """Put the questions. With `carried_on`, those that have a verdict under the same identity are left out, and
        where nothing is left and the engine can say what would answer, its server is not even started.

        Raises ArmError when the arm cannot go on; its server is stopped in any case.
        """
        if carried_on and self._all_done(wanted):
            return
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
            with self._c.stopping.breakable():
                self._start()
            sampler.phase = "idle"
            time.sleep(IDLE_S)
            questions = self._left(wanted) if carried_on else wanted
            self._grades.wait()  # nothing else runs beside a probe
            probe = Probe(self._c.store, self._c.run_id, self._arm, stop=self._c.stopping.soon, again=carried_on)
            if questions and self._c.probe:
                sampler.phase = "probe"
                self._probe(probe)
            sampler.phase = "generate"
            self._ask_all(questions)
            self._grades.wait()
            sampler.phase = "probe"
            probe.end(self._server)
        finally:
            sampler.phase = "stop"
            self._stop()
            self._grades.close()
            sampler.stop()
            self._measure(sampler.summary())
        probe.cross_check(self._engine, self._model)

    def _all_done(self, wanted: Sequence[Question]) -> bool:
        """Whether nothing has to be asked, as far as the engine can tell what would answer without starting it."""
        now = getattr(self._engine, "identity_now", None)
        identity = now(self._arm) if now is not None else None
        if identity is None:
            return False
        columns = {name: value for name, value in identity_columns(identity).items() if value is not None}
        return not self._left(wanted, columns)

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
        beside = self._c.beside
        if may_run_beside(self._arm, server.threads or 1, cores()) if beside is None else beside:
            self._grades.run_beside()

    def _probe(self, probe: Probe) -> None:
        self._c.reporter.phase("measuring the speed")
        server = self._server
        assert server is not None
        probe.start(server)
        if not server.alive():
            reason, detail = server.death() or ("server_died", "the server is gone")
            self._restart(server, reason, f"under the speed probe: {detail}")

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

    def _left(self, wanted: Sequence[Question], identity: Mapping[str, Any] | None = None) -> list[Question]:
        """The questions without a verdict under this identity; answers that only lack their grade are graded now."""
        gpu = {name: self._c.gpu.get(name) for name in ("gpu_name", "gpu_driver")}
        now = {**self._row, **(identity or {}), **gpu}
        done = resume.done(self._c.store.results, self._c.run_id, self._arm.arm_id, now)
        self._attempts = done.attempts
        for question in wanted:
            if question.key in done.ungraded:
                self._grades.add(question, done.ungraded[question.key])
        return [q for q in wanted if q.key not in done.graded and q.key not in done.ungraded]

    def _ask_all(self, questions: Sequence[Question]) -> None:
        soon = self._c.stopping.soon
        if self._c.slots == 1:
            for question in questions:
                if soon.is_set():
                    return
                self._ask(question)
            return
        waiting, taking, broken = iter(questions), threading.Lock(), threading.Event()
        with ThreadPoolExecutor(self._c.slots, "slot") as pool:

            def work() -> None:
                while not soon.is_set() and not broken.is_set():
                    with taking:
                        question = next(waiting, None)
                    if question is None:
                        return
                    try:
                        self._ask(question)
                    except BaseException:
                        broken.set()  # the others finish the answer that they are at, and ask no more
                        raise

            done, _ = wait([pool.submit(work) for _ in range(self._c.slots)], return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()

    def _ask(self, question: Question) -> None:
        c, level = self._c, question.level
        c.reporter.question(question.iteration, c.iterations, level.level_id)
        c.events.add("question", arm=self._arm.arm_id, level=level.level_id, iteration=question.iteration)
        before = self._attempts.get(question.key, 0)
        for attempt in range(1, ATTEMPTS + 1):
            with self._guard:  # another slot may be starting the server again
                server = self._server
            if server is None:
                return  # it could not, and says so itself
            reply = ask(
                server.base_url,
                self._request(question),
                on_token=c.reporter.tokens if c.slots == 1 else None,
                cancel=c.stopping.now,
            )
            if reply.outcome == "cancelled":
                return
            row = self._keep(question, before + attempt, reply, server)
            self._check(reply, server)
            if reply.outcome not in ASKED_AGAIN:
                break
            self._recover(server, reply, attempt)
            if c.stopping.soon.is_set():
                break
        self._grades.add(question, row)
        self._count(reply)

    def _recover(self, server: Server, reply: Reply, attempt: int) -> None:
        """After an answer that did not come: wait, and start the server again where it is dead or does not answer."""
        pause = PAUSES_S[min(max(attempt, self._restarts + 1), len(PAUSES_S)) - 1]
        end = time.monotonic() + pause
        while time.monotonic() < end and server.alive() and not self._c.stopping.soon.is_set():
            self._c.stopping.soon.wait(0.1)
        if reply.outcome in LOST:
            await_death(server, self._c.stopping.soon)
        if server.alive():
            # It said nothing for as long as it may, or failed twice in a row: it will not come back by itself.
            if reply.outcome != "idle_limit" and attempt < ATTEMPTS - 1:
                return
            self._restart(server, "server_hung", f"{reply.outcome}: {reply.detail}")
            return
        reason, detail = server.death() or ("server_died", "the server is gone")
        self._c.stopping.soon.wait(max(0.0, end - time.monotonic()))
        self._restart(server, reason, detail)

    def _restart(self, old: Server, reason: str, detail: str) -> None:
        """Start the server again; with slots, the first to notice does it."""
        with self._guard:
            if self._server is not old or self._c.stopping.soon.is_set():
                return
            self._c.events.add("fault", arm=self._arm.arm_id, fault=reason, detail=detail)
            if self._restarts == MAX_RESTARTS:
                text = f"{reason}: {detail}; started again {MAX_RESTARTS} times without a whole answer"
                raise ArmError("server_died", text, advice="see its log; the same command asks what is missing")
            self._restarts += 1
            self._c.reporter.warn(f"{self._arm.arm_id}: {reason} ({detail}); starting the server again")
            self._stop()
            self._start()

    def _count(self, reply: Reply) -> None:
        """Give the arm up when its server lives and yet answers nothing. Raises ArmError."""
        if reply.outcome == "template_error":
            text = reply.detail or "the chat template failed"
            raise ArmError("template_error", text, advice="every question would fail alike: mend the template")
        if reply.outcome in ("ok", "time_limit", "loop_ended", "context_overflow"):
            self._restarts = self._unanswered = 0
            return
        self._unanswered += 1
        self.not_measured += 1
        if self._unanswered >= UNANSWERED_IN_A_ROW:
            text = f"{self._unanswered} questions in a row without an answer, the last one: {reply.outcome}"
            raise ArmError("no_answers", f"{text}: {reply.detail}", advice="see the server's log")

    def _request(self, question: Question) -> Request:
        return Request(
            messages=question.level.messages(),
            max_tokens=self._c.suite.max_tokens,
            seed=question.seed,
            sampler=self._arm.sampler.request_fields(),
            extra=self._arm.request_extra(),
            time_limit_s=self._c.suite.request_limit_s,
            idle_limit_s=self._c.idle_limit_s,
            first_token_limit_s=self._c.first_token_limit_s,
            end_loops=self._arm.end_loops,
        )

    def _check(self, reply: Reply, server: Server) -> None:
        wanted, found = server.identity.fingerprint, reply.system_fingerprint
        if wanted is not None and found is not None and wanted != found:
            raise ArmError("wrong_server", f"an answer came from build '{found}', the arm's server is '{wanted}'")

    def _keep(self, question: Question, attempt: int, reply: Reply, server: Server) -> dict[str, Any]:
        """Store a generation as it came, before anything is made of it."""
        c = self._c
        tokens: int | None = 0
        if reply.completion_tokens is None:
            tokens = None
        elif reply.reasoning:
            tokens = count_tokens(server.base_url, reply.reasoning)
        row = generation_row(
            self._row, c.gpu, c.suite, question.level, question.iteration, attempt, question.seed, reply, tokens
        )
        c.store.append("generations", [row])
        if reply.outcome != "ok":
            where = {"arm": self._arm.arm_id, "level": question.level.level_id, "iteration": question.iteration}
            c.events.add("fault", **where, attempt=attempt, fault=reply.outcome, detail=reply.detail)
        return row
