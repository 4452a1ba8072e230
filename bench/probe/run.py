"""The speed probe: prompt rate at a few lengths and decode rate at a few depths, apart from the suite.

It runs at an arm's start, while nothing else does, and shortly at its end. What it asks is in bench/probe/requests.py.
Rates are not stored: the views make them from the raw counts and times (bench/sql/65_probe.sql).
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from bench.engines import Engine, Server
from bench.engines.health import await_death
from bench.ids import new_id
from bench.presets.load import Arm
from bench.probe import llama_bench
from bench.probe.requests import Budget, Known, Measurement, Shot, what_was_measured
from bench.store.database import connect
from bench.store.write import Store

Stage = Literal["start", "end"]

BUDGETS: Mapping[tuple[str, Stage], Budget] = {
    ("cpu", "start"): Budget(6.0, 8.0),
    ("cpu", "end"): Budget(1.5, 5.0),
    ("gpu", "start"): Budget(15.0, 25.0),
    ("gpu", "end"): Budget(3.0, 6.0),
}
"""By the device of the arm. The first of the planned repetitions is made even where it takes more than `plan_s`."""


class Probe:
    """The probes of one arm in one session: `start`, and `end` to compare with it. Both store what they measure.

    Neither raises for what the server does. `again` says that the arm was probed before in this run (it is carried on,
    or has its next round): then `start` is short, and repeats what was measured then. `stop` breaks a probe off at
    once, without a row for what was under way.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        arm: Arm,
        *,
        stop: threading.Event,
        again: bool = False,
        budgets: Mapping[tuple[str, Stage], Budget] = BUDGETS,
    ) -> None:
        self._store, self._run_id, self._arm = store, run_id, arm
        self._stop, self._again, self._budgets = stop, again, budgets
        self._session_id = new_id()
        self._known: Known | None = None
        self._threads = 1

    def start(self, server: Server) -> None:
        """Measure before the first question."""
        earlier = earlier_probe(self._store, self._run_id, self._arm.arm_id) if self._again else None
        stage: Stage = "start"
        shots = self._run(server, self._budgets[self._arm.device, "end" if earlier else stage], earlier)
        self._keep(stage, shots)
        self._known, self._threads = what_was_measured(shots), server.threads or 1

    def end(self, server: Server | None) -> None:
        """Measure shortly after the last answer; without a start there is nothing to compare with."""
        if server is None or self._known is None or self._stop.is_set():
            return
        self._keep("end", self._run(server, self._budgets[self._arm.device, "end"], self._known))

    def cross_check(self, engine: Engine, model: Path) -> None:
        """Put llama-bench beside what was measured, once an arm and where the engine has it. The server is stopped."""
        known = self._known
        if known is None or self._again or self._stop.is_set():
            return
        command = llama_bench.command_for(engine, self._arm, model)
        if command is None:
            return
        try:
            found = llama_bench.llama_bench(
                command.prefix,
                command.model,
                llama_bench.arguments(self._arm, self._threads),
                sizes=known.sizes,
                n_predict=known.n_predict,
                limit_s=2 * self._arm.startup_limit_s + llama_bench.LIMIT_S,
                env=self._arm.env,
                stop=self._stop,
            )
        finally:
            llama_bench.remove_container(command)
        if found:
            ids = {"run_id": self._run_id, "arm_id": self._arm.arm_id, "session_id": self._session_id}
            self._store.append("probes", [{**ids, **row} for row in found])

    def _run(self, server: Server, budget: Budget, known: Known | None) -> list[Shot]:
        context = server.identity.n_ctx or self._arm.context // max(1, self._arm.parallel)
        kwargs = dict(self._arm.chat_template_kwargs)
        extra = {"chat_template_kwargs": kwargs} if kwargs else {}
        gun = Measurement(server.base_url, context, budget, extra=extra, stop=self._stop)
        shots = gun.run(known)
        if shots and shots[-1].outcome != "ok":
            await_death(server, self._stop)
            if (death := server.death()) is not None:
                shots[-1] = dataclasses.replace(shots[-1], detail=": ".join(death)[:500])
        return shots

    def _keep(self, stage: Stage, shots: Sequence[Shot]) -> None:
        if shots:
            self._store.append("probes", rows(self._run_id, self._arm.arm_id, self._session_id, stage, shots))


def rows(run_id: str, arm_id: str, session_id: str, stage: Stage, shots: Sequence[Shot]) -> list[dict[str, Any]]:
    """Rows of `probes`: two for each request, `prompt` and `decode`, with all its figures in both."""
    out = []
    for shot in shots:
        request_id = new_id()
        for kind in ("prompt", "decode"):
            out.append(
                {
                    "run_id": run_id,
                    "arm_id": arm_id,
                    "session_id": session_id,
                    "request_id": request_id,
                    "stage": stage,
                    "kind": kind,
                    "size": shot.size,
                    "repetition": shot.repetition,
                    "warmup": shot.repetition == 0,
                    "measured_at": shot.measured_at,
                    **shot.figures(),
                    "outcome": shot.outcome,
                    "detail": shot.detail,
                }
            )
    return out


def earlier_probe(store: Store, run_id: str, arm_id: str) -> Known | None:
    """What the store holds of an earlier session's probe of the arm."""
    connection, _ = connect(store.results)
    with connection:
        found = connection.execute(
            "select list(distinct size order by size), max(predicted_n) from probes where run_id = ? and arm_id = ? "
            "and stage = 'start' and outcome = 'ok' and not warmup",
            [run_id, arm_id],
        ).fetchone()
    return Known(tuple(found[0]), max(8, found[1])) if found and found[0] else None
