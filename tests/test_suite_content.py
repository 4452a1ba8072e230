"""The suites that come with the bench: what their tests accept, what they refuse, and what their prompts name."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from right_solutions import RIGHT

from bench.grading.providers import open_grader
from bench.suites.check import SuiteReport, check_suite, grade_job
from bench.suites.load import Level, Suite, ambiguities, load_suite, suite_ids

SUITES = Path(__file__).parents[1] / "suites"
LOADED = {name: load_suite(name, SUITES) for name in suite_ids(SUITES)}
LEVELS = [(suite, level) for suite in LOADED.values() for level in suite.levels]
BY_ID = {(suite.suite_id, level.level_id): level for suite, level in LEVELS}
each_level = pytest.mark.parametrize(
    ("suite", "level"), LEVELS, ids=[f"{suite.suite_id}/{level.level_id}" for suite, level in LEVELS]
)


@pytest.fixture(scope="module")
def grader() -> Iterator[object]:
    opened = open_grader("auto", workers=1)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def reports(grader) -> dict[str, SuiteReport]:
    return {name: check_suite(suite, grader) for name, suite in LOADED.items()}


def test_the_three_suites_are_there():
    assert set(LOADED) == {"coding-v2", "coding-v2-strict", "smoke"}


@pytest.mark.parametrize("name", ["coding-v2", "coding-v2-strict"])
def test_coding_suites_have_the_settings_of_the_reference_run(name):
    suite = LOADED[name]
    assert [level.level_id for level in suite.levels] == ["L1", "L2", "L3", "L4", "L5"]
    assert [level.points for level in suite.levels] == [25, 25, 25, 15, 10]
    assert (suite.max_points, suite.max_tokens, suite.request_limit_s) == (100, 32768, 900.0)
    assert {level.limit_s for level in suite.levels} == {30.0}


def test_strict_asks_the_same_tasks():
    plain, strict = LOADED["coding-v2"].levels, LOADED["coding-v2-strict"].levels
    for one, other in zip(plain, strict, strict=True):
        assert (one.title, one.points, one.entry, one.limit_s) == (
            other.title,
            other.points,
            other.entry,
            other.limit_s,
        )
        assert set(one.expected) <= set(other.expected), "strict has every test, and more where it names more"
        assert set(one.mutants) <= set(other.mutants)
        assert one.prompt != other.prompt


def test_smoke_is_small():
    suite = LOADED["smoke"]
    assert 6 <= len(suite.levels) <= 8
    assert (suite.max_points, suite.max_tokens) == (100, 256)
    assert all(len(level.prompt.split()) <= 60 for level in suite.levels)


@each_level
def test_reference_passes_and_mutants_fail(reports, suite: Suite, level: Level):
    report = next(r for r in reports[suite.suite_id].levels if r.level_id == level.level_id)
    assert report.ok, report.problems
    assert report.reference.passed
    assert len(report.mutants) >= 5
    assert report.n_caught == len(report.mutants)
    assert report.n_tests == len(level.expected)
    assert [note for note in report.notes if note.startswith("no mutant")] == [], "each test is shown to be needed"
    assert report.reference.suspect == ()
    # A busy machine is slow, but not thirty times.
    assert (report.reference.wall_ms or 0) < level.limit_s * 1000 / 3


@each_level
def test_right_solutions_in_other_styles_pass(grader, suite: Suite, level: Level):
    solutions = RIGHT[suite.suite_id, level.level_id]
    assert len(solutions) >= 3
    verdicts = grader.grade_many([grade_job(level, code) for code in solutions.values()])
    wrong = {
        name: (verdict.outcome, verdict.detail, verdict.suspect)
        for name, verdict in zip(solutions, verdicts, strict=True)
        if not verdict.passed or verdict.suspect
    }
    assert wrong == {}


@each_level
def test_what_the_prompt_leaves_unnamed(suite: Suite, level: Level):
    unnamed = ["set_result"] if (suite.suite_id, level.level_id) == ("coding-v2", "L1") else []
    assert ambiguities(level) == unnamed


@each_level
def test_hidden_tests_are_plain_functions(suite: Suite, level: Level):  # noqa: ARG001
    """No fixtures, no parameters and no pytest: any runner can call them one by one."""
    tree = ast.parse(level.hidden_test)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= set(sys.stdlib_module_names) | {"solution"}
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    assert tuple(node.name for node in tests) == level.expected
    assert not any(node.args.args or node.decorator_list for node in tests)


REQUIRED_MUTANTS = {
    "L2": ["really_sleeps", "fifth_attempt", "success_after_failure"],
    "L3": ["last_in_first_out_among_equals", "lower_first"],
    "L4": ["as_given", "lock_does_not_cover_the_check"],
    "L5": ["retry_logic_written_again"],
}


@pytest.mark.parametrize("name", ["coding-v2", "coding-v2-strict"])
@pytest.mark.parametrize("level_id", REQUIRED_MUTANTS)
def test_mistakes_that_a_level_is_about_are_mutants(name, level_id):
    assert set(REQUIRED_MUTANTS[level_id]) <= set(BY_ID[name, level_id].mutants)


def test_wrong_delays_are_mutants_where_the_attribute_is_named():
    strict, plain = BY_ID["coding-v2-strict", "L2"], BY_ID["coding-v2", "L2"]
    assert {"delays_from_two", "delays_one_two_three", "delay_after_the_last_attempt", "delays_not_recorded"} <= set(
        strict.mutants
    )
    assert "delays" not in [
        node.attr for node in ast.walk(ast.parse(plain.hidden_test)) if isinstance(node, ast.Attribute)
    ]


def test_the_missing_name_of_the_first_level_is_told(grader):
    """The reference run's ambiguity: right code under another name is an `interface` failure that names both."""
    level = BY_ID["coding-v2", "L1"]
    verdict = grader.grade(grade_job(level, level.mutants["result_under_another_name"]))
    assert verdict.outcome == "interface"
    assert (verdict.missing_name or "").endswith("set_result")
    assert any(name.endswith("complete_job") for name in verdict.offered)


