"""What of a run is done, and which run a command continues. Everything is read from the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from bench.errors import UsageError
from bench.locks import holder_of
from bench.presets.load import Arm
from bench.report.runs import resolve_run
from bench.store.database import connect
from bench.suites.load import Suite

IDENTITY = (
    "model_sha256",
    "engine",
    "build",
    "commit",
    "image_digest",
    "binary_sha256",
    "gpu_name",
    "gpu_driver",
    "preset_hash",
)
"""What an answer depends on besides its question; the macro `identity_of` takes these in this order."""


@dataclass(frozen=True)
class Unfinished:
    """A run that may be carried on."""

    run_id: str
    seed: int
    arm_order: tuple[str, ...]


@dataclass(frozen=True)
class Done:
    """What an arm has already, under exactly the identity that it has now."""

    graded: frozenset[tuple[str, int]]
    """(level, iteration) with a verdict: never asked again."""
    ungraded: Mapping[tuple[str, int], dict[str, Any]]
    """Complete answers that were not graded any more, as rows of `generations`: graded now, not asked again."""
    attempts: Mapping[tuple[str, int], int]
    """Highest attempt so far."""


def find(results: Path, suite: Suite, arms: Mapping[str, Arm], lineup_id: str, iterations: int) -> Unfinished | None:
    """The newest unfinished run of the same identity that no living process holds, or None.

    Same identity: lineup, suite, iterations, arms, and every preset, prompt and grading hash of the plan.
    """
    connection, _ = connect(results)
    rows = connection.execute(
        "select run_id, seed, arm_order from runs_latest where status <> 'finished' and origin = 'bench' "
        "and lineup_id = ? and suite_id = ? and iterations = ? order by run_id desc",
        [lineup_id, suite.suite_id, iterations],
    ).fetchall()
    for run_id, seed, arm_order in rows:
        if set(arm_order) != set(arms) or holder_of(results, run_id) is not None:
            continue
        if not differences(connection, run_id, suite, arms):
            return Unfinished(run_id, seed, tuple(arm_order))
    return None


def named(results: Path, text: str, suite: Suite, arms: Mapping[str, Arm]) -> Unfinished:
    """The run `--resume` names. Raises UsageError where it is another thing by now than what was planned."""
    connection, _ = connect(results)
    run_id = resolve_run(connection, text)
    row = connection.execute("select seed, arm_order, origin from runs_latest where run_id = ?", [run_id]).fetchone()
    if row is None or row[2] != "bench" or row[0] is None:
        raise UsageError(f"run {run_id} was not made by a bench here; it cannot be continued")
    changed = differences(connection, run_id, suite, arms)
    if changed:
        raise UsageError(f"run {run_id} cannot be continued: {'; '.join(changed)}; start a new one with --new")
    return Unfinished(run_id, row[0], tuple(row[1]))


def has_plan(results: Path, run_id: str) -> bool:
    """Whether the run's plan was stored; a kill right after the run's first row leaves none."""
    connection, _ = connect(results)
    return connection.execute("select 1 from plan where run_id = ? limit 1", [run_id]).fetchone() is not None


def differences(connection: duckdb.DuckDBPyConnection, run_id: str, suite: Suite, arms: Mapping[str, Arm]) -> list[str]:
    """What of the plan is not what it would be today, a sentence each."""
    out: list[str] = []
    for arm_id, stored in connection.execute(
        "select distinct arm_id, preset_hash from plan_latest where run_id = ? order by 1", [run_id]
    ).fetchall():
        if arm_id not in arms:
            out.append(f"it has the arm '{arm_id}' too")
        elif stored != arms[arm_id].preset_hash:
            out.append(f"the preset of '{arm_id}' has changed")
    levels = {level.level_id: level for level in suite.levels}
    for level_id, prompt, grading in connection.execute(
        "select distinct level_id, prompt_hash, grading_hash from plan_latest where run_id = ? order by 1", [run_id]
    ).fetchall():
        level = levels.get(level_id)
        if level is None:
            out.append(f"the suite has no level '{level_id}' any more")
        elif prompt != level.prompt_hash(suite):
            out.append(f"the prompt of '{level_id}' has changed")
        elif grading != level.grading_hash():
            out.append(f"the tests of '{level_id}' have changed")
    return out


def done(results: Path, run_id: str, arm_id: str, identity: Mapping[str, Any]) -> Done:
    """What the arm has under this identity (the columns of IDENTITY)."""
    connection, _ = connect(results)
    values = [identity.get(name) for name in IDENTITY]
    rows = connection.execute(
        "select level_id, iteration, passed is not null as graded, complete and grade_id is null as ungraded, "
        "generation_id from cells where run_id = ? and arm_id = ? and planned and generation_id is not null "
        f"and identity = identity_of({', '.join('?' * len(values))})",
        [run_id, arm_id, *values],
    ).fetchall()
    attempts = connection.execute(
        "select level_id, iteration, max(attempt) from generations where run_id = ? and arm_id = ? group by all",
        [run_id, arm_id],
    ).fetchall()
    waiting = {(level, i): gid for level, i, _, ungraded, gid in rows if ungraded}
    generations = {}
    for key, generation_id in waiting.items():
        cursor = connection.execute("select * from generations where generation_id = ?", [generation_id])
        names = [column[0] for column in cursor.description or ()]
        values_ = cursor.fetchone()
        assert values_ is not None
        generations[key] = dict(zip(names, values_, strict=True))
    return Done(
        frozenset((level, i) for level, i, graded, _, _ in rows if graded),
        generations,
        {(level, i): n for level, i, n in attempts},
    )
