"""Values that cannot be, rows that are stored twice, and figures that differ in their last digits: no verdict rests on
them, and nothing is left out without saying so."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import beta
from store_rows import RUN, arm_row, ask, fill, generation, grade, plan_row, run_row

from bench.errors import BenchError
from bench.report.chart_data import chart_data
from bench.report.make import make_report
from bench.store.database import connect, understood
from bench.store.write import Store


def goals(results: Path) -> dict[str, dict[str, Any]]:
    return {r["goal"]: r for r in ask(results, "from verdicts")}


def caveats(results: Path, rule: str) -> list[str]:
    return [r["text"] for r in ask(results, f"from caveats where rule = '{rule}'")]


def store_of(
    results: Path,
    arms: dict[str, int],
    answer: Callable[[str, int], dict[str, Any]] = lambda *_: {},
    verdict: Callable[[str, int], dict[str, Any]] = lambda *_: {},
) -> list[dict[str, Any]]:
    """A run with one level and these iterations of each arm, all passed; its generations."""
    store, made = Store(results), []
    store.append("runs", [run_row(arm_order=list(arms), iterations=max(arms.values()))])
    for position, (arm, n) in enumerate(arms.items(), 1):
        store.append("arms", [arm_row(arm, position=position)])
        store.append("plan", [plan_row("L1", i, arm) for i in range(1, n + 1)])
        answers = [generation("L1", i, arm, **answer(arm, i)) for i in range(1, n + 1)]
        store.append("generations", answers)
        store.append("grades", [grade(g, True, **verdict(arm, g["iteration"])) for g in answers])
        made += answers
    return made


# Differences in the last digits ---------------------------------------------------------------------------------------
def test_equal_times_are_no_winner_whatever_their_sums_round_to(tmp_path: Path) -> None:
    """Means of other numbers of the same value differ in the last digit, and have no spread.

    In which digit depends on the order in which threads add them up, so there are more than two.
    """
    arms = {"a": 2, "b": 20, "c": 3, "d": 25, "e": 7, "f": 40}
    store_of(tmp_path, arms, lambda *_: {"last_token_ms": 1050.1, "total_ms": 1050.1})
    means = {row["answer_s_mean"] for row in ask(tmp_path, "select answer_s_mean from arm_summary")}
    assert len(means) > 1, "these values do not show it"
    found = goals(tmp_path)["answer_time"]
    assert (found["status"], sorted(found["arms"])) == ("tie", list(arms))
    pairs = ask(tmp_path, "from pairwise")
    assert len(pairs) == 15 and {pair["answer_difference"] for pair in pairs} == {0}


def test_more_iterations_do_not_rest_on_the_wide_interval_of_few(tmp_path: Path) -> None:
    """At three iterations the interval is Hoeffding's; at those that are said it is the exact one."""
    levels = tuple(f"L{n}" for n in range(1, 9))
    a = [(True, step, step, False, step, True, step, step) for step in (True, True, False)]
    b = [(*row[:-1], i == 0) for i, row in enumerate(a)]
    fill(tmp_path, {"a": a, "b": b}, levels)
    [pair] = ask(tmp_path, "from pairwise")
    assert pair["verdict"] == "not separated"
    rates = {(r["arm_id"], r["level_id"]): r["k"] / r["n"] for r in ask(tmp_path, "from level_pass_rates")}

    def below(n: float) -> float:
        total = 0.0
        for level in levels:
            k = rates["a", level] * n
            low = float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0
            k = rates["b", level] * n
            high = float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0
            total += ((rates["a", level] - low) / 8) ** 2 + ((high - rates["b", level]) / 8) ** 2
        return 100 * math.sqrt(total)

    needed = next(n for n in range(3, 3000, 3) if below(n) < pair["difference"])
    assert 3 + pair["more_iterations"] == pytest.approx(needed, rel=0.25)


# One arm --------------------------------------------------------------------------------------------------------------
def test_one_arm_that_two_servers_answered_for_wins_nothing(tmp_path: Path) -> None:
    store_of(tmp_path, {"a": 3}, lambda _, i: {"gpu_driver": "570.1" if i < 3 else "999.9"})
    assert {r["status"] for r in goals(tmp_path).values()} == {"not_measured"}


# Points and times that cannot be --------------------------------------------------------------------------------------
@pytest.mark.parametrize("points", [None, 500.0, -1.0, float("inf"), float("nan")])
def test_points_that_are_none_are_no_verdict(tmp_path: Path, points: float | None) -> None:
    store_of(tmp_path, {"a": 2, "b": 2}, verdict=lambda arm, i: {"points": points} if (arm, i) == ("a", 2) else {})
    rows = {r["arm_id"]: r for r in ask(tmp_path, "from arm_summary")}
    assert (rows["a"]["mean_score"], rows["a"]["n"]) == (100.0, 1)
    [gap] = ask(tmp_path, "from missing")
    assert (gap["arm_id"], gap["iteration"]) == ("a", 2)
    assert gap["reason"].startswith("its grade has ") and gap["reason"].endswith("points of 50.0")
    assert caveats(tmp_path, "missing_rows")


