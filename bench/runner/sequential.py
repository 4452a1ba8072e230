"""Stop when the answer is known: an anytime-valid rule for which arm is best, and which are worse by a margin.

The quantity is the difference in mean score D = sum over levels of w * (p_a - p_b), w the level's points. For a level
that both arms answered in the same iteration let X = w * (passed_a - passed_b). Then for any fixed bet b >= 0

    E(m) = product over iterations and levels of (1 + b * (X - m * w / W)),   W = sum of w,

has expectation at most 1 whenever D <= m, because the levels' answers are independent and 1 + x <= exp(x):
E[product] = product of (1 + b * (w * d - m * w / W)) <= exp(b * (D - m)) <= 1 for one iteration. So E is a
nonnegative supermartingale under the null hypothesis D <= m, and by Ville's inequality it ever reaches 1 / a with
probability at most a, however often and at whatever moment one looks. This is testing by betting (I. Waudby-Smith and
A. Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86, 2024), with the bet placed on every
level and not on the iteration's total: a bet is limited by the most that can be lost at once, which is 25 points
for a level and 100 for a total. The average over a grid of bets is a supermartingale too, and needs no tuning.

E falls with m, so "D > 0", "D > margin" and the confidence sequence (all m that are not rejected) come from the same
family and hold together. k arms have k * (k - 1) ordered pairs; each is tested at alpha / (k * (k - 1)), so that the
chance of any wrong statement about any pair at any time is at most alpha.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BETS = np.array([0.1, 0.25, 0.4, 0.55, 0.7, 0.82, 0.92])
"""Bets, as shares of the largest that can never lose everything at m = margin."""

FUTILE_BELOW = 0.05
"""An arm's question is futile when its predicted chance to be decided by the last iteration is below this."""

Exit = Literal["out", "best", "equivalent", "futile", "limit"]


@dataclass(frozen=True)
class Rule:
    """The question and its error rate."""

    weights: tuple[float, ...]
    """Points of the levels."""
    alpha: float = 0.05
    """Chance of any wrong statement in the whole run."""
    margin: float = 5.0
    """Points; arms closer than this are equivalent."""
    min_iterations: int = 5
    """Futility is not judged before; a decision may come earlier."""
    max_iterations: int = 15


@dataclass(frozen=True)
class Decision:
    """Why an arm stops."""

    arm: str
    exit: Exit
    against: str | None
    iterations: int
    detail: str


def evidence(a: Floats, b: Floats, m: float, rule: Rule) -> float:
    """E(m) against D = score(a) - score(b) <= m. `a`, `b`: iterations x levels, 1 passed, 0 not, NaN not measured.

    Only what both arms have counts. Levels that either arm lacks are left out: they say nothing of the difference.
    """
    n = min(len(a), len(b))
    return float(_mean_wealth(_log_wealth(a[:n], b[:n], m, rule)))


def _bets(rule: Rule) -> Floats:
    w = np.array(rule.weights)
    most = float(np.max(w)) * (1 + rule.margin / float(np.sum(w)))
    return BETS / most


def _log_wealth(a: Floats, b: Floats, m: float, rule: Rule) -> Floats:
    """Log wealth of each bet; -inf for a bet that could lose everything at this m. Last axes: iterations, levels."""
    w = np.array(rule.weights)
    x = w * (a - b) - m * w / w.sum()
    bets = _bets(rule)
    # The mixture keeps the weight of a bet that may not be placed as zero: less than it could be, and still valid.
    allowed = bets * float(np.max(w)) * (1 + m / float(w.sum())) < 1
    logs = []
    for bet, fine in zip(bets, allowed, strict=True):
        factor = np.where(np.isnan(x), 1.0, 1 + bet * np.where(np.isnan(x), 0.0, x))
        total = np.log(np.maximum(factor, 1e-300)).sum(axis=(-2, -1))
        logs.append(total if fine else np.full_like(total, -np.inf))
    return np.stack(logs, axis=-1)


