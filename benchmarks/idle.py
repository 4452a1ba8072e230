"""How long a server waits for the bench: time between the end of one answer and the start of the next, over wall time.

    python -m benchmarks.idle [--answers 40] [--smoke RESULTS]

First a scripted llama-server that costs no CPU, with grading beside it, as it is with a server on a GPU (bound 2 %).
`--smoke` reads a run of the smoke lineup in that results folder, where grading waits for the gap (bound 8 %).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.grading import open_grader
from bench.store.database import connect
from tests.stub_runs import StubRuns

BESIDE_PCT, SMOKE_PCT = 2.0, 8.0


@dataclass(frozen=True)
class Idle:
    """What a run's server waited."""

    gaps_s: float
    wall_s: float
    n: int

    @property
    def pct(self) -> float:
        return 100 * self.gaps_s / self.wall_s


def idle(results: Path, arm_id: str) -> Idle:
    """Gaps of an arm from its first question to the end of its last answer, by the client's clock, seconds."""
    connection, _ = connect(results)
    rows: Sequence[tuple[Any, ...]] = connection.execute(
        "select epoch(started_at), total_ms / 1000 from generations where arm_id = ? order by 1", [arm_id]
    ).fetchall()
    ends = [start + took for start, took in rows]
    gaps = sum(max(0.0, rows[i + 1][0] - ends[i]) for i in range(len(rows) - 1))
    return Idle(gaps, ends[-1] - rows[0][0], len(rows))


def beside(folder: Path, answers: int) -> Idle:
    """The scripted server: answers of about 2 s, graded while the next one comes."""
    grader = open_grader("auto")
    try:
        runs = StubRuns(folder, grader)
        words = "```python\ndef add(a, b):\n    return a + b\n```\n" + " ".join(["# x"] * 50)
        arm = runs.arm(content=words, token_s=0.02)
        end = runs.go(arm, iterations=max(1, answers // len(runs.suite.levels)), grade_beside=True)
        assert end.status == "finished", runs.said
        return idle(runs.results, arm.arm_id)
    finally:
        grader.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=40)
    parser.add_argument("--smoke", type=Path, help="results folder of a smoke run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = beside(Path(folder), options.answers)
    print(f"grading beside a scripted server: {found.pct:.2f} % of {found.wall_s:.1f} s, {found.n} answers (bound 2 %)")
    fine = found.pct <= BESIDE_PCT
    if options.smoke:
        connection, _ = connect(options.smoke)
        for (arm_id,) in connection.execute("select distinct arm_id from generations order by 1").fetchall():
            found = idle(options.smoke, arm_id)
            print(f"smoke run, {arm_id}: {found.pct:.2f} % of {found.wall_s:.1f} s, {found.n} answers (bound 8 %)")
            fine = fine and found.pct <= SMOKE_PCT
    return 0 if fine else 1


if __name__ == "__main__":
    raise SystemExit(main())
