"""`status` and `runs`: how runs stand, from their files alone."""

from __future__ import annotations

from bench.commands.stored import opened
from bench.locks import holder_of
from bench.report.data import resolve_run
from bench.reporter import Reporter
from bench.runner.events import read
from bench.runner.progress import progress


def status(run: str, results: str | None, out: Reporter) -> int:
    """Print how a run stands. Reads files only, and disturbs nobody."""
    where, connection, code = opened(results, out)
    run_id = resolve_run(connection, run)
    found = connection.execute("select status, reason from runs_latest where run_id = ?", [run_id]).fetchone()
    state, reason = found or ("unknown", None)
    holder = holder_of(where.results, run_id)
    planned, done = connection.execute(
        "select count(*), count(*) filter (where passed is not null) from cells where run_id = ? and planned", [run_id]
    ).fetchone() or (0, 0)
    events = read(where.results / "logs" / run_id)
    now = progress(events, planned)
    if state == "running" and holder is None:
        state = "died: no process holds it any more; the same bench command continues it"
    out.line(f"run       {run_id}: {state}{f' ({reason})' if reason else ''}")
    out.line(
        f"answers   {done} of {planned} graded" + (f", {now.not_measured} not measured" if now.not_measured else "")
    )
    if holder is not None:
        out.line(f"process   {holder}")
        out.line(f"now       {now.arm or 'between arms'}" + (f", {now.asked}" if now.asked else ""))
        if now.rate is not None and now.seconds_each is not None:
            out.line(f"rate      {now.rate:.1f} tokens/s, {now.seconds_each:.1f} s an answer")
        if now.ends_at is not None:
            seconds = (now.seconds_each or 0) * (planned - done)
            out.line(f"left      about {seconds / 60:.0f} min")
    faults = ", ".join(f"{name} x {n}" for name, n in sorted(now.faults.items()))
    out.line(f"faults    {faults or 'none'}")
    gpu = connection.execute(
        "select sampled_at, vram_used_bytes, power_w, gpu_util_pct, gpu_temp_c, reason from telemetry "
        "where run_id = ? order by sampled_at desc limit 1",
        [run_id],
    ).fetchone()
    if gpu is None:
        out.line("GPU       no sample yet")
    elif gpu[1] is None:
        out.line(f"GPU       not measured: {gpu[5] or 'no reason stored'}")
    else:
        figures = [(gpu[2], "W"), (gpu[3], "% busy"), (gpu[4], "°C")]
        text = "".join(f", {value:.0f} {unit}" for value, unit in figures if value is not None)
        out.line(f"GPU       {gpu[1] / 1e9:.1f} GB in use{text} (at {gpu[0]:%H:%M:%S} UTC)")
    return code


def runs(results: str | None, out: Reporter) -> int:
    """List the runs, newest last."""
    where, connection, code = opened(results, out)
    rows = connection.execute(
        "select r.run_id, r.status, r.origin, r.lineup_id, r.suite_id, len(r.arm_order), r.iterations, "
        "count(c.passed), count(*) filter (where c.planned) "
        "from runs_latest r left join cells c using (run_id) group by all order by r.run_id"
    ).fetchall()
    if not rows:
        out.line("no results yet; make some with: ./invoke bench")
        return code
    table = []
    for run_id, state, origin, lineup, suite, arms, iterations, done, planned in rows:
        if state == "running" and holder_of(where.results, run_id) is None:
            state = "died"
        values = (run_id, state, origin, lineup or "", suite or "", arms, iterations, f"{done} of {planned or done}")
        table.append(["" if v is None else str(v) for v in values])
    out.table("Runs", ["run", "status", "origin", "lineup", "suite", "arms", "iterations", "graded"], table)
    return code
