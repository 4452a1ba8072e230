"""Suspect verdicts: listed with what is suspect, and decided by a person, for good and in the open."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from graders import opened
from store_rows import NOON, RUN, fill, generation, grade, plan_row, run_row

from bench.commands.review import review as command
from bench.errors import UsageError
from bench.grading.pool import SandboxGrader
from bench.paths import ROOT
from bench.regrade.judge import judge
from bench.regrade.review import decide, decisive_lines, printable, suspects
from bench.reporter import PlainReporter
from bench.store.write import Store
from bench.suites.load import load_suite

CODE = "import sys\n\n\ndef f():\n    return sys._getframe(1).f_back\n"


def marked(results: Path, **more: Any) -> tuple[Store, str]:
    """A run of one arm and level whose verdict passed and is suspect. Returns the grade's id."""
    store = Store(results)
    store.append("runs", [run_row(iterations=1)])
    store.append("plan", [plan_row("L1", 1)])
    row = generation("L1", 1)
    store.append("generations", [row])
    marks = {"suspect": True, "suspect_reasons": ["frame_walking", "looks_into:f_back"], "code": CODE}
    one = grade(row, **{**marks, **more})
    store.append("grades", [one])
    return store, str(one["grade_id"])


def headline(results: Path) -> dict[str, Any]:
    (row,) = ask(
        results, "select suspect, passed, points, verdict_points, outcome, decision, reviewer from grades_latest"
    )
    return row


def test_a_suspect_is_failed_until_a_person_accepts_it(tmp_path: Path) -> None:
    store, grade_id = marked(tmp_path)
    assert headline(tmp_path)["passed"] is False
    (found,) = suspects(store)
    assert (found.points, found.decision, found.verdict) == (50.0, None, "passed")
    assert found.reasons == ("frame_walking", "looks_into:f_back")
    assert found.lines == ((5, "    return sys._getframe(1).f_back"),)
    before = ask(tmp_path, "select * from grades")

    decide(store, grade_id[:20], "accepted", " Ada ", "names the test in a log line")
    row = headline(tmp_path)
    assert (row["suspect"], row["passed"], row["points"], row["outcome"]) == (False, True, 50.0, "passed")
    assert (row["decision"], row["reviewer"]) == ("accepted", "Ada")
    assert ask(tmp_path, "select * from grades") == before
    (kept,) = ask(tmp_path, "select * from reviews")
    assert (kept["grade_id"], kept["note"], kept["outcome"]) == (grade_id, "names the test in a log line", "passed")
    scores = "select score, score_with_suspects from iteration_scores"
    assert ask(tmp_path, scores) == [{"score": 100.0, "score_with_suspects": 100.0}]
    assert "suspects" not in {r["rule"] for r in ask(tmp_path, "select rule from caveats")}


def test_a_rejected_suspect_is_a_failure_with_a_name(tmp_path: Path) -> None:
    store, grade_id = marked(tmp_path)
    scores = "select score, score_with_suspects from iteration_scores"
    assert ask(tmp_path, scores) == [{"score": 0.0, "score_with_suspects": 100.0}]
    decide(store, grade_id, "rejected", "Ada", "reads the expected value from the test's frame")
    row = headline(tmp_path)
    assert (row["suspect"], row["passed"], row["points"], row["verdict_points"]) == (False, False, 0.0, 0.0)
    assert ask(tmp_path, scores) == [{"score": 0.0, "score_with_suspects": 0.0}]
    assert [r["kind"] for r in ask(tmp_path, "select kind from failures")] == ["tampering"]


def test_the_newest_decision_counts_and_both_are_kept(tmp_path: Path) -> None:
    store, grade_id = marked(tmp_path)
    decide(store, grade_id, "rejected", "Ada", "looked wrong")
    before = decide(store, grade_id, "accepted", "Bo", "looked again: it logs")
    assert (before.decision, before.reviewer) == ("rejected", "Ada")
    assert headline(tmp_path)["passed"] is True
    assert ask(tmp_path, "select count(*) as n from reviews") == [{"n": 2}]


def test_accepting_a_failed_verdict_does_not_make_it_pass(tmp_path: Path) -> None:
    store, grade_id = marked(tmp_path, passed=False, outcome="assertion", points=0.0)
    assert suspects(store)[0].points == 0.0
    decide(store, grade_id, "accepted", "Ada", "harmless")
    row = headline(tmp_path)
    assert (row["passed"], row["outcome"], row["suspect"]) == (False, "assertion", False)


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"suspect_reasons": ["looks_into:f_back", "frame_walking"]}, True),
        ({"code": CODE + "x = 1\n"}, False),
        ({"grading_hash": "others"}, False),
        ({"suspect_reasons": ["frame_walking", "network"]}, False),
        ({"passed": False, "outcome": "assertion"}, False),
    ],
)
def test_a_decision_holds_for_the_same_code_tests_and_marks_only(
    tmp_path: Path, change: dict[str, Any], holds: bool
) -> None:
    store, grade_id = marked(tmp_path)
    decide(store, grade_id, "accepted", "Ada", "fine")
    (row,) = ask(tmp_path, "select * from generations")
    marks = {"suspect": True, "suspect_reasons": ["frame_walking", "looks_into:f_back"], "code": CODE}
    again = grade(row, graded_at=NOON + timedelta(hours=1), adopted_from="r1", **{**marks, **change})
    store.append("grades", [again])
    found = headline(tmp_path)
    assert found["suspect"] is (not holds)
    assert (found["decision"] == "accepted") is holds


