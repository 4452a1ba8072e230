"""Our statistics give the reference run's own summary from its scores and counts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from reference_run import RUN, read, store_reference

from bench.report.make import make_report
from bench.store.database import connect


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    assert store_reference(folder) == RUN
    return folder


def rows(results: Path, sql: str) -> list[dict[str, Any]]:
    connection, bad = connect(results)
    assert bad == []
    cursor = connection.execute(sql)
    names = [d[0] for d in cursor.description]
    return [dict(zip(names, r, strict=True)) for r in cursor.fetchall()]


def test_means_spreads_and_extremes_as_printed(results: Path) -> None:
    found = {r["arm_id"]: r for r in rows(results, "from arm_summary")}
    printed = read("summary")
    assert set(found) == {p["arm_id"] for p in printed} and len(printed) == 4
    for p in printed:
        r = found[p["arm_id"]]
        assert f"{r['mean_score']:.2f}" == p["mean"]
        assert f"{r['sd_score']:.2f}" == p["sd"]
        assert (f"{r['min_score']:g}", f"{r['max_score']:g}") == (p["min"], p["max"])
        assert r["n"] == r["n_planned"] == 15


def test_intervals_are_exact_and_inside_the_range(results: Path) -> None:
    found = {r["arm_id"]: r for r in rows(results, "from arm_summary")}
    shown = {k: (f"{r['ci_low']:.1f}", f"{r['ci_high']:.1f}", r["ci_cut"]) for k, r in found.items()}
    assert shown == {
        "agentworld-35b-a3b-q4": ("41.2", "58.8", False),
        "qwen36-35b-a3b-q4": ("96.7", "100.0", True),
        "qwen36-35b-a3b-mtp-iq4xs": ("91.8", "100.0", True),
        "gemma4-26b-a4b-qat-q4": ("100.0", "100.0", False),
    }


def test_the_printed_intervals_are_those_of_a_rounded_quantile(results: Path) -> None:
    """With 2.14 in place of 2.1448 and no end at 100 the report's own figures come out: the data are the same."""
    found = {r["arm_id"]: r for r in rows(results, "from arm_summary")}
    for p in read("summary"):
        r = found[p["arm_id"]]
        half = 2.14 * r["sd_score"] / 15**0.5
        low, high = r["mean_score"] - half, r["mean_score"] + half
        assert low == pytest.approx(float(p["printed_low"]), abs=0.051)
        assert high == pytest.approx(float(p["printed_high"]), abs=0.051)


def test_pass_rates_as_printed(results: Path) -> None:
    found = {(r["arm_id"], r["level_id"]): r for r in rows(results, "from level_pass_rates")}
    printed = read("level_counts")
    assert len(found) == len(printed) == 20
    for p in printed:
        r = found[p["arm_id"], p["level_id"]]
        assert (r["k"], r["n"]) == (int(p["passed"]), int(p["n"]))
        assert 0 <= r["wilson_low"] <= r["pass_rate"] <= r["wilson_high"] <= 100


def test_scores_and_counts_agree() -> None:
    """Two files, copied apart: the points of all scores are the points of all passes."""
    points = {r["level_id"]: float(r["points"]) for r in read("levels")}
    for arm in {r["arm_id"] for r in read("arms")}:
        by_score = sum(float(r["score"]) for r in read("iteration_scores") if r["arm_id"] == arm)
        by_level = sum(int(r["passed"]) * points[r["level_id"]] for r in read("level_counts") if r["arm_id"] == arm)
        assert by_score == by_level


def test_no_verdict_is_made_up(results: Path) -> None:
    """A score of 65 does not say which level passed: there is no single answer, no grade, no failure."""
    for view in ("generations", "grades", "cells", "failures", "missing"):
        assert rows(results, f"from {view}") == [], view


def test_the_report_shows_all_its_tables(results: Path, tmp_path: Path) -> None:
    text = make_report(results, "latest", tmp_path).markdown.read_text("utf-8")
    for piece in (
        "50.0 ± 8.8 (n=15)", "[41.2, 58.8]", "100.0 ± 0.0 (n=15, no spread)", "4/15", "0/15, 0.0 % [0.0, 20.4]",
        "40, 65, 65, 40, 40, 40, 40, 40, 40, 40, 90, 40, 65, 40, 65", "100 × 15", "188.9 ± 0.8", "21387 MiB",
        "[96.7, 100.0] †", "57 (n not given)", "21.17 GB", "Wilson 95 %", "different_samplers", "no_spread",
        "every arm always passed L3, L4", "| L1 | Basic queue (add/get; FIFO) | 25 |",
    ):  # fmt: skip
        assert piece in text, piece
    assert not re.search(r"\bnan\b|\binf\b|None|\| *\|", text)
