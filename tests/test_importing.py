"""Answers of other tools and runs from other machines: right rows, named leftovers, and nothing half imported."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asking import ask
from graders import opened
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_layout import KINDS, SUITE, F, Made, answer, make, mixed, response
from store_rows import RUN, fill, generation, run_row

from bench.commands.importing import export, import_run
from bench.errors import BenchError, UsageError
from bench.grading.pool import SandboxGrader
from bench.importing import Found, own, read, staging
from bench.importing.archive import MANIFEST
from bench.importing.files import Unusable, moment, number, safe_id, whole
from bench.importing.reference_json import iteration, level_id, result_file
from bench.importing.response import split_response
from bench.paths import ROOT
from bench.regrade.again import regrade
from bench.report.make import make_report
from bench.report.markdown import inline
from bench.reporter import PlainReporter
from bench.store.write import Store
from bench.suites.load import load_suite

ALL_KINDS = {
    "agentworld": [
        {"L1": "wrong_name", "L2": "unfenced", "L3": "fenced", "L4": "draft_stub", "L5": "empty"},
        {"L1": "unfenced", "L2": "broken", "L3": "fenced_thinking", "L4": "request_failed", "L5": "unfenced"},
    ],
    "gemma": [{f"L{n}": "fenced" for n in range(1, 6)}] * 2,
}


@pytest.fixture(scope="module")
def grader() -> Iterator[SandboxGrader]:
    yield from opened("bubblewrap", 2)


def load(name: str) -> Any:
    return load_suite(name, ROOT / "suites") if name in ("coding-v2", "smoke") else None


def found(path: Path, tmp_path: Path, suite: str | None = None) -> Found:
    workspace = tmp_path / "workspace"
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir()
    return read(path, suite, load, workspace)


def taken_in(path: Path, tmp_path: Path, suite: str | None = None) -> str:
    (run,) = found(path, tmp_path, suite).runs
    staging.publish(tmp_path / "results", run)
    return run.run_id


def cli(path: Path, tmp_path: Path, suite: str | None = None) -> tuple[int, str]:
    out = io.StringIO()
    code = import_run(str(path), suite, str(tmp_path / "results"), PlainReporter(out))
    return code, out.getvalue()


def stored(results: Path) -> list[Path]:
    return [p for p in results.rglob("*.parquet") if p.parent.name != "_columns"] if results.exists() else []


# The reference project's layout -------------------------------------------------------------------------------------


def test_a_copy_of_the_reference_layout_imports_and_regrades_to_the_right_verdicts(
    tmp_path: Path, grader: SandboxGrader
) -> None:
    made = make(tmp_path / "copy", ALL_KINDS)
    run_id = taken_in(made.folder, tmp_path)
    results = tmp_path / "results"
    assert ask(results, "select count(*) as n from generations") == [{"n": 20}]
    assert ask(results, "select grade_kind, count(*) as n from grades group by all") == [
        {"grade_kind": "published", "n": 20}
    ]
    end = regrade(Store(results), run_id, SUITE, grader, workers=2)
    assert end.n_first == end.n_graded == 19
    verdicts = ask(
        results, "select arm_id, iteration, level_id, coalesce(outcome, 'not_measured') as outcome from cells"
    )
    assert len(verdicts) == 20
    for row in verdicts:
        assert row["outcome"] == KINDS[made.kinds[row["arm_id"], row["iteration"], row["level_id"]]][1], row

    differ = ask(results, "select * from disagreements order by iteration, level_id")
    assert [(r["iteration"], r["level_id"], r["cause"]) for r in differ] == [
        (1, "L2", "reasoning_graded"),
        (1, "L4", "reasoning_graded"),
        (2, "L1", "reasoning_graded"),
        (2, "L4", "not_measured"),
        (2, "L5", "reasoning_graded"),
    ]
    assert "stands in the reasoning, not in the answer" in differ[0]["why"]
    assert "Server disconnected" in differ[3]["why"]
    assert [(c.against, c.cause) for c in end.changes] == [("published", r["cause"]) for r in sorted(
        differ, key=lambda r: (r["level_id"], r["iteration"]))]  # fmt: skip
    text = make_report(results, run_id, tmp_path / "reports").markdown.read_text("utf-8")
    assert "## Published and graded here" in text and "### Naming and ability" in text
    for row in differ:
        line = next(x for x in text.split("\n") if f"| {row['level_id']} |" in x and inline(row["cause"]) in x)
        assert inline(row["why"]) in line, "the report says which rule made the difference"
    naming = ask(results, "select level_id, n_naming, points_naming from naming_and_ability where n_naming > 0")
    assert naming == [{"level_id": "L1", "n_naming": 1, "points_naming": 12.5}]


def test_a_headline_score_of_an_artefact_is_found_out(tmp_path: Path, grader: SandboxGrader) -> None:
    """The reference run's error in small: right answers without a fence, graded on drafts."""
    wanted = [{"L1": "unfenced", "L2": "draft_stub", "L3": "fenced", "L4": "fenced", "L5": "unfenced"}] * 2
    made = make(tmp_path / "copy", {"agentworld": wanted}, codes=False, thinking=20_000)
    run_id = taken_in(made.folder, tmp_path)
    results = tmp_path / "results"
    printed = ask(results, "select value from published where metric = 'score' order by iteration")
    assert [r["value"] for r in printed] == [40.0, 40.0]
    regrade(Store(results), run_id, SUITE, grader, workers=2)
    assert ask(results, "select mean_score, n from arm_summary") == [{"mean_score": 100.0, "n": 2}]
    # No code files here: what the two texts hold says it.
    assert {r["cause"] for r in ask(results, "select cause from disagreements")} == {"answer_unfenced"}


