"""The order in which a run happens."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from bench.engines import Engine
from bench.errors import ArmError, BenchError
from bench.gguf.look import GgufFacts, check, first_error, look
from bench.grading import Grader, calibrate
from bench.models.obtain import ModelFile, obtain
from bench.presets.load import Arm
from bench.regrade.again import add_counterfactuals
from bench.reporter import Reporter
from bench.runner import environment, resume, seeds
from bench.runner.arm_run import ArmRun, Context, Question
from bench.runner.clock import RunClock, newest_state
from bench.runner.events import EventLog
from bench.runner.guards import Guards
from bench.runner.rounds import Rounds
from bench.runner.stopping import Stopping
from bench.store.rows import arm_row, model_columns, plan_rows
from bench.store.write import Store
from bench.suites.load import Suite


@dataclass(frozen=True)
class RunSpec:
    """Everything that a run is to be, decided before it starts."""

    run_id: str
    lineup_id: str
    arms: tuple[Arm, ...]
    """In the order in which they run."""
    suite: Suite
    iterations: int
    seed: int
    engines: Mapping[str, Engine]
    """The engine of each arm, by arm id."""
    model_cache: Path
    carried_on: bool = False
    """Whether an unfinished run is continued."""
    rounds: Rounds = field(default_factory=Rounds)
    slots: int = 1
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Arms that cannot run here, as far as could be seen before the start, with the reasons."""
    gpu_index: int | str | None = None
    allow_busy: bool = False
    """Measure beside other processes on the GPU, with a caveat."""
    idle_limit_s: float = 120.0
    """Longest wait for a next token; pings do not count."""
    first_token_limit_s: float = 600.0
    """Longest wait for a first token (the prompt is read meanwhile)."""
    grade_beside: bool | None = None
    """Whether answers are graded while the next one is generated; None decides by the arm and the cores."""
    probe: bool = True
    """Whether the speed is measured apart from the questions."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else was asked for, as stored with the run."""


@dataclass(frozen=True)
class RunEnd:
    """How a run ended."""

    run_id: str
    status: str
    """finished, interrupted or failed."""
    failed: tuple[tuple[str, str], ...]
    """(arm id, one line) of each arm that did not finish."""


def run(spec: RunSpec, store: Store, grader: Grader, reporter: Reporter) -> RunEnd:
    """Run a lineup. What happened is in the store, whatever happens. Raises BenchError when nothing could start."""
    reporter.line("grading the suite's own reference solutions")
    limits = calibrate(grader, spec.suite).limits
    guards = Guards(spec.arms, spec.gpu_index, allow_busy=spec.allow_busy)
    with store.lock(spec.run_id), guards.device():
        facts = environment.facts(spec.gpu_index)
        events = EventLog(store.logs(spec.run_id))
        stopping = Stopping()
        context = Context(
            spec.run_id, spec.suite, spec.iterations, store, grader, limits, reporter, events, stopping,
            facts, spec.gpu_index, store.logs(spec.run_id), spec.slots,
            spec.idle_limit_s, spec.first_token_limit_s, spec.grade_beside, spec.probe,
            RunClock(newest_state(store.results, spec.run_id) if spec.carried_on else None),
        )  # fmt: skip
        with stopping.signals(reporter):
            return _Run(spec, context, guards).go(_run_row(spec, grader, facts))


