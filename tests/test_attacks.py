"""Attacks and controls: no forged pass, each within its limit, nothing left behind, and honest code passes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from attacks.tasks import LIMITS, Program, programs
from graders import PROVIDERS, opened

from bench.grading.pool import SandboxGrader

ATTACKS, CONTROLS = programs("programs"), programs("controls")


@pytest.fixture(scope="module", params=PROVIDERS)
def grader(request: pytest.FixtureRequest) -> Iterator[SandboxGrader]:
    yield from opened(request.param)


def right(program: Program, outcome: str, suspect: tuple[str, ...]) -> bool:
    """Whether the program's head names this verdict: `kind`, `kind+suspect`, or `suspect` for a marked pass."""
    if outcome == "passed":
        return ("suspect" in program.outcomes and bool(suspect)) or "passed" in program.outcomes
    return outcome in program.outcomes or (f"{outcome}+suspect" in program.outcomes and bool(suspect))


def test_the_collection_is_large() -> None:
    assert len(ATTACKS) >= 40 and len(CONTROLS) >= 20


@pytest.mark.parametrize("program", ATTACKS, ids=lambda p: p.name)
def test_attack(grader: SandboxGrader, program: Program) -> None:
    free = psutil.virtual_memory().available
    before = processes()
    began = time.monotonic()
    verdict = grader.grade(program.job)
    took = time.monotonic() - began
    assert right(program, verdict.outcome, verdict.suspect), verdict
    assert took < LIMITS.wall_s + 2, verdict
    assert psutil.virtual_memory().available > free - (1 << 30)
    honest = grader.grade(CONTROLS[[c.name for c in CONTROLS].index("plain")].job)
    assert honest.passed and not honest.suspect, honest
    assert processes() <= before
    assert not list(Path("/tmp").glob("left_by_attack*"))
    assert not Path("left_by_attack").exists()


def processes() -> int:
    """Processes of sandboxes: below our own process, or in a container of ours."""
    return len(psutil.Process().children(recursive=True)) + len(in_containers())


def in_containers() -> list[str]:
    listed = subprocess.run(
        ["docker", "ps", "-q", "--filter", "label=gguf-bench=grading"], capture_output=True, text=True, check=False
    )
    out: list[str] = []
    for container in listed.stdout.split():
        top = subprocess.run(["docker", "top", container, "-eo", "pid"], capture_output=True, text=True, check=False)
        out += top.stdout.split()[1:]
    return out


@pytest.mark.parametrize("program", CONTROLS, ids=lambda p: p.name)
def test_control(grader: SandboxGrader, program: Program) -> None:
    verdict = grader.grade(program.job)
    assert verdict.passed, verdict
    assert not verdict.suspect, verdict


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_the_solution_is_nobody_even_when_the_bench_is_root(grader: SandboxGrader) -> None:
    hidden = "from solution import who\ndef test_a(): assert who() != 0\n"
    from bench.grading import GradeJob

    code = "import os\ndef who():\n    try: os.setuid(0)\n    except OSError: pass\n    return os.getuid()\n"
    assert grader.grade(GradeJob(code, hidden, ("test_a",))).passed
