"""Two runs side by side: what differs, the difference with its interval, and when it is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli import invoke
from scipy.stats import beta, ttest_ind
from store_rows import NOON, arm_row, ask, generation, grade, plan_row, rows_of, run_row

import bench.report.compare as compare_module
from bench.errors import BenchError, UsageError
from bench.report.compare import Comparison, compare
from bench.store.database import connect, snapshot
from bench.store.write import Store

A, B = "20261130-120000-aaaa", "20261201-090000-bbbb"
SHARE = {"L1": 0.6, "L2": 0.4}
ALPHA = 0.05

Counts = Mapping[str, tuple[tuple[int, int], tuple[int, int]]]


def put(
    results: Path,
    run_id: str,
    arms: Counts,
    *,
    run: Mapping[str, Any] | None = None,
    arm: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    question: Mapping[str, Any] | None = None,
    grading: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> Store:
    """A run by its passes: for each arm (passed, answered) of each level. Every answer has a seed of its own, which is
    another run's too where `seed` is the same."""
    store = Store(results)
    start = NOON + timedelta(days=run_id == B)
    n = max(total for levels in arms.values() for _, total in levels)
    store.append("runs", [run_row(run_id=run_id, event_at=start, iterations=n, arm_order=list(arms), **(run or {}))])
    first = seed if seed is not None else {A: 10_000, B: 20_000}[run_id]
    for arm_id, levels in arms.items():
        store.append("arms", [arm_row(arm_id, run_id=run_id, event_at=start, **(arm or {}))])
        plan, made, grades = [], [], []
        for level, (passed, total) in zip(SHARE, levels, strict=True):
            for i in range(1, n + 1):
                same = {"run_id": run_id, "request_seed": first + 10 * i + int(level[1]), **(question or {})}
                plan.append(plan_row(level, i, arm_id, points=100 * SHARE[level], **same))
                if i > total:
                    continue
                answer = generation(level, i, arm_id, **{**same, **(server or {})})
                made.append(answer)
                worth = {"points": 100 * SHARE[level] * (i <= passed), "max_points": 100 * SHARE[level]}
                grades.append(grade(answer, i <= passed, **worth, **(grading or {})))
        store.append("plan", plan)
        store.append("generations", made)
        store.append("grades", grades)
    return store


def compared(results: Path, a: str = A, b: str = B, **options: bool) -> Comparison:
    connection, _ = connect(results)
    with connection:
        return compare(connection, a, b, **options)


def rows(found: Comparison, title: str) -> list[tuple[str, ...]]:
    return list(next(s.rows for s in found.sections if s.title == title))


def in_sql(results: Path, sql: str) -> list[dict[str, Any]]:
    """Rows of a query over the two runs."""
    connection, _ = connect(results)
    with connection:
        snapshot(connection, [A, B])
        return rows_of(connection, sql)


def limits(k: int, n: int, alpha: float) -> tuple[float, float]:
    low = 0.0 if k == 0 else float(beta.ppf(alpha / 2, k, n - k + 1))
    return low, 1.0 if k == n else float(beta.ppf(1 - alpha / 2, k + 1, n - k))


