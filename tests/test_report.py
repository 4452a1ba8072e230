"""The report: every table there, nothing made up, and model text that stays text."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_rows import NOON, RUN, arm_row, ask, fill, generation, grade, plan_row, run_row

from bench.errors import UsageError
from bench.report import figures
from bench.report.data import NoResults, report_data, resolve_run
from bench.report.make import make_report, render
from bench.report.markdown import fenced, inline, table
from bench.report.query import query
from bench.report.summary import summary_table
from bench.store.database import connect
from bench.store.write import Store


def report(results: Path, **more: Any) -> str:
    return make_report(results, RUN, results / "reports", **more).markdown.read_text("utf-8")


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def cells_of(text: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its rule."""
    rows = []
    for line in text.split(heading + "\n", 1)[1].split("\n"):
        if line.startswith("|"):
            rows.append([c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif rows:
            break
    return [r for r in rows if not set("".join(r)) <= set("-:")]


# Figures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "spread", "n", "shown"),
    [
        (42.0, None, 1, "42.0 (n=1, no interval)"),
        (42.0, 0.0, 3, "42.0 ± 0.0 (n=3, no spread)"),
        (50.0, 8.76, 15, "50.0 ± 8.8 (n=15)"),
        (None, None, 0, "n/a"),
    ],
)
def test_a_mean_says_what_it_rests_on(value: float | None, spread: float | None, n: int, shown: str) -> None:
    assert figures.mean(value, spread, n) == shown


def test_figures_that_are_not_known() -> None:
    assert figures.number(None) == figures.with_sd(None, None, 0) == figures.file_size(None) == "n/a"
    assert figures.rate(None) == figures.rate({"n": 0}) == "n/a (0 tasks)"
    assert figures.memory(None, None, "no NVIDIA driver") == "not measured: no NVIDIA driver"
    assert figures.memory(1 << 30, None, None) == "1024 MiB / not measured"
    assert figures.number(-0.04) == "0.0"


# Text of others --------------------------------------------------------------------------------------

NASTY = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a | b | c\n| --- |\n",
    "[click](javascript:alert(1))",
    "![x](http://evil.example/p.png)",
    "http://evil.example www.evil.example ftp://evil.example me@evil.example @user #12",
    "```\n# heading\n```",
    "``x`` ` ~~~",
    "**bold** _emphasis_ ~~gone~~ $x$",
    "# heading\n- item\n> quote\n1. one",
    "\x1b[31mred\x07\x00\u202egnp.exe\u200b\u2028next",
    "&lt;b&gt; &amp; \\| \\",
    "{{ 7 * 7 }} {% raw %} {# x #}",
    "<!-- comment",
    "</td></tr></table>",
]


@pytest.mark.parametrize("text", NASTY)
def test_text_in_a_cell_stays_one_cell_of_text(text: str) -> None:
    shown = str(inline(text))
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)[|`*~\[\]]", shown.replace("\\\\", ""))
    assert "<" not in shown and ">" not in shown
    assert not re.search(r"(?i)\bhttps?:|www\.|@", shown)
    assert all(c.isprintable() for c in shown)
    rows = str(table(["a", "b"], [[text, "end"]])).split("\n")
    assert len(rows) == 3
    assert len(re.split(r"(?<!\\)\|", rows[2].replace("\\\\", ""))) == 4


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_stays_inside_its_cell_and_its_fence(text: str) -> None:
    row = str(table(["a"], [[text]])).split("\n")
    assert len(row) == 3 and len(re.split(r"(?<!\\)\|", row[2].replace("\\\\", ""))) == 3
    lines = str(fenced(text)).split("\n")
    fence = lines[0]
    assert set(fence) == {"`"} and lines[-1] == fence
    assert not any(re.match(rf" {{0,3}}`{{{len(fence)},}}\s*$", line) for line in lines[1:-1])


def test_code_is_cut_behind_a_longer_fence() -> None:
    text = str(fenced("````\n" + "x = 1\n" * 100 + "y" * 500, "python"))
    assert text.startswith("`````python\n````\n") and text.endswith("\n`````")
    assert "more lines)" in text and len(text.split("\n")) == 43


def test_hostile_answers_change_nothing_in_the_report(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]] * len(NASTY)})
    store = Store(tmp_path)
    made = ask(tmp_path, "from generations_latest where level_id = 'L1' order by iteration")
    kinds = ["assertion", "syntax", "interface", "exception", "import", "timeout", "exited", "tampering", "no_code"]
    bad = [
        grade(
            g, False, outcome=kinds[n % len(kinds)], detail=text, code=text, first_failed_test=text, missing_name=text,
            offered=[text], graded_at=NOON + timedelta(hours=1),
        )
        for n, (g, text) in enumerate(zip(made, NASTY, strict=True))
    ]  # fmt: skip
    store.append("grades", bad)
    text = report(tmp_path)
    pictures = re.compile(r"^!\[[^\]]*\]\(charts/[a-z-]+\.svg\)$", re.MULTILINE)
    assert len(pictures.findall(text)) > 3, "only the report's own"
    outside = pictures.sub("", _without_fences(text))
    assert "<script" not in outside and "<img" not in outside and "<!--" not in outside
    assert not re.search(r"(?<!\\)\]\(", outside) and "http:" not in outside
    headings = [line for line in outside.split("\n") if line.startswith("#")]
    assert headings == [
        "# smoke: A suite", "## Verdict", "### Which arm for which goal", "## Summary", "## Setup",
        "## Models and samplers", "## Methodology", "## Results", "### Pass rate of each level",
        "### Scores of each iteration", "### What the levels can tell", "## Why arms failed",
        "### Names that the tests need and the answers lack", "### Naming and ability", "## Caveats", "## Rules",
        "## Where this comes from",
    ]  # fmt: skip
    assert "49" not in inline("{{ 7 * 7 }}")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e\u200b\u2028]", text)


