"""Grade stored answers again: under another version of a suite, by another extractor, in another sandbox.

Grades are added, and nothing that is stored is touched. A regrade is not the headline until it is adopted; only an
answer that never had a verdict of this bench gets its first one as the headline, because there is nothing to replace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from bench.answer.extract import Answer
from bench.grading import GradeJob, Grader, Limits, Verdict, counterfactual
from bench.ids import new_id
from bench.regrade import stored as stored_grades
from bench.regrade.change import Change, change
from bench.regrade.judge import grade_row, judge, test_rows
from bench.store.database import connect
from bench.store.write import Store
from bench.suites.load import Level, Suite

CHUNK = 200
"""Grades stored in one file: enough that files are few, few enough that a stop loses little."""

Row = dict[str, Any]
Progress = Callable[[int, int], None]
"""Called with the number done and the number in all."""


@dataclass(frozen=True)
class Regraded:
    """What grading a run's answers again brought."""

    run_id: str
    n_graded: int
    n_same: int
    """Answers whose verdict is that of the headline before."""
    n_first: int
    """Answers that had no verdict of this bench: theirs is the headline now."""
    n_adopted: int
    """Answers whose headline was replaced."""
    n_not_measured: int
    """Answers that could not be graded; their headline stays as it was."""
    changes: tuple[Change, ...]
    """Answers whose verdict is another than the headline before, and those where ours and a published one differ."""
    n_published: int
    """Published verdicts that ours were compared with."""
    other_levels: Mapping[str, int]
    """Answers that were left out, by level: the suite has no such level."""
    n_counterfactual: int


def regrade(
    store: Store,
    run_id: str,
    suite: Suite,
    grader: Grader,
    *,
    limits: Mapping[str, Limits] | None = None,
    stored_as: str | None = None,
    levels: Sequence[str] | None = None,
    adopt: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
) -> Regraded:
    """Grade the complete answers of a run that count, with as many threads on the grader as there are workers.

    `stored_as`: only answers stored under this suite id. `limits`: of each level, as calibrated on this machine.
    `adopt` makes every measured verdict the headline. Grades of kind `regrade` are stored as they come; headline rows
    only at the end and together: a run is never left half adopted.
    """
    connection, _ = connect(store.results)
    with connection:
        answers, other = stored_grades.answers(connection, run_id, suite, stored_as, levels)
        before = stored_grades.headlines(connection, run_id)
        hashes = stored_grades.planned_hashes(connection, run_id)
    known = {level.level_id: level for level in suite.levels}
    headlines: list[tuple[Row, list[Row]]] = []
    waiting: list[tuple[Row, list[Row]]] = []
    changes: list[Change] = []
    n_first = n_same = n_not_measured = 0
    for answer, grade, tests in _grade_all(answers, known, grader, limits or {}, workers, progress):
        old = before.get(answer["generation_id"])
        if grade["outcome"] == "not_measured":
            n_not_measured += 1
        elif old is None and _is_own(answer, grade, suite, hashes, grader):
            n_first += 1
            grade["grade_kind"] = "headline"
        elif adopt:
            headlines.append(_as_headline(grade, tests))
        waiting.append((grade, tests))
        if len(waiting) == CHUNK:
            _store(store, waiting)
            waiting = []
        if old is not None:
            changed = change(old, grade)
            n_same += changed is None
            changes += [changed] if changed else []
    _store(store, waiting)
    _store(store, headlines)
    n_counterfactual = add_counterfactuals(store, run_id, suite, grader, limits=limits)
    asked = {answer["level_id"] for answer in answers}
    connection, _ = connect(store.results)
    with connection:
        published, n_published = stored_grades.published_differences(connection, run_id, asked)
    for table in ("grades", "tests"):
        store.merge(run_id, table)
    return Regraded(
        run_id=run_id,
        n_graded=len(answers),
        n_same=n_same,
        n_first=n_first,
        n_adopted=len(headlines),
        n_not_measured=n_not_measured,
        changes=(*changes, *published),
        n_published=n_published,
        other_levels=other,
        n_counterfactual=n_counterfactual,
    )


