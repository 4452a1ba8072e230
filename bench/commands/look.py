"""Commands that only look: report, sql, arms, suites."""

from __future__ import annotations

import json as json_module

from bench.commands.setup import engines_for, problems_for
from bench.commands.stored import existing, name_left_out, opened
from bench.models.obtain import expected_bytes, is_cached
from bench.options import one_of
from bench.paths import ROOT, default_cache
from bench.presets.load import load_arms, load_lineups
from bench.report.data import report_data, resolve_run
from bench.report.make import make_report
from bench.report.query import query
from bench.reporter import Reporter
from bench.runner.planning import Wishes, size_text
from bench.store.database import rebuild
from bench.store.parts import BadFile
from bench.suites.load import load_suite


def report(run: str, results: str | None, as_json: bool, out: Reporter) -> int:
    """Write the report of a run, or print its data. 3 when unreadable files were left out."""
    where, connection, code = opened(results, out)
    run_id = resolve_run(connection, run)
    if as_json:
        out.data(json_module.dumps(report_data(connection, run_id), indent=2, allow_nan=False, default=str))
    else:
        rebuild(where.results, where.database)
        made = make_report(where.results, run_id, where.reports / run_id)
        out.line(str(made.html))
        out.line(str(made.markdown))
    return code


def sql(text: str, form: str, results: str | None, out: Reporter) -> int:
    """Run a query over the views and print what comes back. 3 when unreadable files were left out."""
    one_of("--format", form, ("table", "csv", "json"))
    where = existing(results)
    bad: list[BadFile] = []
    out.data(query(where.results, text, form, bad).rstrip("\n"))
    return name_left_out(bad, out)


def arms(out: Reporter) -> int:
    """Lineups and arms."""
    cache = default_cache()
    known = load_arms(ROOT)
    for lineup in load_lineups(ROOT).values():
        out.line(f"{lineup.lineup_id}: {lineup.title} (suite {lineup.suite}, {lineup.iterations} iterations)")
    engines = engines_for(list(known.values()), Wishes())
    problems = problems_for(list(known.values()), engines)
    rows = []
    for arm in known.values():
        size = expected_bytes(arm.model)
        lineups = ", ".join(k for k, v in load_lineups(ROOT).items() if arm.arm_id in v.arms)
        state = "; ".join(problems[arm.arm_id]) or (
            "ready" if is_cached(arm.model, cache) else "ready, model to download"
        )
        rows.append([arm.arm_id, lineups, size_text(size) if size else "unknown", arm.sampler.sampler_id, state])
    out.table("Arms", ["arm", "lineups", "size", "sampler", "here"], rows)
    return 0


def suites(out: Reporter) -> int:
    """Suites with their levels."""
    for path in sorted((ROOT / "suites").glob("*/suite.toml")):
        suite = load_suite(path.parent.name, ROOT / "suites")
        rows = [
            [level.level_id, level.title, str(level.points), str(len(level.expected)), str(len(level.mutants))]
            for level in suite.levels
        ]
        out.table(f"{suite.suite_id}: {suite.title}", ["level", "title", "points", "tests", "mutants"], rows)
    return 0
