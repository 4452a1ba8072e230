"""The main job, as a person does it: `./invoke bench` on the real embedded server and the real small model."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from tests.cli import ROOT, children_of, invoke, small_suite, sql, start, wait_for

pytestmark = [pytest.mark.model, pytest.mark.slow]

ARMS = ("smollm2-135m-q4-kv-f16", "smollm2-135m-q4-kv-q8")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One run of the smoke lineup, one iteration: its results folder and what it printed."""
    results = tmp_path_factory.mktemp("smoke results")  # with a space, as people have them
    done = invoke("bench", "--iterations", "1", "--seed", "1", "--results", str(results))
    assert done.returncode == 0, done.stdout + done.stderr
    return results, done.stdout


def test_it_says_what_it_will_do_before_it_does_it(smoke: tuple[Path, str]) -> None:
    text = smoke[1]
    plan = text.index("Plan: smoke")
    assert plan < text.index("questions   2 arms x 1 iteration x 8 levels = 16") < text.index("loading the model")
    assert "download" in text[plan:]
    assert "time" in text[plan:]


def test_it_ends_with_summary_report_and_the_bigger_command(smoke: tuple[Path, str]) -> None:
    tail = smoke[1][smoke[1].index("(finished)") :]
    assert all(arm in tail for arm in ARMS)
    report = Path(re.search(r"^report +(\S.*?)  \(and report\.md beside it\)$", tail, re.M)[1])  # type: ignore[index]
    assert report.name == "report.html" and report.with_name("report.md").read_text("utf-8").startswith("#")
    assert re.search(r"\./invoke bench --arm all .*to download: .*GB.*hours", tail)


def test_a_pipe_gets_plain_lines(smoke: tuple[Path, str]) -> None:
    assert "\x1b" not in smoke[1]
    assert "\r" not in smoke[1]
    lines = [line for line in smoke[1].splitlines() if "iteration 1/1" in line]
    assert len(lines) == 16
    assert all(re.search(r"tok/s|no rate", line) and "points" in line for line in lines)


def test_every_planned_question_has_one_answer_one_grade_and_its_tests(smoke: tuple[Path, str]) -> None:
    rows = sql(
        smoke[0],
        "select p.arm_id, p.level_id, count(distinct g.generation_id) generations, count(distinct h.grade_id) grades "
        "from plan p left join generations g using (run_id, arm_id, level_id, iteration) "
        "left join (from grades where grade_kind = 'headline') h using (generation_id) group by all",
    )
    assert len(rows) == 16
    assert all(r["generations"] == 1 and r["grades"] == 1 for r in rows)
    tests = sql(
        smoke[0],
        "select h.grade_id, any_value(h.tests_expected) expected, count(*) n "
        "from grades h join tests t using (grade_id) group by 1",
    )
    assert tests
    assert all(r["expected"] == r["n"] for r in tests)
    assert sql(smoke[0], "select * from missing") == []


def test_each_answer_carries_its_evidence(smoke: tuple[Path, str]) -> None:
    rows = sql(smoke[0], "select * from generations")
    for row in rows:
        assert row["outcome"] == "ok"
        assert row["finish_reason"] in ("stop", "length")
        assert row["request_seed"] > 0
        assert len(row["model_sha256"]) == 64
        assert len(row["binary_sha256"]) == 64
        assert row["cache_n"] == 0
        assert row["predicted_n"] == row["completion_tokens"]
        assert row["prompt_n"] == row["prompt_tokens"]
        assert 0 < row["first_token_ms"] <= row["last_token_ms"] <= row["total_ms"]
    assert len({(r["level_id"], r["request_seed"]) for r in rows}) == 8  # the same draws for both arms


def test_the_arms_differ_in_one_setting_and_it_is_in_force(smoke: tuple[Path, str]) -> None:
    rows = {r["arm_id"]: r for r in sql(smoke[0], "select * from arms_latest")}
    assert set(rows) == set(ARMS)
    assert rows[ARMS[0]]["kv_k"] == "f16"
    assert rows[ARMS[1]]["kv_k"] == "q8_0"
    assert all(r["status"] == "finished" and r["sampler_in_force"] == r["sampler_asked"] for r in rows.values())
    assert all(r["rss_peak_bytes"] > 50_000_000 for r in rows.values())


def test_without_a_gpu_vram_is_null_with_a_reason(smoke: tuple[Path, str]) -> None:
    for row in sql(smoke[0], "select vram_idle_bytes, vram_peak_bytes, vram_reason, device from arms_latest"):
        if row["device"] == "cpu":
            assert row["vram_idle_bytes"] is None
            assert row["vram_peak_bytes"] is None
            assert row["vram_reason"]
    report = next((smoke[0] / "reports").rglob("report.md")).read_text()
    assert "not measured" in report


