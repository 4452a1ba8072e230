"""Commands that look at stored results: a damaged file, a wrong folder or a wrong name is said, never passed over."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from store_rows import RUN, arm_row, ask, fill, generation, grade, plan_row, run_row

from bench import reporter
from bench.commands import compare, importing, look, regrade, replay, status
from bench.errors import UsageError
from bench.paths import ROOT
from bench.reporter import PlainReporter
from bench.runner.planning import Wishes, choose, download_text, time_text
from bench.store.database import rebuild
from bench.store.write import Store

Command = Callable[[str, PlainReporter], int]
COMMANDS: dict[str, Command] = {
    "sql": lambda results, out: look.sql("select count(*) as n from grades", "csv", results, out),
    "runs": status.runs,
    "status": lambda results, out: status.status("latest", results, out),
    "report": lambda results, out: look.report("latest", results, True, out),
}


def said(command: Command, results: Path) -> tuple[int, str]:
    stream = io.StringIO()
    code = command(str(results), PlainReporter(stream))
    return code, stream.getvalue()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_file_is_named_by_every_command_that_leaves_it_out(tmp_path: Path, name: str) -> None:
    fill(tmp_path, {"a": [(True, False)], "b": [(True, True)]})
    assert said(COMMANDS[name], tmp_path)[0] == 0
    broken = next((tmp_path / "grades").glob(f"{RUN}/*.parquet"))
    broken.write_bytes(broken.read_bytes()[:500])
    code, text = said(COMMANDS[name], tmp_path)
    assert code == 3
    assert f"warning: left out {broken}" in text


def test_a_comparison_names_it_too(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [(True, False)]})
    moved = RUN.replace("aaaa", "bbbb")
    store = Store(tmp_path)
    store.append("runs", [run_row(run_id=moved)])
    store.append("arms", [arm_row("a", run_id=moved)])
    answer = generation("L1", 1, run_id=moved)
    store.append("plan", [plan_row("L1", 1, run_id=moved)])
    store.append("generations", [answer])
    store.append("grades", [grade(answer)])
    broken = tmp_path / "telemetry" / RUN
    broken.mkdir(parents=True)
    (broken / "part-00000000000000000000000000.parquet").write_bytes(b"PAR1")
    code, text = said(lambda results, out: compare.compare(RUN, moved, True, results, out), tmp_path)
    assert code == 3 and "left out" in text


@pytest.mark.parametrize(
    "command",
    [*COMMANDS.values(),
     lambda results, out: compare.compare("a", "b", False, results, out),
     lambda results, out: importing.export("latest", None, results, out),
     lambda results, out: replay.replay("x", results, None, out),
     lambda results, out: regrade.regrade("latest", None, [], False, "auto", results, None, out)],
)  # fmt: skip
def test_a_folder_that_is_not_there_is_no_empty_store(tmp_path: Path, command: Command) -> None:
    with pytest.raises(UsageError, match="expected a folder with results, found none"):
        said(command, tmp_path / "rseults")


def test_a_damaged_file_of_columns_holds_nothing_and_is_made_again(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [(True, False)]})
    rebuild(tmp_path, tmp_path / "results.duckdb")
    anchor = tmp_path / "grades" / "_columns" / "columns.parquet"
    whole = anchor.read_bytes()
    anchor.write_bytes(whole[:20])
    assert rebuild(tmp_path, tmp_path / "results.duckdb") == []
    assert anchor.read_bytes() == whole


def test_one_score_has_no_interval(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [(True, False)]})
    assert ask(tmp_path, "select n, ci_low, ci_high from arm_summary") == [{"n": 1, "ci_low": None, "ci_high": None}]


def test_equal_scores_are_named_together_and_memory_decides_where_it_is_asked(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [(True, False)] * 2, "b": [(False, True)] * 2, "c": [(False, False)] * 2})
    store = Store(tmp_path)
    later = arm_row()["event_at"].replace(hour=13)
    store.append("arms", [arm_row("a", event_at=later, vram_peak_bytes=6 << 30)])
    found = {r["goal"]: r for r in ask(tmp_path, "from recommendations")}
    best, fits = found["best_answers"], found["fits_16_gb"]
    assert (best["status"], best["equal_arms"]) == ("tie", ["a", "b"])
    assert best["reason"].startswith("equal mean scores (50.0)") and "not separated from c" in best["reason"]
    assert (fits["arm_id"], fits["equal_arms"]) == ("b", ["b", "a"])
    assert found["fits_8_gb"]["equal_arms"] == ["b", "a"]


def test_grading_again_by_a_suite_without_its_levels_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [(True, False)]})
    with pytest.raises(UsageError, match=f"no answer of run {RUN} was graded: suite smoke has none of its levels"):
        said(lambda results, out: regrade.regrade(RUN, "smoke", [], False, "auto", results, "1", out), tmp_path)


# The plan ------------------------------------------------------------------------------------------------------------
def test_a_lineup_where_an_arm_is_expected_is_told() -> None:
    with pytest.raises(UsageError, match="--arm moe-coding: that is a lineup; type --lineup moe-coding"):
        choose(Wishes(arms=["moe-coding"]), ROOT)


def test_the_plan_says_what_it_does_not_know(tmp_path: Path) -> None:
    big = choose(Wishes(lineup="moe-coding"), ROOT)
    assert download_text(big.arms, tmp_path).startswith("21.2 GB for 1 of 4 models;")
    assert download_text(big.arms[:0], tmp_path) == "nothing, every model is here"
    own = choose(Wishes(arms=["smollm2-135m-q4-kv-q8"], suite="coding-v2", iterations="2"), ROOT)
    limit = own.questions * own.suite.request_limit_s / 3600
    assert time_text(own) == f"not known; at most {limit:.1f} hours of answering (900 s an answer)"


# Plain lines ---------------------------------------------------------------------------------------------------------
def test_a_long_answer_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(reporter.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    out = PlainReporter(stream)
    out.begin_arm("a", 1, 1, 5)
    out.question(1, 5, "L1")
    for seconds in (1, 30, 59, 61, 90, 119, 122):
        now[0] = 1000.0 + seconds
        out.tokens(seconds * 10)
    lines = [line for line in stream.getvalue().splitlines() if "so far" in line]
    assert lines == [
        "[1/1 a] iteration 1/5  L1  answering for 61 s, 610 chunks so far",
        "[1/1 a] iteration 1/5  L1  answering for 122 s, 1220 chunks so far",
    ]


def test_an_arm_without_a_verdict_has_no_points() -> None:
    stream = io.StringIO()
    out = PlainReporter(stream)
    out.begin_arm("a", 1, 1, 1)
    out.end_arm()
    assert stream.getvalue().splitlines() == ["[1/1 a] 1 question", "[1/1 a] ended: 0 answers graded"]
