"""Grading again: the same verdict for the same thing, every change explained, nothing old touched."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from graders import opened
from reference_layout import SUITE, F
from store_rows import RUN, fill, generation, plan_row, run_row

from bench.commands.regrade import regrade as command
from bench.errors import UsageError
from bench.grading.pool import SandboxGrader
from bench.paths import ROOT
from bench.regrade.again import add_counterfactuals, regrade
from bench.regrade.change import change
from bench.regrade.judge import judge
from bench.reporter import PlainReporter
from bench.store.write import Store
from bench.suites.load import Suite, load_suite

SMOKE = load_suite("smoke", ROOT / "suites")
STRICT = load_suite("coding-v2-strict", ROOT / "suites")
L1 = SUITE.levels[0]


@pytest.fixture(scope="module")
def grader() -> Iterator[SandboxGrader]:
    yield from opened("bubblewrap", 2)


def smoke_answers(level: Any) -> list[dict[str, Any]]:
    """Answers of the kinds that a small model gives to a level of the smoke suite."""
    right, entry = level.reference, level.entry[0]
    return [
        {"content": f"Sure!\n\n{F}python\n{right}{F}\n\nThis works."},
        {"content": right},
        {"content": f"{F}python\ndef {entry}(*args):\n    return None\n{F}"},
        {"content": f"{F}python\ndef {entry}(x:\n    return x\n{F}"},
        {"content": "I cannot help with that."},
        {"content": "", "reasoning": f"{F}python\n{right}{F}\n" * 40, "finish_reason": "length"},
        {"content": f"{F}python\ndef {entry}(", "finish_reason": "length"},
        {"content": f"{F}python\ndef other(x):\n    return x\n{F}"},
        {"content": f"{F}python\nimport numpy as np\n\n{right}{F}"},
        {"content": f"{F}python\nimport sys\n\n{right}\nsys._getframe(0).f_back\n{F}"},
        {"content": "", "outcome": "time_limit", "detail": "900 s"},
        {"content": "", "outcome": "transport_error", "detail": "connection reset"},
    ]


def smoke_run(results: Path, grader: SandboxGrader | None) -> Store:
    """A run of three levels of the smoke suite, graded as a run grades, or not graded at all."""
    store = Store(results)
    store.append("runs", [run_row(suite_id="smoke")])
    for level in SMOKE.levels[:3]:
        for i, answer in enumerate(smoke_answers(level), 1):
            where = {"suite_id": "smoke", "prompt_hash": level.prompt_hash(SMOKE)}
            plan = {**where, "level_index": 1, "points": level.points, "grading_hash": level.grading_hash()}
            store.append("plan", [plan_row(level.level_id, i, **plan)])
            row = generation(level.level_id, i, **where, **answer)
            store.append("generations", [row])
            if grader is not None:
                grade, tests = judge(row, level, grader)
                if tests:
                    store.append("tests", tests)
                store.append("grades", [grade])
    return store


def test_grading_the_same_twice_gives_the_same_verdict(tmp_path: Path, grader: SandboxGrader) -> None:
    store = smoke_run(tmp_path, grader)
    before = ask(tmp_path, "select * from grades order by grade_id")
    tests = ask(tmp_path, "select * from tests order by grade_id, test_index")
    calls: list[tuple[int, int]] = []
    for _ in range(2):
        end = regrade(store, RUN, SMOKE, grader, workers=2, progress=lambda done, total: calls.append((done, total)))
        assert (end.n_graded, end.n_same, end.changes) == (33, 33, ())
        assert (end.n_first, end.n_adopted, end.n_not_measured) == (0, 0, 0)
    assert calls == [(n, 33) for n in range(1, 34)] * 2
    # Nothing that was there is touched, and every test has the outcome that it had.
    assert ask(tmp_path, "select * from grades where grade_kind = 'headline' order by grade_id") == before
    kept = {row["grade_id"] for row in tests}
    assert [
        r for r in ask(tmp_path, "select * from tests order by grade_id, test_index") if r["grade_id"] in kept
    ] == tests
    assert ask(
        tmp_path,
        """select g.generation_id, t.test_id, count(distinct t.outcome) as n from tests t join grades g using (grade_id)
        where g.grade_kind in ('headline', 'regrade') group by all having n > 1""",
    ) == []  # fmt: skip
    kinds = {r["outcome"] for r in before}
    assert kinds >= {"passed", "no_answer", "no_code", "syntax", "truncated", "assertion", "import", "time_limit"}
    assert "not_measured" in kinds
    assert any(r["suspect"] for r in before)


def test_an_answer_without_a_verdict_gets_its_first_one_as_the_headline(tmp_path: Path, grader: SandboxGrader) -> None:
    store = smoke_run(tmp_path, None)
    end = regrade(store, RUN, SMOKE, grader, workers=2)
    assert (end.n_graded, end.n_first, end.n_adopted, end.changes) == (33, 33, 0, ())
    rows = ask(tmp_path, "select distinct grade_kind, adopted_from from grades where grade_kind <> 'counterfactual'")
    assert rows == [{"grade_kind": "headline", "adopted_from": None}]
    assert ask(tmp_path, "select count(*) as n from cells where gap is null") == [{"n": 33}]


def test_a_first_verdict_by_other_tests_than_planned_is_no_headline(tmp_path: Path, grader: SandboxGrader) -> None:
    store = Store(tmp_path)
    store.append("runs", [run_row(suite_id="smoke")])
    level = SMOKE.levels[0]
    store.append("plan", [plan_row(level.level_id, 1, suite_id="smoke", prompt_hash=None, grading_hash="an older one")])
    store.append("generations", [generation(level.level_id, 1, suite_id="smoke", content=level.reference)])
    end = regrade(store, RUN, SMOKE, grader)
    assert (end.n_graded, end.n_first) == (1, 0)
    assert ask(tmp_path, "select grade_kind, passed from grades") == [{"grade_kind": "regrade", "passed": True}]
    regrade(store, RUN, SMOKE, grader, adopt=True)
    assert ask(tmp_path, "select passed, adopted_from is not null as adopted from grades_latest") == [
        {"passed": True, "adopted": True}
    ]


def coding_run(results: Path, codes: dict[int, str], grader: SandboxGrader, suite: Suite = SUITE) -> Store:
    """Answers to L1, graded under a suite."""
    store = Store(results)
    level = suite.levels[0]
    store.append("runs", [run_row(suite_id=suite.suite_id)])
    for i, code in codes.items():
        where = {"suite_id": suite.suite_id, "prompt_hash": level.prompt_hash(suite), "points": level.points}
        store.append("plan", [plan_row("L1", i, **where, grading_hash=level.grading_hash())])
        where.pop("points")
        row = generation("L1", i, **where, content=f"{F}python\n{code}{F}")
        store.append("generations", [row])
        grade, tests = judge(row, level, grader)
        store.append("tests", tests)
        store.append("grades", [grade])
    return store


RENAMED = L1.reference.replace("set_result", "complete_job")
NOTHING = "class JobQueue:\n    def __init__(self):\n        pass\n"


def test_counterfactuals_say_how_much_is_naming(tmp_path: Path, grader: SandboxGrader) -> None:
    codes = {1: L1.reference, 2: RENAMED, 3: NOTHING, 4: L1.reference.replace("return job_id", "return None")}
    store = coding_run(tmp_path, codes, grader)
    before = ask(tmp_path, "select * from arm_summary")
    (row,) = ask(tmp_path, "select n, n_failed, n_interface, n_naming, n_untried from naming_and_ability")
    assert row == {"n": 4, "n_failed": 3, "n_interface": 2, "n_naming": 0, "n_untried": 2}
    assert add_counterfactuals(store, RUN, SUITE, grader) == 2
    assert add_counterfactuals(store, RUN, SUITE, grader) == 0  # what was tried is not tried again
    (row,) = ask(tmp_path, "select * from naming_and_ability")
    assert (row["n_naming"], row["n_ability"], row["n_untried"]) == (1, 2, 0)
    assert (row["points_lost"], row["points_naming"], row["points_ability"]) == (18.75, 6.25, 12.5)
    found = {r["iteration"]: r for r in ask(tmp_path, "select * from grades where grade_kind = 'counterfactual'")}
    assert found[2]["passed"] is True
    assert "set_result = complete_job" in found[2]["detail"]
    assert found[3]["passed"] is False
    # It explains the headline, and never changes it.
    assert ask(tmp_path, "select * from arm_summary") == before
    assert ask(tmp_path, "select distinct grade_kind from grades_latest") == [{"grade_kind": "headline"}]


def test_a_regrade_under_other_tests_says_which_test_made_the_difference(tmp_path: Path, grader: SandboxGrader) -> None:
    other = tmp_path / "looser"
    (other / "L1").mkdir(parents=True)
    (other / "suite.toml").write_text(
        'title = "Looser"\nmax_tokens = 100\n\n[[level]]\nid = "L1"\ntitle = "Queue"\npoints = 25\n'
        'entry = ["JobQueue"]\n'
    )
    (other / "L1" / "prompt.md").write_text(L1.prompt)
    (other / "L1" / "reference.py").write_text(L1.reference)
    (other / "L1" / "hidden_test.py").write_text(
        "from solution import JobQueue\n\n\ndef test_add():\n    assert JobQueue().add_job('a', 1) == 'a'\n"
    )
    results = tmp_path / "results"
    store = coding_run(results, {1: L1.reference, 2: RENAMED}, grader)
    end = regrade(store, RUN, load_suite(str(other), ROOT / "suites"), grader, workers=2)
    (changed,) = end.changes
    assert (changed.iteration, changed.against, changed.before, changed.after) == (2, "headline", "interface", "passed")
    assert changed.cause == "tests"
    assert "before test_stored_result_comes_back" in changed.why
    assert "set_result" in changed.why
    # Not adopted: the headline is as it was.
    assert [r["passed"] for r in ask(results, "select passed from grades_latest order by iteration")] == [True, False]
    end = regrade(store, RUN, load_suite(str(other), ROOT / "suites"), grader, adopt=True)
    assert end.n_adopted == 2
    rows = ask(results, "select passed, adopted_from, grade_id from grades_latest order by iteration")
    assert [r["passed"] for r in rows] == [True, True]
    for row in rows:
        source = ask(results, f"select grade_kind from grades where grade_id = '{row['adopted_from']}'")
        assert source == [{"grade_kind": "regrade"}]
        assert ask(results, f"select count(*) as n from tests where grade_id = '{row['grade_id']}'") == [{"n": 1}]
    assert "regrade_adopted" in {r["rule"] for r in ask(results, "select rule from caveats")}


def test_levels_that_the_suite_lacks_are_named_and_others_can_be_chosen(tmp_path: Path, grader: SandboxGrader) -> None:
    store = coding_run(tmp_path, {1: L1.reference}, grader)
    store.append("plan", [plan_row("L9", 1, suite_id="coding-v2")])
    store.append("generations", [generation("L9", 1, suite_id="coding-v2")])
    end = regrade(store, RUN, SUITE, grader)
    assert (end.n_graded, dict(end.other_levels)) == (1, {"L9": 1})
    assert regrade(store, RUN, SUITE, grader, levels=["L2"]).n_graded == 0


BASE = {
    "arm_id": "a", "level_id": "L1", "iteration": 1, "outcome": "assertion", "passed": False, "suspect": False,
    "suspect_reasons": [], "code": "x = 1\n", "code_rule": "unfenced", "grading_hash": "g1", "provider": "bubblewrap",
    "grader_version": "1", "first_failed_test": "test_a", "detail": "1 != 2",
}  # fmt: skip
PASSED = {**BASE, "outcome": "passed", "passed": True, "first_failed_test": None, "detail": None}


@pytest.mark.parametrize(
    ("new", "cause", "word"),
    [
        (
            {**PASSED, "code": "x = 1\ny = 2\n", "code_rule": "last_block_defining_entry"},
            "extractor",
            "2 lines of code",
        ),
        ({**PASSED, "code": None, "code_rule": "no_code", "grading_hash": "g2"}, "extractor", "no code"),
        ({**PASSED, "grading_hash": "g2", "provider": "container"}, "tests", "before test_a; 1 != 2"),
        ({**PASSED, "provider": "container"}, "sandbox", "container instead of bubblewrap"),
        ({**PASSED, "grader_version": "2"}, "grader", "grader 2, before 1"),
        (PASSED, "not_repeatable", "same code"),
        ({**BASE, "outcome": "not_measured", "passed": None, "detail": "the sandbox failed"}, "not_measured", "now it"),
        ({**BASE, "suspect": True, "suspect_reasons": ["frame_walking"]}, "not_repeatable", "frame_walking"),
    ],
)
def test_the_first_thing_that_differs_is_the_cause(new: dict[str, Any], cause: str, word: str) -> None:
    found = change(BASE, new)
    assert found is not None
    assert found.cause == cause
    assert word in found.why


def test_no_change_is_none() -> None:
    assert change(BASE, {**BASE, "grading_hash": "g2", "detail": "another message"}) is None


def run_command(results: Path, **more: Any) -> tuple[int, str]:
    out = io.StringIO()
    given = {"run": "latest", "suite": None, "level": (), "adopt": False, "sandbox": "auto", "workers": "2", **more}
    code = command(results=str(results), out=PlainReporter(out), **given)
    return code, out.getvalue()


def test_the_command_prints_what_it_did(tmp_path: Path, grader: SandboxGrader) -> None:
    coding_run(tmp_path, {1: L1.reference, 2: RENAMED}, grader)
    code, text = run_command(tmp_path)
    assert code == 0
    assert "2 answers graded; 2 with the verdict they had" in text
    assert "graded: 2 of 2" in text
    assert "no verdict changed" in text
    assert (tmp_path / "results.duckdb").is_file()


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path, grader: SandboxGrader) -> None:
    store = coding_run(tmp_path, {1: L1.reference}, grader)
    with pytest.raises(UsageError, match=r"expected one of L1, L2.*found 'L8'"):
        run_command(tmp_path, level=["L8"])
    with pytest.raises(UsageError, match="do not become the headline"):
        run_command(tmp_path, sandbox="unsafe", adopt=True)
    with pytest.raises(UsageError, match="--sandbox: expected one of"):
        run_command(tmp_path, sandbox="docker")
    with store.lock(RUN), pytest.raises(UsageError, match="being carried on"):
        run_command(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    fill(elsewhere, {"a": [[True, True]]})
    with pytest.raises(UsageError, match="put the suite 's', which is none of"):
        run_command(elsewhere)


def test_strict_suite_grades_the_same_answers(tmp_path: Path, grader: SandboxGrader) -> None:
    store = coding_run(tmp_path, {1: L1.reference, 2: RENAMED}, grader)
    end = regrade(store, RUN, STRICT, grader, workers=2)
    assert (end.n_graded, end.n_same) == (2, 2)
    hashes = {r["grading_hash"] for r in ask(tmp_path, "select grading_hash from grades where grade_kind = 'regrade'")}
    assert hashes == {STRICT.levels[0].grading_hash()}
