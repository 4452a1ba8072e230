"""From a stored generation to a grade: extract the code, have it graded, and write down why.

The runner, a regrade and an import all come through here, so the same answer gets the same verdict everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from bench.answer.extract import EXTRACTOR_VERSION, Answer, extract
from bench.grading import GradeJob, Grader, Limits, Outcome, TestResult, Verdict
from bench.ids import new_id
from bench.suites.load import Level

NOT_THE_MODELS_DOING = frozenset(
    {
        "transport_error",
        "server_error",
        "stream_error",
        "idle_limit",
        "protocol_error",
        "template_error",
        "request_refused",
        "cancelled",
    }
)
"""Outcomes of a generation that say nothing about the answer: not measured, and outside the score."""

KEY = ("run_id", "arm_id", "suite_id", "level_id", "iteration", "attempt")


def judge(
    generation: Mapping[str, Any], level: Level, grader: Grader, *, kind: str = "headline", limits: Limits | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Grade a generation. Returns a row of `grades` and its rows of `tests`.

    `generation` needs the columns of KEY with `generation_id`, `outcome`, `detail`, `content` and `finish_reason`.
    """
    answer = Answer("no_answer", None, "none")
    if generation["outcome"] == "ok":
        answer = extract(generation["content"], level.entry, finish_reason=generation["finish_reason"])
    verdict = _verdict(generation, answer, level, grader, limits or Limits(level.limit_s, level.limit_s))
    row = grade_row(generation, level, answer, verdict, grader, kind)
    return row, test_rows(generation, verdict, row["grade_id"])


def _verdict(generation: Mapping[str, Any], answer: Answer, level: Level, grader: Grader, limits: Limits) -> Verdict:
    outcome = generation["outcome"]
    if outcome in NOT_THE_MODELS_DOING:
        return Verdict("not_measured", f"{outcome}: {generation['detail'] or 'no detail'}")
    if outcome in ("time_limit", "loop_ended", "context_overflow"):
        return Verdict(outcome, generation["detail"] or "", _missing(level))
    if outcome != "ok":
        return Verdict("not_measured", f"unknown outcome '{outcome}' of the generation")
    if answer.status != "code" or answer.code is None:
        kind: Outcome = "no_answer" if answer.status == "no_answer" else "truncated" if answer.truncated else "no_code"
        cut = " (the token limit ended it)" if answer.truncated else ""
        return Verdict(
            kind, f"{'empty answer' if kind == 'no_answer' else 'no code in the answer'}{cut}", _missing(level)
        )
    verdict = grader.grade(GradeJob(answer.code, level.hidden_test, level.expected, limits))
    if answer.truncated and verdict.outcome == "syntax":
        return replace(verdict, outcome="truncated", detail=f"the token limit ended the code: {verdict.detail}")
    return verdict


def _missing(level: Level) -> tuple[TestResult, ...]:
    return tuple(TestResult(test_id, "missing") for test_id in level.expected)


def grade_row(
    generation: Mapping[str, Any], level: Level, answer: Answer, verdict: Verdict, grader: Grader, kind: str
) -> dict[str, Any]:
    """A row of `grades`. Points and `passed` are NULL when nothing was measured."""
    measured = verdict.outcome != "not_measured"
    passed = sum(t.outcome == "passed" for t in verdict.tests)
    failed = [t for t in verdict.tests if t.outcome != "passed"]
    return {
        "grade_id": new_id(),
        "generation_id": generation["generation_id"],
        **{name: generation[name] for name in KEY},
        "grade_kind": kind,
        "graded_at": datetime.now(UTC),
        "grading_hash": level.grading_hash(),
        "grader_version": grader.version,
        "provider": grader.provider,
        "extractor_version": EXTRACTOR_VERSION,
        "code": answer.code,
        "code_rule": answer.rule,
        "n_blocks": answer.n_blocks,
        "think_unclosed": answer.think_unclosed,
        "truncated": answer.truncated or generation["finish_reason"] == "length",
        "outcome": verdict.outcome,
        "passed": verdict.passed if measured else None,
        "points": (float(level.points) if verdict.passed else 0.0) if measured else None,
        "max_points": float(level.points),
        "tests_passed": passed if measured else None,
        "tests_failed": len(level.expected) - passed if measured else None,
        "tests_expected": len(level.expected),
        "detail": verdict.detail or None,
        "first_failed_test": failed[0].test_id if failed and measured else None,
        "missing_name": verdict.missing_name,
        "offered": list(verdict.offered),
        "suspect": bool(verdict.suspect),
        "suspect_reasons": list(verdict.suspect),
        "wall_ms": verdict.wall_ms,
        "cpu_ms": verdict.cpu_ms,
    }


def test_rows(generation: Mapping[str, Any], verdict: Verdict, grade_id: str) -> list[dict[str, Any]]:
    """The rows of `tests` of a verdict, in the suite's order."""
    return [
        {
            "grade_id": grade_id,
            **{name: generation[name] for name in KEY},
            "test_index": index,
            "test_id": test.test_id,
            "outcome": test.outcome,
            "message": test.message,
            "line": test.line,
        }
        for index, test in enumerate(verdict.tests, 1)
    ]
