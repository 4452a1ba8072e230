"""Every fault that can meet a run, on real processes: what it is called, what was lost, and that the run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import docker
import pytest
from container_helpers import docker_client, ours, stub_image

from bench.client.loops import END_CHARACTERS, WATCH_EVERY
from bench.engines.container import ContainerEngine
from bench.errors import BenchError
from bench.grading import GradeJob, Grader, Verdict, open_grader
from bench.runner import arm_run
from bench.runner.run import RunEnd
from bench.store.write import Store
from tests.stub_runs import RUN, StubRuns


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    one = open_grader("auto")
    yield one
    one.close()


@pytest.fixture
def stub(tmp_path: Path, grader: Grader, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubRuns]:
    monkeypatch.setattr(arm_run, "PAUSES_S", (0.0, 0.0))  # none that hides a death which is seen late
    monkeypatch.setattr(arm_run, "IDLE_S", 0.05)
    runs = StubRuns(tmp_path, grader)
    yield runs
    assert runs.servers() == []


# kind of fault, what the log of the run calls it, starts of the server
ONCE = [
    ("exit", ["stream_error", "server_died"], 2),
    ("kill", ["stream_error", "oom_killed"], 2),
    ("oom", ["stream_error", "cuda_oom"], 2),
    ("gpu_lost", ["stream_error", "gpu_unavailable"], 2),
    ("hang", ["idle_limit", "server_hung"], 2),
    ("silent", ["idle_limit", "server_hung"], 2),
    ("deaf", ["idle_limit", "server_hung"], 2),
    ("cut", ["stream_error"], 1),
    ("late_error", ["stream_error"], 1),
    ("status_500", ["server_error"], 1),
    ("no_done", ["stream_error"], 1),
]


@pytest.mark.parametrize(("kind", "faults", "starts"), ONCE, ids=[k for k, *_ in ONCE])
def test_a_fault_costs_the_answer_in_flight_and_nothing_else(
    stub: StubRuns, kind: str, faults: list[str], starts: int
) -> None:
    end = stub.go(stub.arm(answers=["ok", kind]))
    assert end.status == "finished", stub.said
    # A socket that dies with its process may end or be reset: which one is the kernel's affair.
    assert [f.replace("transport_error", "stream_error") for f in stub.faults()] == faults
    assert stub.starts() == starts
    assert stub.sql("select level_id, iteration, passed is not null from cells") and stub.sql("from missing") == []
    # The lost attempt is stored as what it is; the question was asked again with the same seed, and graded once.
    attempts = stub.sql(
        "select level_id, count(*), count(distinct request_seed) from generations group by 1 order by 2"
    )
    assert [n for _, n, _ in attempts] == [1, 1, 2]
    assert all(seeds == 1 for *_, seeds in attempts)
    assert stub.sql("select count(*), count(distinct generation_id) from grades where grade_kind = 'headline'") == [
        (3, 3)
    ]
    assert stub.sql("select count(*) from generations where outcome <> 'ok'") == [(1,)]


@pytest.mark.parametrize("kind", ["no_json", "page"])
def test_what_is_no_protocol_is_not_asked_again_and_not_the_models_fault(stub: StubRuns, kind: str) -> None:
    end = stub.go(stub.arm(answers=["ok", kind]))
    assert stub.faults() == ["protocol_error"]
    assert end.status == "failed"  # one question is still to be asked: the run is not finished
    assert "1 questions were not measured" in end.failed[0][1]
    assert stub.sql("select outcome, passed, points from grades where grade_kind = 'headline' and passed is null") == [
        ("not_measured", None, None)
    ]
    assert stub.sql("select kind from missing") == [("not measured",)]
    again = stub.go(stub.arm(), carried_on=True)
    assert again.status == "finished"
    assert stub.sql("from missing") == []
    assert stub.sql("select count(*) from generations") == [(4,)]


@pytest.mark.parametrize(
    ("kind", "reason"), [("exit", "server_died"), ("hang", "server_died"), ("no_json", "no_answers")]
)
def test_an_arm_that_only_fails_is_given_up_and_the_next_one_runs(stub: StubRuns, kind: str, reason: str) -> None:
    end = stub.go(stub.arm("a", always=kind), stub.arm("b"))
    assert end.status == "failed"
    assert [arm for arm, _ in end.failed] == ["a"]
    assert stub.sql("select arm_id, status, reason from arms_latest order by 1") == [
        ("a", "failed", reason),
        ("b", "finished", None),
    ]
    assert stub.starts() <= 2 + arm_run.MAX_RESTARTS
    assert stub.sql(
        "select count(*) from grades where grade_kind = 'headline' and arm_id = 'b' and passed is not null"
    ) == [(3,)]
    assert stub.sql(
        "select count(*) from grades where grade_kind = 'headline' and arm_id = 'a' and points is not null"
    ) == [(0,)]


def test_one_question_that_kills_the_server_each_time_leaves_the_others_measured(stub: StubRuns) -> None:
    end = stub.go(stub.arm(answers=["ok", "kill", "kill", "kill", "ok"]))
    assert end.status == "failed"
    assert stub.sql("select count(*) from grades where grade_kind = 'headline' and passed is not null") == [(2,)]
    assert stub.sql("select count(*) from missing") == [(1,)]
    assert stub.starts() == 4


def test_a_server_that_does_not_come_up_is_a_row_and_the_next_arm_runs(stub: StubRuns) -> None:
    dies = {"0": {"health": 503}, "0.2": {"log": "cudaMalloc failed: out of memory", "exit": 1}}
    end = stub.go(stub.arm("a", steps=dies), stub.arm("b"))
    assert [arm for arm, _ in end.failed] == ["a"]
    assert stub.sql("select status, reason from arms_latest where arm_id = 'a'") == [("failed", "cuda_oom")]
    assert stub.sql("select count(*) from grades where grade_kind = 'headline' and arm_id = 'b'") == [(3,)]
    assert stub.sql("select count(*) from generations where arm_id = 'a'") == [(0,)]


def test_a_finished_arm_is_not_even_started_again(stub: StubRuns) -> None:
    stub.go(stub.arm("a"), stub.arm("b", answers=["ok", "no_json"]))
    assert stub.starts() == 2
    end = stub.go(stub.arm("a"), stub.arm("b"), carried_on=True)
    assert end.status == "finished"
    assert [e["arm"] for e in stub.events("loading")] == ["a", "b", "b"]
    assert stub.sql("select arm_id, status, build from arms_latest order by 1") == [
        ("a", "finished", 9784),
        ("b", "finished", 9784),
    ]


def test_another_build_is_asked_again_and_never_mixed_in(stub: StubRuns) -> None:
    stub.go(stub.arm("a"), stub.arm("b", answers=["ok", "no_json"]))
    path = stub.engine.server
    assert path is not None
    path.write_text(path.read_text() + "# another build\n")
    end = stub.go(stub.arm("a"), stub.arm("b"), carried_on=True)
    assert end.status == "finished"
    assert stub.starts() == 4
    assert stub.sql(
        "select count(distinct identity), count(*) from generations_latest where arm_id = 'a' and complete"
    ) == [(2, 6)]
    assert stub.sql("select n_planned, count(*) from arm_summary where arm_id = 'a' group by 1") == [(1, 2)]


def test_a_kill_right_after_the_first_row_leaves_a_run_that_can_be_carried_on(stub: StubRuns) -> None:
    first = {"run_id": RUN, "event_at": datetime.now(UTC), "status": "running", "origin": "bench"}
    Store(stub.results).append("runs", [first])
    end = stub.go(stub.arm(), carried_on=True)
    assert end.status == "finished"
    assert stub.sql("select count(*) from plan") == [(3,)]
    assert stub.sql("from missing") == []


@pytest.mark.parametrize("beside", [True, False])
def test_an_error_of_the_store_while_grading_ends_the_run_with_one_line_and_no_server(
    stub: StubRuns, beside: bool
) -> None:
    """A folder where the grades should go is a file: the disk refuses, from whichever thread it comes."""
    stub.results.mkdir()
    (stub.results / "grades").write_text("not a folder")
    with pytest.raises(Exception, match=r"cannot write to .*grades") as caught:
        stub.go(stub.arm(), iterations=4, grade_beside=beside)
    assert type(caught.value).__name__ == "BenchError"
    assert stub.servers() == []
    (stub.results / "grades").unlink()
    # What was answered is graded now and not asked again.
    asked = stub.sql("select count(*) from generations")[0][0]
    assert asked >= 1
    assert stub.sql("select status from runs_latest") == [("failed",)]
    assert stub.go(stub.arm(), iterations=4, carried_on=True).status == "finished"
    assert stub.sql("select count(*), count(distinct generation_id) from grades where grade_kind = 'headline'") == [
        (12, 12)
    ]
    assert stub.sql("select count(*) from generations") == [(12,)]


@pytest.mark.parametrize(("signals", "lost"), [([signal.SIGINT], 0), ([signal.SIGINT] * 2, 1), ([signal.SIGTERM], 1)])
def test_signals_stop_it_cleanly_and_it_carries_on(stub: StubRuns, signals: list[signal.Signals], lost: int) -> None:
    """First Ctrl-C: the answer in flight is kept. Second, or SIGTERM: it is dropped, and nothing else is."""

    def send() -> None:
        deadline = time.monotonic() + 30
        while len(stub.events("question")) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.3)
        for number in signals:
            os.kill(os.getpid(), number)
            time.sleep(0.2)

    words = " ".join(f"w{n}" for n in range(25))
    thread = threading.Thread(target=send)
    thread.start()
    end: RunEnd = stub.go(stub.arm(content=words, answers=["ok", "slow"]))
    thread.join()
    assert end.status == "interrupted"
    assert stub.servers() == []
    assert stub.sql("select count(*) from generations") == [(2 - lost,)]
    assert stub.sql("select status from arms_latest") == [("interrupted",)]
    assert stub.go(stub.arm(content=words), carried_on=True).status == "finished"
    assert stub.sql("select count(*), count(distinct generation_id) from grades where grade_kind = 'headline'") == [
        (3, 3)
    ]
    assert stub.sql("select count(*) from generations") == [(3,)]


def test_ctrl_c_while_a_model_loads_ends_it_at_once(stub: StubRuns) -> None:
    def send() -> None:
        deadline = time.monotonic() + 30
        while not stub.events("loading") and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    started = time.monotonic()
    end = stub.go(stub.arm(steps={"0": {"health": 503}}))
    thread.join()
    assert end.status == "interrupted"
    assert time.monotonic() - started < 25  # the load may take 30 s
    assert stub.go(stub.arm(), carried_on=True).status == "finished"


def test_slots_that_fail_do_not_go_on_without_each_other(stub: StubRuns) -> None:
    arm = stub.arm(always="no_json")
    arm = replace(arm, parallel=2, context=arm.context * 2)
    end = stub.go(arm, iterations=4, slots=2)
    assert end.status == "failed"
    assert stub.sql("select reason from arms_latest") == [("no_answers",)]
    assert stub.sql("select count(*) from generations")[0][0] <= 4


def test_a_clock_that_was_set_back_does_not_turn_a_finished_run_into_a_running_one(stub: StubRuns) -> None:
    """The newest state counts: an earlier session stored its states when the clock was an hour ahead."""
    ahead = datetime.now(UTC) + timedelta(hours=1)
    first = {"run_id": RUN, "event_at": ahead, "status": "running", "origin": "bench"}
    Store(stub.results).append("runs", [first])
    Store(stub.results).append("arms", [{"run_id": RUN, "arm_id": "a", "event_at": ahead, "status": "running"}])
    assert stub.go(stub.arm(), carried_on=True).status == "finished"
    assert stub.sql("select status from runs_latest") == [("finished",)]
    assert stub.sql("select status from arms_latest") == [("finished",)]


def test_a_loop_runs_to_its_end_and_is_marked(stub: StubRuns) -> None:
    assert stub.go(stub.arm(answers=["ok", "loop"])).status == "finished"
    found = stub.sql("select outcome, finish_reason, length(content) from generations where loop is not null")
    assert found == [("ok", "length", 26 * stub.suite.max_tokens)]
    assert (
        stub.sql("select distinct outcome from grades where grade_kind = 'headline' and outcome = 'loop_ended'") == []
    )


def test_a_preset_may_have_a_loop_ended_which_is_not_passed_and_never_asked_again(stub: StubRuns) -> None:
    arm = replace(stub.arm(answers=["ok", "loop"], token_s=0.0005), end_loops=True)
    assert arm.preset_hash != stub.arm().preset_hash
    end = stub.go(arm)
    assert end.status == "finished", stub.said
    assert (stub.starts(), stub.faults()) == (1, ["loop_ended"])
    ((outcome, reason, length, loop),) = stub.sql(
        "select outcome, finish_reason, length(content), loop from generations where outcome <> 'ok'"
    )
    assert (outcome, reason) == ("loop_ended", None)
    assert END_CHARACTERS <= length <= END_CHARACTERS + 2 * WATCH_EVERY + 100 < 26 * stub.suite.max_tokens
    assert loop is not None
    assert stub.sql(
        "select passed, points, tests_passed from grades where grade_kind = 'headline' and outcome = 'loop_ended'"
    ) == [(False, 0.0, 0)]
    assert stub.sql("from missing") == []
    assert stub.sql("select n_measured, n_not_measured from arm_summary") == [(3, 0)]
    assert "ended early" in stub.sql("select text from caveats where rule = 'repetition_loops'")[0][0]
    assert stub.go(arm, carried_on=True).status == "finished"
    assert stub.sql("select count(*) from generations") == [(3,)]


# --- counterfactual grades --------------------------------------------------------------------------------------------
RENAMED = "```python\ndef add_two(a, b):\n    return a + b\n```\n"


def test_a_run_ends_with_the_counterfactuals_of_its_interface_failures(stub: StubRuns) -> None:
    assert stub.go(stub.arm(content=RENAMED)).status == "finished"
    assert stub.sql("select outcome, count(*) from grades where grade_kind = 'headline' group by 1") == [
        ("interface", 3)
    ]
    found = stub.sql("select level_id, passed from grades where grade_kind = 'counterfactual' order by 1")
    assert found == [("add", True), ("is_even", False), ("maximum", False)]
    assert stub.sql("select n_passed, mean_score from arm_summary") == [(0, 0.0)]


class BreaksAfter:
    """The real grader, until its sandbox is gone."""

    def __init__(self, grader: Grader, good: int) -> None:
        self._grader, self._left = grader, good
        self.provider, self.version = grader.provider, grader.version

    def grade(self, job: GradeJob) -> Verdict:
        if "add_two" in job.code:
            self._left -= 1
            if self._left < 0:
                raise BenchError("the sandbox is gone")
        return self._grader.grade(job)

    def grade_many(self, jobs: Sequence[GradeJob]) -> list[Verdict]:
        return [self.grade(job) for job in jobs]

    def close(self) -> None:
        self._grader.close()


def test_a_counterfactual_that_cannot_be_graded_does_not_fail_the_run(stub: StubRuns) -> None:
    stub.grader = BreaksAfter(stub.grader, 3)
    assert stub.go(stub.arm(content=RENAMED)).status == "finished"
    assert "counterfactual grades are missing: the sandbox is gone" in stub.said
    assert stub.sql("select grade_kind, count(*) from grades group by 1") == [("headline", 3)]
    assert stub.sql("select status from runs_latest") == [("finished",)]


# --- containers -------------------------------------------------------------------------------------------------------
@pytest.fixture
def containers() -> Iterator[tuple[docker.DockerClient, ContainerEngine]]:
    client = docker_client()
    before = ours(client)
    yield client, ContainerEngine(stub_image(client), run_id="faults", memory_bytes=1 << 30)
    assert ours(client) - before == set(), "a container outlived its test"


@pytest.mark.docker
def test_a_container_removed_by_hand_costs_the_answer_in_flight(
    stub: StubRuns, containers: tuple[docker.DockerClient, ContainerEngine]
) -> None:
    client, engine = containers
    before = ours(client)
    removed: list[str] = []

    def remove() -> None:
        deadline = time.monotonic() + 60
        while len(stub.events("question")) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)  # in the middle of the second answer
        for name in ours(client) - before:
            client.containers.get(name).remove(force=True)
            removed.append(name)

    thread = threading.Thread(target=remove)
    thread.start()
    words = " ".join(f"w{n}" for n in range(30))
    end = stub.go(stub.arm(content=words, always="slow", counter=None), engine=engine, idle_limit_s=20.0)
    thread.join()
    assert len(removed) == 1
    assert end.status == "finished", stub.said
    lost, why = stub.faults()
    assert (lost in ("stream_error", "transport_error"), why, stub.starts()) == (True, "server_died", 2)
    assert stub.sql("select count(*) filter (where outcome = 'ok'), count(*) from generations") == [(3, 4)]
    assert stub.sql("select count(*), count(distinct level_id) from grades where grade_kind = 'headline'") == [(3, 3)]
    assert stub.sql("from missing") == []


def test_a_docker_engine_that_is_not_there_is_a_reason_and_nothing_is_asked(
    stub: StubRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{stub.folder}/none.sock")
    end = stub.go(stub.arm(), engine=ContainerEngine("any"))
    assert end.status == "failed"
    ((reason, detail, advice),) = stub.sql("select reason, detail, advice from arms_latest")
    assert reason == "engine_unavailable"
    assert "none.sock" in detail and "DOCKER_HOST" in advice
    assert "Traceback" not in stub.said
    assert stub.sql("select count(*) from generations") == [(0,)]
    monkeypatch.delenv("DOCKER_HOST")
    assert stub.go(stub.arm(), carried_on=True).status == "finished"


# --- two benches on one results folder --------------------------------------------------------------------------------
OTHER = """
import sys
from dataclasses import replace
from pathlib import Path
from bench.grading import open_grader
from tests import stub_runs
stub_runs.RUN = sys.argv[3]
grader = open_grader("auto")
runs = stub_runs.StubRuns(Path(sys.argv[2]), grader)
runs.results = Path(sys.argv[1])
words = " ".join(f"w{n}" for n in range(20))
print(runs.go(runs.arm(content=words, always="slow")).status)
grader.close()
"""


def other_bench(stub: StubRuns, run_id: str) -> subprocess.Popen[str]:
    """A second bench, with locks of its own, on this test's results folder."""
    folder = stub.folder / run_id
    folder.mkdir()
    arguments = [sys.executable, "-c", OTHER, str(stub.results), str(folder), run_id]
    root = Path(__file__).resolve().parents[1]
    paths = os.pathsep.join([str(root), str(root / "tests")])
    return subprocess.Popen(
        arguments,
        cwd=root, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_second_bench_on_the_same_device_is_refused_and_one_elsewhere_harms_nothing(
    stub: StubRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = other_bench(stub, "20261130-120001-other")
    lock = stub.folder / "20261130-120001-other" / "gguf-bench-cpu.lock"
    deadline = time.monotonic() + 60
    while not (lock.exists() and lock.read_text()) and time.monotonic() < deadline and other.poll() is None:
        time.sleep(0.05)
    monkeypatch.setenv("GGUF_BENCH_LOCKS", str(lock.parent))
    with pytest.raises(BenchError) as refused:
        stub.go(stub.arm())
    assert f"another bench runs on cpu: pid {other.pid}," in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    monkeypatch.setenv("GGUF_BENCH_LOCKS", str(stub.folder))
    words = " ".join(f"w{n}" for n in range(20))
    assert stub.go(stub.arm(content=words, always="slow")).status == "finished"
    out, err = other.communicate(timeout=120)
    assert (other.returncode, out.split()) == (0, ["finished"]), err
    assert stub.sql("select run_id, status from runs_latest order by 1") == [
        (RUN, "finished"),
        ("20261130-120001-other", "finished"),
    ]
    assert stub.sql(
        "select run_id, count(*), count(distinct generation_id) from grades where grade_kind = 'headline' "
        "group by 1 order by 1"
    ) == [
        (RUN, 3, 3),
        ("20261130-120001-other", 3, 3),
    ]
    assert stub.sql("from missing") == []
