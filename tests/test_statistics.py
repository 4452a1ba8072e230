"""Statistics beyond score and speed: fronts, ranks, saturation, pass@k, runs against runs, energy, recommendations."""

from __future__ import annotations

import itertools
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, ttest_ind
from store_rows import NOON, RUN, arm_row, ask, fill, generation, grade, plan_row, rows_of, run_row

from bench.store.database import connect, snapshot
from bench.store.stats_tables import RULE_SETTINGS
from bench.store.write import Store

PASS, FAIL = [True, True], [False, False]
GB = 1 << 30


def fixed(results: Path, sql: str) -> list[dict[str, Any]]:
    """Rows of a query as a report asks it: with the runs fixed first."""
    connection, _ = connect(results)
    snapshot(connection, [r["run_id"] for r in rows_of(connection, "select run_id from runs_latest")])
    return rows_of(connection, sql)


def arms(results: Path, **more: dict[str, Any]) -> None:
    """A later state of some arms, with what is given."""
    later = NOON + timedelta(hours=1)
    rows = [{"run_id": RUN, "arm_id": a, "event_at": later, "status": "finished"} | m for a, m in more.items()]
    Store(results).append("arms", rows)


def again(results: Path, arm: str, **more: Any) -> None:
    """The arm's answers asked again, with the verdicts they had; what is callable is of the answer's number."""
    store = Store(results)
    old = ask(
        results,
        "select * exclude (identity, in_plan, complete) from generations_latest "
        f"where arm_id = '{arm}' order by level_id, iteration",
    )
    passed = {r["generation_id"]: r["passed"] for r in ask(results, "from headline_grades")}
    made = []
    for n, g in enumerate(old):
        values = {k: v(n) if callable(v) else v for k, v in more.items()}
        made.append(g | {"attempt": 2, "generation_id": f"{arm}-{n}", "started_at": NOON} | values)
    store.append("generations", made)
    store.append("grades", [grade(g, passed[o["generation_id"]]) for g, o in zip(made, old, strict=True)])


# Pareto ----------------------------------------------------------------------------------------------


def front(results: Path) -> dict[str, dict[str, Any]]:
    return {r["arm_id"]: r for r in fixed(results, "from pareto")}


def test_the_front_is_what_no_arm_dominates(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [PASS] * 15, "b": [FAIL] * 15, "c": [PASS] * 15, "d": [PASS] * 15})
    again(tmp_path, "b", last_token_ms=lambda n: 9000.0 + n % 3)
    arms(
        tmp_path, a={"vram_peak_bytes": 4 * GB}, b={"vram_peak_bytes": 4 * GB}, c={"vram_peak_bytes": 3 * GB},
        d={"vram_peak_bytes": 3 * GB},
    )  # fmt: skip
    found = front(tmp_path)
    assert {a: r["on_front"] for a, r in found.items()} == {"a": False, "b": False, "c": True, "d": True}
    assert found["c"]["dominated_by"] == [] and found["b"]["dominated_by"] == ["a", "c", "d"]
    assert found["a"]["dominated_by"] == ["c", "d"], "equal in two and larger"
    assert found["b"]["surely_dominated_by"] == ["a", "c", "d"] and not found["a"]["surely_dominated"]
    assert found["a"]["memory_kind"] == "peak VRAM" and all(r["reason"] is None for r in found.values())


def test_an_arm_without_a_coordinate_is_on_no_front_and_dominates_nobody(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [PASS] * 2, "b": [FAIL] * 2, "c": [FAIL] * 2})
    store = Store(tmp_path)
    store.append("arms", [arm_row("d", status="failed")])
    arms(tmp_path, b={"vram_peak_bytes": 2 * GB}, c={"vram_peak_bytes": 3 * GB})
    first = front(tmp_path)
    assert first["b"]["dominated_by"] == ["a"] and first["c"]["dominated_by"] == ["a", "b"]
    # The same arms, and the memory of `a` was never seen.
    other = tmp_path / "other"
    fill(other, {"b": [FAIL] * 2, "c": [FAIL] * 2})
    store = Store(other)
    store.append("arms", [arm_row("a", vram_peak_bytes=None)])
    for level, i in itertools.product(("L1", "L2"), (1, 2)):
        made = generation(level, i, "a")
        store.append("plan", [plan_row(level, i, "a")])
        store.append("generations", [made])
        store.append("grades", [grade(made)])
    found = front(other)
    assert (found["a"]["on_front"], found["a"]["dominated_by"]) == (None, None)
    assert found["a"]["reason"] == "peak VRAM not measured" and found["b"]["on_front"] and found["c"]["on_front"]
    assert "no iteration has a score" in first["d"]["reason"]