def add_counterfactuals(
    store: Store,
    run_id: str,
    suite: Suite,
    grader: Grader,
    *,
    limits: Mapping[str, Limits] | None = None,
    stop: threading.Event | None = None,
) -> int:
    """Grade `interface` failures again with the missing name bound to what the answer offers. Returns grades added.

    Looks at the newest headline and regrade of each answer under this suite's present tests, and leaves out what has a
    counterfactual of the same code under the same tests by the same grader. Where nothing that the answer offers could
    stand for the name, the failure itself is stored: it is known, then, to have been tried. The headline stays.
    Once `stop` is set, what was graded until then is stored and the rest is left.
    """
    known = {level.level_id: level for level in suite.levels}
    added: list[tuple[Row, list[Row]]] = []
    connection, _ = connect(store.results)
    with connection:
        failures = stored_grades.interface_failures(connection, run_id)
    for row in failures:
        if stop is not None and stop.is_set():
            break
        level = known.get(row["level_id"])
        if level is None or row["grading_hash"] != level.grading_hash():
            continue
        limit = (limits or {}).get(level.level_id) or Limits(level.limit_s, level.limit_s)
        job = GradeJob(row["code"], level.hidden_test, level.expected, limit)
        # Owner and candidates are not stored with a grade: the failure is brought about once more.
        verdict = grader.grade(job)
        found = counterfactual(grader, job, verdict) or _nothing_stands(verdict)
        if found.outcome == "not_measured":
            continue
        answer = Answer("code", row["code"], row["code_rule"], row["n_blocks"] or 0, bool(row["truncated"]))
        grade = grade_row({**row, "finish_reason": None}, level, answer, found, grader, "counterfactual")
        grade["think_unclosed"] = row["think_unclosed"]
        added.append((grade, test_rows(row, found, grade["grade_id"])))
    _store(store, added)
    return len(added)


def _nothing_stands(verdict: Verdict) -> Verdict:
    if not verdict.missing_name:
        return verdict
    name = f"{verdict.owner + '.' if verdict.owner else ''}{verdict.missing_name}"
    return replace(verdict, detail=f"nothing that it offers could stand for {name}")


def _grade_all(
    answers: Sequence[Row],
    known: Mapping[str, Level],
    grader: Grader,
    limits: Mapping[str, Limits],
    workers: int,
    progress: Progress | None,
) -> Iterator[tuple[Row, Row, list[Row]]]:
    """(answer, grade, tests) of each answer, in order."""

    def one(answer: Row) -> tuple[Row, Row, list[Row]]:
        level = known[answer["level_id"]]
        grade, tests = judge(answer, level, grader, kind="regrade", limits=limits.get(level.level_id))
        return answer, grade, tests

    pool = ThreadPoolExecutor(max(1, workers), "regrade")
    try:
        for done, item in enumerate(pool.map(one, answers), 1):
            if progress is not None:
                progress(done, len(answers))
            yield item
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _is_own(
    answer: Row, grade: Row, suite: Suite, hashes: Mapping[tuple[str, str], str | None], grader: Grader
) -> bool:
    """Whether a verdict is what the run asked for: by its own suite and tests, in a sandbox that isolates."""
    planned = hashes.get((answer["suite_id"], answer["level_id"]))
    return (
        answer["suite_id"] == suite.suite_id
        and planned in (None, grade["grading_hash"])
        and grader.provider != "unsafe"
    )


def _as_headline(grade: Row, tests: Sequence[Row]) -> tuple[Row, list[Row]]:
    grade_id = new_id()
    row = {**grade, "grade_id": grade_id, "grade_kind": "headline", "adopted_from": grade["grade_id"]}
    return row, [{**test, "grade_id": grade_id} for test in tests]


def _store(store: Store, graded: Sequence[tuple[Row, Sequence[Row]]]) -> None:
    # Tests first: a grade is what says that its tests are there.
    store.append("tests", [test for _, tests in graded for test in tests])
    store.append("grades", [grade for grade, _ in graded])
