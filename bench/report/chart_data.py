"""What only the charts and the page of answers need, each one query over the views."""

from __future__ import annotations

from typing import Any

import duckdb

from bench.report.values import plain

_BUCKETS = 240
"""Points of a curve over time: more are not seen."""

CHART_QUERIES: dict[str, str] = {
    "time_split": """
        from time_split where run_id = $run and seconds > 0 order by arm_id, part_order""",
    "first_tokens": """
        -- As in the table: where the prompt cache gave nothing.
        select arm_id, identity, first_token_ms from cells
        where run_id = $run and planned and complete and cache_n = 0 and first_token_ms is not null
        order by all limit 5000""",
    "telemetry": f"""
        with samples as (
            select
                arm_id, sampled_at, vram_used_bytes, power_w, rss_bytes, host_cpu_pct, phase,
                min(sampled_at) over arm as begun,
                epoch(max(sampled_at) over arm - min(sampled_at) over arm) / {_BUCKETS} as width
            from telemetry where run_id = $run window arm as (partition by arm_id)
        ),
        buckets as (
            select
                arm_id, floor(epoch(sampled_at - begun) / greatest(width, 0.1)) as bucket, any_value(width) as width,
                min(epoch(sampled_at - begun)) as s, max(vram_used_bytes) / 2 ** 30 as vram_gib,
                avg(power_w) as power_w,
                max(rss_bytes) / 2 ** 30 as rss_gib, avg(host_cpu_pct) as cpu_pct
            from samples group by arm_id, bucket
        )
        select
            arm_id, s, vram_gib, power_w, rss_gib, cpu_pct,
            -- A line is not drawn over a time that was not sampled: each stretch is a line of its own.
            sum(case when bucket - previous > 5 and s - before > 5 then 1 else 0 end)
                over (partition by arm_id order by s) as stretch
        from (
            select *, lag(bucket) over arm as previous, lag(s) over arm as before
            from buckets window arm as (partition by arm_id order by s)
        )
        order by arm_id, s""",
    "iteration_starts": """
        with begun as (select arm_id, min(sampled_at) as begun from telemetry where run_id = $run group by arm_id)
        select g.arm_id, g.iteration, epoch(min(g.started_at) - any_value(b.begun)) as s
        from generations g join begun b using (arm_id)
        where g.run_id = $run group by g.arm_id, g.iteration order by g.arm_id, s""",
}


def chart_data(connection: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, list[dict[str, Any]]]:
    """Rows for the charts that the tables of `report_data` do not hold. Times in seconds, memory in GiB."""
    return {name: rows(connection, sql, run=run_id) for name, sql in CHART_QUERIES.items()}


def rows(connection: duckdb.DuckDBPyConnection, sql: str, **values: Any) -> list[dict[str, Any]]:
    """The answer to a query as objects, with the values that JSON has."""
    cursor = connection.execute(sql, values)
    columns = [d[0] for d in cursor.description or ()]
    return [{c: plain(v) for c, v in zip(columns, row, strict=True)} for row in cursor.fetchall()]