def test_what_the_source_says_is_stored_as_it_says_it(tmp_path: Path) -> None:
    run_id = taken_in(make(tmp_path / "copy", ALL_KINDS).folder, tmp_path)
    results = tmp_path / "results"
    (run,) = ask(results, "select * from runs_latest")
    assert (run["run_id"], run["status"], run["iterations"]) == (run_id, "finished", 2)
    assert run_id.startswith("20260625-001234-")
    assert run["origin"] == "copy (result_ARM.json layout)"
    assert str(run["started_at"]) == "2026-06-25 00:12:34"
    arm = ask(results, "select * from arms_latest where arm_id = 'agentworld'")[0]
    assert (arm["model_repo"], arm["quant"], arm["vram_idle_bytes"]) == (
        "someone/agentworld-GGUF",
        "Q4_K_M",
        21387 << 20,
    )
    assert json.loads(arm["sampler_asked"])["repetition_penalty"] == 1.0
    assert arm["vram_reason"] == "the source has only idle values"
    speeds = ask(
        results, "select metric, value, n from published where arm_id = 'agentworld' and grade_kind = 'headline'"
    )
    assert {r["metric"]: (r["value"], r["n"]) for r in speeds}["decode_tps_mean"] == (188.9, 2)
    assert {r["metric"]: (r["value"], r["n"]) for r in speeds}["ttft_ms"] == (85.5, 2)
    passes = ask(
        results, "select level_id, value, n from published where metric = 'level_passed' and arm_id = 'agentworld'"
    )
    assert {r["level_id"]: (r["value"], r["n"]) for r in passes} == {
        "L1": (0.0, 2), "L2": (0.0, 2), "L3": (2.0, 2), "L4": (0.0, 2), "L5": (0.0, 2),
    }  # fmt: skip
    one = ask(results, "select * from grades where arm_id = 'agentworld' and iteration = 1 and level_id = 'L1'")[0]
    assert (one["outcome"], one["passed"], one["tests_passed"], one["tests_expected"]) == ("failed", False, 0, 3)
    assert one["detail"] == "Some tests failed"
    empty = ask(results, "select * from generations where iteration = 1 and level_id = 'L5' and arm_id = 'agentworld'")[
        0
    ]
    assert (empty["content"], empty["outcome"], empty["finish_reason"]) == ("", "ok", None)
    assert "Let me check once more" in empty["reasoning"]
    # Figures of the source stand beside ours and are not mixed with them.
    assert all(r["n"] == 0 for r in ask(results, "select n from arm_summary"))
    assert "published" not in {r["rule"] for r in ask(results, "select rule from caveats")}
    assert "imported" in {r["rule"] for r in ask(results, "select rule from caveats")}


def test_an_answer_that_is_not_there_is_missing(tmp_path: Path) -> None:
    made = make(tmp_path / "copy", {"a": mixed(2)})
    (made.folder / "artifacts/a/iter_02/L3_response.txt").unlink()
    taken_in(made.folder, tmp_path)
    gaps = ask(tmp_path / "results", "select iteration, level_id, kind from missing where kind = 'not asked'")
    assert gaps == [{"iteration": 2, "level_id": "L3", "kind": "not asked"}]


def test_answers_beyond_the_plan_are_an_error_and_not_a_larger_n(tmp_path: Path) -> None:
    made = make(tmp_path / "copy", {"a": mixed(2)})
    shutil.copytree(made.folder / "artifacts/a/iter_01", made.folder / "artifacts/a/iter_03")
    taken_in(made.folder, tmp_path)
    rows = ask(tmp_path / "results", "select distinct iteration, is_error from missing where is_error")
    assert rows == [{"iteration": 3, "is_error": True}]


def older(made: Made) -> None:
    """The names that older files of the layout use, and what they leave out."""
    for file in made.folder.glob("result_*.json"):
        data = json.loads(file.read_text())
        data["provider"] = data.pop("model")
        for name in ("summary", "started_at", "completed_at"):
            del data[name]
        del data["config"]["levels"]
        for one in data["iterations"]:
            for level in one["levels"]:
                level["level"] = f"L{level['level']}"
                level["points"] = level.pop("points_possible")
                level |= level.pop("validation")
        file.write_text(json.dumps(data))


def no_result_file(made: Made) -> None:
    for file in made.folder.glob("result_*.json"):
        file.unlink()


def with_bom_and_nan(made: Made) -> None:
    for file in made.folder.glob("result_*.json"):
        text = file.read_text().replace('"mean_tps": 188.25', '"mean_tps": NaN')
        file.write_bytes(b"\xef\xbb\xbf" + text.encode())


