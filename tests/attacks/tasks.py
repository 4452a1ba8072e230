"""Hidden tests for the collection of attacks and controls. A program names its task in its first line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.grading import GradeJob, Limits

LIMITS = Limits(wall_s=5.0, cpu_s=5.0, memory_bytes=256 << 20, file_bytes=16 << 20)

_ADD = """from solution import add
def test_a(): assert add(1, 2) == 3
def test_b(): assert add(0, 0) == 0
def test_c(): assert add(-1, 1) == 0
"""

_CALLBACK = """from solution import run
def test_a():
    def forty(): return 40
    assert run(forty) == 42
def test_b():
    def one(): return 1
    assert run(one) == 3
"""

TASKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "add": (_ADD, ("test_a", "test_b", "test_c")),
    "wrong_ok": (_ADD, ("test_a", "test_b", "test_c")),
    "add_pytest": ("import pytest\n" + _ADD, ("test_a", "test_b", "test_c")),
    "one": ("from solution import add\ndef test_a(): assert add(1, 2) == 3\n", ("test_a",)),
    "callback": (_CALLBACK, ("test_a", "test_b")),
    "callback_honest": (_CALLBACK, ("test_a", "test_b")),
    "async": ("from solution import add\nasync def test_a(): assert await add(1, 2) == 3\n", ("test_a",)),
    "box": ("from solution import Box\ndef test_a(): assert Box().get() == 5\n", ("test_a",)),
    "box_in": ("from solution import Box\ndef test_a(): assert Box().get() in [5, 6]\n", ("test_a",)),
    "box_close": ("from solution import Box\ndef test_a(): assert abs(Box().get() - 5) < 1e-9\n", ("test_a",)),
    "two_sides": ("from solution import first, second\ndef test_a(): assert first() == second()\n", ("test_a",)),
    "two_sides_many": (
        "from solution import first, second\ndef test_a():\n    for _ in range(200): assert first() == second()\n",
        ("test_a",),
    ),
    "checking_callback": (
        "from solution import run\ndef test_a():\n    def check(x):\n        assert x == 4711\n        return x\n"
        "    assert run(check) == 4711\n",
        ("test_a",),
    ),
    "sleeps": (
        "import time\nfrom solution import add\ndef test_a():\n    time.sleep(0.01)\n    assert add(1, 2) == 3\n",
        ("test_a",),
    ),
}


@dataclass(frozen=True)
class Program:
    """A program of the collection and the verdicts that are right for it."""

    name: str
    job: GradeJob
    outcomes: frozenset[str]
    """Outcomes that are right; `suspect` stands for a pass that is marked."""


def programs(folder: str) -> list[Program]:
    """All programs of a folder, by name."""
    out = []
    for path in sorted((Path(__file__).parent / folder).glob("*.py")):
        text = path.read_text("utf-8")
        head = dict(line[2:].split(": ", 1) for line in text.splitlines()[:2] if line.startswith("# "))
        hidden, expected = TASKS[head["task"]]
        out.append(
            Program(path.stem, GradeJob(text, hidden, expected, LIMITS), frozenset(head.get("want", "passed").split()))
        )
    return out
