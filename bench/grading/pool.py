"""A grader: one or more sandboxes, each kept for many grades and replaced when it breaks."""

from __future__ import annotations

import hashlib
import queue
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

from bench.grading import GradeJob, TestResult, Verdict
from bench.grading.link import Link, LinkBroken, worker_sources
from bench.grading.verdict import judge

START_S = 60.0
"""Longest wait for a sandbox to come up."""

GRACE_S = 10.0
"""How long the parent in the sandbox may take, past a grade's wall limit, before the sandbox is replaced."""


def grader_version() -> str:
    """Changes with anything that can change a verdict: the worker's text and the rules of the verdict."""
    digest = hashlib.sha256()
    for name, text in sorted(worker_sources().items()):
        digest.update(f"{name}\0{text}\0".encode())
    digest.update((Path(__file__).parent / "verdict.py").read_bytes())
    return f"1.{digest.hexdigest()[:10]}"


class SandboxGrader:
    """A `bench.grading.Grader` over sandboxes of one provider."""

    def __init__(self, provider: str, start: Callable[[], Link], workers: int) -> None:
        self.provider = provider
        self.version = grader_version()
        self._start = start
        self._free: queue.Queue[Link | None] = queue.Queue()
        self._workers = max(1, workers)
        links: list[Link] = []
        try:
            for _ in range(self._workers):
                links.append(self._fresh())
        except BaseException:
            for link in links:
                link.close()
            raise
        for link in links:
            self._free.put(link)

    def _fresh(self) -> Link:
        link = self._start()
        try:
            link.receive(START_S)
        except BaseException:
            link.close()
            raise
        return link

    def grade(self, job: GradeJob) -> Verdict:
        """Grade one job; a sandbox that breaks is replaced, and the job tried once more in the new one."""
        if self._workers == 0:
            raise RuntimeError("this grader is closed")
        said = ""
        for _ in range(2):
            link = self._free.get()
            try:
                link = link or self._fresh()
                verdict = self._ask(link, job)
            except (LinkBroken, OSError, ValueError) as error:
                said = str(error)
                if link is not None:
                    link.close()
                self._free.put(None)
                continue
            except BaseException:
                if link is not None:
                    link.close()
                self._free.put(None)
                raise
            self._free.put(link)
            if verdict.outcome != "not_measured":
                return verdict
            said = verdict.detail
        tests = tuple(TestResult(t, "missing") for t in job.expected)
        return Verdict("not_measured", f"the sandbox failed: {said}", tests, provider=self.provider)

    def _ask(self, link: Link, job: GradeJob) -> Verdict:
        key = secrets.token_bytes(16)
        link.send(
            {
                "code": job.code,
                "hidden_test": job.hidden_test,
                "expected": list(job.expected),
                "limits": asdict(job.limits),
                "bindings": [list(b) for b in job.bindings],
                "key": key.hex(),
            }
        )
        reply = link.receive(job.limits.wall_s + GRACE_S)
        if "broken" in reply:
            return Verdict("not_measured", str(reply["broken"]))
        return replace(judge(job, reply, key), provider=self.provider)

    def grade_many(self, jobs: Sequence[GradeJob]) -> list[Verdict]:
        """Grade several jobs, in order, as parallel as there are sandboxes."""
        if self._workers == 1:
            return [self.grade(job) for job in jobs]
        with ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(self.grade, jobs))

    def close(self) -> None:
        """End the sandboxes, after the grades in progress. Closing twice is harmless."""
        open_now, self._workers = self._workers, 0
        for _ in range(open_now):
            link = self._free.get()
            if link is not None:
                link.close()

    def __enter__(self) -> SandboxGrader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