@pytest.mark.parametrize("variant", [older, no_result_file, with_bom_and_nan])
def test_variants_of_the_layout_bring_the_same_verdicts(tmp_path: Path, variant: Callable[[Made], None]) -> None:
    plain, other = make(tmp_path / "plain", ALL_KINDS), make(tmp_path / "other", ALL_KINDS)
    variant(other)
    verdicts = (
        "select arm_id, iteration, level_id, outcome, passed, tests_passed, points from grades where run_id = '{}' "
        "order by all"
    )
    cells = "select arm_id, iteration, level_id, max_points from cells where run_id = '{}' order by all"
    results = tmp_path / "results"
    first, second = taken_in(plain.folder, tmp_path), taken_in(other.folder, tmp_path)
    assert first != second
    for sql in (verdicts, cells):
        assert ask(results, sql.format(second)) == ask(results, sql.format(first))


def test_one_result_file_imports_one_arm(tmp_path: Path) -> None:
    made = make(tmp_path / "copy", ALL_KINDS)
    taken_in(made.folder / "result_gemma.json", tmp_path)
    assert ask(tmp_path / "results", "select distinct arm_id from generations") == [{"arm_id": "gemma"}]


BROKEN: dict[str, tuple[str, bytes, str]] = {
    "torn json": ("result_x.json", b'{"iterations": [', "not JSON"),
    "not an object": ("result_x.json", b"[]", "expected a JSON object"),
    "no iterations": ("result_x.json", b"{}", "no list 'iterations'"),
    "deep json": ("result_x.json", b"[" * 100_000, "not JSON"),
    "latin-1": ("artifacts/a/iter_01/L1_response.txt", "größer".encode("latin-1"), "not UTF-8"),
    "torn tags": ("artifacts/a/iter_01/L1_response.txt", b"<reasoning_content>\nhm", "torn"),
    "torn content": (
        "artifacts/a/iter_01/L1_response.txt",
        b"<reasoning_content>\nhm\n</reasoning_content>\n\n<content>\nx =",
        "torn",
    ),
    "two ways": (
        "artifacts/a/iter_01/L1_response.txt",
        b"<reasoning_content>\n" + b"a\n</reasoning_content>\n\n<content>\n" * 2 + b"b\n</content>",
        "more than once",
    ),
    "unknown in an iteration": ("artifacts/a/iter_01/L1_prompt.txt", b"?", "not part of the layout"),
    "unknown folder": ("artifacts/a/second_try/x.txt", b"?", "not a folder of an iteration"),
    "unknown on top": ("chart.png", b"\x89PNG", "not part of the layout"),
    "arm without a name": ("artifacts/---/iter_01/L1_response.txt", b"x", "cannot name an arm"),
    "iteration twice": ("artifacts/a/iter_1/L1_response.txt", b"x = 1", "is also in"),
    "iteration 0": ("artifacts/a/iter_00/L1_response.txt", b"x = 1", "no other folder"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_and_unknown_files_are_named_and_the_rest_is_imported(tmp_path: Path, name: str) -> None:
    made = make(tmp_path / "copy", {"a": mixed(2)})
    where, content, reason = BROKEN[name]
    target = made.folder / where
    target.parent.mkdir(parents=True, exist_ok=True)
    replaced = target.exists()
    target.write_bytes(content)
    got = found(made.folder, tmp_path)
    (named,) = map(str, got.skipped)
    assert reason in named
    assert where.startswith(named.partition(":")[0])
    (run,) = got.runs
    assert len(run.tables["generations"]) == 10 - replaced


def test_links_are_not_followed(tmp_path: Path) -> None:
    made = make(tmp_path / "copy", {"a": mixed(1)})
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    target = made.folder / "artifacts/a/iter_01/L1_response.txt"
    target.unlink()
    target.symlink_to(secret)
    (made.folder / "artifacts/b").symlink_to(tmp_path)
    code, text = cli(made.folder, tmp_path)
    assert code == 3
    assert "L1_response.txt: a link, not a file" in text
    assert "artifacts/b: not a folder of an arm" in text
    assert ask(tmp_path / "results", "select * from generations where content = 'secret'") == []


def test_the_same_files_are_imported_once(tmp_path: Path) -> None:
    made = make(tmp_path / "copy", {"a": mixed(1)})
    assert "imported as run" in cli(made.folder, tmp_path)[1]
    before = {p: p.read_bytes() for p in stored(tmp_path / "results")}
    shutil.copytree(made.folder, tmp_path / "elsewhere" / "copied")
    for path in (made.folder, tmp_path / "elsewhere" / "copied"):
        code, text = cli(path, tmp_path)
        assert code == 0
        assert "already there as run" in text
        assert "nothing was imported" in text
    assert {p: p.read_bytes() for p in stored(tmp_path / "results")} == before


def test_a_suite_that_is_given_grades_at_once(tmp_path: Path) -> None:
    made = make(tmp_path / "copy", {"a": mixed(1)})
    code, text = cli(made.folder, tmp_path, "coding-v2")
    assert code == 0
    assert "5 answers graded" in text
    assert "published verdicts: ours is another on 2" in text
    assert ask(tmp_path / "results", "select n, mean_score from arm_summary") == [{"n": 1, "mean_score": 90.0}]


def test_nothing_to_import_is_said(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "a.txt").write_text("x")
    layout = tmp_path / "layout"
    layout.mkdir()
    (layout / "result_a.json").write_text('{"iterations": []}')
    for path, word in ((empty, "nothing to import"), (tmp_path / "no", "no such file"), (tmp_path / "a.txt", "nothing"),
                       (layout, "expected answers in artifacts")):  # fmt: skip
        with pytest.raises(UsageError, match=word):
            cli(path, tmp_path)
    assert stored(tmp_path / "results") == []


@settings(deadline=None)
@given(content=st.text(), reasoning=st.text(min_size=1))
def test_what_the_layout_writes_is_read_back(content: str, reasoning: str) -> None:
    text = response(content, reasoning)
    if text.count("\n</reasoning_content>\n\n<content>\n") > 1 or content.startswith("ERROR:"):
        return
    back = split_response(text)
    assert back.reasoning == reasoning
    assert back.content == content.removesuffix("\r")


PIECES = ["<reasoning_content>", "</reasoning_content>", "<content>", "</content>", "\n", "x", "\r", "ERROR: "]


@settings(deadline=None)
@given(text=st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_split_or_refused(text: str) -> None:
    try:
        back = split_response(text)
    except Unusable:
        assert text.startswith("<reasoning_content>")
        return
    if not text.startswith("<reasoning_content>"):
        assert back.reasoning is None


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("ERROR: timed out", "time_limit"),
        ("ERROR: ReadTimeout", "time_limit"),
        ("ERROR: ", "time_limit"),
        ("ERROR: All connection attempts failed", "transport_error"),
        (response("ERROR: 500 Internal Server Error", "hm"), "transport_error"),
        ("ERROR: is a name here\nclass JobQueue: pass", "ok"),
        (f"ERROR: {F}x{F}", "ok"),
        ("No ERROR: at all", "ok"),
    ],
)  # fmt: skip
def test_a_failed_request_is_no_answer(text: str, outcome: str) -> None:
    assert split_response(text).outcome == outcome


WORDS = [
    *("iterations", "iteration", "levels", "level", "validation", "passed", "points", "metrics", "config", "model"),
    *("summary", "tps", "mean", "timestamp", "mean_tps", "name"),
]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@settings(deadline=None)
@given(st.recursive(LEAVES, lambda c: st.lists(c) | st.dictionaries(st.sampled_from(WORDS), c), max_leaves=30))
def test_no_json_breaks_the_reader(data: Any) -> None:
    if isinstance(data, dict):
        try:
            result_file(data)
        except Unusable:
            assert not isinstance(data.get("iterations"), list)
    with contextlib.suppress(Unusable):
        iteration(data, 1)


def test_values_are_read_strictly() -> None:
    assert [level_id(v) for v in (1, "2", "L3", "level_4", "Level 5")] == ["L1", "L2", "L3", "L4", "L5"]
    assert [level_id(v) for v in (True, None, -1, "L", "Lx", "../L1", 10**9, 1.5)] == [None] * 8
    assert [whole(v) for v in (3, 3.0, 3.5, True, "3", 10**30, float("inf"))] == [3, 3, None, None, None, None, None]
    assert [number(v) for v in (1, float("nan"), 10**400, "1", False)] == [1.0, None, None, None, None]
    assert str(moment("2026-06-25T00:12:34")) == "2026-06-25 00:12:34+00:00"
    assert str(moment("2026-06-25T02:12:34+02:00")) == "2026-06-25 00:12:34+00:00"
    assert [moment(v) for v in ("soon", "", None, -1, 1e300, True)] == [None] * 6
    assert [safe_id(v) for v in ("HumanEval/0", "../../etc", "a b", "---", "ü")] == [
        "HumanEval_0",
        "etc",
        "a_b",
        "",
        "",
    ]


# All or nothing -----------------------------------------------------------------------------------------------------


def test_a_disk_that_refuses_leaves_nothing(tmp_path: Path) -> None:
    made = make(tmp_path / "copy", {"a": mixed(1)})
    results = tmp_path / "results"
    results.mkdir()
    (results / ".import").write_text("a file where the folder has to be")
    with pytest.raises(BenchError, match="cannot write to"):
        cli(made.folder, tmp_path)
    assert stored(results) == []


def test_a_folder_in_the_way_stops_it_before_anything_moved(tmp_path: Path) -> None:
    made = make(tmp_path / "copy", {"a": mixed(1)})
    (run,) = found(made.folder, tmp_path).runs
    results = tmp_path / "results"
    (results / "generations" / run.run_id).mkdir(parents=True)
    with pytest.raises(BenchError, match="is in the way"):
        staging.publish(results, run)
    assert stored(results) == []
    assert not list((results / ".import").glob("*"))


@pytest.mark.parametrize("moved", range(7))
def test_a_killed_import_is_finished_by_the_next_one(tmp_path: Path, moved: int) -> None:
    """Killed after so many folders had their place: no list of runs has it, and the next import finishes it."""
    made = make(tmp_path / "copy", {"a": mixed(1)})
    whole_results = tmp_path / "whole"
    (run,) = found(made.folder, tmp_path).runs
    staging.publish(whole_results, run)
    results = tmp_path / "results"
    staged = results / ".import" / run.run_id
    tables = [t for t in staging._ORDER if (whole_results / t / run.run_id).is_dir()]
    assert tables[-1] == "runs"
    for at, table in enumerate(tables):
        target = (results if at < moved else staged) / table
        target.mkdir(parents=True, exist_ok=True)
        shutil.copytree(whole_results / table / run.run_id, target / run.run_id)
    staged.mkdir(parents=True, exist_ok=True)
    (staged / "ready").touch()
    if moved < len(tables):
        assert ask(results, "select * from runs_latest") == []
    code, text = cli(made.folder, tmp_path)
    assert code == 0
    assert f"finished the import of run {run.run_id}" in text
    assert "already there" in text
    assert ask(results, "select count(*) as n from generations") == [{"n": 5}]
    assert not staged.exists()


def test_an_import_that_was_not_ready_is_removed(tmp_path: Path) -> None:
    made = make(tmp_path / "copy", {"a": mixed(1)})
    left = tmp_path / "results" / ".import" / "20260625-001234-0000000000" / "generations" / "x"
    left.mkdir(parents=True)
    (left / "part.parquet").write_bytes(b"torn")
    assert "imported as run" in cli(made.folder, tmp_path)[1]
    assert not (tmp_path / "results" / ".import").exists()


# EvalPlus and lm-evaluation-harness ---------------------------------------------------------------------------------


def jsonl(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows) + "\n", "utf-8")
    return path


