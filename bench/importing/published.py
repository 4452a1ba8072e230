"""What another tool says of its answers, as rows: verdicts of kind `published`, scores and speeds as printed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bench.ids import new_id
from bench.importing import Rows
from bench.importing.reference_json import PublishedIteration, PublishedLevel
from bench.regrade.judge import KEY


def kind_of(passed: bool, error: str | None) -> str:
    """The kind of a published verdict, as far as its message tells; `failed` where it does not."""
    if passed:
        return "passed"
    said = (error or "").lower()
    if "syntaxerror" in said or "syntax error" in said:
        return "syntax"
    if "timeout" in said or "timed out" in said:
        return "timeout"
    if "importerror" in said or "modulenotfound" in said:
        return "import"
    return "failed"


def verdict_row(generation: Mapping[str, Any], at: datetime, passed: bool, **more: Any) -> dict[str, Any]:
    """A row of `grades` for what the source says of an answer."""
    return {
        "grade_id": new_id(),
        "generation_id": generation["generation_id"],
        **{name: generation[name] for name in KEY},
        "grade_kind": "published",
        "graded_at": at,
        "passed": passed,
        **more,
    }


def grade_row(
    generation: Mapping[str, Any], level: PublishedLevel, at: datetime, code: str | None, code_file: str
) -> dict[str, Any]:
    """The published verdict on an answer. `code` is what the source stored beside it, if it did."""
    assert level.passed is not None
    failed = None
    if level.tests_total is not None and level.tests_passed is not None:
        failed = max(0, level.tests_total - level.tests_passed)
    return verdict_row(
        generation,
        at,
        level.passed,
        outcome=kind_of(level.passed, level.error),
        points=level.earned,
        max_points=level.points,
        tests_passed=level.tests_passed,
        tests_failed=failed,
        tests_expected=level.tests_total,
        detail=level.error,
        code=code,
        code_rule=code_file if code is not None else None,
    )


def published_rows(
    same: Mapping[str, Any], iterations: Mapping[int, PublishedIteration], summary_tps: float | None
) -> Rows:
    """Scores, passes and speeds as the source has them.

    Scores and passes are of the kind `published`: our own come from our grades, and stand beside them. Speeds are the
    headline's, because the answers themselves carry none.
    """
    rows: Rows = []
    for n, one in sorted(iterations.items()):
        if one.score is not None:
            rows.append({"iteration": n, "metric": "score", "value": one.score, "grade_kind": "published"})
        rows += [
            {"iteration": n, "metric": name, "value": value, "grade_kind": "published"}
            for name, value in sorted(one.metrics.items())
        ]
    levels = sorted({level_id for one in iterations.values() for level_id in one.levels})
    for level_id in levels:
        verdicts = [v.passed for one in iterations.values() if (v := one.levels.get(level_id)) and v.passed is not None]
        if verdicts:
            counted = {"metric": "level_passed", "value": float(sum(verdicts)), "n": len(verdicts)}
            rows.append({"level_id": level_id, "grade_kind": "published", **counted})
    tps = [one.metrics["mean_tps"] for one in iterations.values() if "mean_tps" in one.metrics]
    ttft = [one.metrics["mean_ttft_ms"] for one in iterations.values() if "mean_ttft_ms" in one.metrics]
    if tps or summary_tps is not None:
        mean = summary_tps if summary_tps is not None else statistics.fmean(tps)
        rows.append({"metric": "decode_tps_mean", "value": mean, "n": len(tps) or None, "grade_kind": "headline"})
    if len(tps) > 1:
        deviation = {"metric": "decode_tps_sd", "value": statistics.stdev(tps), "n": len(tps)}
        rows.append({**deviation, "grade_kind": "headline"})
    if ttft:
        rows.append({"metric": "ttft_ms", "value": statistics.fmean(ttft), "n": len(ttft), "grade_kind": "headline"})
    return [{**same, **row} for row in rows]
