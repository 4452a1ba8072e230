"""How long grading a whole run again takes.

    python -m benchmarks.regrade [--answers 300] [--workers 2]

Makes a copy in the reference project's layout with answers of its size (2 to 6 kB of code, up to 100 kB of reasoning),
imports it, and grades it: first with every answer new, then once more, which must bring the same verdicts. Exit code 1
when a regrade takes more than 60 s or a verdict is not the one that is right.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from bench.grading import calibrate, open_grader
from bench.importing import read
from bench.importing.staging import publish
from bench.regrade.again import regrade
from bench.regrade.stored import query
from bench.store.write import Store
from tests.reference_layout import KINDS, SUITE, make, mixed

LIMIT_S = 60.0


def main(argv: list[str] | None = None) -> int:
    """Make, import, grade twice, and print what each step took."""
    parser = argparse.ArgumentParser(description="Measure import-run and regrade.")
    parser.add_argument("--answers", type=int, default=300)
    parser.add_argument("--workers", type=int, default=min(2, len(os.sched_getaffinity(0))))
    wanted = parser.parse_args(argv)
    iterations = max(1, wanted.answers // 20)
    arms = {f"arm-{n}": mixed(iterations, first) for n, first in enumerate(["unfenced", "fenced"] * 2)}
    with tempfile.TemporaryDirectory() as folder:
        random.seed(1)
        made = make(Path(folder) / "copy", arms, thinking=45_000, size=4_000)
        size = sum(f.stat().st_size for f in made.folder.rglob("*_response.txt"))
        store = Store(Path(folder) / "results")
        began = time.perf_counter()
        (run,) = read(made.folder, None, lambda _: SUITE, Path(folder)).runs
        publish(store.results, run)
        print(f"{len(made.kinds)} answers, {size / 1e6:.1f} MB, imported in {time.perf_counter() - began:.1f} s")
        ok = True
        with contextlib.closing(open_grader("auto", wanted.workers)) as grader:
            for what in ("first", "again"):
                began = time.perf_counter()
                limits = calibrate(grader, SUITE).limits
                end = regrade(store, run.run_id, SUITE, grader, limits=limits, workers=wanted.workers)
                took = time.perf_counter() - began
                rate = end.n_graded / took
                print(
                    f"{what}: {end.n_graded} answers in {took:.1f} s on {wanted.workers} workers ({rate:.1f} a second)"
                )
                ok &= took <= LIMIT_S and (what == "first" or end.n_same == end.n_graded)
        rows = query(store.results, "select arm_id, iteration, level_id, outcome from grades_latest", [])
        wrong = [r for r in rows if r["outcome"] != KINDS[made.kinds[r["arm_id"], r["iteration"], r["level_id"]]][1]]
        print(f"{len(rows) - len(wrong)} of {len(rows)} verdicts are right; the limit is {LIMIT_S:g} s")
        for row in wrong[:5]:
            print(f"  not right: {row}")
    return 0 if ok and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