def test_evalplus_samples(tmp_path: Path) -> None:
    rows = [
        {"task_id": "HumanEval/0", "solution": "def f():\n    return 1\n", "_identifier": "HumanEval/0 (line 1 in x)"},
        {"task_id": "HumanEval/0", "solution": "def f():\n    return 2\n"},
        {"task_id": "HumanEval/1", "solution": ""},
        "",
        {"task_id": "HumanEval/2", "completion": "    return 1\n"},
        {"task_id": "HumanEval/3", "solution": None},
        {"task_id": "", "solution": "x"},
        {"task_id": "HumanEval/4"},
        "{torn",
        "[1]",
    ]
    file = jsonl(tmp_path / "qwen--q4_llamacpp_temp_0.0.jsonl", rows)
    code, text = cli(file, tmp_path)
    assert code == 3
    assert len(re.findall("left out", text)) == 6
    assert "line 5: HumanEval/2: expected text as solution, found only a completion" in text
    results = tmp_path / "results"
    rows = ask(results, "select arm_id, suite_id, level_id, iteration, content, outcome from generations order by all")
    assert [(r["level_id"], r["iteration"]) for r in rows] == [
        ("HumanEval_0", 1),
        ("HumanEval_0", 2),
        ("HumanEval_1", 1),
    ]
    assert {(r["arm_id"], r["suite_id"], r["outcome"]) for r in rows} == {
        ("qwen--q4_llamacpp_temp_0.0", "humaneval", "ok")
    }
    assert rows[1]["content"] == "def f():\n    return 2\n"
    assert ask(results, "select * from grades") == []
    assert ask(results, "select * from plan") == []
    # What it holds is what counts: nothing is missing, but nothing has a verdict either.
    assert {r["kind"] for r in ask(results, "select kind from missing")} == {"not graded"}
    assert ask(results, "select origin from runs_latest")[0]["origin"].endswith("(EvalPlus samples)")


