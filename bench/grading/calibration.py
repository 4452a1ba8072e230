"""Fair limits: what the reference solutions need in this sandbox, on this machine, before a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.errors import BenchError
from bench.grading import GradeJob, Grader, Limits
from bench.suites.load import Suite

FACTOR = 10.0
"""A solution may take this many times the reference's time, where that is more than the level's limit."""

FIRST_LIMIT_S = 300.0
"""Limit of a reference solution; it is trusted, so only a hang is to be caught."""


@dataclass(frozen=True)
class Calibration:
    """Limits per level, and what the references took."""

    limits: Mapping[str, Limits]
    reference_wall_ms: Mapping[str, float]
    reference_cpu_ms: Mapping[str, float]


def calibrate(grader: Grader, suite: Suite) -> Calibration:
    """Grade every reference solution. Limits are the level's own, or FACTOR times the reference's time if that is more.

    Raises BenchError naming the level and what failed: then the suite or the sandbox is broken, not a model.
    """
    jobs = [
        GradeJob(lv.reference, lv.hidden_test, lv.expected, Limits(wall_s=FIRST_LIMIT_S, cpu_s=FIRST_LIMIT_S))
        for lv in suite.levels
    ]
    limits: dict[str, Limits] = {}
    walls: dict[str, float] = {}
    cpus: dict[str, float] = {}
    for level, verdict in zip(suite.levels, grader.grade_many(jobs), strict=True):
        if not verdict.passed or verdict.suspect:
            marks = f", marked {', '.join(verdict.suspect)}" if verdict.suspect else ""
            raise BenchError(
                f"expected the reference solution of {suite.suite_id}/{level.level_id} to pass in the sandbox "
                f"({grader.provider}), found {verdict.outcome}: {verdict.detail or 'passed'}{marks}; run check-suites"
            )
        wall, cpu = verdict.wall_ms or 0.0, verdict.cpu_ms or 0.0
        limits[level.level_id] = Limits(
            wall_s=max(level.limit_s, FACTOR * wall / 1000), cpu_s=max(level.limit_s, FACTOR * cpu / 1000)
        )
        walls[level.level_id], cpus[level.level_id] = wall, cpu
    return Calibration(limits, walls, cpus)