@pytest.mark.parametrize("ms", [-5000.0, float("inf"), float("nan"), 1e300])
def test_times_that_cannot_be_are_left_out_and_said(tmp_path: Path, ms: float) -> None:
    bad = dict.fromkeys(("first_token_ms", "first_answer_ms", "last_token_ms", "total_ms", "predicted_ms"), ms)
    store_of(tmp_path, {"a": 2, "b": 2}, lambda arm, i: bad if (arm, i) == ("a", 1) else {})
    a = next(r for r in ask(tmp_path, "from arm_summary") if r["arm_id"] == "a")
    assert (a["answer_s_n"], a["decode_tps_n"], a["ttft_n"]) == (1, 1, 1)
    assert a["answer_s_mean"] == pytest.approx(1.05)
    # What is no number at all is not stored.
    assert len(caveats(tmp_path, "impossible_times")) == math.isfinite(ms)
    make_report(tmp_path, RUN, tmp_path / "reports")


@pytest.mark.parametrize("metric, value, n", [("level_passed", 7.0, 5), ("level_passed", -1.0, 5),
    ("level_passed", 2.5, 5), ("level_passed", 1e300, 5), ("no_answer", 1e300, None)])  # fmt: skip
def test_printed_figures_that_cannot_be_break_no_report(
    tmp_path: Path, metric: str, value: float, n: int | None
) -> None:
    store = Store(tmp_path)
    store.append("runs", [run_row(origin="a report")])
    same = {"run_id": RUN, "suite_id": "s", "arm_id": "a", "grade_kind": "headline", "source": "a report"}
    level = same | {"level_id": "L1"}
    rows = [level | {"metric": "level_points", "value": 100.0}, level | {"metric": metric, "value": value, "n": n},
            same | {"metric": "score", "iteration": 1, "value": 50.0}]  # fmt: skip
    store.append("published", rows)
    assert ask(tmp_path, "from level_pass_rates") == []
    assert len(caveats(tmp_path, "impossible_figures")) == (metric == "level_passed")
    make_report(tmp_path, RUN, tmp_path / "reports")


def test_a_value_that_no_view_can_work_with_is_one_line(tmp_path: Path) -> None:
    """Whatever it is: never a traceback."""
    connection, _ = connect(tmp_path)
    connection.execute("create or replace view arm_summary as select 'x'::integer as run_id")
    with (
        pytest.raises(BenchError, match=r"run r: a stored value is none that the views can work with"),
        understood("run r"),
    ):
        connection.execute("from arm_summary").fetchall()


# Stored twice ---------------------------------------------------------------------------------------------------------
def test_printed_figures_that_are_stored_twice_count_once(tmp_path: Path) -> None:
    rows = [{"run_id": RUN, "suite_id": "s", "arm_id": "a", "grade_kind": "headline", "source": "a report",
             "metric": "score", "iteration": i, "value": v} for i, v in ((1, 50.0), (2, 90.0))]  # fmt: skip
    store = Store(tmp_path)
    store.append("runs", [run_row(origin="a report")])
    store.append("published", rows)
    before = ask(tmp_path, "select n, half_width from arm_summary")
    store.append("published", rows)
    assert ask(tmp_path, "select n, half_width from arm_summary") == before
    assert before[0]["n"] == 2


def test_answers_that_are_stored_twice_are_one_disagreement_and_said_where_they_differ(tmp_path: Path) -> None:
    made = store_of(tmp_path, {"a": 2})
    store = Store(tmp_path)
    store.append("grades", [grade(g, False, grade_kind="published", tests_expected=None) for g in made])
    store.append("generations", made)
    found = ask(tmp_path, "from disagreements")
    assert len(found) == 2
    assert all(r["why"] for r in found), "a missing number of tests leaves no reason"
    assert caveats(tmp_path, "conflicting_rows") == []
    store.append("generations", [made[0] | {"predicted_ms": 10.0}])
    assert caveats(tmp_path, "conflicting_rows") == [
        "1 answers are stored more than once with different contents; one of them was taken"
    ]


# Charts ---------------------------------------------------------------------------------------------------------------
def test_the_chart_of_first_tokens_shows_the_answers_of_the_table(tmp_path: Path) -> None:
    store_of(tmp_path, {"a": 4}, lambda _, i: {"cache_n": 30, "first_token_ms": 5.0} if i > 2 else {})
    connection, _ = connect(tmp_path)
    drawn = [r["first_token_ms"] for r in chart_data(connection, RUN)["first_tokens"]]
    [row] = ask(tmp_path, "select ttft_n, ttft_ms_mean from arm_summary")
    assert (len(drawn), sum(drawn) / len(drawn)) == (row["ttft_n"], row["ttft_ms_mean"])
