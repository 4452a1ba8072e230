"""Rows for tests of the store and its views: complete enough to be real, with what a test cares about on top."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from bench.ids import new_id
from bench.store.database import connect
from bench.store.write import Store

RUN = "20261130-120000-aaaa"
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
LEVELS = ("L1", "L2")
SERVER = {
    "model_sha256": "m1", "engine": "process", "build": 9784, "commit": "c1", "image_digest": "sha256:i1",
    "binary_sha256": "b1", "gpu_name": "RTX 4090", "gpu_driver": "570.1", "preset_hash": "p1",
}  # fmt: skip
"""What answered: the part of a generation's identity that is not the question."""


def run_row(**more: Any) -> dict[str, Any]:
    return {
        "run_id": RUN, "event_at": NOON, "status": "finished", "origin": "bench", "lineup_id": "smoke", "suite_id": "s",
        "suite_title": "A suite", "iterations": 2, "max_tokens": 256, "request_limit_s": 900.0, "seed": 7,
        "arm_order": ["a"], "grading_provider": "bubblewrap", "gpu_name": "RTX 4090", "gpu_driver": "570.1", **more,
    }  # fmt: skip


def arm_row(arm_id: str = "a", **more: Any) -> dict[str, Any]:
    return {
        "run_id": RUN, "arm_id": arm_id, "event_at": NOON, "status": "finished", "position": 1,
        "title": f"Arm {arm_id}",
        "sampler_id": "greedy", "sampler_asked": '{"temperature": 0.0}', "context": 4096, "device": "gpu",
        "model_locked": True, "load_ms": 900.0, "vram_idle_bytes": 1 << 30, "vram_peak_bytes": 2 << 30,
        "rss_idle_bytes": 1 << 28, "rss_peak_bytes": 1 << 29, "model_bytes": 93_000_000, **more,
    }  # fmt: skip


def plan_row(level: str, iteration: int, arm_id: str = "a", **more: Any) -> dict[str, Any]:
    index = int(level[1:]) if level[1:].isdigit() else 1
    return {
        "run_id": RUN, "arm_id": arm_id, "suite_id": "s", "level_id": level, "iteration": iteration,
        "level_index": index, "level_title": f"Task {level}", "points": 50, "request_seed": iteration * 100 + index,
        "preset_hash": "p1", "prompt_hash": f"q-{level}", "grading_hash": f"g-{level}", **more,
    }  # fmt: skip


def generation(level: str, iteration: int, arm_id: str = "a", **more: Any) -> dict[str, Any]:
    plan = plan_row(level, iteration, arm_id)
    return {
        "generation_id": new_id(), "run_id": RUN, "arm_id": arm_id, "suite_id": "s", "level_id": level,
        "iteration": iteration, "attempt": 1, "request_seed": plan["request_seed"], "prompt_hash": plan["prompt_hash"],
        **SERVER, "outcome": "ok", "finish_reason": "stop", "content": "def f(): pass", "prompt_tokens": 40,
        "completion_tokens": 101, "reasoning_tokens": 0, "answer_tokens": 101, "prompt_n": 40, "prompt_ms": 20.0,
        "predicted_n": 101, "predicted_ms": 1000.0, "cache_n": 0, "started_at": NOON + timedelta(seconds=iteration),
        "first_token_ms": 30.0, "first_answer_ms": 31.0, "last_token_ms": 1050.0, "total_ms": 1051.0, **more,
    }  # fmt: skip


def grade(of: dict[str, Any], passed: bool | None = True, **more: Any) -> dict[str, Any]:
    outcome = "passed" if passed else "not_measured" if passed is None else "assertion"
    key = ("generation_id", "run_id", "arm_id", "suite_id", "level_id", "iteration", "attempt")
    return {
        "grade_id": new_id(), **{k: of[k] for k in key}, "grade_kind": "headline",
        "graded_at": NOON + timedelta(minutes=1), "grading_hash": f"g-{of['level_id']}", "provider": "bubblewrap",
        "outcome": outcome, "passed": passed, "points": None if passed is None else 50.0 * passed, "max_points": 50.0,
        "code": "def f(): pass", "code_rule": "last_block_defining_entry", "truncated": False, "suspect": False,
        "detail": None if passed else "AssertionError: 1 != 2", **more,
    }  # fmt: skip


def fill(
    results: Path, verdicts: dict[str, Sequence[Sequence[bool | None]]], levels: Sequence[str] = LEVELS, **run: Any
) -> Store:
    """A finished run: for each arm the verdicts of each iteration, in the levels' order."""
    store = Store(results)
    store.append("runs", [run_row(arm_order=list(verdicts), iterations=max(map(len, verdicts.values())), **run)])
    for position, (arm_id, iterations) in enumerate(verdicts.items(), 1):
        store.append("arms", [arm_row(arm_id, position=position)])
        slots = [(level, i, v) for i, row in enumerate(iterations, 1) for level, v in zip(levels, row, strict=True)]
        made = [generation(level, i, arm_id) for level, i, _ in slots]
        store.append("plan", [plan_row(level, i, arm_id) for level, i, _ in slots])
        store.append("generations", made)
        store.append("grades", [grade(g, passed) for g, (_, _, passed) in zip(made, slots, strict=True)])
    return store


def ask(results: Path, sql: str) -> list[dict[str, Any]]:
    """Rows of a query over all views."""
    connection, _ = connect(results)
    return rows_of(connection, sql)


def rows_of(connection: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    cursor = connection.execute(sql)
    names = [d[0] for d in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
