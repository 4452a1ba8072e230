"""What a report says, as data: every figure from a view."""

from __future__ import annotations

from typing import Any

import duckdb

from bench.report.chart_data import rows
from bench.report.runs import NoResults, resolve_run
from bench.store.database import snapshot

__all__ = ["QUERIES", "NoResults", "report_data", "resolve_run"]

_LONGEST_TEXT = 20_000
"""Characters of a text in the data; the store has all of it."""

QUERIES: dict[str, str] = {
    "run": "from runs_latest where run_id = $run",
    "arms": "from arms_latest where run_id = $run order by position nulls last, arm_id",
    "verdicts": "from verdicts where run_id = $run order by suite_id, goal_order",
    "pairwise": """
        from pairwise where run_id = $run
        order by suite_id, score_a desc nulls last, arm_a, identity_a, score_b desc nulls last, arm_b, identity_b""",
    "arm_intervals": "from arm_intervals where run_id = $run order by arm_id, identity",
    "levels": "from levels where run_id = $run order by level_index, level_id",
    "summary": """
        select s.*, g.comparable_group
        from arm_summary s left join comparable_groups g using (run_id, arm_id)
        where run_id = $run
        order by comparable_group nulls last, mean_score desc nulls last, arm_id, identity""",
    "level_pass_rates": """
        from level_pass_rates where run_id = $run order by level_index nulls last, level_id, arm_id, identity""",
    "iteration_scores": "from iteration_scores where run_id = $run order by arm_id, identity, iteration",
    "failures": """
        from failures where run_id = $run
        order by arm_id, identity, level_index nulls last, level_id, n desc, kind""",
    "interface_misses": "from interface_misses where run_id = $run order by arm_id, level_id, n desc, missing_name",
    "naming": """
        select
            run_id, arm_id, suite_id, identity, sum(points_lost) as points_lost, sum(points_naming) as points_naming,
            sum(points_ability) as points_ability, sum(n_interface)::bigint as n_interface,
            sum(n_naming)::bigint as n_naming, sum(n_untried)::bigint as n_untried
        from naming_and_ability where run_id = $run
        group by run_id, arm_id, suite_id, identity having sum(n_interface) > 0 order by arm_id, identity""",
    "disagreements": """
        select
            arm_id, level_id, published_outcome, outcome, cause, count(*) as n,
            list(distinct iteration order by iteration) as iterations, min(why) as why
        from disagreements where run_id = $run
        group by arm_id, level_id, published_outcome, outcome, cause
        order by arm_id, level_id, n desc, cause, outcome""",
    "reviewed": """
        select decision, count(*) as n from reviews_latest where run_id = $run group by decision order by decision""",
    "recommendations": "from recommendations where run_id = $run order by suite_id, goal_order",
    "pareto": """
        from pareto where run_id = $run
        order by comparable_group nulls last, mean_score desc nulls last, arm_id, identity""",
    "rank_stability": """
        from rank_stability where run_id = $run
        order by comparable_group nulls last, best_pct desc nulls last, arm_id, identity""",
    "pass_at_k": "from pass_at_k where run_id = $run and level_id is null order by arm_id, identity, k",
    "saturation": "from saturation where run_id = $run order by level_index nulls last, level_id",
    "saturation_summary": "from saturation_summary where run_id = $run order by suite_id",
    "energy": "from energy where run_id = $run order by arm_id, identity",
    "missing": "from missing where run_id = $run order by arm_id, identity, iteration, level_id",
    "identities": "from identities where run_id = $run order by arm_id, identity",
    "comparability": "from comparability where run_id = $run order by aspect",
    "caveats": """
        from caveats where run_id = $run
        order by case level when 'error' then 0 when 'warning' then 1 else 2 end, arm_id nulls first, rule, text""",
}
"""The tables of a report, each one query over the views."""


def report_data(connection: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, Any]:
    """Everything a report of a run says, as strict JSON has it: no NaN, times as text. `run` is an object, the rest
    are lists of objects.

    The connection is fixed on this run by it; see `bench.store.database.snapshot`.
    """
    snapshot(connection, [run_id], figures=True)
    out: dict[str, Any] = {}
    for name, sql in QUERIES.items():
        out[name] = [
            {column: _cut(value) for column, value in row.items()} for row in rows(connection, sql, run=run_id)
        ]
    out["run"] = out["run"][0] if out["run"] else {"run_id": run_id}
    return out


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[:_LONGEST_TEXT] + "…"
    return value