def test_vram_and_ram_are_not_one_coordinate(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [PASS] * 2, "b": [FAIL] * 2})
    arms(tmp_path, a={"device": "cpu"})
    found = front(tmp_path)
    assert {r["on_front"] for r in found.values()} == {None}
    assert "their memory is not one coordinate" in found["b"]["reason"]
    assert found["a"]["memory_kind"] == "peak RAM"


# Ranks -----------------------------------------------------------------------------------------------


def test_ranks_agree_with_a_bootstrap_written_a_second_time(tmp_path: Path) -> None:
    drawn = np.random.default_rng(3)
    rates = {"a": 0.7, "b": 0.6, "c": 0.3}
    runs = {a: [[bool(x) for x in drawn.random(2) < p] for _ in range(12)] for a, p in rates.items()}
    fill(tmp_path, runs)
    rows = {r["arm_id"]: r for r in fixed(tmp_path, "from rank_stability")}
    scores = np.array([[50.0 * sum(i) for i in runs[a]] for a in "abc"])
    again = np.stack([s[drawn.integers(0, 12, (40_000, 12))].mean(axis=1) for s in scores])
    first = again == again.max(axis=0)
    best = 100 * (first / first.sum(axis=0)).mean(axis=1)
    place = 1 + (again[None] > again[:, None]).sum(axis=1) + ((again[None] == again[:, None]).sum(axis=1) - 1) / 2
    for i, arm in enumerate("abc"):
        assert rows[arm]["best_pct"] == pytest.approx(best[i], abs=6), "standard error of 1,000 draws: 1.6"
        assert rows[arm]["mean_rank"] == pytest.approx(place[i].mean(), abs=0.1)
    assert sum(r["best_pct"] for r in rows.values()) == pytest.approx(100)
    assert rows["a"]["n_draws"] == RULE_SETTINGS["bootstrap_draws"][0]
    assert rows == {r["arm_id"]: r for r in fixed(tmp_path, "from rank_stability")}, "the same again"


def test_equal_arms_share_the_first_place_and_one_iteration_has_none(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [PASS] * 3, "b": [PASS] * 3, "c": [PASS]})
    rows = {r["arm_id"]: r for r in fixed(tmp_path, "from rank_stability")}
    assert [(rows[a]["best_pct"], rows[a]["mean_rank"]) for a in "ab"] == [(50, 1.5)] * 2
    assert rows["c"]["best_pct"] is None and rows["c"]["reason"] == "fewer than two iterations have a score"