class _Run:
    """A run under way: its arms' rows, and what failed so far."""

    def __init__(self, spec: RunSpec, context: Context, guards: Guards) -> None:
        self._guards = guards
        self._facts: dict[str, GgufFacts] = {}
        self._spec = spec
        self._c = context
        self._rows = {arm.arm_id: arm_row(spec.run_id, arm, n) for n, arm in enumerate(spec.arms, 1)}
        self._failed: dict[str, str] = {}
        self._not_measured: dict[str, int] = {}
        self._began: set[str] = set()
        keys = [(level, i) for i in range(1, spec.iterations + 1) for level in spec.suite.levels]
        self._questions = [Question(lv, i, seeds.request_seed(spec.seed, lv.level_id, i)) for lv, i in keys]

    def go(self, base: Mapping[str, Any]) -> RunEnd:
        spec, store = self._spec, self._c.store

        def save(status: str, reason: str | None = None) -> None:
            store.append("runs", [{**base, "status": status, "reason": reason, "event_at": self._c.clock.now()}])
            self._c.events.add("run", status=status, reason=reason)

        save("running")
        try:
            if not spec.carried_on or not resume.has_plan(store.results, spec.run_id):
                wanted = {q.key: q.seed for q in self._questions}
                store.append("plan", plan_rows(spec.run_id, spec.arms, spec.suite, spec.iterations, wanted))
            now = self._c.clock.now()
            store.append("arms", [{**row, "status": "planned", "event_at": now} for row in self._rows.values()])
            with contextlib.suppress(KeyboardInterrupt):  # a download or a load was broken off: nothing is lost
                self._all_rounds(self._models())
            self._counterfactuals()
        except BaseException as e:
            # Whatever it is, the store says that the run did not finish. A SIGKILL leaves it "running"; the lock that
            # died with the process tells the two apart.
            with contextlib.suppress(BenchError, OSError):
                save("failed", f"{type(e).__name__}: {e}"[:500])
            raise
        status, reason = "finished", None
        if self._c.stopping.soon.is_set():
            status, reason = "interrupted", "stopped by the user"
        elif self._failed:
            status, reason = "failed", f"{len(self._failed)} of {len(spec.arms)} arms did not finish"
        elif lost := sum(self._not_measured.values()):
            # Not finished: a finished run is not carried on, and these are still to be asked.
            status, reason = "failed", f"{lost} questions were not measured"
        save(status, reason)
        store.merge(spec.run_id)
        asked = {
            arm_id: f"{n} questions were not measured; the same command asks them again"
            for arm_id, n in self._not_measured.items()
            if n and arm_id not in self._failed
        }
        return RunEnd(spec.run_id, status, tuple({**self._failed, **asked}.items()))

    def _models(self) -> dict[str, ModelFile | None]:
        """Every arm's model, proved, before the first arm starts: a download must not run beside a measurement."""
        out: dict[str, ModelFile | None] = {}
        for arm in self._spec.arms:
            row = self._rows[arm.arm_id]
            try:
                if arm.arm_id in self._spec.problems:
                    raise ArmError("engine_unavailable", "; ".join(self._spec.problems[arm.arm_id]))
                if arm.endpoint_model is not None:  # the model is the server's, and nothing of it can be proved
                    out[arm.arm_id] = None
                    continue
                with self._c.stopping.breakable():
                    model = obtain(arm.model, self._spec.model_cache, progress=self._c.reporter.download)
                row |= model_columns(model)
                facts = look(model.path)
                row |= {"architecture": facts.architecture, "quant": facts.quant, "parameters": facts.parameters}
                if error := first_error(check(facts, arm)):
                    raise error
                self._facts[arm.arm_id] = facts
                out[arm.arm_id] = model
            except ArmError as e:
                self._c.store.append("arms", [{**row, **failure(e), "event_at": self._c.clock.now()}])
                self._note(arm, e)
        return out

    def _all_rounds(self, models: Mapping[str, ModelFile | None]) -> None:
        """All arms, a round of iterations at a time; a plain run has one round of all iterations."""
        spec, rounds = self._spec, self._spec.rounds
        ended = rounds.ended(self._c.store.results, spec.run_id) if spec.carried_on else frozenset()
        active = [arm for arm in spec.arms if arm.arm_id in models and arm.arm_id not in ended]
        for first, last in rounds.of(spec.iterations):
            questions = [q for q in self._questions if first <= q.iteration <= last]
            for arm in list(active):
                if self._c.stopping.soon.is_set():
                    return
                if not self._arm(arm, models[arm.arm_id], questions, last):
                    active.remove(arm)
                elif left := self._guards.after(arm, self._c.stopping.soon):
                    self._c.reporter.warn(left)
            if self._c.stopping.soon.is_set():
                return
            for arm_id in rounds.stops(
                self._c.store, spec, [arm.arm_id for arm in active], self._c.reporter, self._c.clock.now()
            ):
                active = [arm for arm in active if arm.arm_id != arm_id]
            if not active:
                return

    def _arm(self, arm: Arm, model: ModelFile | None, questions: Sequence[Question], last: int) -> bool:
        """Run one arm's part of a round. False when it failed."""
        spec, row = self._spec, self._rows[arm.arm_id]
        self._c.reporter.begin_arm(arm.arm_id, spec.arms.index(arm) + 1, len(spec.arms), len(questions))
        arm_run = ArmRun(self._c, arm, row, model.path if model else Path(), spec.engines[arm.arm_id])
        # A second round finds its first one in the store; only what has no verdict is asked.
        carried_on = spec.carried_on or arm.arm_id in self._began
        self._began.add(arm.arm_id)
        try:
            if arm.arm_id in self._facts and (busy := self._guards.before(arm, self._facts[arm.arm_id])):
                row["host_busy"] = busy
                self._c.reporter.warn(f"{arm.arm_id}: {busy}")
            arm_run.run(questions, carried_on=carried_on)
        except KeyboardInterrupt:
            self._c.stopping.soon.set()
        except ArmError as e:
            arm_run.save(**failure(e))
            self._note(arm, e)
            return False
        finally:
            self._not_measured[arm.arm_id] = self._not_measured.get(arm.arm_id, 0) + arm_run.not_measured
            self._c.reporter.end_arm()
            self._c.store.merge(spec.run_id)
        stopped = self._c.stopping.soon.is_set()
        if stopped:
            arm_run.save("interrupted", reason="stopped by the user")
        else:
            arm_run.save("finished" if spec.rounds.ends(last, spec.iterations) else "running", reason=None)
        return True

    def _counterfactuals(self) -> None:
        """Grade failures of the interface again with the missing name bound. The score is without them: an error is
        only said."""
        spec, c = self._spec, self._c
        if c.stopping.soon.is_set():
            return
        try:
            add_counterfactuals(c.store, spec.run_id, spec.suite, c.grader, limits=c.limits, stop=c.stopping.soon)
        except (BenchError, OSError, duckdb.Error) as e:
            line = " ".join(str(e).split())[:300]
            c.reporter.warn(f"counterfactual grades are missing: {line}; `regrade` adds them")
            c.events.add("warning", text=f"counterfactual grades: {line}")

    def _note(self, arm: Arm, error: ArmError) -> None:
        self._failed[arm.arm_id] = str(error)
        self._c.reporter.warn(f"{arm.arm_id}: {error}")


def failure(e: ArmError) -> dict[str, Any]:
    """The columns of `arms` that say why an arm failed."""
    return {
        "status": "failed",
        "reason": e.reason,
        "detail": e.detail,
        "advice": e.advice or None,
        "log_line": e.log_line,
    }


def _run_row(spec: RunSpec, grader: Grader, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **facts,
        "run_id": spec.run_id,
        "origin": "bench",
        "lineup_id": spec.lineup_id,
        "suite_id": spec.suite.suite_id,
        "suite_title": spec.suite.title,
        "iterations": spec.iterations,
        "max_tokens": spec.suite.max_tokens,
        "request_limit_s": spec.suite.request_limit_s,
        "seed": spec.seed,
        "arm_order": [arm.arm_id for arm in spec.arms],
        "grading_provider": grader.provider,
        "settings": json.dumps({**spec.settings, "slots": spec.slots}, sort_keys=True, default=str),
    }
