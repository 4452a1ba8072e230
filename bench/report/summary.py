"""The few figures of a run that fit into a terminal."""

from __future__ import annotations

import duckdb

from bench.report import figures as f
from bench.report.chart_data import rows
from bench.report.data import QUERIES

HEADER = ["arm", "score (t, 95 %)", "min/max", "tokens/s", "s to answer", "missing", "memory idle / peak"]


def summary_table(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[list[str], list[list[str]]]:
    """Header and rows, best score first; arms that never answered last, with the reason in place of the score."""
    found = rows(connection, QUERIES["summary"], run=run_id)
    found.sort(key=lambda r: (r["mean_score"] is None, -(r["mean_score"] or 0.0), r["arm_id"]))
    out = []
    for r in found:
        score = f.mean(r["mean_score"], r["half_width"], r["n"])
        if r["mean_score"] is None and r["status"] in ("failed", "interrupted"):
            score = f"{r['status']}: {r['reason'] or 'reason not known'}"
        memory = (
            (r["vram_idle_bytes"], r["vram_peak_bytes"])
            if r["device"] == "gpu"
            else (r["rss_idle_bytes"], r["rss_peak_bytes"])
        )
        reason = r["vram_reason"] if r["device"] == "gpu" else None
        out.append(
            [
                r["arm_id"],
                score,
                f.NA if r["min_score"] is None else f"{r['min_score']:.4g}/{r['max_score']:.4g}",
                f.with_sd(r["decode_tps_mean"], r["decode_tps_sd"], r["decode_tps_n"]),
                f.number(r["answer_s_mean"], 1),
                f.NA if r["n_cells"] is None else f"{r['n_missing']} of {r['n_cells']}",
                ("VRAM " if r["device"] == "gpu" else "RAM ") + f.memory(*memory, reason),
            ]
        )
    return list(HEADER), out