def test_samples_are_graded_when_the_suite_is_here(tmp_path: Path) -> None:
    smoke = load_suite("smoke", ROOT / "suites")
    rows = [{"task_id": level.level_id, "solution": level.reference} for level in smoke.levels]
    rows.append({"task_id": "add", "solution": "def add(a, b):\n    return a - b\n"})
    code, text = cli(jsonl(tmp_path / "arm.jsonl", rows), tmp_path, "smoke")
    assert code == 0
    assert "9 answers graded; 9 for the first time" in text
    (row,) = ask(tmp_path / "results", "select n_cells, n_passed, n_measured from arm_summary")
    assert row == {"n_cells": 9, "n_passed": 8, "n_measured": 9}


def sample(doc_id: int, answers: list[str], **more: Any) -> dict[str, Any]:
    return {
        "doc_id": doc_id,
        "doc": {"question": "?"},
        "target": "",
        "resps": [answers],
        "filtered_resps": answers,
        **more,
    }


def test_lm_eval_samples(tmp_path: Path) -> None:
    rows = [
        sample(0, ["def f(): pass"], exact_match=1.0, metrics=["exact_match"], filter="strict-match"),
        sample(0, ["def f(): pass"], exact_match=0.0, metrics=["exact_match"], filter="flexible-extract"),
        sample(1, ["a", "b"], metrics=["pass@1"], **{"pass@1": 0.5}),
        sample(2, ["c"], doc={"task_id": "HumanEval/2"}, metrics=["pass@1"], **{"pass@1": 1.0}),
        {
            "doc_id": 3,
            "doc": {},
            "resps": [[["-1.5", "False"]], [["-0.5", "True"]]],
            "filtered_resps": [["-1.5", "False"]],
        },
        {"doc_id": 4, "doc": {}, "resps": [[["-1.5", "False"]]]},
        {"doc_id": 5, "doc": {}, "resps": [], "filtered_resps": ["only this"]},
        {"doc_id": 6, "doc": None, "resps": [["x"]]},
    ]
    file = jsonl(tmp_path / "out" / "qwen__q4" / "samples_humaneval_instruct_2026-06-25T10-11-12.123.jsonl", rows)
    code, text = cli(tmp_path / "out", tmp_path)
    assert code == 3
    assert text.count("left out") == 3
    assert "likelihoods" in text
    results = tmp_path / "results"
    rows = ask(
        results, "select arm_id, suite_id, level_id, iteration, content from generations order by level_id, iteration"
    )
    assert {(r["arm_id"], r["suite_id"]) for r in rows} == {("qwen__q4", "humaneval_instruct")}
    assert [(r["level_id"], r["iteration"], r["content"]) for r in rows] == [
        ("HumanEval_2", 1, "c"),
        ("doc_0", 1, "def f(): pass"),
        ("doc_1", 1, "a"),
        ("doc_1", 2, "b"),
        ("doc_5", 1, "only this"),
    ]
    verdicts = ask(results, "select level_id, passed, code_rule from grades order by level_id, code_rule")
    assert [(r["level_id"], r["passed"], r["code_rule"]) for r in verdicts] == [
        ("HumanEval_2", True, "pass@1"),
        ("doc_0", False, "exact_match (flexible-extract)"),
        ("doc_0", True, "exact_match (strict-match)"),
    ]
    assert file.exists()