def _mean_wealth(logs: Floats) -> Floats:
    """The average wealth of the bets (last axis), capped so that it stays finite."""
    top = np.max(logs, axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    mean = np.exp(logs - top).mean(axis=-1)
    return np.asarray(np.exp(np.minimum(np.squeeze(top, -1) + np.log(np.maximum(mean, 1e-300)), 700.0)))


def threshold(arms: int, rule: Rule) -> float:
    """Evidence that an ordered pair needs."""
    return arms * (arms - 1) / rule.alpha


def lower_bound(a: Floats, b: Floats, arms: int, rule: Rule, *, steps: int = 30) -> float:
    """Lower end of the confidence sequence of score(a) - score(b), points: the smallest m that is not rejected.

    Holds at all times and for all pairs together with probability 1 - alpha. The upper end is
    -lower_bound(b, a, ...).
    """
    low, high = -float(sum(rule.weights)), float(sum(rule.weights))
    needed = threshold(arms, rule)
    if evidence(a, b, low, rule) < needed:
        return low
    for _ in range(steps):
        middle = (low + high) / 2
        if evidence(a, b, middle, rule) >= needed:
            low = middle
        else:
            high = middle
    return low


def decide(
    results: Mapping[str, Floats], active: Sequence[str], rule: Rule, *, rng: np.random.Generator | None = None
) -> list[Decision]:
    """What can be said now. Returns a decision for each active arm that may stop; the others go on.

    `results` holds every arm of the lineup, those that stopped earlier too: what they showed still counts.
    """
    ids = list(results)
    needed = threshold(len(ids), rule)

    def rejects(a: str, b: str, m: float) -> bool:
        return evidence(results[a], results[b], m, rule) >= needed

    out: list[Decision] = []
    left = []
    for arm in active:
        better = [b for b in ids if b != arm and rejects(b, arm, 0.0)]
        if better:
            worst = next((b for b in better if rejects(b, arm, rule.margin)), None)
            by = f"by more than {rule.margin:g} points" if worst else ""
            who = worst or better[0]
            out.append(Decision(arm, "out", who, len(results[arm]), f"worse than {who} {by}".strip()))
        else:
            left.append(arm)
    if len(ids) > 1 and len(left) == 1 and all(b == left[0] or rejects(left[0], b, 0.0) for b in ids):
        out.append(Decision(left[0], "best", None, len(results[left[0]]), "better than every other arm"))
        return out
    if len(left) > 1 and all(rejects(a, b, -rule.margin) for a in left for b in left if a != b):
        text = f"all within {rule.margin:g} points of each other"
        return out + [Decision(arm, "equivalent", None, len(results[arm]), text) for arm in left]
    done = [len(results[arm]) for arm in left]
    if left and min(done) >= rule.max_iterations:
        return out + [
            Decision(arm, "limit", None, len(results[arm]), "not decided by the last iteration") for arm in left
        ]
    if left and min(done) >= rule.min_iterations:
        chance = chance_to_decide(results, left, rule, rng or np.random.default_rng(0))
        if chance < FUTILE_BELOW:
            text = f"chance to decide anything by iteration {rule.max_iterations}: {100 * chance:.1f} %"
            out += [Decision(arm, "futile", None, len(results[arm]), text) for arm in left]
    return out


def chance_to_decide(
    results: Mapping[str, Floats], left: Sequence[str], rule: Rule, rng: np.random.Generator, *, draws: int = 300
) -> float:
    """Predicted chance that any statement about the arms that are left can be made by the last iteration.

    Each level's pass rate is drawn from its Jeffreys posterior and the iterations that are left are drawn with it.
    Stopping for futility can only make fewer statements, so it costs no validity.
    """
    full: dict[str, Floats] = {}
    for arm, seen in results.items():
        if arm not in left:
            continue
        passed, measured = np.nansum(seen, axis=0), np.sum(~np.isnan(seen), axis=0)
        rates = rng.beta(passed + 0.5, measured - passed + 0.5, size=(draws, len(rule.weights)))
        more = max(0, rule.max_iterations - len(seen))
        future = (rng.random((draws, more, len(rule.weights))) < rates[:, None, :]).astype(float)
        full[arm] = np.concatenate([np.broadcast_to(seen, (draws, *seen.shape)), future], axis=1)
    needed = threshold(len(results), rule)
    decided = np.zeros(draws, dtype=bool)
    equivalent = np.ones(draws, dtype=bool)
    for a in full:
        for b in results:
            if a == b:
                continue
            other = full.get(b)
            if other is None:
                continue
            decided |= _mean_wealth(_log_wealth(full[a], other, 0.0, rule)) >= needed
            equivalent &= _mean_wealth(_log_wealth(full[a], other, -rule.margin, rule)) >= needed
    return float(np.mean(decided | (equivalent if len(full) > 1 else np.zeros(draws, dtype=bool))))
