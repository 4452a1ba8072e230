"""What regrading reads from the store: answers without their reasoning, and the newest grades on them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from bench.regrade.change import Change, verdict_name
from bench.store.database import connect
from bench.suites.load import Suite

Row = dict[str, Any]
Connection = duckdb.DuckDBPyConnection

_GRADE = (
    "grade_id, generation_id, arm_id, level_id, iteration, grading_hash, grader_version, provider, extractor_version, "
    "code, code_rule, outcome, passed, suspect, suspect_reasons, first_failed_test, detail"
)


def query(results: Path, sql: str, values: Sequence[Any] | Mapping[str, Any]) -> list[Row]:
    """Rows of one query over the views, as dictionaries."""
    connection, _ = connect(results)
    with connection:
        return rows(connection, sql, values)


def rows(connection: Connection, sql: str, values: Sequence[Any] | Mapping[str, Any]) -> list[Row]:
    """Rows of a query, as dictionaries."""
    cursor = connection.execute(sql, values)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def answers(
    connection: Connection, run_id: str, suite: Suite, stored_as: str | None, levels: Sequence[str] | None
) -> tuple[list[Row], dict[str, int]]:
    """The complete answers that count, without their reasoning; and how many there are of levels the suite lacks.

    `stored_as`: only those stored under this suite id; `levels`: only those of these levels.
    """
    found = rows(
        connection,
        "select generation_id, run_id, arm_id, suite_id, level_id, iteration, attempt, outcome, detail, content, "
        "finish_reason from generations_latest where run_id = $run and in_plan is not false and complete "
        "and ($suite is null or suite_id = $suite) order by arm_id, iteration, level_id, generation_id",
        {"run": run_id, "suite": stored_as},
    )
    known = {level.level_id for level in suite.levels}
    other: dict[str, int] = {}
    for row in found:
        if row["level_id"] not in known:
            other[row["level_id"]] = other.get(row["level_id"], 0) + 1
    wanted = known if levels is None else known & set(levels)
    return [row for row in found if row["level_id"] in wanted], other


def headlines(connection: Connection, run_id: str) -> dict[str, Row]:
    """The newest headline grade of each answer of a run, by generation id."""
    found = rows(
        connection,
        f"select {_GRADE} from grades where run_id = ? and grade_kind = 'headline' "
        "qualify row_number() over (partition by generation_id order by graded_at desc, grade_id desc) = 1",
        [run_id],
    )
    return {row["generation_id"]: row for row in found}


def planned_hashes(connection: Connection, run_id: str) -> dict[tuple[str, str], str | None]:
    """Grading hash of the plan by (suite, level)."""
    found = rows(
        connection,
        "select suite_id, level_id, any_value(grading_hash) as grading_hash from plan_latest where run_id = ? "
        "group by suite_id, level_id",
        [run_id],
    )
    return {(row["suite_id"], row["level_id"]): row["grading_hash"] for row in found}


def interface_failures(connection: Connection, run_id: str) -> list[Row]:
    """Failures for a missing name, of the newest headline and regrade of each answer, that have no counterfactual of
    the same code under the same tests by the same grader. Each code once."""
    return rows(
        connection,
        """
        with newest as (
            select * from grades
            where run_id = $run and grade_kind in ('headline', 'regrade')
            qualify row_number() over (
                partition by generation_id, grade_kind order by graded_at desc, grade_id desc) = 1
        )
        select n.generation_id, n.run_id, n.arm_id, n.suite_id, n.level_id, n.iteration, n.attempt, n.grading_hash,
            n.code, n.code_rule, n.n_blocks, n.truncated, n.think_unclosed
        from newest n
        where n.outcome = 'interface' and n.code is not null and not exists (
            from grades c
            where c.run_id = $run and c.grade_kind = 'counterfactual' and c.generation_id = n.generation_id
                and c.grading_hash = n.grading_hash and c.code = n.code and c.grader_version = n.grader_version
        )
        qualify row_number() over (partition by n.generation_id, n.grading_hash, md5(n.code) order by n.grade_kind) = 1
        order by n.arm_id, n.level_id, n.iteration""",
        {"run": run_id},
    )


def published_differences(connection: Connection, run_id: str, levels: Container[str]) -> tuple[list[Change], int]:
    """Where ours and the published verdict on answers to some levels differ, from the view that says why; and how many
    published verdicts there are."""
    found = rows(
        connection,
        "select arm_id, level_id, iteration, published_outcome, outcome, suspect, cause, why "
        "from disagreements where run_id = ? order by arm_id, level_id, iteration",
        [run_id],
    )
    published = rows(
        connection,
        "select level_id from grades where run_id = ? and grade_kind = 'published' and passed is not null",
        [run_id],
    )
    changes = []
    for row in found:
        if row["level_id"] in levels:
            key = (row["arm_id"], row["level_id"], row["iteration"])
            changes.append(
                Change(*key, "published", row["published_outcome"], verdict_name(row), row["cause"], row["why"])
            )
    return changes, sum(row["level_id"] in levels for row in published)