def test_files_of_one_task_set_are_arms_of_one_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        jsonl(tmp_path / "out" / f"{name}.jsonl", [{"task_id": "Mbpp/2", "solution": name}])
    jsonl(tmp_path / "out" / "sub" / "a.jsonl", [{"task_id": "Mbpp/2", "solution": "again"}])
    jsonl(tmp_path / "out" / "c.jsonl", [{"task_id": "HumanEval/2", "solution": "c"}])
    jsonl(tmp_path / "out" / "log.jsonl", [{"event": "started"}])
    code, text = cli(tmp_path / "out", tmp_path)
    assert code == 3
    assert "left out log.jsonl: no line that can be used" in text
    rows = ask(tmp_path / "results", "select suite_id, list(arm_id order by arm_id) as arms from arms join runs_latest "
               "using (run_id) group by all order by all")  # fmt: skip
    assert rows == [{"suite_id": "humaneval", "arms": ["c"]}, {"suite_id": "mbpp", "arms": ["a", "a-2", "b"]}]
    assert cli(tmp_path / "out", tmp_path)[1].count("already there") == 2


def test_a_file_without_a_sample_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no samples that can be used"):
        cli(jsonl(tmp_path / "x.jsonl", [{"event": 1}, "no json"]), tmp_path)
    assert stored(tmp_path / "results") == []


# Our own runs -------------------------------------------------------------------------------------------------------


def packed(tmp_path: Path, **run: Any) -> Path:
    there = tmp_path / "there"
    fill(there, {"a": [[True, False], [True, None]], "b": [[True, True], [False, False]]}, host="rig-2", **run)
    return own.pack(there, RUN, tmp_path)


def test_a_run_goes_to_another_machine_whole(tmp_path: Path) -> None:
    archive = packed(tmp_path)
    code, text = cli(archive, tmp_path)
    assert (code, "imported as run" in text) == (0, True)
    here, there = tmp_path / "results", tmp_path / "there"
    tables = ("plan", "arms", "generations", "grades", "tests", "arm_summary", "iteration_scores", "missing")
    rows = [[ask(place, f"select * from {table} order by all") for table in tables] for place in (there, here)]
    assert dict(zip(tables, rows[1], strict=True)) == dict(zip(tables, rows[0], strict=True))
    (run,) = ask(here, "select * from runs_latest")
    (before,) = ask(there, "select * from runs_latest")
    assert (run["origin"], run["status"], run["seed"]) == ("gguf-bench on rig-2", "finished", before["seed"])
    assert "already there" in cli(archive, tmp_path)[1]
    assert "already there" in cli(there, tmp_path)[1]


def test_packing_is_the_same_every_time_and_overwrites_nothing(tmp_path: Path) -> None:
    archive = packed(tmp_path)
    again = own.pack(tmp_path / "there", RUN, tmp_path / "again.tar.gz")
    assert again.read_bytes() == archive.read_bytes()
    with pytest.raises(UsageError, match="is there already"):
        own.pack(tmp_path / "there", RUN, again)
    with pytest.raises(UsageError, match=r"ending in \.tar\.gz"):
        own.pack(tmp_path / "there", RUN, tmp_path / "again.zip")
    with pytest.raises(UsageError, match="no such folder"):
        own.pack(tmp_path / "there", RUN, tmp_path / "no" / "x.tar.gz")
    with pytest.raises(UsageError, match="no run"):
        own.pack(tmp_path / "there", "20261130-120000-zzzz", tmp_path)
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_run_that_goes_on_or_is_torn_is_not_packed(tmp_path: Path) -> None:
    there = tmp_path / "there"
    store = fill(there, {"a": [[True, True]]})
    with store.lock(RUN), pytest.raises(UsageError, match="goes on"):
        own.pack(there, RUN, tmp_path)
    part = next((there / "grades" / RUN).glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(BenchError, match="not a complete Parquet file"):
        own.pack(there, RUN, tmp_path)


def test_a_run_with_a_bad_file_is_left_out_whole_and_others_are_not(tmp_path: Path) -> None:
    there = tmp_path / "there"
    fill(there, {"a": [[True, True]]})
    other = "20261201-120000-bbbb"
    row = generation("L1", 1, run_id=other)
    store = Store(there)
    store.append("runs", [run_row(run_id=other)])
    store.append("generations", [row])
    part = next((there / "grades" / RUN).glob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-9])
    code, text = cli(there, tmp_path)
    assert code == 3
    assert f"left out {RUN}: grades/{RUN}/{part.name}: not a complete Parquet file" in text
    assert [r["run_id"] for r in ask(tmp_path / "results", "select run_id from runs_latest")] == [other]
    assert not (tmp_path / "results" / "generations" / RUN).exists()