def test_many_iterations_are_ranked_by_the_normal_limit(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("runs", [run_row(origin="a report")])
    rng, same = np.random.default_rng(1), {"run_id": RUN, "suite_id": "s", "grade_kind": "headline", "metric": "score"}
    values = {"a": rng.normal(50, 10, 600), "b": rng.normal(50.4, 10, 600)}
    store.append("published", [
        same | {"arm_id": a, "iteration": i, "value": float(v), "source": "a report"}
        for a, column in values.items() for i, v in enumerate(column, 1)
    ])  # fmt: skip
    rows = {r["arm_id"]: r for r in fixed(tmp_path, "from rank_stability")}
    a, b = values["a"], values["b"]
    z = (a.mean() - b.mean()) / math.sqrt(a.var(ddof=1) / 600 + b.var(ddof=1) / 600)
    assert rows["a"]["best_pct"] == pytest.approx(50 * (1 + math.erf(z / math.sqrt(2))), abs=6)


# Levels ----------------------------------------------------------------------------------------------


def test_levels_that_every_arm_passes_or_fails_say_nothing(tmp_path: Path) -> None:
    levels = ("L1", "L2", "L3")
    fill(tmp_path, {"a": [[True, False, True]] * 3, "b": [[True, False, False], [True, False, True]]}, levels)
    rows = {r["level_id"]: r for r in fixed(tmp_path, "from saturation")}
    assert {k: (r["says"], r["k"], r["n"]) for k, r in rows.items()} == {
        "L1": ("nothing", 5, 5), "L2": ("nothing", 0, 5), "L3": ("something", 4, 5),
    }  # fmt: skip
    assert rows["L1"]["reason"] == "every arm always passed" and rows["L2"]["reason"] == "no arm ever passed"
    (run,) = fixed(tmp_path, "from saturation_summary")
    assert (run["n_levels"], run["n_saturated"], run["n_telling"]) == (3, 2, 1)
    assert run["telling_pct"] == pytest.approx(100 / 3)


def test_one_arm_saturates_nothing(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [PASS, [True, None]], "b": [[True, None]]})
    rows = {r["level_id"]: r for r in fixed(tmp_path, "from saturation")}
    assert (rows["L1"]["says"], rows["L2"]["says"]) == ("nothing", None)
    assert rows["L2"]["reason"] == "fewer than two arms were measured" and rows["L2"]["n_arms_unmeasured"] == 1
    (run,) = fixed(tmp_path, "from saturation_summary")
    assert run["telling_pct"] is None and run["n_unknown"] == 1 and run["reason"]


def test_pass_at_k_is_the_unbiased_estimate(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[i < 2, i < 4] for i in range(5)], "b": [[i == 0, False] for i in range(2)]})
    rows = {(r["arm_id"], r["level_id"], r["k"]): r for r in fixed(tmp_path, "from pass_at_k")}
    for k, (level, c) in itertools.product((1, 2, 3, 5), (("L1", 2), ("L2", 4))):
        expected = 100 * (1 - math.comb(5 - c, k) / math.comb(5, k))
        assert rows["a", level, k]["pass_at_k"] == pytest.approx(expected), (level, k)
    both = [rows["a", level, 2]["pass_at_k"] for level in ("L1", "L2")]
    assert rows["a", None, 2]["pass_at_k"] == pytest.approx(sum(both) / 2) and rows["a", None, 2]["n_levels"] == 2
    assert [rows["b", "L1", k]["pass_at_k"] for k in (1, 2, 3)] == [50, 100, None]
    assert rows["b", "L2", 2]["pass_at_k"] == 0 and rows["a", "L1", 10]["pass_at_k"] is None
    assert rows["b", "L1", 3]["reason"] == "2 measured answers, fewer than 3"
    assert rows["b", None, 3]["pass_at_k"] is None and rows["b", None, 3]["reason"].startswith("2 of 2 levels")


# Runs against runs -----------------------------------------------------------------------------------

EARLIER = "20261129-120000-bbbb"


def two_runs(results: Path, later: list[list[bool]], seed_step: int, **server: Any) -> tuple[Any, Any]:
    """Two runs of one arm: the earlier passes everything; decode times of both."""
    rng, store, times = np.random.default_rng(2), Store(results), []
    for run, verdicts, step in ((EARLIER, [PASS] * len(later), 0), (RUN, later, seed_step)):
        store.append("runs", [run_row(run_id=run)])
        store.append("arms", [arm_row("a", run_id=run)])
        times.append(rng.normal(1000, 20, 2 * len(verdicts)))
        slots = [(level, i, v) for i, row in enumerate(verdicts, 1) for level, v in zip(("L1", "L2"), row, strict=True)]
        for (level, i, passed), ms in zip(slots, times[-1], strict=True):
            plan = plan_row(level, i, run_id=run)
            seed = plan["request_seed"] + step
            more = server if run == RUN else {}
            made = generation(level, i, run_id=run, request_seed=seed, predicted_ms=ms, **more)
            store.append("plan", [plan | {"request_seed": seed} | {k: v for k, v in more.items() if k in plan}])
            store.append("generations", [made])
            store.append("grades", [grade(made, passed)])
    return times[1], times[0]


