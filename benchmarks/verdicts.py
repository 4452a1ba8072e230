"""How often the intervals that verdicts rest on cover the truth, and how often the winner rule errs.

    .venv/bin/python benchmarks/verdicts.py [--draws 4000] [--seed 1]

For arms like those of the reference run (five levels of 25, 25, 25, 15 and 10 points), drawn anew each time with known
pass rates: coverage of the exact interval (the limits are those of the views' own SQL) and of Student's t, for one
arm's mean score and for the difference of two arms, at 95 %. Then the rule among two, four and eight equal arms: how
often any of them is said to be better than another. Standard error of a figure near 95 % at 4000 draws: 0.34 points.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

from bench.store.stats_tables import t_quantiles
from bench.store.view_template import SQL

Floats = NDArray[np.float64]

POINTS = np.array([25.0, 25.0, 25.0, 15.0, 10.0])
SHARE = POINTS / POINTS.sum()

ARMS: dict[str, tuple[float, ...]] = {
    "all pass (Gemma)": (1, 1, 1, 1, 1),
    "Qwen3.6": (1, 1, 1, 1, 13 / 15),
    "MTP": (14 / 15, 14 / 15, 1, 1, 1),
    "AgentWorld, published": (4 / 15, 2 / 15, 1, 1, 0),
    "AgentWorld, graded again": (1, 13 / 15, 1, 1, 1),
    "0.99 everywhere": (0.99,) * 5,
    "0.95 everywhere": (0.95,) * 5,
    "0.8 everywhere": (0.8,) * 5,
    "0.5 everywhere": (0.5,) * 5,
    "spread": (0.95, 0.8, 0.6, 0.4, 0.1),
}
"""True pass rates of the levels: as the reference run measured them, and as hard as they come for an interval."""

NS = (5, 15, 50)


@dataclass(frozen=True)
class Limits:
    """For 0 to n passes: how far the exact ends lie below and above the rate."""

    below: Floats
    above: Floats


def limits(n: int, alpha: float) -> Limits:
    """Clopper-Pearson by the views' macro."""
    with duckdb.connect() as connection:
        connection.execute((SQL / "01_exact_limits.sql").read_text("utf-8"))
        rows = connection.execute(
            "select clopper_pearson_low(k, $n::bigint, $a), clopper_pearson_high(k, $n::bigint, $a) "
            "from range($n::bigint + 1) r(k) order by k",
            {"n": n, "a": alpha},
        ).fetchall()
    ends, rate = np.array(rows, dtype=float), np.arange(n + 1) / n
    return Limits(rate - ends[:, 0], ends[:, 1] - rate)


def covers_mean(k: NDArray[np.int64], n: int, truth: float, known: Limits) -> float:
    """Share of draws (rows of k, a column a level) whose exact interval holds the true score."""
    score = (k / n) @ SHARE
    low = score - np.sqrt((known.below[k] ** 2) @ SHARE**2)
    high = score + np.sqrt((known.above[k] ** 2) @ SHARE**2)
    return float(np.mean((low <= truth + 1e-12) & (truth - 1e-12 <= high)))


def difference(
    a: NDArray[np.int64], b: NDArray[np.int64], n: int, known: Limits, pairs: int = 1
) -> tuple[Floats, Floats]:
    """Ends of the interval of score(a) - score(b), shares of 1: as bench/sql/68_pairwise.sql has it."""
    middle = ((a - b) / n) @ SHARE
    below = np.sqrt((known.below[a] ** 2 + known.above[b] ** 2) @ SHARE**2)
    above = np.sqrt((known.above[a] ** 2 + known.below[b] ** 2) @ SHARE**2)
    log_error = math.log(2 * pairs / 0.05)
    if n < log_error**2 / 4:
        hoeffding = math.sqrt(log_error / 2 * 2 / n * float((SHARE**2).sum()))
        below, above = np.maximum(below, hoeffding), np.maximum(above, hoeffding)
    return middle - below, middle + above


def t_covers(rates: Sequence[float], n: int, draws: int, rng: np.random.Generator) -> float:
    """The same for Student's t over the iterations' scores."""
    scores = (rng.random((draws, n, len(rates))) < np.array(rates)) @ SHARE
    half = dict(t_quantiles())[n - 1] * scores.std(axis=1, ddof=1) / math.sqrt(n)
    return float(np.mean(np.abs(scores.mean(axis=1) - np.array(rates) @ SHARE) <= half + 1e-12))


def main() -> None:
    """Run the simulation and print its figures."""
    parser = argparse.ArgumentParser(description="Coverage of the intervals that verdicts rest on.")
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, draws = np.random.default_rng(options.seed), options.draws

    print(f"{'one arm, coverage in %':26}" + "".join(f"{f'exact n={n}':>13}{f't n={n}':>9}" for n in NS))
    means: dict[int, list[float]] = {n: [] for n in NS}
    for name, rates in ARMS.items():
        line = f"{name:26}"
        for n in NS:
            k = rng.binomial(n, rates, (draws, len(rates)))
            found = 100 * covers_mean(k, n, float(np.array(rates) @ SHARE), limits(n, 0.05))
            means[n].append(found)
            line += f"{found:13.1f}{100 * t_covers(rates, n, draws, rng):9.1f}"
        print(line)
    for n in NS:
        print(f"n={n}: worst {min(means[n]):.1f}, mean {np.mean(means[n]):.1f}")

    print("\ndifference of two arms, coverage in %")
    for n in NS:
        known, found_all = limits(n, 0.05), {}
        for (x, p), (y, q) in itertools.combinations_with_replacement(ARMS.items(), 2):
            a, b = (rng.binomial(n, rates, (draws, len(rates))) for rates in (p, q))
            low, high = difference(a, b, n, known)
            truth = float((np.array(p) - np.array(q)) @ SHARE)
            found_all[x, y] = 100 * float(np.mean((low <= truth + 1e-12) & (truth - 1e-12 <= high)))
        worst = min(found_all, key=lambda pair: found_all[pair])
        average = np.mean(list(found_all.values()))
        print(f"n={n}: worst {found_all[worst]:.1f} ({worst[0]} and {worst[1]}), mean {average:.1f}")

    print("\nequal arms: any arm said to be better, % of runs (at most 5)")
    for n_arms, n in itertools.product((2, 4, 8), (1, 2, 3, *NS)):
        pairs = n_arms * (n_arms - 1) // 2
        known, worst_rate, worst_name = limits(n, 0.05 / pairs), 0.0, ""
        for name, rates in ARMS.items():
            arms = [rng.binomial(n, rates, (draws, len(rates))) for _ in range(n_arms)]
            wrong = np.zeros(draws, dtype=bool)
            for a, b in itertools.combinations(arms, 2):
                low, high = difference(a, b, n, known, pairs)
                wrong |= (low > 0) | (high < 0)
            if (share := 100 * float(np.mean(wrong))) >= worst_rate:
                worst_rate, worst_name = share, name
        print(f"{n_arms} arms, n={n}: worst {worst_rate:.2f} ({worst_name})")


if __name__ == "__main__":
    main()
