"""Grades of an arm: beside the server where that disturbs nobody, else in the gap between two answers."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from bench.client.request import decode_rate
from bench.presets.load import Arm
from bench.regrade.judge import judge
from bench.reporter import Answered

if TYPE_CHECKING:
    from bench.runner.arm_run import Context, Question

MAX_PENDING = 4
"""Answers that may wait for their grade; more would only fill memory."""

SPARE_CORES = 2
"""Cores that a server on the CPU must leave free before grading may run beside it: one for the grader, one for the
client and the sampler. One grading process on a core of the server's took decoding from 90 to 10 tokens a second."""


def may_run_beside(arm: Arm, threads: int, cores: int) -> bool:
    """Whether grading may run while this arm's server generates."""
    return arm.device == "gpu" or cores - threads >= SPARE_CORES


class GradeQueue:
    """Grades answers and stores the verdicts, in the order in which they came. An error of a grade that runs beside
    the server is raised by the next call, so that none is lost."""

    def __init__(self, context: Context, arm_id: str) -> None:
        self._c = context
        self._arm_id = arm_id
        self._pool: ThreadPoolExecutor | None = None
        self._pending: list[Future[None]] = []
        self._lock = threading.Lock()

    def run_beside(self) -> None:
        """From now on grade in a thread of its own."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "grade")

    def add(self, question: Question, generation: dict[str, Any]) -> None:
        """Grade an answer, now or soon. Waits while too many are pending; raises what an earlier one ran into."""
        if self._pool is None:
            with self._lock:  # with slots, answers are graded one at a time
                self._grade(question, generation)
            return
        with self._lock:
            self._pending.append(self._pool.submit(self._grade, question, generation))
        self.wait(MAX_PENDING)

    def wait(self, keep: int = 0) -> None:
        """Wait until at most so many grades are pending. Raises what one of them ran into, as soon as it is known."""
        while True:
            with self._lock:
                broken = next((f for f in self._pending if f.done() and f.exception() is not None), None)
                if broken is not None:
                    self._pending.remove(broken)
                elif len(self._pending) <= keep:
                    self._pending = [f for f in self._pending if not f.done()]
                    return
                future = broken or self._pending.pop(0)
            future.result()

    def close(self) -> None:
        """End the thread; grades that were asked for are finished first."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _grade(self, question: Question, generation: dict[str, Any]) -> None:
        level = question.level
        grade, tests = judge(generation, level, self._c.grader, limits=self._c.limits.get(level.level_id))
        # Tests first: a grade is what says that its tests are there.
        if tests:
            self._c.store.append("tests", tests)
        self._c.store.append("grades", [grade])
        rate = decode_rate(generation["predicted_n"], generation["predicted_ms"])
        self._c.events.add(
            "graded",
            arm=self._arm_id,
            level=level.level_id,
            iteration=question.iteration,
            outcome=grade["outcome"],
            points=grade["points"],
            tokens=generation["completion_tokens"],
            rate=rate,
            seconds=generation["total_ms"] / 1000,
        )
        self._c.reporter.answered(
            Answered(
                question.iteration,
                self._c.iterations,
                level.level_id,
                grade["outcome"],
                grade["points"],
                grade["max_points"],
                generation["completion_tokens"],
                rate,
                generation["total_ms"] / 1000,
                grade["detail"] or "",
            )
        )
