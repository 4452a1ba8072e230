"""The rule that stops a run: what it concludes, and that it does not conclude more."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bench.runner.sequential import Rule, decide, evidence, lower_bound, threshold

RULE = Rule((25.0, 25.0, 25.0, 15.0, 10.0))


def draws(rates: list[float], n: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random((n, len(rates))) < np.array(rates)).astype(float)


def test_evidence_is_an_e_value_by_exhaustive_expectation() -> None:
    """Over every outcome of one iteration of two levels the mean of E(m) is at most 1 wherever D <= m."""
    rule = Rule((60.0, 40.0))
    for pa, pb in [
        ((0.5, 0.5), (0.5, 0.5)),
        ((0.9, 0.1), (0.5, 0.7)),
        ((1.0, 0.0), (0.0, 1.0)),
        ((0.2, 0.3), (0.9, 0.9)),
    ]:
        difference = sum(w * (a - b) for w, a, b in zip(rule.weights, pa, pb, strict=True))
        for m in (difference, difference + 3, difference + 20):
            total = 0.0
            for bits in itertools.product((0.0, 1.0), repeat=4):
                chance = np.prod([p if x else 1 - p for x, p in zip(bits, pa + pb, strict=True)])
                total += chance * evidence(np.array([bits[:2]]), np.array([bits[2:]]), m, rule)
            assert total <= 1 + 1e-9, (pa, pb, m, total)


def test_far_apart_arms_are_separated_early() -> None:
    good, bad = draws([0.95, 0.95, 1, 1, 1], 15), draws([0.25, 0.13, 1, 1, 0], 15, 1)
    needed = next(n for n in range(1, 16) if evidence(good[:n], bad[:n], 0.0, RULE) >= threshold(2, RULE))
    assert needed <= 8
    exits = {d.arm: d for d in decide({"good": good[:needed], "bad": bad[:needed]}, ["good", "bad"], RULE)}
    assert exits["bad"].exit == "out"
    assert exits["bad"].against == "good"
    assert exits["good"].exit == "best"


def test_identical_perfect_arms_are_futile_and_nobody_wins() -> None:
    ones = np.ones((5, 5))
    decisions = decide({"a": ones, "b": ones}, ["a", "b"], RULE)
    assert {d.exit for d in decisions} == {"futile"}
    assert evidence(ones, ones, 0.0, RULE) == pytest.approx(1.0)


def test_equivalence_needs_enough_data_and_is_then_reached() -> None:
    ones = np.ones((60, 5))
    rule = Rule(RULE.weights, max_iterations=60)
    assert {d.exit for d in decide({"a": ones, "b": ones}, ["a", "b"], rule)} == {"equivalent"}


def test_last_iteration_ends_undecided_arms() -> None:
    a, b = draws([0.7] * 5, 15, 3), draws([0.7] * 5, 15, 4)
    assert {d.exit for d in decide({"a": a, "b": b}, ["a", "b"], RULE)} == {"limit"}


def test_levels_that_were_not_measured_count_for_nobody() -> None:
    a, b = draws([0.9] * 5, 10, 5), draws([0.3] * 5, 10, 6)
    holes = a.copy()
    holes[2:, 1] = np.nan
    without = b.copy()
    without[2:, 1] = np.nan
    assert evidence(holes, b, 0.0, RULE) == pytest.approx(evidence(a, without, 0.0, RULE))
    assert np.isfinite(evidence(np.full((3, 5), np.nan), b, 0.0, RULE))


def test_the_confidence_sequence_holds_the_truth_and_narrows() -> None:
    a, b = draws([0.9] * 5, 200, 7), draws([0.5] * 5, 200, 8)
    lows = [lower_bound(a[:n], b[:n], 2, RULE) for n in (1, 10, 50, 200)]
    assert lows == sorted(lows)
    assert lows[-1] <= 40 <= -lower_bound(b, a, 2, RULE)
    assert lows[-1] > 20


def test_equal_arms_are_hardly_ever_called_different() -> None:
    wrong = 0
    for seed in range(150):
        data = [draws([0.6, 0.9, 0.5, 0.2, 1.0], 15, 1000 * seed + i) for i in range(3)]
        wrong += any(
            evidence(data[i][:n], data[j][:n], 0.0, RULE) >= threshold(3, RULE)
            for n in range(1, 16)
            for i, j in itertools.permutations(range(3), 2)
        )
    assert wrong / 150 <= 0.05


def test_stopped_arms_still_count_against_the_rest() -> None:
    good, bad = draws([1.0] * 5, 8, 9), draws([0.1] * 5, 4, 10)
    decisions = decide({"good": good, "bad": bad}, ["good"], RULE)
    assert [d.exit for d in decisions] == ["best"]
