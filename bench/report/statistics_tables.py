"""The tables of a report that help to decide: which arm for which goal, and how much the figures can bear."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from bench.report import figures as f
from bench.report.content import Cell, Table, table
from bench.report.names import Key, Row, arm_name

_GOALS = {
    "best_answers": "best answers",
    "fastest_no_loss": "soonest answer, with surely no loss beyond the margin",
}
_HOLDS = {
    "clear": "separated from every other",
    "tie": "not separated",
    "only": "the only one",
    "withheld": "withheld",
    "none": "none",
}


def recommendations(rows: Sequence[Row]) -> Table:
    """A line a goal; sizes of memory that come to the same stand together."""
    out = []
    for _, same in groupby(rows, key=_alike):
        found = list(same)
        goals = [_goal(r) or f"{_gb(r)} GB" for r in found]
        sizes = _goal(found[0]) is None
        goal = f"fits in {goals[0] if len(goals) == 1 else f'{_gb(found[0])} to {goals[-1]}'}" if sizes else goals[0]
        last = found[-1]
        arm = ", ".join(last["equal_arms"] or []) or last["arm_id"] or f.NA
        out.append([goal, arm, _HOLDS.get(last["status"], last["status"]), last["reason"] or "", last["evidence"]])
    return table(["Goal", "Arm", "Against the others", "Why", "Evidence"], out)


def _alike(row: Row) -> tuple[str, object, object, str]:
    """The same for sizes of memory of which the same is said."""
    size = _gb(row)
    reason = str(row["reason"] or "")
    return (
        "" if size else row["goal"],
        row["arm_id"],
        row["status"],
        reason.replace(f"{size} GB", "") if size else reason,
    )


def _goal(row: Row) -> str | None:
    """What a goal is called; None for a size of memory."""
    return _GOALS.get(row["goal"]) if _gb(row) is None else None


def _gb(row: Row) -> str | None:
    found = re.fullmatch(r"fits_(\d+)_gb", row["goal"])
    return found[1] if found else None


def pareto(rows: Sequence[Row], names: Mapping[Key, str]) -> Table:
    return table(
        ["Arm", "Score", "Seconds to the answer", "Memory", "On the front", "Beaten in all by", "Surely by"],
        [
            [
                arm_name(r, names),
                f.number(r["mean_score"], 1),
                f.number(r["answer_s_mean"], 1),
                Cell(f"{f.mib(r['memory_bytes']) or f.NA} {r['memory_kind'] or ''}".strip(), r["memory_bytes"]),
                f"not known: {r['reason']}" if r["on_front"] is None else ("yes" if r["on_front"] else "no"),
                ", ".join(r["dominated_by"] or []) or ("none" if r["on_front"] is not None else f.NA),
                ", ".join(r["surely_dominated_by"] or []) or ("none" if r["on_front"] is not None else f.NA),
            ]
            for r in rows
        ],
        right=[1, 2, 3],
    )  # fmt: skip


def steadiness(rank: Sequence[Row], passes: Sequence[Row], names: Mapping[Key, str]) -> Table:
    """How often an arm is first when its iterations are drawn again, and how often one of k answers passes."""
    ks = sorted({r["k"] for r in passes})
    found = {(r["arm_id"], r["identity"], r["k"]): r for r in passes}
    return table(
        ["Arm", "First, % of draws", "Mean rank", *(f"pass@{k}, %" for k in ks)],
        [
            [
                arm_name(r, names),
                f.number(r["best_pct"], 1),
                f.number(r["mean_rank"], 2),
                *(_pass_at(found.get((r["arm_id"], r["identity"], k))) for k in ks),
            ]
            for r in rank
        ],
        right=range(1, 3 + len(ks)),
    )


def _pass_at(row: Row | None) -> str:
    if row is None or row["pass_at_k"] is None:
        return f.NA
    return f.number(row["pass_at_k"], 1)


def saturation(rows: Sequence[Row], summary: Sequence[Row]) -> tuple[str, Table]:
    """Which levels say something about the arms, and how much of the suite that is."""
    text = ""
    if summary:
        s = summary[0]
        told = f"{f.number(s['telling_pct'], 0)} % of the points" if s["telling_pct"] is not None else s["reason"]
        text = (
            f"{s['n_telling']} of {s['n_levels']} levels can tell these arms apart ({told}); {s['n_saturated']} were "
            "passed always or never by every arm."
        )
    return text, table(
        ["Level", "Points", "Passed by all arms together", "Says about the arms"],
        [
            [
                f"{r['level_id']} {r['level_title'] or ''}".strip(),
                f.NA if r["level_points"] is None else f"{r['level_points']:g}",
                f"{r['k']} of {r['n']}" if r["n"] else f.NA,
                r["says"] or f"not known: {r['reason']}",
            ]
            for r in rows
        ],
        right=[1, 2],
    )


def energy(rows: Sequence[Row], names: Mapping[Key, str]) -> Table:
    return table(
        ["Arm", "Answering, s", "Energy, J", "J per answer token", "above idle", "J per solved level", "above idle",
         "Throttled, s", "Measured"],
        [
            [
                arm_name(r, names),
                f.number(r["answering_s"], 1),
                f.number(r["energy_j"], 0),
                f.number(r["j_per_answer_token"], 2),
                f.number(r["j_per_answer_token_above_idle"], 2),
                f.number(r["j_per_solved_level"], 0),
                f.number(r["j_per_solved_level_above_idle"], 0),
                f.number(r["throttled_s"], 1),
                f"{r['n_powered']} of {r['n_answers']} answers" + (f": {r['reason']}" if r["reason"] else ""),
            ]
            for r in rows
        ],
        right=range(1, 8),
    )  # fmt: skip