def test_the_database_opens_anywhere_with_duckdb_alone(
    smoke: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with duckdb.connect(str(smoke[0] / "results.duckdb"), read_only=True) as connection:
        assert connection.execute("select count(*) from arm_summary").fetchone() == (2,)


def test_report_again_is_the_same_and_as_json_is_strict(smoke: tuple[Path, str]) -> None:
    report = next((smoke[0] / "reports").rglob("report.md"))
    before = report.read_text()
    assert invoke("report", "--results", str(smoke[0])).returncode == 0
    assert report.read_text() == before
    done = invoke("report", "--json", "--results", str(smoke[0]))
    data = json.loads(done.stdout, parse_constant=lambda text: pytest.fail(text))
    assert data


def test_nothing_of_it_is_left_running(smoke: tuple[Path, str]) -> None:
    assert children_of(str(smoke[0])) == []


def test_the_same_seed_gives_the_same_answers(smoke: tuple[Path, str], tmp_path: Path) -> None:
    done = invoke(
        "bench", "--arm", ARMS[0], "--suite", small_suite(tmp_path), "--iterations", "1", "--seed", "1",
        "--results", str(tmp_path / "results"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    query = f"select level_id, content from generations where arm_id = '{ARMS[0]}' order by 1"
    again = sql(tmp_path / "results", query)
    assert len(again) == 3
    assert all(row in sql(smoke[0], query) for row in again)


def test_an_arm_that_cannot_load_is_a_row_and_the_others_run(tmp_path: Path) -> None:
    """A broken model file in one arm: exit 1, its typed reason stored and reported, the other arm whole."""
    root = tmp_path / "copy"
    shutil.copytree(
        ROOT, root, ignore=shutil.ignore_patterns(".git", ".venv", "results*", "reports", ".*_cache", ".cache")
    )
    arm = (root / "presets/arms" / f"{ARMS[1]}.toml").read_text()
    broken = re.sub(r"source = .*", f'source = "file:{tmp_path}/broken.gguf"', arm)
    broken = re.sub(r"^(bytes|sha256) = .*\n", "", broken, flags=re.M)
    (root / "presets/arms" / f"{ARMS[1]}.toml").write_text(broken)
    (tmp_path / "broken.gguf").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4120\n")
    python, results = str(ROOT / ".venv/bin/python"), str(tmp_path / "results")
    command = [python, str(ROOT / ".venv/bin/invoke"), "--search-root", str(root)]
    command += ["bench", "--suite", small_suite(tmp_path), "--iterations", "1", "--results", results]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    rows = {r["arm_id"]: r for r in sql(tmp_path / "results", "select arm_id, status, reason, advice from arms_latest")}
    assert rows[ARMS[1]]["status"] == "failed"
    assert rows[ARMS[1]]["reason"] == "model_corrupt"
    assert rows[ARMS[0]]["status"] == "finished"
    report = next((tmp_path / "results/reports").rglob("report.md")).read_text()
    assert "model_corrupt" in report
    assert (
        sql(tmp_path / "results", "select count(*) n from grades where grade_kind = 'headline' and passed is not null")[
            0
        ]["n"]
        == 3
    )


def test_ctrl_c_finishes_the_answer_stops_cleanly_and_the_next_bench_carries_on(tmp_path: Path) -> None:
    results = tmp_path / "results"
    suite = small_suite(tmp_path)
    arguments = ("bench", "--arm", ARMS[0], "--suite", suite, "--iterations", "2", "--results", str(results))
    process = start(*arguments, log=tmp_path / "log")
    try:
        assert wait_for(lambda: "iteration 1/2" in (tmp_path / "log").read_text(), 120), (tmp_path / "log").read_text()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(120) == 130
    finally:
        process.kill()
    assert wait_for(lambda: children_of(str(results)) == [], 10)
    assert sql(results, "select status from runs_latest")[0]["status"] == "interrupted"
    before = {r["generation_id"] for r in sql(results, "select generation_id from generations")}
    assert 1 <= len(before) < 6
    done = invoke(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "continuing run" in done.stdout
    after = sql(results, "select generation_id, level_id, iteration from generations")
    assert before <= {r["generation_id"] for r in after}
    assert Counter((r["level_id"], r["iteration"]) for r in after).most_common(1)[0][1] == 1
    assert len(after) == 6
    assert sql(results, "select count(*) n from runs_latest")[0]["n"] == 1