def test_a_run_that_was_going_on_is_not_carried_on_here(tmp_path: Path) -> None:
    archive = packed(tmp_path, status="running")
    cli(archive, tmp_path)
    (run,) = ask(tmp_path / "results", "select status, reason, origin from runs_latest")
    assert run == {
        "status": "interrupted",
        "reason": "imported before it had ended",
        "origin": "gguf-bench on rig-2",
    }


def test_rows_of_another_run_are_refused(tmp_path: Path) -> None:
    there = tmp_path / "there"
    fill(there, {"a": [[True, True]]})
    source = next((there / "grades" / RUN).glob("*.parquet"))
    table = pq.read_table(source)
    at = table.schema.get_field_index("run_id")
    smuggled = table.set_column(at, table.schema.field(at), pa.array(["20200101-000000-0000"] * table.num_rows))
    pq.write_table(smuggled, source)
    with pytest.raises(UsageError, match="rows of another run"):
        cli(there, tmp_path)
    nameless = table.set_column(0, table.schema.field(0), pa.nulls(table.num_rows, pa.string()))
    pq.write_table(nameless, source)
    with pytest.raises(UsageError, match="a row without grade_id"):
        cli(there, tmp_path)
    assert stored(tmp_path / "results") == []


def entry(name: str, data: bytes, kind: bytes = tarfile.REGTYPE, size: int | None = None, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(data) if size is None else size, link
    return info.tobuf(tarfile.USTAR_FORMAT) + data + b"\0" * (-len(data) % 512)


def listed(content: dict[str, bytes], **more: Any) -> bytes:
    shown = {n: {"bytes": len(d), "sha256": hashlib.sha256(d).hexdigest()} for n, d in content.items()}
    return json.dumps({"format": "gguf-bench run", "version": 1, "run_id": RUN, "files": shown, **more}).encode()


NAME = f"grades/{RUN}/part-x.parquet"
DATA = b"PAR1 and so on"


def hostile() -> dict[str, tuple[bytes, str]]:
    """Archives that nobody may import, and the word that says why."""
    good = entry(MANIFEST, listed({NAME: DATA}))
    up = "../" * 6 + "tmp/evil.parquet"
    return {
        "traversal in the manifest": (entry(MANIFEST, listed({up: DATA})) + entry(up, DATA), "expected TABLE/"),
        "absolute name": (entry(MANIFEST, listed({"/tmp/evil.parquet": DATA})), "expected TABLE/"),
        "dots in the run": (entry(MANIFEST, listed({"grades/../x.parquet": DATA})), "expected TABLE/"),
        "another run": (entry(MANIFEST, listed({"grades/20200101-1/x.parquet": DATA})), "expected TABLE/"),
        "unknown table": (entry(MANIFEST, listed({f"secrets/{RUN}/x.parquet": DATA})), "expected TABLE/"),
        "a run id with a slash": (entry(MANIFEST, listed({}, run_id="../x")), "expected a run id"),
        "traversal in a member": (good + entry("../../evil.parquet", DATA), "not what the manifest announces"),
        "symbolic link": (good + entry(NAME, b"", tarfile.SYMTYPE, link="/etc/passwd"), "not a plain file"),
        "hard link": (good + entry(NAME, b"", tarfile.LNKTYPE, link=MANIFEST), "not a plain file"),
        "device": (good + entry(NAME, b"", tarfile.CHRTYPE), "not a plain file"),
        "fifo": (good + entry(NAME, b"", tarfile.FIFOTYPE), "not a plain file"),
        "long-name record": (good + entry("x", b"y" * 600, tarfile.GNUTYPE_LONGNAME), "not a plain file"),
        "pax record": (good + entry("x", b"30 path=../../evil\n", tarfile.XHDTYPE), "not a plain file"),
        "sparse file": (good + entry(NAME, DATA, tarfile.GNUTYPE_SPARSE), "not a plain file"),
        "more than announced": (good + entry(NAME, DATA * 2), "not what the manifest announces"),
        "twice": (good + entry(NAME, DATA) * 2, "not what the manifest announces"),
        "another content": (good + entry(NAME, DATA[::-1]), "it was changed after the export"),
        "not in it": (good, "announced files are not in it"),
        "no manifest": (entry(NAME, DATA), f"expected {MANIFEST} first"),
        "huge manifest": (entry(MANIFEST, b"", size=1 << 30), f"expected {MANIFEST} first"),
        "bomb": (entry(MANIFEST, listed({}, files={NAME: {"bytes": 1 << 50, "sha256": ""}})), "at most"),
        "negative size": (entry(MANIFEST, listed({}, files={NAME: {"bytes": -1, "sha256": ""}})), "expected a size"),
        "size of another kind": (
            entry(MANIFEST, listed({}, files={NAME: {"bytes": True, "sha256": ""}})),
            "expected a size",
        ),
        "files of another kind": (entry(MANIFEST, listed({}, files=[1])), "not a manifest"),
        "manifest of another kind": (entry(MANIFEST, b"[]"), "not a manifest"),
        "manifest that is no JSON": (entry(MANIFEST, b"[" * 50_000), "not a manifest"),
        "a later version": (entry(MANIFEST, listed({}, version=2)), "use a bench of the version"),
        "no tar": (b"hello" * 400, "not a plain tar archive"),
        "ends within a file": (good + entry(NAME, DATA)[:515], "not a whole tar.gz"),
        "nothing": (b"", f"expected {MANIFEST} first"),
        "something after its end": (good + entry(NAME, DATA) + b"\0" * 1024 + b"more", "follows after its end"),
        "a bomb after its end": (good + entry(NAME, DATA) + b"\0" * (3 << 20), "follows after its end"),
    }


@pytest.mark.parametrize("name", hostile())
def test_hostile_archives_are_refused_and_leave_nothing(tmp_path: Path, name: str) -> None:
    raw, word = hostile()[name]
    archive = tmp_path / "x.tar.gz"
    archive.write_bytes(gzip.compress(raw + (b"" if "ends" in name or name == "nothing" else b"\0" * 1024)))
    with pytest.raises(UsageError, match=re.escape(word)):
        cli(archive, tmp_path)
    assert stored(tmp_path / "results") == []
    assert not Path("/tmp/evil.parquet").exists()
    assert [p.name for p in tmp_path.iterdir() if p.name not in ("x.tar.gz", "results")] == []


@pytest.mark.parametrize("cut", [1, 9, 100, 1000])
def test_a_torn_archive_is_refused(tmp_path: Path, cut: int) -> None:
    archive = packed(tmp_path)
    archive.write_bytes(archive.read_bytes()[:-cut])
    with pytest.raises(UsageError, match=r"tar\.gz|tar archive|not in it"):
        cli(archive, tmp_path)
    assert stored(tmp_path / "results") == []


@settings(deadline=None, max_examples=25)
@given(at=st.integers(min_value=0), value=st.integers(0, 255))
def test_a_changed_byte_is_found(tmp_path_factory: pytest.TempPathFactory, at: int, value: int) -> None:
    """Whatever byte of the archive changes: it is refused, or the run is the one that was packed."""
    folder = tmp_path_factory.mktemp("byte")
    there = folder / "there"
    fill(there, {"a": [[True]]}, levels=("L1",))
    archive = own.pack(there, RUN, folder)
    raw = bytearray(archive.read_bytes())
    raw[at % len(raw)] = value
    archive.write_bytes(bytes(raw))
    workspace = folder / "workspace"
    workspace.mkdir()
    try:
        (run,) = own.read_archive(archive, workspace).runs
    except UsageError:
        return
    for table, files in run.files.items():
        originals = {p.name: p.read_bytes() for p in (there / table / RUN).glob("*.parquet")}
        assert {p.name: p.read_bytes() for p in files} == originals


def test_an_archive_that_somebody_unpacked_and_packed_again(tmp_path: Path) -> None:
    archive = packed(tmp_path)
    plain = tmp_path / "plain"
    plain.mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(plain)], check=True)
    made = tmp_path / "made.tgz"
    with tarfile.open(made, "w:gz", format=tarfile.USTAR_FORMAT) as tar:
        tar.add(plain / MANIFEST, f"./{MANIFEST}")
        for path in sorted(plain.iterdir()):
            if path.name != MANIFEST:
                tar.add(path, f"./{path.name}")
    assert "imported as run" in cli(made, tmp_path)[1]
    assert "already there" in cli(plain, tmp_path)[1]
    changed = next((plain / "grades" / RUN).glob("*.parquet"))
    changed.write_bytes(changed.read_bytes() + b"\0")
    with pytest.raises(UsageError, match="was changed after the export"):
        cli(plain, tmp_path)


