"""Verdicts on code. One interface; how much is isolated depends on the provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from bench.grading.calibration import Calibration
    from bench.grading.pool import SandboxGrader
    from bench.grading.providers import ProviderStatus
    from bench.suites.load import Suite

Outcome = Literal[
    "passed",
    "no_answer",
    "truncated",
    "no_code",
    "syntax",
    "import",
    "interface",
    "assertion",
    "exception",
    "timeout",
    "resources",
    "exited",
    "tampering",
    "time_limit",
    "loop_ended",
    "context_overflow",
    "not_measured",
]
"""`passed`, or the kind of failure. `not_measured` is never the model's doing and has no points (NULL)."""

TestOutcome = Literal["passed", "failed", "error", "skipped", "missing"]


@dataclass(frozen=True)
class Limits:
    """What one grade may use."""

    wall_s: float = 30.0
    cpu_s: float = 30.0
    memory_bytes: int = 1 << 30
    processes: int = 64
    output_bytes: int = 1 << 20
    file_bytes: int = 64 << 20


@dataclass(frozen=True)
class GradeJob:
    """Code and the tests it has to pass."""

    code: str
    hidden_test: str
    """Source of the hidden tests; they import from `solution`."""
    expected: tuple[str, ...]
    """Ids of the tests that must run and pass; counted by the suite, never by the solution."""
    limits: Limits = Limits()
    bindings: tuple[tuple[str, str, str], ...] = ()
    """Counterfactuals only: (class or "" for the module, missing name, name of the candidate that is bound to it)."""


@dataclass(frozen=True)
class TestResult:
    """A hidden test in a grade."""

    test_id: str
    outcome: TestOutcome
    message: str | None = None
    line: int | None = None
    """Line of the hidden test file where it failed."""


@dataclass(frozen=True)
class Verdict:
    """What the grader says of a job."""

    outcome: Outcome
    detail: str = ""
    """One line: the exception type and message, the limit that was hit, the module that is missing."""
    tests: tuple[TestResult, ...] = ()
    """One for each expected test, in the suite's order; a test that did not run is `missing`."""
    missing_name: str | None = None
    """For `interface`: the attribute or name that the tests need and the solution lacks."""
    offered: tuple[str, ...] = ()
    """For `interface`: what the solution offers in its place."""
    suspect: tuple[str, ...] = ()
    """Marks beside the verdict, such as `frame_walking`; empty when nothing was seen."""
    wall_ms: float | None = None
    cpu_ms: float | None = None
    owner: str = ""
    """For `interface`: the class that lacks the name; empty for the module."""
    candidates: tuple[str, ...] = ()
    """For `interface`: offered names of compatible signature that the tests do not use, closest first."""
    provider: str = ""
    """Where the code ran. `unsafe` is the mark of a grade without isolation."""
    left_behind: bool = False
    """A process was still there when the grade ended; it was killed."""

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"


class Grader(Protocol):
    """A place where model-written code runs."""

    provider: str
    """`container`, `bubblewrap` or `unsafe`."""
    version: str
    """Changes when verdicts may change."""

    def grade(self, job: GradeJob) -> Verdict:
        """Grade one job. Never raises for anything the code does."""

    def grade_many(self, jobs: Sequence[GradeJob]) -> list[Verdict]:
        """Grade several jobs, in order, as parallel as the grader was opened for."""

    def close(self) -> None:
        """Leave no process and no file behind."""


def available(docker_client: Any | None = None) -> list[ProviderStatus]:
    """Which isolating providers work here, best first, each with the fix where it does not."""
    from bench.grading.providers import available as look

    return look(docker_client)


def open_grader(provider: str = "auto", workers: int = 1, docker_client: Any | None = None) -> SandboxGrader:
    """Open a grader: `auto` (bubblewrap, else container), `bubblewrap`, `container`, or `unsafe`.

    Raises BenchError with the fix when the provider does not work here.
    """
    from bench.grading.providers import open_grader as opener

    return opener(provider, workers, docker_client)


def calibrate(grader: Grader, suite: Suite) -> Calibration:
    """Grade every level's reference solution in this grader. Raises BenchError when one fails."""
    from bench.grading.calibration import calibrate as measure

    return measure(grader, suite)


def counterfactual(grader: Grader, job: GradeJob, verdict: Verdict) -> Verdict | None:
    """The verdict if each missing name were bound to the solution's closest candidate; None where there is none."""
    from bench.grading.counterfactual import counterfactual as again

    return again(grader, job, verdict)