def test_two_runs_of_one_arm(tmp_path: Path) -> None:
    later = [PASS] * 6 + [[False, True]] * 2
    new, old = two_runs(tmp_path, later, 1000)
    (row,) = fixed(tmp_path, "from run_to_run")
    assert (row["run_id"], row["earlier_run_id"], row["seeds"], row["n_same_seeds"]) == (RUN, EARLIER, "other", 0)
    assert row["score_difference"] == pytest.approx(-12.5)
    low = beta.ppf(0.025, 6, 3), beta.ppf(0.025, 8, 1)
    high = beta.ppf(0.975, 7, 2), 1.0
    below = 50 * math.hypot(6 / 8 - low[0], 1 - low[1])
    above = 50 * math.hypot(high[0] - 6 / 8, high[1] - 1, 1 - low[1], 1 - low[1])
    assert row["score_low"] == pytest.approx(-12.5 - below) and row["score_high"] == pytest.approx(-12.5 + above)
    interval = ttest_ind(100_000 / new, 100_000 / old, equal_var=False).confidence_interval(0.95)
    width = interval.high - interval.low
    assert row["decode_low"] <= interval.low <= row["decode_low"] + 0.05 * width
    assert row["decode_high"] - 0.05 * width <= interval.high <= row["decode_high"]
    assert row["within_noise"] is True and row["reason"] is None
    # Its own arithmetic, and the figures of the views that have the same.
    of_arms = {r["run_id"]: r for r in fixed(tmp_path, "from arm_intervals")}
    assert (row["score"], row["earlier_score"]) == pytest.approx((of_arms[RUN]["score"], of_arms[EARLIER]["score"]))
    assert (row["n"], row["earlier_n"]) == (of_arms[RUN]["n"], of_arms[EARLIER]["n"]) == (8, 8)
    rates = [r["decode_tps_mean"] for r in fixed(tmp_path, "from arm_summary order by run_id desc")]
    assert (row["decode_tps"], row["earlier_decode_tps"]) == pytest.approx(tuple(rates))


def test_a_fixed_run_names_no_arm_of_another(tmp_path: Path) -> None:
    two_runs(tmp_path, [PASS] * 2, 0)
    Store(tmp_path).append("plan", [plan_row("L1", 1, run_id=EARLIER, arm_id="never began")])
    connection, _ = connect(tmp_path)
    snapshot(connection, [RUN])
    assert [(r["run_id"], r["arm_id"]) for r in rows_of(connection, "from arm_summary")] == [(RUN, "a")]
    everything, _ = connect(tmp_path)
    named = rows_of(everything, "select arm_id from arm_summary order by run_id, arm_id")
    assert [r["arm_id"] for r in named] == ["a", "never began", "a"]


def test_the_same_seeds_are_one_result(tmp_path: Path) -> None:
    two_runs(tmp_path, [FAIL] * 8, 0)
    (row,) = fixed(tmp_path, "from run_to_run")
    assert (row["seeds"], row["n_same_seeds"], row["n_seeds"]) == ("same", 16, 16)
    assert row["score_within_noise"] is False and row["within_noise"] is False


def test_another_build_is_another_arm_and_other_prompts_are_not_compared(tmp_path: Path) -> None:
    two_runs(tmp_path, [PASS] * 2, 0, commit="c2")
    assert fixed(tmp_path, "from run_to_run") == []
    other = tmp_path / "other"
    two_runs(other, [PASS] * 2, 0, prompt_hash="edited")
    (row,) = fixed(other, "from run_to_run")
    assert row["score_difference"] is None and row["within_noise"] is None
    assert row["reason"] == "they differ in prompt of L1, prompt of L2"


# Energy ----------------------------------------------------------------------------------------------


