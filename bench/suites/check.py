"""The proof of a suite: its reference solutions pass, its mutants fail, and what its prompts leave unsaid is listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.grading import GradeJob, Grader, Limits, Verdict
from bench.suites.load import Level, Suite, ambiguities

PROVES_NOTHING = ("syntax", "import", "not_measured", "no_code", "no_answer")
"""Outcomes of a mutant that say nothing about the tests: it never came to run."""


@dataclass(frozen=True)
class MutantCheck:
    """A wrong solution and what the hidden tests said of it."""

    name: str
    verdict: Verdict

    @property
    def caught(self) -> bool:
        """It ran, and the tests did not let it pass."""
        return not self.verdict.passed and self.verdict.outcome not in PROVES_NOTHING

    @property
    def failed_tests(self) -> tuple[str, ...]:
        """Ids of the hidden tests that did not pass."""
        return tuple(test.test_id for test in self.verdict.tests if test.outcome != "passed")


@dataclass(frozen=True)
class LevelReport:
    """What the check found of a level."""

    level_id: str
    title: str
    points: int
    n_tests: int
    reference: Verdict
    mutants: tuple[MutantCheck, ...]
    ambiguities: tuple[str, ...]
    """Names that the hidden tests use and the prompt does not mention. Not a fault: a suite may leave them open."""
    problems: tuple[str, ...]
    """What disproves the level, one line each."""
    notes: tuple[str, ...]
    """What a person should know; nothing is wrong with it."""

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def n_caught(self) -> int:
        return sum(mutant.caught for mutant in self.mutants)


@dataclass(frozen=True)
class SuiteReport:
    """What the check found of a suite."""

    suite_id: str
    title: str
    provider: str
    """Where it was graded: `container`, `bubblewrap` or `unsafe`."""
    levels: tuple[LevelReport, ...]

    @property
    def ok(self) -> bool:
        return all(level.ok for level in self.levels)

    @property
    def problems(self) -> tuple[str, ...]:
        """All problems, each led by its level."""
        return tuple(f"{level.level_id}: {problem}" for level in self.levels for problem in level.problems)


def check_suite(suite: Suite, grader: Grader) -> SuiteReport:
    """Grade every reference and every mutant of a suite under the limits of its levels."""
    jobs: list[GradeJob] = []
    for level in suite.levels:
        jobs += [grade_job(level, code) for code in (level.reference, *level.mutants.values())]
    verdicts = iter(grader.grade_many(jobs))
    levels = []
    for level in suite.levels:
        reference = next(verdicts)
        mutants = [MutantCheck(name, next(verdicts)) for name in level.mutants]
        levels.append(_report(level, reference, mutants))
    return SuiteReport(suite.suite_id, suite.title, grader.provider, tuple(levels))


def grade_job(level: Level, code: str) -> GradeJob:
    """The job that grades `code` as an answer to a level, under the level's time limit."""
    return GradeJob(code, level.hidden_test, level.expected, Limits(wall_s=level.limit_s, cpu_s=level.limit_s))


def _report(level: Level, reference: Verdict, mutants: Sequence[MutantCheck]) -> LevelReport:
    problems, notes = [], []
    if not reference.passed:
        failed = [test.test_id for test in reference.tests if test.outcome != "passed"]
        problems.append(
            f"the reference solution must pass and does not: {reference.outcome}"
            + (f", {reference.detail}" if reference.detail else "")
            + (f" (in {', '.join(failed)})" if failed else "")
        )
    elif reference.suspect:
        problems.append(f"the reference solution is marked as suspect: {', '.join(reference.suspect)}")
    for mutant in mutants:
        if mutant.verdict.passed:
            problems.append(f"the mutant `{mutant.name}` passes: no test sees its mistake")
        elif not mutant.caught:
            detail = f", {mutant.verdict.detail}" if mutant.verdict.detail else ""
            problems.append(f"the mutant `{mutant.name}` never ran: {mutant.verdict.outcome}{detail}")
    if not mutants:
        notes.append("no mutants: nothing shows that the hidden tests can fail; add wrong solutions in mutants/")
    elif reference.passed:
        idle = [name for name in level.expected if not any(name in mutant.failed_tests for mutant in mutants)]
        if idle:
            notes.append(f"no mutant fails {', '.join(idle)}")
    names = tuple(ambiguities(level))
    if names:
        notes.append(f"used by the hidden tests and not mentioned in the prompt: {', '.join(names)}")
    return LevelReport(
        level.level_id,
        level.title,
        level.points,
        len(level.expected),
        reference,
        tuple(mutants),
        names,
        tuple(problems),
        tuple(notes),
    )