def test_export_by_command_and_back(tmp_path: Path) -> None:
    fill(tmp_path / "there", {"a": [[True, True]]})
    out = io.StringIO()
    assert export("latest", str(tmp_path), str(tmp_path / "there"), PlainReporter(out)) == 0
    name = f"gguf-bench-{RUN}.tar.gz"
    assert name in out.getvalue()
    assert cli(tmp_path / name, tmp_path)[0] == 0


def test_a_file_that_only_claims_to_be_parquet_is_refused(tmp_path: Path) -> None:
    bad = b"PAR1" + b"\0" * 64 + struct.pack("<I", 40) + b"PAR1"
    name = f"runs/{RUN}/part-x.parquet"
    archive = tmp_path / "x.tar.gz"
    archive.write_bytes(gzip.compress(entry(MANIFEST, listed({name: bad})) + entry(name, bad) + b"\0" * 1024))
    with pytest.raises(UsageError, match="no run that can be imported"):
        cli(archive, tmp_path)
    assert stored(tmp_path / "results") == []


def test_answers_of_every_kind_have_the_size_that_is_asked_for() -> None:
    """The generator itself: the benchmark rests on it."""
    import random

    content, reasoning = answer("unfenced", "L3", random.Random(1), thinking=45_000, size=4_000)
    assert 4_000 <= len(content) <= 6_500
    assert reasoning is not None
    assert 90_000 <= len(reasoning) <= 100_000
    assert os.linesep == "\n"
