"""`bench`: plan, run, report."""

from __future__ import annotations

import contextlib

from bench.commands.dry_run import dry_run
from bench.commands.setup import engines_for, problems_for
from bench.errors import UsageError
from bench.grading import open_grader
from bench.paths import ROOT, Places, default_cache, places
from bench.report.make import make_report
from bench.report.summary import summary_table
from bench.reporter import Reporter
from bench.runner.planning import (
    BIG_LINEUP,
    Choice,
    Wishes,
    check_context,
    choose,
    download_text,
    show,
    spec_for,
    time_text,
    unfinished_run,
)
from bench.runner.run import RunEnd, run
from bench.store.database import connect, rebuild
from bench.store.write import Store


def bench(wishes: Wishes, results: str | None, out: Reporter) -> int:
    """Run what was asked for. 0 when every arm finished, 1 when one did not, 130 when the user stopped it."""
    where = places(results)
    choice = choose(wishes, ROOT)
    cache = default_cache()
    engines = engines_for(choice.arms, wishes)
    problems = problems_for(choice.arms, engines)
    if wishes.dry_run:
        notes = check_context(choice)
        show(choice, problems, cache, engines, out)
        for arm_id, note in notes.items():
            out.warn(f"{arm_id}: {note}; the preset allows it")
        return dry_run(choice, engines, problems, cache, out)
    if all(problems[arm.arm_id] for arm in choice.arms):
        raise UsageError(_cannot_run(choice, problems))
    notes = check_context(choice)
    unfinished = unfinished_run(choice, wishes, where.results)
    spec = spec_for(choice, engines, wishes, cache, problems, unfinished)
    show(choice, problems, cache, engines, out)
    for arm_id, note in notes.items():
        out.warn(f"{arm_id}: {note}; the preset allows it, the report will say so")
    with contextlib.closing(open_grader("unsafe" if wishes.unsafe_grading else "auto")) as grader:
        out.line(f"grading in: {grader.provider}")
        if unfinished:
            out.line(f"continuing run {spec.run_id}; what has a verdict is not asked again (--new starts over)")
        else:
            out.line(f"run {spec.run_id}, seed {spec.seed}")
        end = run(spec, Store(where.results), grader, out)
    return _finish(end, choice, where, out)


def _cannot_run(choice: Choice, problems: dict[str, list[str]]) -> str:
    reasons = list(dict.fromkeys(text for texts in problems.values() for text in texts))
    return (
        f"none of the arms of '{choice.lineup_id}' can run here: {'; '.join(reasons)}. "
        "Type ./invoke bench for the smoke lineup, which runs on any machine, or ./invoke doctor for what is missing"
    )


def _finish(end: RunEnd, choice: Choice, where: Places, out: Reporter) -> int:
    rebuild(where.results, where.database)
    made = make_report(where.results, end.run_id, where.reports / end.run_id)
    connection, _ = connect(where.results)
    header, rows = summary_table(connection, end.run_id)
    out.line()
    out.table(f"Run {end.run_id} ({end.status})", header, rows)
    for arm_id, text in end.failed:
        out.warn(f"{arm_id} did not finish: {text}")
    out.line(f"report    {made.html}  (and {made.markdown.name} beside it)")
    asked = f"select arm_id, mean_score, n from arm_summary where run_id = '{end.run_id}'"
    out.line(f'database  {where.database}  (./invoke sql "{asked}")')
    if end.status == "interrupted":
        return 130
    if choice.lineup_id == "smoke" and not end.failed:
        out.line(_bigger())
    return 1 if end.failed else 0


def _bigger() -> str:
    """The next command to type, with what it costs."""
    big = choose(Wishes(lineup=BIG_LINEUP), ROOT)
    cost = f"to download: {download_text(big.arms, default_cache())}; {time_text(big)}"
    return (
        f"next      ./invoke bench --arm all   ({big.lineup_id}: {len(big.arms)} arms, {cost}; "
        "needs Docker and an NVIDIA GPU with 24 GB)"
    )
