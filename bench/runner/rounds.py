"""In which portions the arms are asked, and when an arm need not be asked any more.

A plain run asks each arm everything before the next one starts. With `--until decided` the arms take turns, a few
iterations each, because what is known of one arm depends on the others; after each round the sequential rule says which
arms may stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.reporter import Reporter
from bench.runner.sequential import Decision, Floats, Rule, decide
from bench.store.database import connect
from bench.store.write import Store

if TYPE_CHECKING:
    from bench.runner.run import RunSpec

RULE_TEXT = (
    "testing by betting on every level; for each ordered pair of arms the null hypothesis is "
    "'the first arm's mean score is not above the second's'"
)


@dataclass(frozen=True)
class Rounds:
    """A plain run, or one that stops when decided."""

    step: int | None = None
    """Iterations a round; None asks everything in one round and stops nobody."""
    alpha: float = 0.05
    margin: float = 5.0

    def of(self, iterations: int) -> Iterable[tuple[int, int]]:
        """First and last iteration of each round."""
        step = self.step or iterations
        for first in range(1, iterations + 1, step):
            yield first, min(first + step - 1, iterations)

    def ends(self, last: int, iterations: int) -> bool:
        """Whether an arm that went this far has nothing left to be asked."""
        return last >= iterations

    def stops(self, store: Store, spec: RunSpec, active: Sequence[str], reporter: Reporter, now: datetime) -> list[str]:
        """Arms that may stop now, each stored with its decision."""
        if self.step is None or len(spec.arms) < 2:
            return []
        rule = Rule(
            tuple(float(level.points) for level in spec.suite.levels),
            alpha=self.alpha,
            margin=self.margin,
            max_iterations=spec.iterations,
        )
        results = passes(store, spec)
        decisions = decide(results, [arm for arm in active if arm in results], rule)
        if decisions:
            store.append("decisions", [self._row(spec, decision, rule, now) for decision in decisions])
        for decision in decisions:
            reporter.line(f"{decision.arm}: {decision.exit} after {decision.iterations} iterations: {decision.detail}")
        ended = {d.arm for d in decisions}
        if ended:
            store.append(
                "arms",
                [
                    {"run_id": spec.run_id, "arm_id": arm_id, "event_at": now, "status": "finished"}
                    for arm_id in sorted(ended)
                ],
            )
        return sorted(ended)

    def ended(self, results: Path, run_id: str) -> frozenset[str]:
        """Arms that an earlier session of this run stopped."""
        if self.step is None:
            return frozenset()
        connection, _ = connect(results)
        rows = connection.execute("select distinct arm_id from decisions where run_id = ?", [run_id]).fetchall()
        return frozenset(arm_id for (arm_id,) in rows)

    def _row(self, spec: RunSpec, decision: Decision, rule: Rule, now: datetime) -> dict[str, object]:
        return {
            "run_id": spec.run_id,
            "arm_id": decision.arm,
            "event_at": now,
            "exit": decision.exit,
            "against": decision.against,
            "iterations": decision.iterations,
            "detail": decision.detail,
            "rule": RULE_TEXT,
            "alpha": rule.alpha,
            "margin": rule.margin,
            "max_iterations": rule.max_iterations,
        }


def passes(store: Store, spec: RunSpec) -> dict[str, Floats]:
    """Every arm's headline verdicts so far: iterations x levels, 1 passed, 0 not, NaN not measured.

    Only those of the identity that answered last: after a new build of the server the older verdicts are of another
    thing.
    """
    levels = {level.level_id: n for n, level in enumerate(spec.suite.levels)}
    connection, _ = connect(store.results)
    rows = connection.execute(
        "select arm_id, iteration, level_id, passed from cells "
        "where run_id = ? and planned and generation_id is not null "
        "qualify identity = arg_max(identity, generation_id) over (partition by arm_id)",
        [spec.run_id],
    ).fetchall()
    last: dict[str, int] = {}
    for arm_id, iteration, _, _ in rows:
        last[arm_id] = max(last.get(arm_id, 0), iteration)
    out = {arm_id: np.full((n, len(levels)), np.nan) for arm_id, n in last.items()}
    for arm_id, iteration, level_id, passed in rows:
        if passed is not None:
            out[arm_id][iteration - 1, levels[level_id]] = float(passed)
    return out
