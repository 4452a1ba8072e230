"""The views: what counts, what is missing, and the statistics."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_rows import (
    NOON,
    RUN,
    arm_row,
    ask,
    fill,
    generation,
    grade,
    plan_row,
    rows_of,
    run_row,
)

from bench.store.database import connect, snapshot
from bench.store.schema import TABLES, schema
from bench.store.stats_tables import t_quantiles
from bench.store.view_template import SQL
from bench.store.write import Store

# Proportions -----------------------------------------------------------------------------------------

WILSON = {
    (0, 15): (0.00, 20.39),
    (1, 15): (1.19, 29.82),
    (7, 15): (24.81, 69.88),
    (14, 15): (70.18, 98.81),
    (15, 15): (79.61, 100.00),
    (38, 38): (90.82, 100.00),
    (1, 1): (20.65, 100.00),
    (0, 1): (0.00, 79.35),
}


@pytest.fixture(scope="module")
def macros() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute((SQL / "00_macros.sql").read_text())
    return connection


def test_wilson_known_values(macros: duckdb.DuckDBPyConnection) -> None:
    for (k, n), (low, high) in WILSON.items():
        found = macros.execute("select wilson_low($k, $n), wilson_high($k, $n)", {"k": k, "n": n}).fetchone()
        assert found == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01)), (k, n)


def test_wilson_keeps_its_order_exactly_for_every_pair(macros: duckdb.DuckDBPyConnection) -> None:
    pairs = "(select k::bigint as k, n::bigint as n from range(1, 201) a(n), range(0, 201) b(k) where k <= n)"
    rows = macros.execute(
        f"select k, n, wilson_low(k, n), 100.0::double * k / n, wilson_high(k, n) from {pairs}"
    ).fetchall()
    assert len(rows) == sum(n + 1 for n in range(1, 201))
    low = {(k, n): lo for k, n, lo, _, _ in rows}
    for k, n, lo, rate, hi in rows:
        assert 0 <= lo <= rate <= hi <= 100 and lo < hi, (k, n)
        assert abs(low[n - k, n] - (100 - hi)) < 1e-9, (k, n)
        assert (lo == 0) == (k == 0) and (hi == 100) == (k == n), (k, n)


def test_wilson_without_data_is_null(macros: duckdb.DuckDBPyConnection) -> None:
    assert (
        macros.execute("select wilson_low(0, 0), wilson_high(0, 0), wilson_low(null, null)").fetchone() == (None,) * 3
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_far_from_the_table(pair: tuple[int, int]) -> None:
    connection = duckdb.connect()
    connection.execute((SQL / "00_macros.sql").read_text())
    k, n = pair
    lo, hi = connection.execute("select wilson_low($k, $n), wilson_high($k, $n)", {"k": k, "n": n}).fetchone() or (0, 0)
    assert 0 <= lo <= 100 * k / n <= hi <= 100 and lo < hi


def test_a_level_without_data_has_no_rate(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, None], [False, None]]})
    rates = {r["level_id"]: r for r in ask(tmp_path, "from level_pass_rates")}
    assert (rates["L1"]["k"], rates["L1"]["n"], rates["L1"]["n_planned"]) == (1, 2, 2)
    assert [rates["L2"][c] for c in ("k", "n", "pass_rate", "wilson_low", "wilson_high")] == [0, 0, None, None, None]


# Means -----------------------------------------------------------------------------------------------


def test_t_quantiles_are_exact_for_every_degree_of_freedom() -> None:
    from scipy.stats import t

    table = t_quantiles()
    assert [df for df, _ in table] == list(range(1, 1001))
    for df, value in table:
        assert value == pytest.approx(float(t.ppf(0.975, df)), rel=1e-12)
    for df, rounded in {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 9: 2.2622, 29: 2.0452}.items():
        assert dict(table)[df] == pytest.approx(rounded, abs=5e-5)


def test_t_quantile_beyond_the_table(macros: duckdb.DuckDBPyConnection) -> None:
    from scipy.stats import t

    for df in (1001, 1500, 10_000, 10_000_000):
        value = macros.execute("select t975_large(?::bigint)", [df]).fetchone()
        assert value is not None and value[0] == pytest.approx(float(t.ppf(0.975, df)), abs=1e-10)


MEANS: dict[tuple[float | None, ...], tuple[float | None, float | None]] = {
    (40.0, 44.0, 42.0): (42.0, 4.9683),
    (40.0, 44.0): (42.0, 25.4124),
    (42.0, 42.0, 42.0): (42.0, 0.0),
    (42.0,): (42.0, None),
    (None,): (None, None),
    (42.0, None, 44.0): (43.0, 12.7062),
}


@pytest.mark.parametrize(("values", "expected"), MEANS.items(), ids=str)
def test_mean_and_half_width(
    tmp_path: Path, values: tuple[float | None, ...], expected: tuple[float | None, float | None]
) -> None:
    """A level worth 100 points, of which an answer earns some: the scores are the values."""
    store = Store(tmp_path)
    store.append("runs", [run_row(iterations=len(values))])
    store.append("arms", [arm_row()])
    for i, value in enumerate(values, 1):
        store.append("plan", [plan_row("L1", i, points=100)])
        made = generation("L1", i, outcome="ok" if value is not None else "server_error")
        store.append("generations", [made])
        if value is not None:
            store.append("grades", [grade(made, True, points=value, max_points=100.0)])
    (row,) = ask(tmp_path, "from arm_summary")
    mean, half = expected
    assert row["mean_score"] == mean
    assert row["half_width"] == (half if half is None else pytest.approx(half, abs=1e-3))
    assert row["n"] == sum(v is not None for v in values) and row["n_planned"] == len(values)
    if half is not None and mean is not None:
        assert row["ci_low"] == pytest.approx(max(0.0, mean - half), abs=1e-3)
        assert row["ci_high"] == pytest.approx(min(100.0, mean + half), abs=1e-3)
        assert not row["ci_cut"]


def test_an_interval_ends_at_the_range_and_says_so(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {"a": [[True, True], [True, False], [True, True]], "b": [[False, False], [True, False], [False, False]]},
    )
    a, b = ask(tmp_path, "from arm_summary order by arm_id")
    assert (a["ci_high"], a["ci_cut"]) == (100.0, True) and 0 < a["ci_low"] < a["mean_score"]
    assert (b["ci_low"], b["ci_cut"]) == (0.0, True) and b["mean_score"] < b["ci_high"] < 100


def test_an_iteration_with_an_unmeasured_level_has_no_total(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True], [True, None]]})
    first, second = ask(tmp_path, "from iteration_scores order by iteration")
    assert (first["score"], first["reason"]) == (100.0, None)
    assert (second["score"], second["points_so_far"], second["n_measured"]) == (None, 50.0, 1)
    assert second["reason"] == "1 of 2 levels without a verdict: not measured"
    (row,) = ask(tmp_path, "from arm_summary")
    assert (row["mean_score"], row["n"], row["n_planned"], row["n_missing"]) == (100.0, 1, 2, 1)


# NaN, NULL and old files -----------------------------------------------------------------------------


def _write(results: Path, table: str, rows: list[dict[str, Any]], name: str = "old.parquet", **types: Any) -> None:
    """A file that another version of the store wrote: only the columns that the rows have, with these types."""
    known = {f.name: f.type for f in schema(table)} | types
    names = list(rows[0])
    columns = pa.schema([(n, known[n]) for n in names])
    folder = results / table / RUN
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=columns), folder / name)


def test_nan_in_old_files_is_null_everywhere(tmp_path: Path) -> None:
    nan = float("nan")
    store = Store(tmp_path)
    store.append("runs", [run_row(iterations=4)])
    store.append("arms", [arm_row("A"), arm_row("B")])
    store.append("plan", [plan_row("L1", i, arm) for arm, n in (("A", 4), ("B", 1)) for i in range(1, n + 1)])
    made = []
    for arm, values in {"A": [10.0, nan, None, 30.0], "B": [None]}.items():
        for i, tps in enumerate(values, 1):
            ms = None if tps is None else 100_000 / tps if math.isfinite(tps) else nan
            made.append(generation("L1", i, arm, predicted_n=101, predicted_ms=ms, first_token_ms=tps))
    _write(tmp_path, "generations", made)
    store.append("grades", [grade(g, g["arm_id"] == "A") for g in made])

    connection, bad = connect(tmp_path)
    assert bad == []
    assert rows_of(connection, "select count(*) as n from generations where isnan(predicted_ms)") == [{"n": 0}]
    assert rows_of(connection, "select count(*) as n from generations where first_token_ms > 50") == [{"n": 0}]
    a, b = rows_of(connection, "from arm_summary order by decode_tps_mean desc nulls last")
    assert (a["arm_id"], a["decode_tps_mean"], a["decode_tps_n"], a["n_cells"]) == ("A", 20.0, 2, 4)
    assert (b["arm_id"], b["decode_tps_mean"], b["decode_tps_n"], b["n_cells"]) == ("B", None, 0, 1)
    rates = {r["arm_id"]: (r["k"], r["n"]) for r in rows_of(connection, "from level_pass_rates")}
    assert rates == {"A": (4, 4), "B": (0, 1)}, "a speed that is not known does not change a pass rate"


def test_older_files_with_fewer_columns_and_other_types(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, False]]})
    made = generation("L1", 2)
    thin = {
        k: made[k]
        for k in ("generation_id", "run_id", "arm_id", "suite_id", "level_id", "iteration", "attempt", "outcome")
    }
    _write(
        tmp_path,
        "generations",
        [thin | {"predicted_n": 11.0, "predicted_ms": 1000}],
        predicted_n=pa.float64(),
        predicted_ms=pa.int32(),
    )
    (row,) = ask(tmp_path, f"from generations where generation_id = '{made['generation_id']}'")
    assert (row["predicted_n"], row["predicted_ms"], row["content"], row["detail"]) == (
        11,
        1000.0,
        None,
        None,
    )
    assert ask(tmp_path, "select count(*) as n from generations") == [{"n": 3}]


def test_every_view_works_over_nothing(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        connection, bad = connect(folder)
        assert bad == []
        views = [r["view_name"] for r in rows_of(connection, "select view_name from duckdb_views() where not internal")]
        assert set(TABLES) < set(views)
        for view in views:
            assert rows_of(connection, f"from {view}") == [], view


def test_a_missing_table_breaks_no_view(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]]})
    for table in TABLES:
        if (tmp_path / table).is_dir():
            (tmp_path / table).rename(tmp_path / f"away-{table}")
            connection, _ = connect(tmp_path)
            snapshot(connection, [RUN])
            for view in ("arm_summary", "level_pass_rates", "failures", "missing", "caveats", "comparability"):
                rows_of(connection, f"from {view}")
            (tmp_path / f"away-{table}").rename(tmp_path / table)


# Which answer counts ---------------------------------------------------------------------------------


def _case_33(results: Path) -> None:
    store = Store(results)
    store.append("runs", [run_row(iterations=1)])
    store.append("arms", [arm_row()])
    store.append("plan", [plan_row(level, 1, points=10) for level in ("L1", "L2", "L3")])
    stalled = generation("L1", 1, outcome="idle_limit")
    asked_again = generation("L1", 1, attempt=2)
    twice = generation("L2", 1)
    other_build = generation("L3", 1, commit="c2")
    for g in (stalled, asked_again, twice, twice, other_build):
        store.append("generations", [g])
    for g, passed in ((stalled, None), (asked_again, True), (twice, False), (twice, False), (other_build, True)):
        store.append("grades", [grade(g, passed)])


def test_one_answer_counts_and_builds_do_not_mix(tmp_path: Path) -> None:
    _case_33(tmp_path)
    summary = ask(tmp_path, "from arm_summary join identities using (run_id, arm_id, identity) order by commit")
    assert [(r["commit"], r["n_passed"], r["n_measured"], r["n_missing"], r["n_cells"]) for r in summary] == [
        ("c1", 1, 2, 1, 3),
        ("c2", 1, 1, 2, 3),
    ]
    latest = ask(tmp_path, "select level_id, attempt, commit from generations_latest order by level_id")
    assert [tuple(r.values()) for r in latest] == [("L1", 2, "c1"), ("L2", 1, "c1"), ("L3", 1, "c2")]
    missing = ask(
        tmp_path, "select commit, level_id from missing join identities using (run_id, arm_id, identity) order by all"
    )
    assert [tuple(r.values()) for r in missing] == [("c1", "L3"), ("c2", "L1"), ("c2", "L2")]
    assert any(r["aspect"] == "llama.cpp build" for r in ask(tmp_path, "from comparability"))


@pytest.mark.parametrize(
    "column", ["model_sha256", "engine", "build", "commit", "image_digest", "binary_sha256", "gpu_name", "gpu_driver"]
)
def test_each_part_of_the_identity_keeps_answers_apart(tmp_path: Path, column: str) -> None:
    fill(tmp_path, {"a": [[True, True]]})
    store = Store(tmp_path)
    other = generation("L1", 1, attempt=2, **{column: 1 if column == "build" else "other"})
    store.append("generations", [other])
    store.append("grades", [grade(other, False)])
    rates = ask(tmp_path, "select k, n from level_pass_rates where level_id = 'L1' order by k")
    assert rates == [{"k": 0, "n": 1}, {"k": 1, "n": 1}]


@pytest.mark.parametrize("column", ["fingerprint", "status_code", "attempt", "started_at", "detail"])
def test_what_is_no_part_of_the_identity_does_not(tmp_path: Path, column: str) -> None:
    fill(tmp_path, {"a": [[False, True]]})
    values: dict[str, Any] = {"fingerprint": "x", "status_code": 200, "attempt": 3, "started_at": NOON, "detail": "d"}
    again = generation("L1", 1, **({"attempt": 2} | {column: values[column]}))
    store = Store(tmp_path)
    store.append("generations", [again])
    store.append("grades", [grade(again, True)])
    assert ask(tmp_path, "select k, n from level_pass_rates where level_id = 'L1'") == [{"k": 1, "n": 1}]


def test_the_newest_complete_attempt_counts(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]]})
    store = Store(tmp_path)
    failed = generation("L1", 1, attempt=2, outcome="transport_error", detail="connection reset")
    store.append("generations", [failed])
    store.append("grades", [grade(failed, None)])
    assert ask(tmp_path, "select k, n from level_pass_rates where level_id = 'L1'") == [{"k": 1, "n": 1}]
    assert ask(tmp_path, "from missing") == []


def test_an_answer_that_was_never_complete_is_not_measured(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]]})
    store = Store(tmp_path)
    store.append("plan", [plan_row("L1", 2), plan_row("L2", 2)])
    lost = generation("L1", 2, outcome="server_error", detail="HTTP 500")
    store.append("generations", [lost])
    missing = ask(tmp_path, "select level_id, kind, reason, is_error from missing order by level_id")
    assert [tuple(r.values()) for r in missing] == [
        ("L1", "not measured", "server_error: HTTP 500", False),
        ("L2", "not asked", "no answer was asked for", False),
    ]


def test_more_rows_than_planned_are_an_error_and_no_larger_n(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]]})
    store = Store(tmp_path)
    for extra in (
        generation("L1", 9),
        generation("L1", 1, request_seed=999_999),
        generation("L2", 1, prompt_hash="edited"),
    ):
        store.append("generations", [extra])
        store.append("grades", [grade(extra, False)])
    assert ask(tmp_path, "select level_id, k, n from level_pass_rates order by level_id") == [
        {"level_id": "L1", "k": 1, "n": 1},
        {"level_id": "L2", "k": 1, "n": 1},
    ]
    (row,) = ask(tmp_path, "from arm_summary")
    assert (row["mean_score"], row["n"], row["n_unplanned"]) == (100.0, 1, 3)
    assert [r["is_error"] for r in ask(tmp_path, "from missing")] == [True] * 3
    assert ask(tmp_path, "select level from caveats where rule = 'unplanned_rows'") == [{"level": "error"}]


def test_a_run_without_a_plan_counts_what_it_holds(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("runs", [run_row(origin="another bench")])
    made = [generation("L1", i) for i in (1, 2)]
    store.append("generations", made)
    store.append("grades", [grade(made[0], True), grade(made[1], False)])
    assert ask(tmp_path, "select k, n from level_pass_rates") == [{"k": 1, "n": 2}]
    (row,) = ask(tmp_path, "from arm_summary")
    assert (row["mean_score"], row["n"], row["n_unplanned"], row["n_missing"]) == (50.0, 2, 0, 0)


def test_states_are_the_newest_and_keep_what_was_found_out(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for n, (status, more) in enumerate(
        [
            ("planned", {}),
            ("running", {"build": 9784, "load_ms": 5.0}),
            ("failed", {"reason": "server_died"}),
            ("finished", {}),
        ]
    ):
        row = {"run_id": RUN, "arm_id": "a", "event_at": NOON + timedelta(seconds=n), "status": status, **more}
        store.append("arms", [row])
        store.append(
            "runs",
            [
                {
                    "run_id": RUN,
                    "event_at": NOON + timedelta(seconds=n),
                    "status": "running",
                    "reason": "x" if n == 1 else None,
                }
            ],
        )
    (arm,) = ask(tmp_path, "from arms_latest")
    assert (arm["status"], arm["reason"], arm["build"], arm["load_ms"]) == ("finished", None, 9784, 5.0)
    (run,) = ask(tmp_path, "from runs_latest")
    assert (run["status"], run["reason"]) == ("running", None)
    assert (run["event_at"] - run["started_at"]).total_seconds() == 3


# Which grade counts ----------------------------------------------------------------------------------


def test_regrades_and_counterfactuals_never_count(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[False, False]]})
    store = Store(tmp_path)
    (first, _) = ask(
        tmp_path, "select * exclude (identity, in_plan, complete) from generations_latest order by level_id"
    )
    for kind in ("regrade", "counterfactual", "published"):
        store.append("grades", [grade(first, True, grade_kind=kind, graded_at=NOON + timedelta(days=1))])
    assert {r["k"] for r in ask(tmp_path, "from level_pass_rates")} == {0}


def test_an_adopted_regrade_counts_and_the_report_knows(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[False, False]]})
    store = Store(tmp_path)
    (first, _) = ask(tmp_path, "from generations_latest order by level_id")
    regrade = grade(first, True, grade_kind="regrade", graded_at=NOON + timedelta(days=1))
    store.append("grades", [regrade])
    store.append("grades", [grade(first, True, graded_at=NOON + timedelta(days=2), adopted_from=regrade["grade_id"])])
    assert ask(tmp_path, "select k from level_pass_rates where level_id = 'L1'") == [{"k": 1}]
    assert ask(tmp_path, "select text from caveats where rule = 'regrade_adopted'") == [
        {"text": "1 verdicts are of a regrade that was adopted"}
    ]


def test_suspects_count_as_failed_with_the_range_beside(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True], [True, True]]})
    store = Store(tmp_path)
    first = ask(tmp_path, "from generations_latest order by iteration, level_id")[0]
    marked = grade(first, True, suspect=True, suspect_reasons=["frame_walking"], graded_at=NOON + timedelta(days=1))
    store.append("grades", [marked])
    (row,) = ask(tmp_path, "from arm_summary")
    assert (row["mean_score"], row["mean_score_with_suspects"], row["n_suspect"]) == (75.0, 100.0, 1)
    (rate,) = ask(tmp_path, "from level_pass_rates where level_id = 'L1'")
    assert (rate["k"], rate["n"], rate["k_with_suspects"]) == (1, 2, 2)
    assert [r["kind"] for r in ask(tmp_path, "from failures")] == ["suspect"]
    # A person decides: a new headline grade without the mark.
    store.append("grades", [grade(first, True, graded_at=NOON + timedelta(days=2))])
    (row,) = ask(tmp_path, "from arm_summary")
    assert (row["mean_score"], row["n_suspect"]) == (100.0, 0)


@pytest.mark.parametrize("outcome", ["context_overflow", "time_limit"])
def test_what_does_not_fit_or_end_is_not_passed(tmp_path: Path, outcome: str) -> None:
    store = Store(tmp_path)
    store.append("runs", [run_row(iterations=1)])
    store.append("plan", [plan_row("L1", 1)])
    made = generation("L1", 1, outcome=outcome)
    store.append("generations", [made])
    store.append("grades", [grade(made, None, outcome=outcome)])
    assert ask(tmp_path, "select k, n from level_pass_rates") == [{"k": 0, "n": 1}]
    assert [r["kind"] for r in ask(tmp_path, "from failures")] == [outcome]


# Speed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "ms", "rate"),
    [
        (101, 1000.0, 100.0),
        (2, 10.0, 100.0),
        (1, 0.001, None),
        (0, 5.0, None),
        (None, 5.0, None),
        (9, None, None),
        (9, 0.0, None),
    ],
)
def test_decode_rate(macros: duckdb.DuckDBPyConnection, n: int | None, ms: float | None, rate: float | None) -> None:
    found = macros.execute("select decode_rate(?::bigint, ?::double)", [n, ms]).fetchone()
    assert found == (rate if rate is None else pytest.approx(rate),)


def test_a_cached_prompt_is_left_out_of_first_token_times(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]]})
    store = Store(tmp_path)
    store.append("plan", [plan_row("L1", 2), plan_row("L2", 2)])
    store.append(
        "generations",
        [generation("L1", 2, cache_n=30, first_token_ms=1.0), generation("L2", 2, cache_n=None, first_token_ms=1.0)],
    )
    (row,) = ask(tmp_path, "from arm_summary")
    assert (row["ttft_ms_mean"], row["ttft_n"], row["n_cached"], row["n_cache_unknown"]) == (30.0, 2, 1, 1)
    assert row["decode_tps_n"] == 4, "decoding does not depend on the prompt cache"
    assert ask(tmp_path, "select arm_id from caveats where rule = 'prompt_cache_used'") == [{"arm_id": "a"}]


# Why -------------------------------------------------------------------------------------------------


def test_failures_are_counted_with_one_example_each(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]] * 3})
    store = Store(tmp_path)
    made = ask(tmp_path, "from generations_latest where level_id = 'L1' order by iteration")
    later = NOON + timedelta(hours=1)
    misses = [
        grade(
            made[0], False, outcome="interface", missing_name="set_result", offered=["complete_job"], graded_at=later
        ),
        grade(
            made[1],
            False,
            outcome="interface",
            missing_name="set_result",
            offered=["finish", "complete_job"],
            graded_at=later,
        ),
        grade(made[2], False, outcome="syntax", detail="SyntaxError: line 3", graded_at=later),
    ]
    store.append("grades", misses)
    failures = ask(tmp_path, "from failures order by n desc")
    assert [(r["kind"], r["n"], r["example_iteration"]) for r in failures] == [("interface", 2, 1), ("syntax", 1, 3)]
    assert failures[1]["example_detail"] == "SyntaxError: line 3"
    (miss,) = ask(tmp_path, "from interface_misses")
    assert (miss["missing_name"], miss["n"], miss["offered"]) == ("set_result", 2, ["complete_job", "finish"])


def _caveats(results: Path) -> dict[str, list[str | None]]:
    """The arms that each rule fired for, as a report finds them."""
    connection, _ = connect(results)
    snapshot(connection, [RUN])
    out: dict[str, list[str | None]] = {}
    for r in rows_of(connection, "from caveats order by rule, arm_id"):
        assert r["text"] and r["source"] and r["level"] in ("error", "warning", "note"), r
        out.setdefault(r["rule"], []).append(r["arm_id"])
    return out


def test_a_clean_run_has_no_caveat(tmp_path: Path) -> None:
    verdicts = [[True, False]] * 6 + [[False, True]] * 6
    fill(tmp_path, {"a": verdicts, "b": [[True, True]] * 3 + verdicts[:-3]})
    assert _caveats(tmp_path).keys() - {"no_spread"} == set()


CAVEATS: dict[str, tuple[str, dict[str, Any]]] = {
    "different_samplers": ("arms", {"sampler_id": "warm", "sampler_asked": '{"temperature": 1.0}'}),
    "small_context": ("arms", {"context": 290}),
    "missing_telemetry": ("arms", {"vram_peak_bytes": None}),
    "host_busy": ("arms", {"host_busy": "others used 40 % of the cores"}),
    "model_not_locked": ("arms", {"model_locked": False}),
    "failed_arm": ("arms", {"status": "failed", "reason": "cuda_oom"}),
    "unsafe_grading": ("runs", {"grading_provider": "unsafe"}),
    "run_not_finished": ("runs", {"status": "interrupted", "reason": "stopped by the user"}),
    "imported": ("runs", {"origin": "another bench"}),
    "no_gpu": ("runs", {"gpu_name": None, "gpu_reason": "no NVIDIA driver"}),
    "changed_bench": ("runs", {"bench_commit": "abc+dirty"}),
}


@pytest.mark.parametrize("rule", CAVEATS)
def test_a_caveat_fires_from_its_row(tmp_path: Path, rule: str) -> None:
    table, change = CAVEATS[rule]
    store = Store(tmp_path)
    run = run_row(iterations=12, arm_order=["a", "b"])
    store.append("runs", [run | (change if table == "runs" else {})])
    arms = [arm_row("a"), arm_row("b")]
    if table == "arms":
        arms[1] |= change
    store.append("arms", arms)
    slots = [(arm, i) for arm in ("a", "b") for i in range(1, 13)]
    store.append("plan", [plan_row("L1", i, arm) for arm, i in slots])
    made = [generation("L1", i, arm) for arm, i in slots]
    store.append("generations", made)
    store.append("grades", [grade(g, g["iteration"] % 3 != 0) for g in made])
    found = _caveats(tmp_path)
    assert rule in found
    assert found.keys() - {rule} == set(), "nothing else is wrong with this run"


def test_caveats_of_answers(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]] * 3, "b": [[True, False]] * 3})
    store = Store(tmp_path)
    a1, a2, a3 = ask(tmp_path, "from generations_latest where arm_id = 'a' and level_id = 'L1' order by iteration")
    later = NOON + timedelta(hours=1)
    store.append("grades", [
        grade(a1, False, outcome="no_answer", truncated=True, graded_at=later),
        grade(a2, True, code_rule="entry_not_found", graded_at=later),
        grade(a3, None, graded_at=later),
    ])  # fmt: skip
    found = _caveats(tmp_path)
    for rule in ("answers_never_came", "code_by_fallback", "missing_rows", "fewer_iterations_than_planned"):
        assert found[rule] == ["a"], rule
    for rule in ("few_iterations", "saturated_levels"):
        assert found.get(rule) == [None] or rule == "saturated_levels", rule


def test_saturated_levels(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, False]] * 3, "b": [[True, False]] * 3})
    (row,) = ask(tmp_path, "from caveats where rule = 'saturated_levels'")
    assert row["level"] == "warning"
    assert "2 of 2 levels" in row["text"] and "always passed L1" in row["text"] and "ever passed L2" in row["text"]


def test_mixed_arms_are_named_and_grouped(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]], "b": [[True, True]]})
    assert ask(tmp_path, "from comparability") == []
    assert {r["comparable_group"] for r in ask(tmp_path, "from comparable_groups")} == {1}
    store = Store(tmp_path)
    store.append("plan", [plan_row("L1", 1, "c")])
    other = generation("L1", 1, "c", gpu_driver="580.2")
    store.append("generations", [other])
    store.append("grades", [grade(other, True, grading_hash="changed")])
    aspects = {r["aspect"]: r["arm_values"] for r in ask(tmp_path, "from comparability")}
    assert set(aspects) == {"driver", "grading of L1"}
    assert {"arm_id": "c", "value": "580.2"} in aspects["driver"]
    groups = {r["arm_id"]: r["comparable_group"] for r in ask(tmp_path, "from comparable_groups")}
    assert groups["a"] == groups["b"] != groups["c"]
    assert len(ask(tmp_path, "from caveats where rule = 'mixed_identity'")) == 2