def _without_fences(text: str) -> str:
    """The text outside of code blocks, by CommonMark's rule for fences."""
    out, fence = [], ""
    for line in text.split("\n"):
        if fence:
            if re.match(rf" {{0,3}}`{{{len(fence)},}}\s*$", line):
                fence = ""
        elif m := re.match(r" {0,3}(`{3,})[^`]*$", line):
            fence = m[1]
        else:
            out.append(line)
    assert not fence, "every fence is closed"
    return "\n".join(out)


# The whole report ------------------------------------------------------------------------------------


def test_every_table_is_there(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True], [True, False], [True, True]], "b": [[False, True]] * 3})
    text = report(tmp_path)
    summary = cells_of(text, "## Summary")
    assert [r[0] for r in summary] == ["Arm", "a", "b"]
    assert summary[1][1].startswith("83.3 ± ") and summary[1][2:5] == ["83.33", "28.87", "50/100"]
    assert summary[2][1] == "50.0 ± 0.0 (n=3, no spread)"
    rates = cells_of(text, "### Pass rate of each level")
    assert rates[1] == ["L1 Task L1", "3/3, 100.0 % [43.9, 100.0]", "0/3, 0.0 % [0.0, 56.1]"]
    assert "Wilson 95 %" in text and "exact quantile" in text
    assert cells_of(text, "### Scores of each iteration")[1:] == [["a", "100, 50, 100"], ["b", "50 × 3"]]
    failures = cells_of(text, "## Why arms failed")
    assert [r[:4] for r in failures[1:]] == [["a", "L2", "assertion", "1"], ["b", "L1", "assertion", "3"]]
    assert "| L2 | Task L2 | 50 |" in text and "100.0 ± 0.0 (n=6)" in text and "1024 MiB / 2048 MiB" in text
    assert "few_iterations" in text
    assert not re.search(r"\bnan\b|\binf\b|\bNone\b|\| *\|", text)


def test_the_tables_to_decide_from(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True], [True, False], [True, True]], "b": [[True, False]] * 3})
    text = report(tmp_path)
    goals = {r[0]: r for r in cells_of(text, "### Which arm for which goal")}
    assert goals["best answers"][1:3] == ["a", "not separated"]
    assert goals["fits in 8 to 48 GB"][1] == "a", "sizes that come to the same stand together"
    front = cells_of(text, "### Pareto front")
    assert front[1][:2] == ["a", "83.3"] and front[1][3] == "2048 MiB peak VRAM" and front[1][4] == "yes"
    assert front[2][4:] == ["no", "a", "none"], "as measured it is beaten, and surely it is not"
    steady = cells_of(text, "### Rank and repetition")
    assert float(steady[1][1]) > 90 > 10 > float(steady[2][1])
    assert steady[1][3:6] == ["83.3", "100.0", "100.0"] and steady[2][3:8] == ["50.0", "50.0", "50.0", "n/a", "n/a"]
    levels = cells_of(text, "### What the levels can tell")
    assert [r[3] for r in levels[1:]] == ["nothing", "something"]
    assert "1 of 2 levels can tell these arms apart (50 % of the points)" in text
    assert "### Energy" not in text, "no power was measured, and the table would say nothing else"


