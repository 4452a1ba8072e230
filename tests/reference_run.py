"""The reference run's printed figures, as rows of the store."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.store.write import Store

DATA = Path(__file__).parent / "data" / "reference-2026-06-25"
RUN = "20260625-001200-ref0"
SUITE = "coding-v2"
SOURCE = "the report of 2026-06-25"
SAMPLERS = {
    "thinking-coding": {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0, "repeat_penalty": 1.0},
    "gemma-coding": {"temperature": 1.0, "top_p": 0.95, "top_k": 64, "min_p": 0, "repeat_penalty": 1.05},
}


def read(name: str) -> list[dict[str, str]]:
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _number(text: str) -> float | None:
    return float(text) if text else None


def store_reference(results: Path) -> str:
    """Store the reference run through the real store; returns its run id."""
    store = Store(results)
    start, end = datetime(2026, 6, 25, 0, 12, tzinfo=UTC), datetime(2026, 6, 25, 2, 49, tzinfo=UTC)
    arms = read("arms")
    run = {
        "run_id": RUN,
        "origin": SOURCE,
        "lineup_id": "moe-coding",
        "suite_id": SUITE,
        "suite_title": "v2 coding suite",
        "iterations": 15,
        "max_tokens": 32768,
        "request_limit_s": 900.0,
        "gpu_name": "NVIDIA RTX 4090",
        "gpu_vram_bytes": 24564 << 20,
        "arm_order": [a["arm_id"] for a in arms],
    }
    store.append("runs", [{**run, "event_at": start, "status": "running"}])
    store.append("runs", [{**run, "event_at": end, "status": "finished"}])
    store.append(
        "arms",
        [
            {
                "run_id": RUN,
                "arm_id": a["arm_id"],
                "event_at": end,
                "position": n,
                "status": "finished",
                "title": a["title"],
                "model_repo": a["model_repo"],
                "quant": a["quant"],
                "sampler_id": a["sampler_id"],
                "sampler_asked": json.dumps(SAMPLERS[a["sampler_id"]]),
                "model_bytes": int(a["model_bytes"]) if a["model_bytes"] else None,
                "device": "gpu",
                "build": 9784,
                "commit": "8be759e6f",
                "vram_idle_bytes": int(a["vram_idle_mib"]) << 20,
                "vram_reason": "the source prints only idle values",
            }
            for n, a in enumerate(arms, 1)
        ],
    )
    store.append("published", published_rows())
    store.merge(RUN)
    return RUN


def published_rows() -> list[dict[str, Any]]:
    """Scores by iteration, passes by level, speeds by arm: as printed, none made from another."""
    same = {"run_id": RUN, "suite_id": SUITE, "grade_kind": "headline", "source": SOURCE}
    rows: list[dict[str, Any]] = []
    for r in read("iteration_scores"):
        rows.append(
            {"arm_id": r["arm_id"], "iteration": int(r["iteration"]), "metric": "score", "value": float(r["score"])}
        )
    for r in read("level_counts"):
        level = {"arm_id": r["arm_id"], "level_id": r["level_id"]}
        rows.append({**level, "metric": "level_passed", "value": float(r["passed"]), "n": int(r["n"])})
    for arm in read("arms"):
        for r in read("levels"):
            level = {"arm_id": arm["arm_id"], "level_id": r["level_id"], "title": r["title"]}
            rows.append({**level, "metric": "level_points", "value": float(r["points"])})
        for metric in ("decode_tps_mean", "decode_tps_sd", "ttft_ms"):
            rows.append({"arm_id": arm["arm_id"], "metric": metric, "value": _number(arm[metric])})
    return [{**same, **row} for row in rows]
