"""A results folder that is full or cannot be written: one line that names the path, nothing torn, and it carries on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.grading import Grader, open_grader
from bench.runner import arm_run
from bench.runner.events import EventLog, read
from tests.stub_runs import StubRuns

KIB = 1024


def as_root(*command: str) -> None:
    subprocess.run([*([] if os.geteuid() == 0 else ["sudo", "-n"]), *command], check=True, capture_output=True)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    one = open_grader("auto")
    yield one
    one.close()


@pytest.fixture
def stub(tmp_path: Path, grader: Grader, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubRuns]:
    """A run whose results lie on a small disk of their own."""
    monkeypatch.setattr(arm_run, "IDLE_S", 0.02)
    runs = StubRuns(tmp_path, grader)
    runs.results.mkdir()
    as_root("mount", "-t", "tmpfs", "-o", f"size=4M,uid={os.getuid()},mode=755", "tmpfs", str(runs.results))
    try:
        yield runs
        assert runs.servers() == []
    finally:
        as_root("umount", "-l", str(runs.results))


def fill(folder: Path, left: int) -> Path:
    """Use up a disk but for so many bytes."""
    ballast = folder / "ballast"
    free = shutil.disk_usage(folder).free
    ballast.write_bytes(b"\1" * max(0, free - left))
    return ballast


@pytest.mark.parametrize("left_kib", [0, 40, 100])
def test_a_disk_that_fills_in_the_middle_costs_no_stored_row(stub: StubRuns, left_kib: int) -> None:
    ballast = fill(stub.results, left_kib * KIB)
    with pytest.raises(BenchError, match=f"{stub.results}.*(full|space)"):
        stub.go(stub.arm(), iterations=4)
    ballast.unlink()
    before = stub.sql("select generation_id from generations")  # fails for a torn file
    end = stub.go(stub.arm(), iterations=4, carried_on=True)
    assert end.status == "finished", stub.said
    assert {g for (g,) in before} <= {g for (g,) in stub.sql("select generation_id from generations")}
    assert stub.sql("select count(*), count(distinct generation_id) from grades where grade_kind = 'headline'") == [
        (12, 12)
    ]
    assert stub.sql("select count(*) from generations where outcome = 'ok'") == [(12,)]
    assert stub.sql("from missing") == []


def test_a_folder_that_becomes_read_only_ends_the_run_with_one_line(stub: StubRuns) -> None:
    stub.go(stub.arm(answers=["no_json"]))
    as_root("mount", "-o", "remount,ro", str(stub.results))
    with pytest.raises(BenchError, match=f"{stub.results}.*[Rr]ead-only"):
        stub.go(stub.arm(), carried_on=True)
    as_root("mount", "-o", "remount,rw", str(stub.results))
    assert stub.go(stub.arm(), carried_on=True).status == "finished"


def test_the_event_log_takes_an_event_whole_or_not_at_all(stub: StubRuns) -> None:
    log = EventLog(stub.results)
    log.add("one", text="x")
    ballast = fill(stub.results, 0)
    with pytest.raises(BenchError, match=r"events\.jsonl"):
        for _ in range(100):
            log.add("two", text="y" * 3000)
    whole = read(stub.results)
    ballast.unlink()
    log.add("three")
    assert read(stub.results) == [*whole, read(stub.results)[-1]]
    assert read(stub.results)[-1]["event"] == "three"


def test_a_line_that_a_kill_tore_spoils_no_second_one(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.add("one")
    with log.path.open("a") as file:
        file.write('{"event": "tor')
    log.add("two")
    assert [e["event"] for e in read(tmp_path)] == ["one", "two"]
