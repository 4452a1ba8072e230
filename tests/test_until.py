"""`--until decided` through the real runner: arms stop when the answer is known, and an interrupted run carries on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.grading import Grader, open_grader
from bench.runner import arm_run
from bench.runner.rounds import Rounds
from tests.stub_runs import StubRuns

GOOD = (
    "```python\ndef add(a, b):\n    return a + b\n\n\ndef is_even(n):\n    return n % 2 == 0\n\n\n"
    "def maximum(values):\n    return max(values)\n```\n"
)
BAD = "```python\ndef add(a, b):\n    return 0\n```\n"


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    one = open_grader("auto")
    yield one
    one.close()


@pytest.fixture
def stub(tmp_path: Path, grader: Grader, monkeypatch: pytest.MonkeyPatch) -> StubRuns:
    monkeypatch.setattr(arm_run, "IDLE_S", 0.02)
    return StubRuns(tmp_path, grader)


def until(stub: StubRuns, *arms: Any, **more: Any) -> Any:
    return stub.go(*arms, iterations=15, rounds=Rounds(step=3, margin=5), **more)


def test_a_worse_arm_stops_early_and_the_best_one_is_named(stub: StubRuns) -> None:
    end = until(stub, stub.arm("good", content=GOOD), stub.arm("bad", content=BAD))
    assert end.status == "finished", stub.said
    rows = stub.sql('select arm_id, "exit", against, iterations, alpha, margin from decisions_latest order by 1')
    assert [r[:3] for r in rows] == [("bad", "out", "good"), ("good", "best", None)]
    assert all(r[3] < 15 and r[4] == 0.05 and r[5] == 5 for r in rows)
    assert "null hypothesis" in stub.sql("select any_value(rule) from decisions_latest")[0][0]
    stopped = rows[0][3]
    assert stub.sql("select max(iteration) from generations") == [(stopped,)]
    assert stub.sql("select arm_id, status from arms_latest order by 1") == [("bad", "finished"), ("good", "finished")]
    # What the rule made unnecessary is neither missing nor a hole in the score.
    assert stub.sql("from missing") == []
    assert stub.sql("select arm_id, n, n_missing from arm_summary order by 1") == [
        ("bad", stopped, 0),
        ("good", stopped, 0),
    ]


def test_equal_arms_that_nothing_can_separate_stop_early(stub: StubRuns) -> None:
    """Within one point of thirty is more than 15 iterations can show, and there is no difference to be found."""
    end = stub.go(
        stub.arm("a", content=BAD), stub.arm("b", content=BAD), iterations=15, rounds=Rounds(step=3, margin=1)
    )
    assert end.status == "finished"
    exits = stub.sql('select arm_id, "exit", iterations from decisions_latest order by 1')
    assert [e for _, e, _ in exits] == ["futile"] * 2
    assert all(n < 15 for *_, n in exits), exits


def test_equal_arms_are_equivalent_within_a_margin_that_can_be_shown(stub: StubRuns) -> None:
    end = until(stub, stub.arm("a", content=BAD), stub.arm("b", content=BAD))
    assert end.status == "finished"
    exits = stub.sql('select "exit" from decisions_latest')
    assert exits == [("equivalent",)] * 2


def test_an_interrupted_run_stops_the_same_arms_when_it_is_carried_on(stub: StubRuns) -> None:
    def send() -> None:
        deadline = time.monotonic() + 60
        while len(stub.events("graded")) < 12 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    arms = [stub.arm("good", content=GOOD), stub.arm("bad", content=BAD)]
    assert until(stub, *arms).status == "interrupted"
    thread.join()
    before = stub.sql("select count(*) from generations")[0][0]
    assert until(stub, *arms, carried_on=True).status == "finished"
    assert stub.sql("select count(*) from generations")[0][0] > before
    assert stub.sql('select arm_id, "exit" from decisions_latest order by 1') == [("bad", "out"), ("good", "best")]
    twice = "select level_id, iteration, arm_id from generations group by all having count(*) > 1"
    assert stub.sql(twice) == []
    # Once more: every arm has ended, so nothing is asked and no server is started.
    starts = stub.starts()
    assert until(stub, *arms, carried_on=True).status == "finished"
    assert stub.starts() == starts
