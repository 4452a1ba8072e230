"""`review`: list suspect verdicts, or store a person's decision on one."""

from __future__ import annotations

from bench.errors import UsageError
from bench.paths import places
from bench.regrade.review import Suspect, decide, suspects
from bench.report.runs import resolve_run
from bench.reporter import Reporter
from bench.store.database import connect, rebuild
from bench.store.write import Store


def review(
    grade: str | None, accept: bool, reject: bool, by: str | None, note: str | None, run: str | None,
    results: str | None, out: Reporter,
) -> int:  # fmt: skip
    """Without a grade: the suspects. With one: its code's decisive lines, or the decision."""
    where = places(results)
    store = Store(where.results)
    if accept and reject:
        raise UsageError("expected --accept or --reject, found both")
    decision = "accepted" if accept else "rejected" if reject else None
    if grade is None:
        if decision or by or note:
            raise UsageError("a decision is on one grade: ./invoke review --grade ID --accept --by NAME --note TEXT")
        run_id = None
        if run is not None:
            connection, _ = connect(where.results)
            with connection:
                run_id = resolve_run(connection, run)
        return _list(suspects(store, run_id), out)
    if decision is None:
        found = [s for s in suspects(store) if s.grade_id.startswith(grade)]
        if not found or by or note:
            raise UsageError(
                f"expected --accept or --reject for grade '{grade}', found neither"
                if found
                else f"no suspect headline verdict '{grade}'; ./invoke review lists those that there are"
            )
        return _list(found, out)
    before = decide(store, grade, decision, by or "", note or "")
    if before.decision is not None:
        out.line(f"before: {before.decision} by {before.reviewer} ({before.note}); both decisions are kept")
    rebuild(where.results, where.database)
    gain = f"{before.points:g} points count" if decision == "accepted" else "it counts as failed"
    out.line(f"{decision}: {_where(before)}, {before.verdict}; {gain} from now on")
    out.line(f"report    ./invoke report --run {before.run_id}")
    return 0


def _where(s: Suspect) -> str:
    return f"run {s.run_id}, {s.arm_id} {s.level_id} iteration {s.iteration}"


def _list(found: list[Suspect], out: Reporter) -> int:
    if not found:
        out.line("no suspect verdicts")
        return 0
    for s in found:
        out.line(f"{s.grade_id}  {_where(s)}")
        out.line(f"  tests say   {s.verdict}" + (f", {s.points:g} points hang on it" if s.points else ", no points"))
        out.line(f"  marks       {', '.join(s.reasons) or 'none stored'}")
        if s.decision is not None:
            out.line(f"  decided     {s.decision} by {s.reviewer}: {s.note}")
        for number, line in s.lines:
            out.line(f"  {number:>5} | {line}")
        if not s.lines:
            out.line("  no line of the code names it; read the whole:")
            out.line(f"    ./invoke sql \"select code from grades where grade_id = '{s.grade_id}'\" --format csv")
    waiting = sum(s.decision is None for s in found)
    out.line(f"{waiting} of {len(found)} wait for a decision; until then they count as failed")
    if waiting:
        first = next(s for s in found if s.decision is None)
        out.line(f"decide    ./invoke review --grade {first.grade_id} --accept --by NAME --note TEXT   (or --reject)")
    return 0
