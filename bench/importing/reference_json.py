"""The result file of an arm in the reference project's layout, as records.

Older files of the layout name the model `provider`, leave out times or summary, or write a level as `L1`; a key that
is known under several names is looked for under all of them. What is not of the expected type is as if it were absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bench.importing.files import Unusable, moment, number, text, whole

METRICS = ("mean_tps", "mean_ttft_ms", "mean_total_ms", "vram_idle_mb", "vram_peak_mb")
_LEVEL = re.compile(r"[Ll](?:evel)?[ _-]?(\d{1,4})$")


@dataclass(frozen=True)
class PublishedLevel:
    """What the source says of one answer."""

    level_id: str
    title: str | None
    points: float | None
    earned: float | None
    passed: bool | None
    tests_passed: int | None
    tests_total: int | None
    error: str | None
    duration_s: float | None
    at: datetime | None


@dataclass(frozen=True)
class PublishedIteration:
    """What the source says of one pass over the levels."""

    iteration: int
    score: float | None
    metrics: Mapping[str, float]
    at: datetime | None
    levels: Mapping[str, PublishedLevel]


@dataclass(frozen=True)
class ResultFile:
    """What the source says of an arm."""

    arm_id: str | None
    title: str | None
    model: Mapping[str, Any]
    sampler: Mapping[str, Any] | None
    n_iterations: int | None
    level_ids: tuple[str, ...]
    """Levels that were put, as the settings say; empty when they do not."""
    max_tokens: int | None
    iterations: Mapping[int, PublishedIteration]
    summary_tps: float | None
    vram_peak_mb: float | None
    started: datetime | None
    ended: datetime | None
    problems: tuple[str, ...]
    """Parts of the file that were left out."""


def result_file(data: Mapping[str, Any]) -> ResultFile:
    """Read a result file. Raises Unusable for one without a list of iterations."""
    entries = data.get("iterations")
    if not isinstance(entries, list):
        raise Unusable("no list 'iterations'")
    model = _mapping(data, "model", "provider")
    config = _mapping(data, "config")
    summary = _mapping(data, "summary")
    problems: list[str] = []
    iterations: dict[int, PublishedIteration] = {}
    for at, entry in enumerate(entries, 1):
        try:
            found = iteration(entry, at)
        except Unusable as e:
            problems.append(f"iterations[{at - 1}]: {e}")
            continue
        if found.iteration in iterations:
            problems.append(f"iterations[{at - 1}]: iteration {found.iteration} is there twice")
            continue
        iterations[found.iteration] = found
    levels = config.get("levels")
    level_ids = [level_id(v) for v in levels] if isinstance(levels, list) else []
    stated = whole(config.get("iterations"))
    sampler = config.get("sampler", model.get("sampler"))
    return ResultFile(
        arm_id=text(model.get("id")),
        title=text(model.get("name")),
        model=model,
        sampler=sampler if isinstance(sampler, dict) else None,
        n_iterations=stated if stated is not None and 0 < stated <= 100_000 else None,
        level_ids=tuple(dict.fromkeys(v for v in level_ids if v)),
        max_tokens=whole(config.get("max_tokens")),
        iterations=iterations,
        summary_tps=number(_mapping(summary, "tps").get("mean")),
        vram_peak_mb=number(summary.get("vram_peak_mb")),
        started=moment(data.get("started_at")),
        ended=moment(data.get("completed_at", data.get("finished_at"))),
        problems=tuple(problems),
    )


def iteration(entry: Any, position: int) -> PublishedIteration:
    """One entry of `iterations`, or the `summary.json` of an iteration. Raises Unusable."""
    if not isinstance(entry, dict):
        raise Unusable(f"expected an object, found {type(entry).__name__}")
    n = whole(entry.get("iteration", position))
    if n is None or n < 1:
        raise Unusable(f"expected a number from 1 as 'iteration', found {entry.get('iteration')!r:.40}")
    metrics = _mapping(entry, "metrics")
    found = {name: v for name in METRICS if (v := number(metrics.get(name))) is not None}
    levels: dict[str, PublishedLevel] = {}
    listed = entry.get("levels")
    if isinstance(listed, dict):
        listed = [{"level": key, **value} for key, value in listed.items() if isinstance(value, dict)]
    for one in listed if isinstance(listed, list) else []:
        level = _level(one)
        if level is not None and level.level_id not in levels:
            levels[level.level_id] = level
    score = number(entry.get("total_score", entry.get("score")))
    return PublishedIteration(n, score, found, moment(entry.get("timestamp")), levels)


def level_id(value: Any) -> str | None:
    """`L3` for 3, "3", "L3" or "level_3"; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10_000:
        return f"L{value}"
    if isinstance(value, str):
        if value.strip().isdecimal() and len(value.strip()) < 5:
            return f"L{int(value)}"
        if m := _LEVEL.match(value.strip()):
            return f"L{int(m[1])}"
    return None


def _level(one: Any) -> PublishedLevel | None:
    if not isinstance(one, dict):
        return None
    found = next((f for key in ("level", "level_id", "id", "number") if (f := level_id(one.get(key)))), None)
    if found is None:
        return None
    checks = {**one, **_mapping(one, "validation")}
    points = number(_first(one, "points_possible", "max_points", "points"))
    earned = number(_first(one, "points_earned", "earned", "score"))
    passed = checks.get("passed", checks.get("success"))
    if not isinstance(passed, bool):
        passed = earned >= points if earned is not None and points else None
    return PublishedLevel(
        found,
        text(_first(one, "name", "title")),
        points,
        earned,
        passed,
        whole(_first(checks, "tests_passed", "n_passed")),
        whole(_first(checks, "tests_total", "tests_run", "n_tests")),
        text(_first(checks, "error", "message")),
        number(_first(one, "duration_seconds", "duration_s")),
        moment(one.get("timestamp")),
    )


def _first(data: Mapping[str, Any], *names: str) -> Any:
    return next((data[name] for name in names if data.get(name) is not None), None)


def _mapping(data: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((data[name] for name in names if isinstance(data.get(name), dict)), {})