def powered(results: Path, samples: list[tuple[float, str, float | None]], **more: Any) -> dict[str, Any]:
    """Two answers of one second, from 10 and from 12 s on; samples as (second, phase, watts)."""
    store = Store(results)
    store.append("runs", [run_row(iterations=1)])
    store.append("arms", [arm_row(device=more.pop("device", "gpu"))])
    for n, level in enumerate(("L1", "L2")):
        made = generation(
            level, 1, started_at=NOON + timedelta(seconds=10 + 2 * n), last_token_ms=1000.0, answer_tokens=50
        )
        store.append("plan", [plan_row(level, 1)])
        store.append("generations", [made])
        store.append("grades", [grade(made, level == "L1")])
    store.append("telemetry", [
        {"run_id": RUN, "arm_id": "a", "sampled_at": NOON + timedelta(seconds=at), "phase": phase, "power_w": w,
         "throttle_reasons": 0x4 if 10.2 < at < 10.7 else 0x1, **more} for at, phase, w in samples
    ])  # fmt: skip
    (row,) = fixed(results, "from energy")
    return row


IDLE = [(t / 2, "idle", 20.0) for t in range(8)]


def test_power_is_integrated_over_the_answers_alone(tmp_path: Path) -> None:
    # 100 W and 10 W more each second from second 9 on, sampled off the answers' ends.
    samples = [(t, "generate", 100 + 10 * (t - 9)) for t in np.arange(9.1, 14, 0.25)]
    row = powered(tmp_path, IDLE + samples)
    joules = (100 + 10 * 1.5) + (100 + 10 * 3.5)
    assert row["energy_j"] == pytest.approx(joules) and row["powered_j"] == pytest.approx(joules)
    assert (row["n_answers"], row["n_powered"], row["reason"]) == (2, 2, None)
    assert row["idle_w"] == pytest.approx(20) and row["powered_j_above_idle"] == pytest.approx(joules - 40)
    assert row["j_per_answer_token"] == pytest.approx(joules / 100)
    assert row["j_per_solved_level"] == pytest.approx(joules), "the one that failed cost energy too"
    assert row["j_per_solved_level_above_idle"] == pytest.approx(joules - 40)
    # Held down from the sample at 10.35 to the one at 10.85.
    assert row["throttled_s"] == pytest.approx(0.5) and row["clocked_s"] == pytest.approx(2)


def test_a_gap_is_not_bridged(tmp_path: Path) -> None:
    samples = [(t, "generate", 100.0) for t in (9.9, 10.4, 10.9, 11.4, 11.9, 13.1)]
    row = powered(tmp_path, samples)
    assert (row["n_powered"], row["energy_j"]) == (1, None) and row["powered_j"] == pytest.approx(100)
    assert row["powered_s"] == pytest.approx(1) and row["j_per_answer_token"] == pytest.approx(2)
    assert "1 of 2 answers without power all the way" in row["reason"]
    assert row["idle_w"] is None and row["powered_j_above_idle"] is None and "no power was sampled" in row["reason"]


@pytest.mark.parametrize(
    ("samples", "more", "why"),
    [
        ([], {}, "there are no samples of the arm"),
        ([(9.9, "generate", None), (13.1, "generate", None)], {"reason": "power: no right"}, "power: no right"),
        ([(t / 2, "generate", 50.0) for t in range(30)], {"device": "cpu"}, "the arm ran on the CPU"),
    ],
)  # fmt: skip
def test_without_power_there_is_no_energy(tmp_path: Path, samples: list[Any], more: dict[str, Any], why: str) -> None:
    row = powered(tmp_path, samples, **more)
    assert [row[c] for c in ("energy_j", "powered_j", "j_per_answer_token", "j_per_solved_level")] == [None] * 4
    assert row["n_powered"] == 0 and why in row["reason"]


def test_questions_at_a_time_are_one_stretch(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [PASS]})
    at = NOON + timedelta(minutes=1)
    again(tmp_path, "a", started_at=lambda n: at + timedelta(seconds=n), last_token_ms=2000.0)
    sample = {"run_id": RUN, "arm_id": "a", "phase": "generate", "power_w": 100.0}
    Store(tmp_path).append("telemetry", [sample | {"sampled_at": at + timedelta(seconds=t / 2)} for t in range(-1, 9)])
    (row,) = fixed(tmp_path, "from energy")
    assert row["answering_s"] == pytest.approx(3) and row["energy_j"] == pytest.approx(300), "not 400"
    assert row["throttled_s"] is None and row["clocked_s"] == 0


# Recommendations -------------------------------------------------------------------------------------


