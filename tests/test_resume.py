"""A run on the real embedded server, watched from outside, that loses its server in the middle of an answer."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from bench.runner.events import read
from bench.store.database import connect
from tests.cli import invoke, small_suite, sql, start, wait_for

ARM = "smollm2-135m-q4-kv-f16"


def events(results: Path, kind: str) -> list[dict[str, object]]:
    folders = list((results / "logs").iterdir()) if (results / "logs").is_dir() else []
    return [e for folder in folders for e in read(folder) if e["event"] == kind]


def server_below(process: subprocess.Popen[str]) -> int:
    below = psutil.Process(process.pid).children(recursive=True)
    found = [
        p.pid for p in below if "bench.engines.embedded" in p.cmdline() and "launch.py" not in " ".join(p.cmdline())
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.model
@pytest.mark.slow
def test_a_run_is_watched_loses_its_server_and_its_answers_can_be_replayed(tmp_path: Path) -> None:
    results = tmp_path / "results"
    log = tmp_path / "log"
    where = ("--results", str(results))
    suite = small_suite(tmp_path, 4)
    process = start("bench", "--arm", ARM, "--suite", suite, "--iterations", "1", "--seed", "7", *where, log=log)
    try:
        assert wait_for(lambda: len(events(results, "question")) >= 2, 200), log.read_text()
        os.kill(server_below(process), signal.SIGKILL)
        # Another terminal: it reads files only, while the run goes on.
        seen = invoke("status", *where)
        assert seen.returncode == 0, seen.stderr
        assert f"process   {process.pid}" in seen.stdout
        assert ": running" in seen.stdout
        assert " of 4 graded" in seen.stdout
        assert "GPU " in seen.stdout
        # A second process may not carry the same run on.
        second = invoke("bench", "--arm", ARM, "--suite", suite, "--iterations", "1", "--resume", "latest", *where)
        if process.poll() is None:
            assert second.returncode == 2
            assert f"process {process.pid}" in second.stderr
            assert "Traceback" not in second.stderr
        assert process.wait(300) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    faults = [str(e["fault"]) for e in events(results, "fault")]
    assert len(faults) == 2
    assert faults[0] in ("stream_error", "transport_error")
    assert faults[1] in ("oom_killed", "server_died")
    assert sql(results, "select * from missing") == []
    assert sql(
        results, "select count(*) n, count(distinct generation_id) m from grades where grade_kind = 'headline'"
    ) == [{"n": 4, "m": 4}]
    after = invoke("status", *where)
    assert ": finished" in after.stdout
    assert "4 of 4 graded" in after.stdout
    # Carried on, it has nothing to do; what befell it is not forgotten.
    again = invoke("bench", "--arm", ARM, "--suite", suite, "--iterations", "1", "--resume", "latest", *where)
    assert again.returncode == 0, again.stderr
    after = invoke("status", *where)
    assert f"{faults[0]} x 1" in after.stdout
    # The same question with the same seed, of the same identity: the same text.
    row = sql(results, "select generation_id from generations where outcome = 'ok' order by completion_tokens limit 1")
    again = invoke("replay", row[0]["generation_id"], "--suite", suite, *where)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "the same text" in again.stdout
    assert connect(results)[0].execute("select count(*) from generations").fetchone() == (5,)  # nothing was stored


def test_replay_says_what_it_cannot_find(tmp_path: Path) -> None:
    done = invoke("replay", "no-such-generation", "--results", str(tmp_path))
    assert done.returncode == 2
    assert "expected the id of one generation" in done.stderr
    assert "Traceback" not in done.stderr