def test_what_was_not_measured_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path)
    bare = {"run_id": RUN, "event_at": NOON, "status": "finished"}
    store.append("runs", [bare | {"suite_id": "s", "iterations": 1, "gpu_reason": "no NVIDIA driver"}])
    store.append("arms", [bare | {"arm_id": arm} for arm in ("a", "b")])
    store.append("plan", [plan_row("L1", 1)])
    nothing = dict.fromkeys(
        (
            "predicted_n",
            "predicted_ms",
            "first_token_ms",
            "first_answer_ms",
            "last_token_ms",
            "total_ms",
            "prompt_n",
            "prompt_ms",
            "reasoning_tokens",
            "answer_tokens",
            "completion_tokens",
        )
    )
    made = generation("L1", 1, **nothing)
    store.append("generations", [made])
    store.append("grades", [grade(made, True)])
    text = report(tmp_path)
    assert "100.0 (n=1, no interval)" in text and "no interval (n=1)" in text
    assert "not measured: no NVIDIA driver" in text
    assert "| b | n/a |" in text, "an arm without values is listed, last"
    assert cells_of(text, "## Summary")[-1][0] == "b"
    assert not re.search(r"\bnan\b|\binf\b|\bNone\b|\| *\||(?<!\d)0\.0 ", text)


def test_failed_arms_have_reason_and_advice(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]]})
    Store(tmp_path).append("arms", [
        arm_row("b", status="failed", reason="cuda_oom", detail="needs 21 GB, 8 are free",
                advice="take a smaller quant",
                log_line="cudaMalloc failed: out of memory", log_path="results/logs/b.log", load_ms=None)
    ])  # fmt: skip
    Store(tmp_path).append("plan", [plan_row("L1", 1, "b"), plan_row("L2", 1, "b")])
    text = report(tmp_path)
    row = cells_of(text, "## Arms that failed")[1]
    assert row[:5] == [
        "b",
        "cuda_oom",
        "needs 21 GB, 8 are free",
        "take a smaller quant",
        "cudaMalloc failed: out of memory",
    ]
    assert "arm failed: cuda_oom" in text and "> **Attention:** b: the arm failed: cuda_oom" in text


def test_mixed_arms_stand_apart_unless_asked_for(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]]})
    store = Store(tmp_path)
    for level in ("L1", "L2"):
        store.append("plan", [plan_row(level, 1, "b")])
        made = generation(level, 1, "b", commit="c2", build=9790)
        store.append("generations", [made])
        store.append("grades", [grade(made, True)])
    store.append("arms", [arm_row("b")])
    text = report(tmp_path)
    assert "> **Not compared:** arms stand apart where they differ in llama.cpp build (a: 9784 c1, b: 9790 c2)." in text
    assert "### Group 1" in text and "### Group 2" in text
    assert [r[0] for r in cells_of(text, "### Group 1")] == ["Arm", "a"]
    mixed = report(tmp_path, allow_mixed=True)
    assert "> **Mixed figures:** one table holds arms that differ in llama.cpp build" in mixed
    assert [r[0] for r in cells_of(mixed, "## Summary")] == ["Arm", "a", "b"]


def test_torn_files_are_named_in_the_report(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]]})
    torn = tmp_path / "grades" / RUN / "half.parquet"
    torn.write_bytes(b"PAR1 and no more")
    text = report(tmp_path)
    assert "Left out, cannot be read:" in text and "half.parquet" in text
    assert "100.0" in text


def test_an_empty_run_has_a_report(tmp_path: Path) -> None:
    Store(tmp_path).append("runs", [run_row(status="failed", reason="no arm could run")])
    text = report(tmp_path)
    assert "Nothing was graded." in text and "no arm could run" in text


def test_the_report_takes_little_time(tmp_path: Path) -> None:
    fill(tmp_path, {arm: [[True, False]] * 5 for arm in "abcd"})
    Store(tmp_path).merge(RUN)
    start = time.process_time()
    report(tmp_path)
    assert time.process_time() - start < 5, "CPU seconds, so that a busy machine does not fail the test"


# Data and queries ------------------------------------------------------------------------------------


def test_the_data_is_strict_json(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, None]], "b": [[True, True]]})
    connection, _ = connect(tmp_path)
    data = report_data(connection, RUN)
    assert strict(json.dumps(data, allow_nan=False)) == data
    assert data["run"]["run_id"] == RUN and data["run"]["started_at"] == "2026-11-30T12:00:00.000000Z"
    assert [r["mean_score"] for r in data["summary"]] == [100.0, None]
    assert render(report_data(connection, RUN)) == render(data), "asking again changes nothing"