def test_the_interval_is_that_of_the_formula_at_the_level_of_all_arms_together(tmp_path: Path) -> None:
    """Written down a second time with SciPy, for three arms, one with few iterations."""
    rng = np.random.default_rng(3)
    n = {"x": 4, "y": 15, "z": 20}
    counts = [{arm: tuple((int(rng.integers(0, m + 1)), m) for _ in SHARE) for arm, m in n.items()} for _ in "ab"]
    counts[0]["z"] = ((20, 20), (20, 20))
    for run_id, arms in zip((A, B), counts, strict=True):
        put(tmp_path, run_id, arms | {"alone" + run_id[-1]: ((1, 4), (1, 4))})
    found = {r["arm_id"]: r for r in in_sql(tmp_path, f"from compared_runs where run_a = '{A}' and run_b = '{B}'")}
    assert set(found) == set(n) and {r["n_compared"] for r in found.values()} == {3}
    share = np.array(list(SHARE.values()))
    for arm, row in found.items():
        p, q = (np.array([k / m for k, m in side[arm]]) for side in counts)
        p_ends, q_ends = (np.array([limits(k, m, ALPHA / 3) for k, m in side[arm]]) for side in counts)
        difference = 100 * (share * (q - p)).sum()
        least = 0.0
        if n[arm] < math.log(2 * 3 / ALPHA) ** 2 / 4:
            least = math.sqrt(math.log(2 * 3 / ALPHA) / 2 * (share**2).sum() * 2 / n[arm])
        below = max(least, math.hypot(*(share * (q - q_ends[:, 0])), *(share * (p_ends[:, 1] - p))))
        above = max(least, math.hypot(*(share * (q_ends[:, 1] - q)), *(share * (p - p_ends[:, 0]))))
        assert row["difference"] == pytest.approx(difference)
        assert row["low"] == pytest.approx(max(-100, difference - 100 * below))
        assert row["high"] == pytest.approx(min(100, difference + 100 * above))
        assert (row["score_a"], row["score_b"]) == pytest.approx((100 * (share * p).sum(), 100 * (share * q).sum()))
    # The other way round it is the same with the other sign.
    for row in in_sql(tmp_path, f"from compared_runs where run_a = '{B}' and run_b = '{A}'"):
        other = found[row["arm_id"]]
        assert (row["difference"], row["low"], row["high"]) == pytest.approx(
            (-other["difference"], -other["high"], -other["low"])
        )
    alone = rows(compared(tmp_path), "Arms without a comparison")
    assert alone == [("alonea", "only in A"), ("aloneb", "only in B")]


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (((5, 15), (5, 15)), ((15, 15), (15, 15)), "better"),
        (((596, 600), (596, 600)), ((597, 600), (597, 600)), "within the margin"),
    ],
)
def test_the_verdict_is_one_word_of_b_against_a(tmp_path: Path, before: Any, after: Any, verdict: str) -> None:
    put(tmp_path, A, {"x": before})
    put(tmp_path, B, {"x": after})
    found = compared(tmp_path)
    ((arm, score_a, score_b, difference, n, said, missing_a, missing_b),) = rows(found, "Answers")
    assert (arm, said) == ("x", verdict)
    assert (score_a, score_b) == tuple(f"{100 * side[0][0] / side[0][1]:.1f}" for side in (before, after))
    assert difference.startswith("+")
    assert n == f"{before[0][1]}, {before[0][1]}"
    assert missing_a == missing_b == f"0 of {2 * before[0][1]}"
    k, m = before[0]
    (first, _) = rows(found, "Levels passed")
    assert first[:2] == ("x", "L1") and first[2].startswith(f"{k}/{m}, {100 * k / m:.1f} % [")