def test_an_answer_with_the_method_alone_lacks_the_class(grader):
    level = BY_ID["coding-v2", "L2"]
    verdict = grader.grade(grade_job(level, level.mutants["method_without_its_class"]))
    assert (verdict.outcome, (verdict.missing_name or "").rpartition(".")[2]) == ("interface", "JobQueue")


RACES = [
    name
    for name in BY_ID["coding-v2", "L4"].mutants
    if name not in ("waits_for_itself", "lock_not_given_back", "takes_the_newest")
]


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_found_each_time(grader, name):
    level = BY_ID["coding-v2", "L4"]
    verdicts = grader.grade_many([grade_job(level, level.mutants[name])] * 3)
    assert [verdict.passed for verdict in verdicts] == [False] * 3


@pytest.mark.parametrize("name", ["lock_by_name", "lock_held_during_the_work", "queue_of_the_library", "atomic_pop"])
def test_a_right_queue_passes_each_time(grader, name):
    level = BY_ID["coding-v2", "L4"]
    verdicts = grader.grade_many([grade_job(level, RIGHT["coding-v2", "L4"][name])] * 10)
    assert [verdict.detail for verdict in verdicts if not verdict.passed] == []


def plain_run(tmp_path: Path, level: Level, code: str) -> dict[str, str]:
    """Each hidden test called as a plain function, with no grader to guard it: name -> error, or nothing."""
    (tmp_path / "solution.py").write_text(code)
    (tmp_path / "hidden_test.py").write_text(level.hidden_test)
    program = (
        "import json, sys\n"
        "import hidden_test\n"
        "out = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        getattr(hidden_test, name)()\n"
        "        out[name] = ''\n"
        "    except Exception as error:\n"
        "        out[name] = type(error).__name__\n"
        "print(json.dumps(out))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, *level.expected], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@each_level
def test_hidden_tests_need_no_grader(tmp_path, suite: Suite, level: Level):  # noqa: ARG001
    assert plain_run(tmp_path, level, level.reference) == dict.fromkeys(level.expected, "")


_EQUAL = "    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
ALWAYS_EQUAL = {
    "plain": "class Same:\n    __hash__ = object.__hash__\n    def __bool__(self): return True\n" + _EQUAL,
    "int": "class Same(int):\n    __hash__ = int.__hash__\n" + _EQUAL,
    "str": "class Same(str):\n    __hash__ = str.__hash__\n" + _EQUAL,
    "list": "class Same(list):\n" + _EQUAL,
    "tuple": "class Same(tuple):\n    __hash__ = tuple.__hash__\n" + _EQUAL,
}


@pytest.mark.parametrize("kind", ALWAYS_EQUAL)
@pytest.mark.parametrize("level", LOADED["smoke"].levels, ids=lambda level: level.level_id)
def test_an_object_equal_to_everything_passes_no_test(tmp_path, kind, level):
    """Even without the grader's guard."""
    code = ALWAYS_EQUAL[kind] + f"\ndef {level.entry[0]}(*args): return Same()\n"
    assert "" not in plain_run(tmp_path, level, code).values()


_ADD = "class JobQueue:\n    def add_job(self, job_id, data, priority=0): return Same()\n"
_PROCESS = "    def process_job(self, job_id, processor): return Same()\n"
NESTED = {
    ("coding-v2", "L1"): _ADD
    + "    def set_result(self, job_id, result): pass\n    def get_result(self, job_id): return Same()\n",
    ("coding-v2", "L3"): _ADD + "    def get_next_job(self): return (Same(), Same())\n",
    ("coding-v2", "L2"): _ADD + _PROCESS,
    ("coding-v2-strict", "L2"): _ADD + "    delays = Same()\n" + _PROCESS,
}


@pytest.mark.parametrize("kind", ALWAYS_EQUAL)
@pytest.mark.parametrize("key", NESTED, ids="/".join)
def test_equal_to_everything_inside_what_a_queue_returns(tmp_path, kind, key):
    results = plain_run(tmp_path, BY_ID[key], ALWAYS_EQUAL[kind] + NESTED[key])
    assert "" not in results.values(), results
