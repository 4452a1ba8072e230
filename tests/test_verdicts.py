"""Verdicts by rule: exact intervals, pairs of arms, who wins, and when a verdict is withheld."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from reference_run import RUN as REFERENCE
from reference_run import store_reference
from scipy.stats import beta, t, ttest_ind
from store_rows import NOON, RUN, ask, fill, grade, run_row

from bench.answer.extract import FALLBACK_RULES
from bench.report.make import make_report
from bench.store.database import rebuild
from bench.store.stats_tables import RULE_SETTINGS
from bench.store.view_template import SQL
from bench.store.write import Store

AGENTWORLD, QWEN, MTP, GEMMA = (
    "agentworld-35b-a3b-q4",
    "qwen36-35b-a3b-q4",
    "qwen36-35b-a3b-mtp-iq4xs",
    "gemma4-26b-a4b-qat-q4",
)
ALPHA = RULE_SETTINGS["alpha"][0]


def goals(results: Path) -> dict[str, dict[str, Any]]:
    return {r["goal"]: r for r in ask(results, "from verdicts")}


def counts(results: Path, arms: Mapping[str, Sequence[tuple[int, int]]], points: Sequence[float]) -> None:
    """A run known by its counts alone: for each arm (passed, n) of each level."""
    store = Store(results)
    store.append("runs", [run_row(origin="a report", arm_order=list(arms))])
    same = {"run_id": RUN, "suite_id": "s", "grade_kind": "headline", "source": "a report"}
    rows: list[dict[str, Any]] = []
    for arm, levels in arms.items():
        for number, ((k, n), worth) in enumerate(zip(levels, points, strict=True), 1):
            level = same | {"arm_id": arm, "level_id": f"L{number}"}
            rows.append(level | {"metric": "level_passed", "value": float(k), "n": n})
            rows.append(level | {"metric": "level_points", "value": float(worth), "title": f"Task {number}"})
        score = sum(w * k / n for w, (k, n) in zip(points, levels, strict=True)) / sum(points) * 100
        rows.append(same | {"arm_id": arm, "iteration": 1, "metric": "score", "value": score})
    store.append("published", rows)


# Intervals -------------------------------------------------------------------------------------------


def _limits(k: int, n: int, alpha: float) -> tuple[float, float]:
    low = 0.0 if k == 0 else float(beta.ppf(alpha / 2, k, n - k + 1))
    return low, 1.0 if k == n else float(beta.ppf(1 - alpha / 2, k + 1, n - k))


def test_limits_of_a_rate_are_exact() -> None:
    connection = duckdb.connect()
    connection.execute((SQL / "01_exact_limits.sql").read_text())
    pairs = [(k, n) for n in (1, 2, 3, 5, 10, 15, 50) for k in range(n + 1)]
    pairs += [(k, n) for n in (200, 20_000) for k in (0, 1, 2, n // 3, n // 2, n - 1, n)]
    for alpha in (0.05, 0.05 / 6, 0.05 / 435):
        for k, n in pairs:
            found = connection.execute(
                "select clopper_pearson_low(k, n, $a), clopper_pearson_high(k, n, $a) "
                "from (select $k::bigint as k, $n::bigint as n)",
                {"k": k, "n": n, "a": alpha},
            ).fetchone()
            assert found == pytest.approx(_limits(k, n, alpha), abs=1e-9), (k, n, alpha)
            assert found is not None and 0 <= found[0] <= k / n <= found[1] <= 1
    nothing = (
        "select clopper_pearson_low(0, 0, 0.05), clopper_pearson_high(0, 0, 0.05), clopper_pearson_low(null, 5, 0.05)"
    )
    assert connection.execute(nothing).fetchone() == (None, None, None)


def test_quantiles_for_pairs_are_exact(tmp_path: Path) -> None:
    rows = ask(tmp_path, "from t_quantiles_pairs")
    assert {r["pairs"] for r in rows} == {k * (k - 1) // 2 for k in range(2, 31)}
    for r in rows:
        assert r["t"] == pytest.approx(float(t.ppf(1 - ALPHA / 2 / r["pairs"], r["df"])), rel=1e-9)
    (row,) = ask(
        tmp_path, "select t_for_pairs(2, 30.9) as up, t_for_pairs(3, 30) as known, t_for_pairs(436, 30) as none"
    )
    assert row["up"] == row["known"] and row["none"] is None, "never a quantile that is too small"


def test_intervals_are_those_of_the_formula(tmp_path: Path) -> None:
    """Against the same formula written down a second time, for arms drawn at random, both ends among them."""
    rng, points = np.random.default_rng(5), np.array([25, 25, 25, 15, 10])
    ns = {"a": 5, "b": 15, "c": 15, "d": 50}
    arms = {
        arm: [(int(k), n) for k in rng.binomial(n, rng.choice([0.0, 0.6, 0.95, 1.0], len(points)))]
        for arm, n in ns.items()
    }
    counts(tmp_path, arms, list(points))
    share = points / points.sum()

    def parts(arm: str, alpha: float) -> tuple[Any, Any, Any]:
        rate = np.array([k / n for k, n in arms[arm]])
        ends = np.array([_limits(k, n, alpha) for k, n in arms[arm]])
        return rate, rate - ends[:, 0], ends[:, 1] - rate

    for row in ask(tmp_path, "from arm_intervals"):
        rate, below, above = parts(row["arm_id"], ALPHA)
        score = 100 * (share * rate).sum()
        assert row["score"] == pytest.approx(score)
        assert row["score_low"] == pytest.approx(max(0, score - 100 * math.hypot(*(share * below))))
        assert row["score_high"] == pytest.approx(min(100, score + 100 * math.hypot(*(share * above))))
        assert row["score_low"] < row["score_high"]
    pairs = ask(tmp_path, "from pairwise")
    assert len(pairs) == 6 and {r["n_pairs"] for r in pairs} == {6}
    for row in pairs:
        (p, p_low, p_up), (q, q_low, q_up) = (parts(row[x], ALPHA / 6) for x in ("arm_a", "arm_b"))
        difference = 100 * (share * (p - q)).sum()
        assert row["difference"] == pytest.approx(difference) and difference >= 0
        least = 0.0
        if 5 in (ns[row["arm_a"]], ns[row["arm_b"]]):  # few, for six pairs: at least as wide as Hoeffding's
            inverse = 1 / ns[row["arm_a"]] + 1 / ns[row["arm_b"]]
            least = math.sqrt(math.log(2 * 6 / ALPHA) / 2 * inverse * (share**2).sum())
        below = max(least, math.hypot(*(share * p_low), *(share * q_up)))
        above = max(least, math.hypot(*(share * p_up), *(share * q_low)))
        assert row["low"] == pytest.approx(max(-100, difference - 100 * below))
        assert row["high"] == pytest.approx(min(100, difference + 100 * above))
        assert (row["n_a"], row["n_b"]) == (ns[row["arm_a"]], ns[row["arm_b"]])
        assert (row["verdict"] == "a better") == (row["low"] > 0)


def test_speeds_are_compared_by_welch(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    fill(tmp_path, {"a": [[True, True]] * 8, "b": [[True, True]] * 8})
    ms = {"a": rng.normal(900, 20, 16), "b": rng.normal(1000, 60, 16)}
    store = Store(tmp_path)
    for arm, values in ms.items():
        made = ask(
            tmp_path, f"select * exclude (identity, in_plan, complete) from generations_latest where arm_id = '{arm}'"
        )
        again = [
            g | {"attempt": 2, "started_at": NOON, "generation_id": f"{arm}{i}", "predicted_ms": v, "last_token_ms": v}
            for i, (g, v) in enumerate(zip(made, values, strict=True))
        ]
        store.append("generations", again)
        store.append("grades", [grade(g) for g in again])
    (row,) = ask(tmp_path, "from pairwise")
    expected = ttest_ind(100_000 / ms["a"], 100_000 / ms["b"], equal_var=False)
    low, high = expected.confidence_interval(0.95)
    # Degrees of freedom are rounded down: a little wider, never narrower.
    assert row["decode_low"] <= low <= row["decode_low"] + 0.05 * (high - low)
    assert row["decode_high"] - 0.05 * (high - low) <= high <= row["decode_high"]
    assert row["answer_high"] < 0
    found = goals(tmp_path)
    assert (found["throughput"]["status"], found["throughput"]["arms"]) == ("winner", ["a"])
    assert (found["answer_time"]["status"], found["answer_time"]["arms"]) == ("winner", ["a"])
    # The same figures from a host that did other work meanwhile say nothing of the arms.
    busy = {"run_id": RUN, "arm_id": "b", "event_at": NOON + timedelta(seconds=1), "status": "finished"}
    store.append("arms", [busy | {"device": "cpu", "host_busy": "others used 60 % of the cores"}])
    found = goals(tmp_path)
    assert found["throughput"]["status"] == found["answer_time"]["status"] == "withheld"
    assert "b: others used 60 % of the cores" in found["throughput"]["reason"]
    assert found["throughput"]["arms"] is None


# Verdicts --------------------------------------------------------------------------------------------


def test_the_reference_run(tmp_path: Path) -> None:
    run = store_reference(tmp_path)
    found = goals(tmp_path)
    quality = found["quality"]
    assert quality["status"] == "tie" and quality["arms"][:2] == [GEMMA, QWEN]
    assert AGENTWORLD not in quality["arms"] and quality["text"].endswith(f"worse: {AGENTWORLD}")
    assert (found["throughput"]["status"], found["throughput"]["arms"]) == ("winner", [MTP])
    assert (found["memory"]["status"], found["memory"]["arms"]) == ("winner", [GEMMA])
    assert found["answer_time"]["status"] == "not_measured"
    pair = f"from pairwise where arm_a = '{GEMMA}' and arm_b = '{QWEN}'"
    (row,) = ask(tmp_path, pair)
    assert row["verdict"] == "not separated" and row["low"] < 0 < row["difference"] < row["high"]
    (gemma,) = ask(tmp_path, f"from arm_intervals where arm_id = '{GEMMA}'")
    assert gemma["score_low"] == pytest.approx(89.8, abs=0.1) and gemma["score_high"] == 100

    text = make_report(tmp_path, run, tmp_path / "reports").markdown.read_text("utf-8")
    first = text.split("## ")[1]
    assert first.startswith("Verdict\n") and f"Not separated: {GEMMA}, {QWEN}" in first
    assert "| [100.0, 100.0] | [89.8, 100.0] |" in text, "the t interval beside one that holds"
    assert "more iterations would be needed if the difference is real" in first
    assert f"Highest decode rate: {MTP}" in first and "### Arms in pairs" in text


def test_a_better_count_elsewhere_withholds_the_reference_verdict(tmp_path: Path) -> None:
    """The published run graded drafts; the passes of a grading of the final answers stand in the store too."""
    store_reference(tmp_path)
    again = {"L1": 15, "L2": 13, "L3": 15, "L4": 15, "L5": 15}
    same = {
        "run_id": REFERENCE,
        "suite_id": "coding-v2",
        "arm_id": AGENTWORLD,
        "grade_kind": "regrade",
        "source": "graded again",
    }
    Store(tmp_path).append(
        "published",
        [
            same | {"level_id": level, "metric": "level_passed", "value": float(k), "n": 15}
            for level, k in again.items()
        ],
    )
    quality = goals(tmp_path)["quality"]
    assert quality["status"] == "withheld" and quality["arms"] is None
    assert AGENTWORLD in quality["reason"] and "another verdict on the same answer" in quality["reason"]
    text = make_report(tmp_path, REFERENCE, tmp_path / "reports").markdown.read_text("utf-8")
    assert "the verdict is withheld" in text.split("## ")[1]


def test_answers_that_never_came_stand_beside_the_speed_of_the_reference_winner(tmp_path: Path) -> None:
    """The report counted two empty answers as wrong code; a second look told them apart."""
    store_reference(tmp_path)
    same = {
        "run_id": REFERENCE,
        "suite_id": "coding-v2",
        "arm_id": MTP,
        "grade_kind": "regrade",
        "source": "seen again",
    }
    Store(tmp_path).append(
        "published",
        [same | {"level_id": level, "metric": "no_answer", "value": 1.0, "n": 15} for level in ("L1", "L2")],
    )
    found = goals(tmp_path)
    assert found["throughput"]["text"] == f"Highest decode rate: {MTP}; 2 answers of {MTP} never came"
    (row,) = ask(tmp_path, f"select n_no_answer, decode_tps_n from arm_summary where arm_id = '{MTP}'")
    assert row == {"n_no_answer": 2, "decode_tps_n": None}, (
        "the source does not say how many answers a rate was made of"
    )
    assert (found["quality"]["status"], found["quality"]["arms"][:2]) == ("tie", [GEMMA, QWEN])


def test_two_saturated_arms_are_not_separated(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]] * 15, "b": [[True, True]] * 15})
    quality = goals(tmp_path)["quality"]
    assert (quality["status"], quality["arms"]) == ("tie", ["a", "b"])
    (row,) = ask(tmp_path, "from pairwise")
    assert row["verdict"] == "not separated" and row["low"] < -5 and row["high"] > 5
    assert row["difference"] == 0 and row["more_iterations"] is None
    assert {r["half_width"] for r in ask(tmp_path, "from arm_summary")} == {0.0}, "the t interval has no width here"


def test_many_answers_show_that_nothing_is_lost(tmp_path: Path) -> None:
    counts(tmp_path, {"a": [(1980, 2000)] * 2, "b": [(1980, 2000)] * 2}, [50, 50])
    (row,) = ask(tmp_path, "from pairwise")
    assert row["verdict"] == "within margin" and -5 < row["low"] < 0 < row["high"] < 5


def test_one_iteration_separates_nothing(tmp_path: Path) -> None:
    counts(tmp_path, {"a": [(1, 1)] * 5, "b": [(0, 1)] * 5, "c": [(1, 1)] * 5}, [25, 25, 25, 15, 10])
    assert {r["verdict"] for r in ask(tmp_path, "from pairwise")} == {"not separated"}


@pytest.mark.parametrize(("k", "better"), [(0, True), (12, False)])
def test_one_arm_wins_only_when_zero_is_excluded(tmp_path: Path, k: int, better: bool) -> None:
    counts(tmp_path, {"good": [(15, 15)] * 2, "other": [(k, 15), (15, 15)]}, [50, 50])
    quality = goals(tmp_path)["quality"]
    assert (quality["status"], quality["arms"]) == (("winner", ["good"]) if better else ("tie", ["good", "other"]))


def test_about_as_many_more_iterations_as_said_would_do(tmp_path: Path) -> None:
    """The estimate is rough: a quarter more than it says is enough here."""
    counts(tmp_path, {"a": [(15, 15)] * 2, "b": [(12, 15), (15, 15)]}, [50, 50])
    (row,) = ask(tmp_path, "from pairwise")
    times = math.ceil(1.25 * (15 + row["more_iterations"]) / 15)
    assert row["verdict"] == "not separated" and times > 1
    again = tmp_path / "again"
    counts(again, {"a": [(15 * times, 15 * times)] * 2, "b": [(12 * times, 15 * times), (15 * times,) * 2]}, [50, 50])
    (more,) = ask(again, "from pairwise")
    assert more["verdict"] == "a better"


DOUBTS: dict[str, dict[str, Any]] = {
    "interface": {"outcome": "interface", "missing_name": "set_result"},
    "no_code": {"outcome": "no_code", "code": None, "code_rule": None},
    "context_overflow": {"outcome": "context_overflow", "code": None, "code_rule": None},
    "fallback_rule": {"code_rule": "entry_not_found"},
}


def _one_level_lost(results: Path, **more: Any) -> None:
    """Arm b fails L1 always, in the way that is given; arm a passes everything."""
    fill(results, {"a": [[True, True]] * 15, "b": [[False, True]] * 15})
    made = ask(results, "from generations_latest where arm_id = 'b' and level_id = 'L1'")
    Store(results).append("grades", [grade(g, False, graded_at=NOON + timedelta(hours=1), **more) for g in made])


@pytest.mark.parametrize("cause", DOUBTS)
def test_a_verdict_that_rests_on_the_bench_is_withheld(tmp_path: Path, cause: str) -> None:
    _one_level_lost(tmp_path, **DOUBTS[cause])
    assert ask(tmp_path, "select arm_id, level_id, cause, n from harness_doubt") == [
        {"arm_id": "b", "level_id": "L1", "cause": cause, "n": 15}
    ]
    (row,) = ask(tmp_path, "from pairwise")
    assert (row["verdict"], row["robust"]) == ("a better", False)
    quality = goals(tmp_path)["quality"]
    assert quality["status"] == "withheld" and "b is among the best (b: 15 " in quality["reason"]


def test_a_failure_of_the_models_own_is_no_doubt(tmp_path: Path) -> None:
    _one_level_lost(tmp_path, outcome="assertion")
    assert ask(tmp_path, "from harness_doubt") == []
    quality = goals(tmp_path)["quality"]
    assert (quality["status"], quality["arms"]) == ("winner", ["a"])


def test_a_published_pass_of_a_failed_answer_is_a_doubt(tmp_path: Path) -> None:
    _one_level_lost(tmp_path, outcome="assertion")
    made = ask(tmp_path, "from generations_latest where arm_id = 'b' and level_id = 'L1'")
    Store(tmp_path).append("grades", [grade(g, True, grade_kind="published") for g in made])
    assert {r["cause"] for r in ask(tmp_path, "from harness_doubt")} == {"regraded"}
    assert goals(tmp_path)["quality"]["status"] == "withheld"


def test_a_doubt_that_changes_nothing_withholds_nothing(tmp_path: Path) -> None:
    _one_level_lost(tmp_path, outcome="assertion")
    (one, *_) = ask(tmp_path, "from generations_latest where arm_id = 'b' and level_id = 'L1' order by iteration")
    Store(tmp_path).append("grades", [grade(one, False, outcome="interface", graded_at=NOON + timedelta(hours=2))])
    (row,) = ask(tmp_path, "from pairwise")
    assert row["robust"] and [r["n"] for r in ask(tmp_path, "from harness_doubt")] == [1]
    assert goals(tmp_path)["quality"]["status"] == "winner"


def test_the_rules_that_guess_are_the_extractors(tmp_path: Path) -> None:
    assert {r["rule"] for r in ask(tmp_path, "from fallback_rules")} == FALLBACK_RULES


# Where there is no verdict ---------------------------------------------------------------------------


def test_arms_that_differ_are_not_compared(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]] * 15, "b": [[False, False]] * 15})
    made = ask(tmp_path, "select * exclude (identity, in_plan, complete) from generations_latest where arm_id = 'b'")
    store = Store(tmp_path)
    for g in made:
        again = g | {"attempt": 2, "started_at": NOON, "generation_id": g["generation_id"] + "x", "gpu_driver": "580.2"}
        store.append("generations", [again])
        store.append("grades", [grade(again, False)])
    for row in ask(tmp_path, "from pairwise"):
        assert row["verdict"] is None and not row["comparable"] and "driver" in row["reason"]
    found = goals(tmp_path)
    assert {r["status"] for r in found.values()} == {"not_compared"} and "driver" in found["quality"]["reason"]


def test_a_level_without_a_verdict_leaves_the_pair_open(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]] * 3, "b": [[True, None]] * 3})
    (row,) = ask(tmp_path, "from pairwise")
    assert row["verdict"] is None and row["reason"] == "not every level was measured for both"
    assert goals(tmp_path)["quality"]["status"] == "not_measured"


def test_one_arm_alone_is_no_winner(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]] * 3})
    found = goals(tmp_path)
    assert {r["status"] for r in found.values()} == {"not_measured"}
    assert found["quality"]["reason"] == "fewer than two arms were measured"


def test_a_run_that_stopped_by_its_results_has_the_rules_verdict(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]] * 15, "b": [[False, True]] * 15, "c": [[True, True]] * 15})
    same = {
        "run_id": RUN,
        "event_at": NOON,
        "rule": "e-values; null hypothesis: no difference",
        "alpha": 0.05,
        "margin": 5.0,
    }
    Store(tmp_path).append("decisions", [
        same | {"arm_id": "b", "exit": "out", "against": "a", "iterations": 15, "detail": "worse than a"},
        same | {"arm_id": "a", "exit": "futile", "iterations": 15, "detail": "nothing left to decide"},
        same | {"arm_id": "c", "exit": "futile", "iterations": 15, "detail": "nothing left to decide"},
    ])  # fmt: skip
    quality = goals(tmp_path)["quality"]
    assert (quality["status"], quality["arms"], quality["stopping_alpha"]) == ("tie", ["a", "c"], 0.05)
    pairs = {(r["arm_a"], r["arm_b"]): r for r in ask(tmp_path, "from pairwise")}
    assert pairs["a", "b"]["verdict"] == "a better" and pairs["a", "c"]["verdict"] == "not separated"
    assert all(r["low"] is None and r["robust"] is None for r in pairs.values())
    text = make_report(tmp_path, RUN, tmp_path / "reports").markdown.read_text("utf-8").split("## ")[1]
    assert "stopped by its results" in text and "e-values; null hypothesis" in text and "at most 5 %" in text
    assert "b after 15 iterations: worse than a" in text and "do not hold" in text


def test_the_views_live_in_the_database_file(tmp_path: Path) -> None:
    store_reference(tmp_path)
    assert rebuild(tmp_path, tmp_path / "results.duckdb") == []
    with duckdb.connect(str(tmp_path / "results.duckdb"), read_only=True) as connection:
        found = connection.execute("select status from verdicts where goal = 'throughput'").fetchall()
        assert found == [("winner",)]
        assert connection.execute("select count(*) from pairwise where decode_low is not null").fetchone() == (6,)