def test_speeds_are_compared_by_welch_and_not_judged_from_a_busy_host(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    times = {}
    for run_id, mean in ((A, 1000.0), (B, 900.0)):
        store = put(tmp_path, run_id, {"x": ((8, 8), (8, 8))}, arm={"device": "cpu"})
        times[run_id] = rng.normal(mean, 30, 16)
        made = ask(
            tmp_path,
            f"select * exclude (identity, in_plan, complete) from generations_latest where run_id = '{run_id}'",
        )
        again = [
            g
            | {
                "attempt": 2,
                "generation_id": f"{run_id}{i}",
                "predicted_ms": ms,
                "last_token_ms": ms,
                "started_at": NOON,
            }
            for i, (g, ms) in enumerate(zip(made, times[run_id], strict=True))
        ]
        store.append("generations", again)
        store.append("grades", [grade(g, max_points=50.0) for g in again])
    (row,) = in_sql(tmp_path, f"from compared_runs where run_a = '{A}' and run_b = '{B}'")
    low, high = ttest_ind(100_000 / times[B], 100_000 / times[A], equal_var=False).confidence_interval(0.95)
    # Degrees of freedom are rounded down: a little wider, never narrower.
    assert row["decode_low"] <= low <= row["decode_low"] + 0.05 * (high - low)
    assert row["decode_high"] - 0.05 * (high - low) <= high <= row["decode_high"]
    ((*_, decode, _, _, _, answer),) = rows(compared(tmp_path), "Speed")
    assert (decode, answer) == ("faster", "faster")
    ((*_, decode, _, _, _, answer),) = rows(compared(tmp_path, B, A), "Speed")
    assert (decode, answer) == ("slower", "slower")
    busy = {"run_id": B, "arm_id": "x", "event_at": NOON + timedelta(days=2), "status": "finished", "device": "cpu"}
    store.append("arms", [busy | {"host_busy": "others used 60 % of the cores"}])
    found = compared(tmp_path)
    assert "withheld" in rows(found, "Speed")[0][4]
    assert any("others used 60 % of the cores" in note for note in found.notes)


def test_what_differs_comes_first_and_a_banner_says_what_it_means(tmp_path: Path) -> None:
    arms: Counts = {"x": ((9, 10), (9, 10)), "y": ((9, 10), (9, 10))}
    put(tmp_path, A, arms, run={"cpu_model": "CPU one", "seed": 7})
    put(
        tmp_path,
        B,
        arms,
        run={"cpu_model": "CPU two", "seed": 8},
        server={"build": 9990, "commit": "c2", "gpu_name": "RTX 5090", "preset_hash": "p2"},
        question={"preset_hash": "p2"},
        arm={"sampler_asked": '{"temperature": 0.6}', "slots": 2},
    )
    found = compared(tmp_path)
    assert found.sections[0].title == "What differs"
    differing = {(of, what): (a, b) for of, what, a, b in found.sections[0].rows}
    assert differing[("all arms", "llama.cpp build")] == ("9784", "9990")
    assert differing[("all arms", "llama.cpp commit")] == ("c1", "c2")
    assert differing[("all arms", "GPU")] == ("RTX 4090", "RTX 5090")
    assert differing[("all arms", "preset hash")] == ("p1", "p2")
    assert differing[("all arms", "sampler")] == ('{"temperature": 0.0}', '{"temperature": 0.6}')
    assert differing[("all arms", "slots")] == ("not recorded", "2")
    assert differing[("run", "CPU")] == ("CPU one", "CPU two")
    assert differing[("run", "seed")] == ("7", "8")
    assert ("all arms", "driver") not in differing and ("all arms", "model sha256") not in differing
    server, machine, preset = found.banners
    assert server.startswith("The server differs (llama.cpp build, llama.cpp commit)")
    assert "GPU" in machine and "CPU" in machine and "Scores can be compared" in machine
    assert "preset hash, sampler" in preset
    # The verdict is there: this is what the comparison is for.
    assert {row[5] for row in rows(found, "Answers")} == {"not separated"}
    page = found.markdown()
    assert page.index("> **The server differs") < page.index("## What differs") < page.index("## Answers")


SAME: Counts = {"x": ((9, 10), (9, 10)), "y": ((9, 10), (9, 10))}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (
            {"question": {"prompt_hash": "q-new"}, "grading": {"grading_hash": "g-new"}},
            "x, y: they differ in grading of L1 (g-L1, g-new), grading of L2 (g-L2, g-new), prompt of L1 (q-L1, q-new) "
            "and 1 more",
        ),
        ({"server": {"model_sha256": None}}, "x, y: they differ in model sha256 (m1, not recorded)"),
    ],
)
def test_scores_of_other_questions_or_models_are_refused_by_name(
    tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    put(tmp_path, A, SAME)
    put(tmp_path, B, SAME, **changed)
    with pytest.raises(BenchError, match="--allow-mixed") as refused:
        compared(tmp_path)
    assert refused.value.exit_code == 1
    assert named in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    if "server" in changed:
        return
    verdicts = in_sql(tmp_path, f"select verdict, mixed_verdict from compared_runs where run_a = '{A}'")
    assert verdicts == [{"verdict": None, "mixed_verdict": "not separated"}] * 2
    found = compared(tmp_path, allow_mixed=True)
    assert found.banners[0].startswith("Mixed: ") and named in found.banners[0]
    assert {row[5] for row in rows(found, "Answers")} == {"not separated (mixed)"}


def test_the_same_seeds_of_the_same_identity_are_said_to_be_no_new_evidence(tmp_path: Path) -> None:
    put(tmp_path, A, {"x": ((9, 10), (9, 10))}, seed=5)
    put(tmp_path, B, {"x": ((9, 10), (9, 10))}, seed=5)
    assert [n for n in compared(tmp_path).notes if "20 answers of both runs" in n and "not independent" in n]
    for name, more in (("other seeds", {"seed": 900}), ("another build", {"seed": 5, "server": {"build": 1}})):
        put(tmp_path / name, A, {"x": ((9, 10), (9, 10))}, seed=5)
        put(tmp_path / name, B, {"x": ((9, 10), (9, 10))}, **more)
        assert not [n for n in compared(tmp_path / name).notes if "not independent" in n], name


def test_what_is_missing_is_said_and_never_averaged_over(tmp_path: Path) -> None:
    put(tmp_path, A, {"x": ((9, 10), (9, 10)), "y": ((9, 10), (9, 10)), "z": ((9, 10), (9, 10))})
    store = put(tmp_path, B, {"x": ((6, 7), (9, 10)), "y": ((0, 0), (9, 10))})
    failed = arm_row("z", run_id=B, event_at=NOON + timedelta(days=1), status="failed", reason="cuda_oom")
    store.append("arms", [failed])
    store.append("plan", [plan_row("L1", 1, "z", run_id=B)])
    found = compared(tmp_path)
    answers = {row[0]: row for row in rows(found, "Answers")}
    assert answers["x"][6:] == ("0 of 20", "3 of 20") and answers["x"][4] == "10, 7"
    assert answers["y"][2:4] == ("n/a", "n/a") and "never measured" in answers["y"][5]
    levels = {row[:2]: row[2:] for row in rows(found, "Levels passed")}
    assert levels[("y", "L1")][1] == "n/a (0 tasks)"
    assert rows(found, "Arms without a comparison") == [("z", "not measured in B: cuda_oom")]


def test_a_run_that_stopped_by_its_results_has_no_interval(tmp_path: Path) -> None:
    put(tmp_path, A, {"x": ((9, 10), (9, 10))})
    store = put(tmp_path, B, {"x": ((1, 10), (1, 10))})
    store.append("decisions", [{"run_id": B, "arm_id": "x", "event_at": NOON, "exit": "out", "iterations": 10}])
    (row,) = rows(compared(tmp_path), "Answers")
    assert row[3] == "-80.0 (no interval)"
    assert row[5].startswith("none: a run that stopped by its results")


def test_a_verdict_that_may_be_the_benchs_doing_says_so(tmp_path: Path) -> None:
    put(tmp_path, A, {"x": ((15, 15), (15, 15))})
    put(tmp_path, B, {"x": ((0, 15), (15, 15))}, grading={"code_rule": "entry_not_found"})
    (row,) = rows(compared(tmp_path), "Answers")
    assert row[5] == "worse (changes with failures that may be the bench's doing)"


def test_runs_that_cannot_be_compared_are_one_line(tmp_path: Path) -> None:
    put(tmp_path, A, {"x": ((9, 10), (9, 10))})
    put(tmp_path, B, {"y": ((9, 10), (9, 10))})
    for a, b, words in (
        (A, A, "expected two runs"),
        (A, B, "no arm was measured in the same suite"),
        (A, "1", "no run"),
    ):
        with pytest.raises(UsageError, match=words) as refused:
            compared(tmp_path, a, b)
        assert len(str(refused.value).splitlines()) == 1


def test_the_command_prints_plain_lines_and_writes_the_page(tmp_path: Path) -> None:
    put(tmp_path, A, SAME)
    put(tmp_path, B, SAME, server={"build": 9990, "image_digest": "sha256:" + "ab" * 32})
    done = invoke("compare", "20261130", "latest", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "warning: The server differs" in done.stdout
    assert "sha256:abababababab\n" in done.stdout
    assert done.stdout.index("What differs") < done.stdout.index("Answers")
    page = tmp_path / "reports" / f"compare-{A}-{B}.md"
    assert done.stdout.rstrip().endswith(str(page))
    assert "| x | 90.0 | 90.0 | 0.0 [" in page.read_text("utf-8")
    put(tmp_path, "20261202-090000-cccc", SAME, question={"prompt_hash": "q-new"}, seed=1)
    refused = invoke("compare", A, "20261202", "--results", str(tmp_path))
    assert (refused.returncode, refused.stdout) == (1, "")
    (line,) = refused.stderr.strip().splitlines()
    assert "they differ in prompt of L1" in line


def test_many_levels_are_counted_and_hostile_names_are_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_module, "_MOST_NAMED", 1)
    put(tmp_path, A, {"x": ((9, 10), (9, 10))}, run={"cpu_model": "<b>one</b> | [x](y)"})
    put(tmp_path, B, {"x": ((9, 10), (9, 10))}, run={"cpu_model": "two"}, question={"prompt_hash": "q-new"})
    found = compared(tmp_path, allow_mixed=True)
    assert [row for row in rows(found, "What differs") if row[1].startswith("prompt")] == [
        ("x", "prompt of L1", "q-L1", "q-new"),
        ("x", "prompt of 1 more", "not shown", "not shown"),
    ]
    for section in found.sections:
        assert {len(row) for row in section.rows} == {len(section.header)}, section.title
    page = found.markdown()
    assert "<b>" not in page and "[x](y)" not in page
