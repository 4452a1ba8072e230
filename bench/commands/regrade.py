"""`regrade`: grade stored answers again, and say what changed and why."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Sequence

from bench.commands.stored import existing
from bench.errors import UsageError
from bench.grading import calibrate, open_grader
from bench.options import names, one_of, whole_number
from bench.paths import ROOT
from bench.regrade.again import Regraded
from bench.regrade.again import regrade as grade_again
from bench.regrade.review import printable
from bench.regrade.stored import query
from bench.report.runs import resolve_run
from bench.reporter import Reporter
from bench.store.database import connect, rebuild
from bench.store.write import Store
from bench.suites.load import Suite, load_suite, suite_ids

SANDBOXES = ("auto", "bubblewrap", "container", "unsafe")
_MOST_ROWS = 50


def regrade(
    run: str, suite: str | None, level: Sequence[str], adopt: bool, sandbox: str, results: str | None,
    workers: str | None, out: Reporter,
) -> int:  # fmt: skip
    """0 when every answer got a verdict, 1 when some could not be graded."""
    where = existing(results)
    store = Store(where.results)
    provider = one_of("--sandbox", sandbox, SANDBOXES)
    if adopt and provider == "unsafe":
        raise UsageError("--adopt with --sandbox unsafe: verdicts without a sandbox do not become the headline")
    n_workers = whole_number("workers", workers, len(os.sched_getaffinity(0)), high=256)
    connection, _ = connect(where.results)
    with connection:
        run_id = resolve_run(connection, run)
    pairs = _suites(store, run_id, suite)
    wanted = names(level) or None
    for name in wanted or ():
        if not any(name == lv.level_id for _, s in pairs for lv in s.levels):
            known = dict.fromkeys(lv.level_id for _, s in pairs for lv in s.levels)
            one_of("--level", name, list(known))
    ends = []
    with store.lock(run_id), contextlib.closing(open_grader(provider, n_workers)) as grader:
        for stored_as, loaded in pairs:
            out.line(f"run {run_id}: grading under suite {loaded.suite_id} in {grader.provider}, {n_workers} at a time")
            limits = calibrate(grader, loaded).limits
            end = grade_again(
                store, run_id, loaded, grader, limits=limits, stored_as=stored_as, levels=wanted, adopt=adopt,
                workers=n_workers, progress=lambda done, total: out.progress("graded", done, total),
            )  # fmt: skip
            show(end, out)
            ends.append(end)
    rebuild(where.results, where.database)
    if not any(end.n_graded or end.n_not_measured for end in ends) and any(end.other_levels for end in ends):
        asked = ", ".join(s.suite_id for _, s in pairs)
        raise UsageError(f"no answer of run {run_id} was graded: suite {asked} has none of its levels")
    return 1 if any(end.n_not_measured for end in ends) else 0


def _suites(store: Store, run_id: str, named: str | None) -> list[tuple[str | None, Suite]]:
    """(suite id that answers are stored under, suite to grade them by)."""
    found = query(store.results, "select distinct suite_id from generations where run_id = ? order by 1", [run_id])
    if not found:
        raise UsageError(f"run {run_id} has no stored answers; there is nothing to grade")
    if named is not None:
        return [(None, load_suite(named, ROOT / "suites"))]
    known = suite_ids(ROOT / "suites")
    out: list[tuple[str | None, Suite]] = []
    for row in found:
        if row["suite_id"] not in known:
            raise UsageError(
                f"run {run_id} was put the suite '{row['suite_id']}', which is none of {', '.join(known)}; "
                "say which tests to use: --suite ID or the path of a suite's folder"
            )
        out.append((row["suite_id"], load_suite(row["suite_id"], ROOT / "suites")))
    return out


def show(end: Regraded, out: Reporter) -> None:
    """What a regrade brought: counts, then each change."""
    said = [f"{end.n_graded} answers graded"]
    if end.n_same:
        said.append(f"{end.n_same} with the verdict they had")
    if end.n_first:
        said.append(f"{end.n_first} for the first time (their verdict is the headline)")
    if end.n_adopted:
        said.append(f"{end.n_adopted} adopted as the headline")
    if end.n_counterfactual:
        said.append(f"{end.n_counterfactual} failures for a missing name tried with what was offered instead")
    out.line("; ".join(said))
    if end.n_published:
        differ = sum(c.against == "published" for c in end.changes)
        out.line(f"{end.n_published} published verdicts: ours is another on {differ}")
    for level_id, n in end.other_levels.items():
        out.warn(f"{n} answers to '{level_id}' were left out: the suite has no such level")
    if end.n_not_measured:
        out.warn(f"{end.n_not_measured} answers could not be graded; their headline stays as it was")
    if not end.changes:
        out.line("no verdict changed")
        return
    counts = Counter((c.against, c.before, c.after, c.cause) for c in end.changes)
    rows = [[str(n), *key] for key, n in counts.most_common()]
    out.table("What changed", ["answers", "against", "from", "to", "cause"], rows)
    shown = end.changes[:_MOST_ROWS]
    out.table(
        f"Each of them ({len(shown)} of {len(end.changes)})" if len(shown) < len(end.changes) else "Each of them",
        ["arm", "level", "iteration", "from", "to", "why"],
        [[c.arm_id, c.level_id, str(c.iteration), c.before, c.after, printable(c.why)] for c in shown],
    )
    if len(shown) < len(end.changes):
        out.line("the others are in the table grades (kind regrade) and, against published verdicts, in disagreements")
    if unsure := [c for c in end.changes if c.cause == "not_repeatable"]:
        out.warn(
            f"{len(unsure)} verdicts changed with the same code, tests, sandbox and grader: they cannot be trusted"
        )
