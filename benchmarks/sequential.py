"""Simulate `--until decided`: error rates among equal arms, and generations used on the reference's distributions.

    .venv/bin/python benchmarks/sequential.py [--lineups 10000]

The pass rates are those of the reference run, as published and as re-graded (shared facts, kept in
tests/data/reference-2026-06-25). Every arm is asked in rounds, as the runner does.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np

from bench.runner.sequential import Rule, decide, evidence, threshold

WEIGHTS = (25.0, 25.0, 25.0, 15.0, 10.0)
PUBLISHED = {
    "agentworld": (4, 2, 15, 15, 0),
    "qwen": (15, 15, 15, 15, 13),
    "mtp": (14, 14, 15, 15, 15),
    "gemma": (15, 15, 15, 15, 15),
}
CORRECTED = {**PUBLISHED, "agentworld": (15, 13, 15, 15, 15), "qwen": (15, 15, 15, 15, 15)}
FAR = {"agentworld": PUBLISHED["agentworld"], "mtp": PUBLISHED["mtp"]}


def sample(rng: np.random.Generator, rates: tuple[float, ...], n: int) -> np.ndarray:
    return (rng.random((n, len(rates))) < np.array(rates)).astype(float)


def one(
    rng: np.random.Generator, rates: dict[str, tuple[float, ...]], rule: Rule, step: int
) -> tuple[float, dict[str, str]]:
    """Share of the generations used, and each arm's exit."""
    data = {arm: sample(rng, p, rule.max_iterations) for arm, p in rates.items()}
    seen = dict.fromkeys(rates, 0)
    active = list(rates)
    exits: dict[str, str] = {}
    while active:
        for arm in active:
            seen[arm] = min(rule.max_iterations, seen[arm] + step)
        for decision in decide({a: data[a][: seen[a]] for a in rates}, active, rule, rng=rng):
            exits[decision.arm] = decision.exit
            active.remove(decision.arm)
    return sum(seen.values()) / (rule.max_iterations * len(rates)), exits


def usage(name: str, counts: Mapping[str, tuple[int, ...]], rule: Rule, lineups: int, step: int) -> float:
    rng = np.random.default_rng(1)
    rates = {arm: tuple(k / 15 for k in ks) for arm, ks in counts.items()}
    means = {arm: float(np.dot(p, WEIGHTS)) for arm, p in rates.items()}
    best = max(means.values())
    used, wrong = [], 0
    for _ in range(lineups):
        share, exits = one(rng, rates, rule, step)
        used.append(share)
        wrong += any(e == "out" and means[a] >= best - 1e-9 for a, e in exits.items()) or any(
            e == "best" and sum(means[b] >= best - 1e-9 for b in means) > 1 for a, e in exits.items()
        )
    share, tail = 100 * float(np.mean(used)), 100 * float(np.quantile(used, 0.95))
    print(f"{name:32s} used {share:5.1f} % (95th centile {tail:.0f} %), wrong in {100 * wrong / lineups:.2f} %")
    return float(np.mean(used))


def equal(rates: tuple[float, ...], arms: int, lineups: int, rule: Rule) -> float:
    """Share of lineups of equal arms in which any arm is called better than another, looking after every iteration."""
    rng = np.random.default_rng(2)
    needed, wrong = threshold(arms, rule), 0
    for _ in range(lineups):
        data = [sample(rng, rates, rule.max_iterations) for _ in range(arms)]
        wrong += any(
            evidence(data[a][:n], data[b][:n], 0.0, rule) >= needed
            for n in range(1, rule.max_iterations + 1)
            for a in range(arms)
            for b in range(arms)
            if a != b
        )
    return wrong / lineups


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lineups", type=int, default=10_000)
    parser.add_argument("--usage-lineups", type=int, default=300)
    parser.add_argument("--step", type=int, default=3, help="iterations per round")
    options = parser.parse_args()
    rule = Rule(WEIGHTS)
    print(f"alpha {rule.alpha}, margin {rule.margin}, {rule.max_iterations} iterations, rounds of {options.step}")
    shares = [
        usage("reference, as published", PUBLISHED, rule, options.usage_lineups, options.step),
        usage("reference, as corrected", CORRECTED, rule, options.usage_lineups, options.step),
    ]
    print(f"{'mean of the two':32s} used {100 * np.mean(shares):5.1f} %   (bound 60 %)")
    usage("two arms, 50 against 97", FAR, rule, options.usage_lineups, options.step)
    for name, rates in {
        "coin flips": (0.5,) * 5,
        "like the reference": (0.95, 0.93, 1.0, 1.0, 0.9),
        "one weak level": (1.0, 1.0, 1.0, 1.0, 0.5),
        "low": (0.2, 0.1, 0.3, 0.1, 0.05),
    }.items():
        lineups = options.lineups // 4
        share = equal(rates, 4, lineups, rule)
        print(f"4 equal arms, {name:20s} wrong in {100 * share:5.2f} % of {lineups} lineups (bound 5 %)")


if __name__ == "__main__":
    main()