def test_the_summary_for_a_terminal(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[False, True]] * 2, "b": [[True, True]] * 2})
    Store(tmp_path).append("arms", [arm_row("c", status="failed", reason="port_in_use")])
    connection, _ = connect(tmp_path)
    header, rows = summary_table(connection, RUN)
    assert all(len(row) == len(header) for row in rows)
    assert [row[0] for row in rows] == ["b", "a", "c"]
    assert rows[0][1] == "100.0 ± 0.0 (n=2, no spread)" and rows[2][1] == "failed: port_in_use"


def test_which_run_is_meant(tmp_path: Path) -> None:
    connection, _ = connect(tmp_path)
    with pytest.raises(NoResults, match="no results yet"):
        resolve_run(connection, "latest")
    store = Store(tmp_path)
    for run, hours in {"20261130-120000-aaaa": 0, "20261130-120000-aabb": 1, "20261129-090000-cccc": -27}.items():
        store.append("runs", [run_row(run_id=run, event_at=NOON + timedelta(hours=hours))])
    connection, _ = connect(tmp_path)
    assert resolve_run(connection, "20261130-120000-aab") == "20261130-120000-aabb"
    assert resolve_run(connection, "20261129") == "20261129-090000-cccc"
    assert resolve_run(connection, "20261130-120000-aaaa") == "20261130-120000-aaaa"
    assert resolve_run(connection, "latest") == "20261130-120000-aabb"
    with pytest.raises(UsageError, match="could be 20261130-120000-aabb, 20261130-120000-aaaa; type more"):
        resolve_run(connection, "20261130")
    for text in ("2025", "", "%", "'"):
        with pytest.raises(UsageError, match="no run"):
            resolve_run(connection, text)


def test_queries_in_every_format(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, False]]})
    sql = "select arm_id, mean_score, n, sd_score, 'nan'::double as x, [1, 2] as l, 'a,\"b\"\nc' as t from arm_summary"
    rows = list(csv.reader(io.StringIO(query(tmp_path, sql, "csv"))))
    assert rows == [
        ["arm_id", "mean_score", "n", "sd_score", "x", "l", "t"],
        ["a", "50.0", "1", "", "", "[1, 2]", 'a,"b"\nc'],
    ]
    assert strict(query(tmp_path, sql, "json")) == [
        {"arm_id": "a", "mean_score": 50.0, "n": 1, "sd_score": None, "x": None, "l": [1, 2], "t": 'a,"b"\nc'}
    ]
    shown = query(tmp_path, sql).split("\n")
    assert shown[0].split() == ["arm_id", "mean_score", "n", "sd_score", "x", "l", "t"] and shown[-1] == "(1 row)"
    assert "NULL" in shown[2] and len(shown) == 4
    assert query(tmp_path, "select 1 as a, 2 as a", "json") == '[\n  {\n    "a": 1,\n    "a_2": 2\n  }\n]'
    assert query(tmp_path, "from runs where false", "csv").startswith("run_id,event_at,status")
    assert query(tmp_path / "nothing", "select count(*) as n from grades", "csv") == "n\n0"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("selec 1", "SQL: Parser Error"),
        ("select nope from runs", "nope"),
        ("select * from nowhere", "nowhere"),
        ("", "found 0"),
        ("select 1; select 2", "found 2"),
        ("copy (select 1) to 'stolen.csv'", "not copy"),
        ("explain analyze copy (select 1) to 'stolen.csv'", "not copy"),
        ("EXPLAIN (ANALYZE) COPY (select 1) to 'stolen.csv'", "not copy"),
        ("create table t as select 1", "not create"),
        ("drop view runs", "not drop"),
        ("attach 'stolen.csv' as x", "not attach"),
        ("set threads = 1", "not set"),
        ("export database 'stolen.csv'", "not export"),
        ("pragma database_list", "not pragma"),
        ("install httpfs", "not load"),
        ("select from generate_series(1, 'x')", "SQL:"),
        ("select error('line one\nline two')", "line one line two"),
    ],
)
def test_what_is_no_query_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as e:
        query(tmp_path, sql)
    assert message in str(e.value) and "\n" not in str(e.value)
    assert not (tmp_path / "stolen.csv").exists()


def test_a_query_cannot_reach_the_programs_variables(tmp_path: Path) -> None:
    rows = {"secret": [1]}  # noqa: F841
    with pytest.raises(UsageError, match="rows"):
        query(tmp_path, "select * from rows")


def test_format_is_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected table, csv, json"):
        query(tmp_path, "select 1", "xml")


@pytest.mark.parametrize(
    "sql",
    [
        "show tables",
        "describe arm_summary",
        "values (1)",
        "from runs",
        "with x as (select 1) from x",
        "explain select 1",
        "summarize runs",
    ],
)
def test_ways_to_ask(tmp_path: Path, sql: str) -> None:
    assert query(tmp_path, sql)
