"""The order in which a run happens."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import environment, seeds
from bench.arm_run import ArmRun, Context, Question
from bench.engines import Engine
from bench.errors import ArmError, BenchError
from bench.gguf import look
from bench.grading import Grader
from bench.grading.calibrate import calibrate
from bench.models import ModelFile, obtain
from bench.presets import Arm
from bench.reporter import Reporter
from bench.rows import arm_row, model_columns, plan_rows
from bench.store import Store
from bench.suites import Suite


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
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Arms that cannot run here, as far as could be seen before the start, with the reasons."""
    gpu_index: int | None = None
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
    limits = calibrate(grader, spec.suite)
    facts = environment.facts(spec.gpu_index)
    base = _run_row(spec, grader, facts)
    stop_soon, stop_now = threading.Event(), threading.Event()
    wanted = {
        (level.level_id, i): seeds.request_seed(spec.seed, level.level_id, i)
        for level in spec.suite.levels
        for i in range(1, spec.iterations + 1)
    }

    def save(status: str, reason: str | None = None) -> None:
        store.append("runs", [{**base, "status": status, "reason": reason, "event_at": datetime.now(UTC)}])

    with store.lock(spec.run_id), _signals(stop_soon, stop_now, reporter):
        save("running")
        store.append("plan", plan_rows(spec.run_id, spec.arms, spec.suite, spec.iterations, wanted))
        rows = {arm.arm_id: arm_row(spec.run_id, arm, n) for n, arm in enumerate(spec.arms, 1)}
        store.append("arms", [{**row, "status": "planned", "event_at": datetime.now(UTC)} for row in rows.values()])
        context = Context(
            spec.run_id, spec.suite, spec.iterations, store, grader, limits, reporter, stop_soon, stop_now,
            facts, spec.gpu_index, store.logs(spec.run_id),
        )  # fmt: skip
        failed: list[tuple[str, str]] = []
        try:
            models = _models(spec, rows, store, reporter, failed)
            for position, arm in enumerate(spec.arms, 1):
                if arm.arm_id not in models or stop_soon.is_set():
                    continue
                todo = [
                    Question(level, i, wanted[level.level_id, i])
                    for i in range(1, spec.iterations + 1)
                    for level in spec.suite.levels
                ]
                reporter.begin_arm(arm.arm_id, position, len(spec.arms), len(todo))
                error = _run_arm(context, arm, rows[arm.arm_id], models[arm.arm_id], spec.engines[arm.arm_id], todo)
                reporter.end_arm()
                if error is not None:
                    failed.append((arm.arm_id, error))
                    reporter.warn(f"{arm.arm_id}: {error}")
                store.merge(spec.run_id)
                if position < len(spec.arms) and arm.quiesce_s and not stop_soon.is_set():
                    time.sleep(arm.quiesce_s)
        except BaseException as e:
            # Whatever it is, the store says that the run did not finish; a SIGKILL leaves it "running", and the lock
            # that died with the process tells the two apart.
            with contextlib.suppress(BenchError, OSError):
                save("failed", f"{type(e).__name__}: {e}"[:500])
            raise
        status = "interrupted" if stop_soon.is_set() else "failed" if len(failed) == len(spec.arms) else "finished"
        save(
            status, "stopped by the user" if stop_soon.is_set() else "no arm could run" if status == "failed" else None
        )
        store.merge(spec.run_id)
    return RunEnd(spec.run_id, status, tuple(failed))


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
        "settings": json.dumps(dict(spec.settings), sort_keys=True, default=str),
    }


def _models(
    spec: RunSpec, rows: dict[str, dict[str, Any]], store: Store, reporter: Reporter, failed: list[tuple[str, str]]
) -> dict[str, ModelFile]:
    """Every arm's model file, proved, before the first arm starts: a download must not run beside a measurement."""
    out: dict[str, ModelFile] = {}
    for arm in spec.arms:
        try:
            if arm.arm_id in spec.problems:
                raise ArmError("engine_unavailable", "; ".join(spec.problems[arm.arm_id]))
            model = obtain(arm.model, spec.model_cache, progress=reporter.download)
            rows[arm.arm_id] |= model_columns(model)
            facts = look(model.path)
            rows[arm.arm_id] |= {
                "architecture": facts.architecture,
                "quant": facts.quant,
                "parameters": facts.parameters,
            }
            out[arm.arm_id] = model
        except ArmError as e:
            store.append("arms", [{**rows[arm.arm_id], **_failure(e)}])
            failed.append((arm.arm_id, str(e)))
            reporter.warn(f"{arm.arm_id}: {e}")
    return out


def _run_arm(
    context: Context, arm: Arm, row: dict[str, Any], model: ModelFile, engine: Engine, todo: list[Question]
) -> str | None:
    """Run one arm; None when it finished, else one line that says why not."""
    arm_run = ArmRun(context, arm, row, model.path, engine)
    try:
        arm_run.run(todo)
    except ArmError as e:
        arm_run.save(**_failure(e))
        return str(e)
    arm_run.save("interrupted" if context.stop_soon.is_set() else "finished")
    return None


def _failure(e: ArmError) -> dict[str, Any]:
    return {
        "status": "failed",
        "event_at": datetime.now(UTC),
        "reason": e.reason,
        "detail": e.detail,
        "advice": e.advice or None,
        "log_line": e.log_line,
    }


@contextlib.contextmanager
def _signals(soon: threading.Event, now: threading.Event, reporter: Reporter) -> Iterator[None]:
    """First SIGINT or SIGTERM: finish the answer in flight and stop cleanly. Second: break it off."""

    def handle(number: int, frame: object) -> None:  # noqa: ARG001
        if soon.is_set():
            now.set()
        else:
            soon.set()
            reporter.warn("stopping after this answer; once more to stop now")
        if number == signal.SIGTERM:
            now.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
