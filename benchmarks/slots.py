"""What parallel slots win in time, and whether they change answers, on a smoke arm with fixed seeds.

    python -m benchmarks.slots [--slots 1,4] [--iterations 2] [--arm ID]

Runs the same questions with the same seeds with each number of slots, prints the wall time from the first question to
the last grade, and compares the texts with those of the first number: the numerics of a batch may differ in the last
bit, and a sampled token then falls the other way.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench.store.database import connect

ROOT = Path(__file__).resolve().parents[1]

QUERY = """
select g.level_id, g.iteration, g.content, h.passed, epoch(g.started_at), epoch(h.graded_at)
from generations_latest g join grades_latest h using (generation_id) order by 1, 2
"""


def run(arm: str, slots: int, iterations: int, results: Path) -> list[tuple[Any, ...]]:
    """One run; its rows of QUERY."""
    command = [
        str(ROOT / "invoke"), "bench", "--arm", arm, "--suite", "smoke", "--iterations", str(iterations),
        "--seed", "7", "--slots", str(slots), "--results", str(results),
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return connect(results)[0].execute(QUERY).fetchall()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", default="1,4")
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--arm", default="smollm2-135m-q4-kv-f16")
    options = parser.parse_args()
    first: list[tuple[Any, ...]] = []
    for slots in [int(text) for text in options.slots.split(",")]:
        with tempfile.TemporaryDirectory() as folder:
            rows = run(options.arm, slots, options.iterations, Path(folder) / "results")
        first = first or rows
        wall = max(r[5] for r in rows) - min(r[4] for r in rows)
        base = max(r[5] for r in first) - min(r[4] for r in first)
        same = sum(a[2] == b[2] for a, b in zip(first, rows, strict=True))
        verdicts = sum(a[3] == b[3] for a, b in zip(first, rows, strict=True))
        print(
            f"{slots} slots: {wall:.1f} s, factor {base / wall:.2f}; {same} of {len(rows)} texts and {verdicts} "
            f"verdicts as with the first; passed {sum(bool(r[3]) for r in rows)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