def goals(results: Path) -> dict[str, dict[str, Any]]:
    return {r["goal"]: r for r in fixed(results, "from recommendations")}


def test_a_clear_best_and_what_fits(tmp_path: Path) -> None:
    fill(tmp_path, {"big": [PASS] * 15, "mid": [[True, False]] * 15, "tiny": [FAIL] * 15})
    arms(tmp_path, big={"vram_peak_bytes": 22 * GB}, mid={"vram_peak_bytes": 11 * GB}, tiny={"vram_peak_bytes": 6 * GB})
    found = goals(tmp_path)
    assert {g: (r["status"], r["arm_id"]) for g, r in found.items()} == {
        "best_answers": ("clear", "big"),
        "fastest_no_loss": ("clear", "big"),
        "fits_8_gb": ("only", "tiny"), "fits_12_gb": ("only", "tiny"), "fits_16_gb": ("clear", "mid"),
        "fits_24_gb": ("clear", "mid"), "fits_32_gb": ("clear", "big"), "fits_48_gb": ("clear", "big"),
    }, "11 GB and a tenth do not fit into 12, nor 22 into 24"  # fmt: skip
    assert all(r["reason"] and r["evidence"] for r in found.values())


def test_what_is_not_separated_is_a_tie_and_says_so(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [PASS] * 4 + [[True, False]], "b": [PASS] * 5})
    found = goals(tmp_path)
    row, fastest = found["best_answers"], found["fastest_no_loss"]
    assert (row["status"], row["arm_id"], row["arms"]) == ("tie", "b", ["b", "a"])
    assert "not separated from a" in row["reason"]
    assert fastest["arm_id"] is None and "no arm's loss is surely inside 5 points" in fastest["reason"]


def test_the_fastest_without_loss(tmp_path: Path) -> None:
    n = 130
    fill(tmp_path, {"a": [PASS] * n, "b": [PASS] * n, "c": [FAIL] * n})
    again(tmp_path, "a", last_token_ms=lambda n: 3000.0 + n % 7)
    row = goals(tmp_path)["fastest_no_loss"]
    assert (row["status"], row["arm_id"], row["arms"]) == ("clear", "b", ["b"]), row["reason"]
    assert "of 2 arms that surely lose at most 5 points" in row["reason"]
    arms(tmp_path, b={"host_busy": "others used 60 % of the cores", "device": "cpu"})
    row = goals(tmp_path)["fastest_no_loss"]
    assert (row["status"], row["arm_id"]) == ("withheld", None) and "others used 60 %" in row["reason"]


def test_a_withheld_verdict_withholds_every_recommendation(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [PASS] * 15, "b": [[False, True]] * 15})
    made = ask(tmp_path, "from generations_latest where arm_id = 'b' and level_id = 'L1'")
    later = {"graded_at": NOON + timedelta(hours=1), "outcome": "interface", "missing_name": "set_result"}
    Store(tmp_path).append("grades", [grade(g, False, **later) for g in made])
    for row in goals(tmp_path).values():
        assert (row["status"], row["arm_id"], row["arms"]) == ("withheld", None, None)
        assert "the quality verdict is withheld" in row["reason"]


def test_an_arm_whose_memory_is_not_known_does_not_fit(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [PASS] * 15, "b": [FAIL] * 15})
    arms(tmp_path, a={"device": "cpu", "rss_peak_bytes": 7 * GB})
    rows = goals(tmp_path)
    assert rows["fits_8_gb"]["status"] == "clear" and rows["fits_8_gb"]["arm_id"] == "a", "the RAM of one on the CPU"
    other = tmp_path / "other"
    store = fill(other, {"a": [PASS] * 15})
    store.append("arms", [arm_row("b", vram_peak_bytes=None)])
    for level, i in itertools.product(("L1", "L2"), range(1, 16)):
        made = generation(level, i, "b")
        store.append("plan", [plan_row(level, i, "b")])
        store.append("generations", [made])
        store.append("grades", [grade(made, False)])
    row = goals(other)["fits_8_gb"]
    assert (row["status"], row["arm_id"]) == ("only", "a") and row["reason"].endswith("peak memory not known: b")