def test_a_grade_of_another_answer_is_not_decided_with_it(tmp_path: Path) -> None:
    store, grade_id = marked(tmp_path)
    store.append("plan", [plan_row("L1", 2)])
    row = generation("L1", 2)
    store.append("generations", [row])
    store.append(
        "grades", [grade(row, suspect=True, suspect_reasons=["frame_walking", "looks_into:f_back"], code=CODE)]
    )
    decide(store, grade_id, "accepted", "Ada", "fine")
    waiting = [s.iteration for s in suspects(store) if s.decision is None]
    assert waiting == [2]


def test_what_cannot_be_decided_is_refused(tmp_path: Path) -> None:
    store = fill(tmp_path, {"a": [[True, True]]})
    honest = ask(tmp_path, "select grade_id from grades limit 1")[0]["grade_id"]
    with pytest.raises(UsageError, match="no suspect headline verdict"):
        decide(store, honest, "accepted", "Ada", "fine")
    with pytest.raises(UsageError, match="no suspect headline verdict"):
        decide(store, "", "accepted", "Ada", "fine")
    with pytest.raises(UsageError, match="--by NAME"):
        decide(store, honest, "accepted", " ", "fine")
    with pytest.raises(UsageError, match="--note TEXT"):
        decide(store, honest, "accepted", "Ada", "")


def test_a_beginning_that_fits_several_grades_is_refused(tmp_path: Path) -> None:
    store, grade_id = marked(tmp_path, grade_id="0198aa01")
    row = generation("L1", 2)
    store.append("plan", [plan_row("L1", 2)])
    store.append("generations", [row])
    store.append("grades", [grade(row, grade_id="0198aa02", suspect=True, suspect_reasons=["network"])])
    with pytest.raises(UsageError, match="could be 0198aa01, 0198aa02"):
        decide(store, "0198", "accepted", "Ada", "fine")
    assert decide(store, "0198aa02", "accepted", "Ada", "fine").iteration == 2
    assert grade_id == "0198aa01"


@pytest.fixture(scope="module")
def grader() -> Iterator[SandboxGrader]:
    yield from opened("bubblewrap")


HONEST = "def add(a, b):\n    return a + b\n"
LOOKERS = {
    "frame": "import sys\n\n\ndef add(a, b):\n    sys._getframe(1)\n    return a + b\n",
    "import": "import ctypes\n\n\ndef add(a, b):\n    return a + b\n",
    "mention": "def add(a, b):\n    name = 'f_locals'\n    return a + b\n",
    "network": "import socket\n\n\ndef add(a, b):\n    socket.socket(socket.AF_INET).close()\n    return a + b\n",
}


@pytest.mark.parametrize("name", LOOKERS)
def test_marks_of_real_code_lead_to_its_lines(grader: SandboxGrader, name: str) -> None:
    level = load_suite("smoke", ROOT / "suites").levels[0]
    row, _ = judge(generation("add", 1, content=LOOKERS[name]), level, grader)
    assert row["suspect"], row
    assert decisive_lines(row["code"], row["suspect_reasons"]), row["suspect_reasons"]
    assert not judge(generation("add", 1, content=HONEST), level, grader)[0]["suspect"]


def test_a_line_of_a_model_cannot_move_the_cursor() -> None:
    assert printable("x = 1\x1b[2J\r\a" + "y" * 300).startswith("x = 1\\u001b[2J\\r\\u0007yyy")
    assert len(printable("y" * 300)) == 160


def run_command(results: Path, **more: Any) -> tuple[int, str]:
    out = io.StringIO()
    given = {"grade": None, "accept": False, "reject": False, "by": None, "note": None, "run": None, **more}
    code = command(results=str(results), out=PlainReporter(out), **given)
    return code, out.getvalue()


def test_the_command_lists_and_decides(tmp_path: Path) -> None:
    _, grade_id = marked(tmp_path)
    code, text = run_command(tmp_path, run="latest")
    assert code == 0
    assert grade_id in text
    assert "    5 |     return sys._getframe(1).f_back" in text
    assert "50 points hang on it" in text
    assert "1 of 1 wait for a decision" in text
    code, text = run_command(tmp_path, grade=grade_id, accept=True, by="Ada", note="logs only")
    assert "accepted" in text
    assert f"./invoke report --run {RUN}" in text
    _, text = run_command(tmp_path)
    assert "accepted by Ada: logs only" in text
    assert "0 of 1 wait" in text


def test_the_command_wants_one_decision_on_one_grade(tmp_path: Path) -> None:
    _, grade_id = marked(tmp_path)
    with pytest.raises(UsageError, match="found both"):
        run_command(tmp_path, grade=grade_id, accept=True, reject=True)
    with pytest.raises(UsageError, match="on one grade"):
        run_command(tmp_path, accept=True, by="Ada", note="x")
    with pytest.raises(UsageError, match="found neither"):
        run_command(tmp_path, grade=grade_id, by="Ada", note="x")
    with pytest.raises(UsageError, match="no suspect headline verdict"):
        run_command(tmp_path, grade="zzz")
    assert "no suspect verdicts" in run_command(tmp_path / "empty")[1]
