"""The tables of a report that say what went wrong, and with which answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from bench.report import figures as f
from bench.report.content import Code, Table, table
from bench.report.names import Key, Row, arm_name

_MOST_MISSING = 20


def failures(rows: Sequence[Row], names: Mapping[Key, str]) -> Table:
    return table(
        ["Arm", "Level", "Kind", "Count", "Example", "What it said"],
        [
            [arm_name(r, names), r["level_id"], r["kind"], r["n"], f"iteration {r['example_iteration']}", _said(r)]
            for r in rows
        ],
        right=[3],
    )


def _said(row: Row) -> str:
    parts = [row["example_detail"], f"test {row['example_test']}" if row["example_test"] else None]
    if row["kind"] == "suspect":
        parts.append(", ".join(row["example_suspect_reasons"] or []))
    return "; ".join(p for p in parts if p) or f.NA


def example(row: Row, names: Mapping[Key, str]) -> dict[str, Any]:
    which = f"(iteration {row['example_iteration']}, one of {row['n']})"
    parts = []
    if row["example_tests_expected"] is not None and row["example_tests_passed"] is not None:
        parts.append(f"{row['example_tests_passed']} of {row['example_tests_expected']} tests passed.")
    if row["example_code"] and row["example_code_rule"]:
        parts.append(f"Code found by {row['example_code_rule']}.")
    return {
        "head": f"{arm_name(row, names)}, {row['level_id']}, {row['kind']} {which}.",
        "text": " ".join(parts),
        "code": Code(row["example_code"], "python") if row["example_code"] else None,
    }


def misses(rows: Sequence[Row], names: Mapping[Key, str]) -> Table:
    return table(
        ["Arm", "Level", "Missing name", "Count", "Offered instead"],
        [
            [arm_name(r, names), r["level_id"], r["missing_name"], r["n"], ", ".join(r["offered"] or []) or f.NA]
            for r in rows
        ],
        right=[3],
    )


def missing(rows: Sequence[Row], names: Mapping[Key, str]) -> Table:
    grouped: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for r in rows:
        grouped[arm_name(r, names), r["kind"], r["reason"] or f.NA].append(f"{r['level_id']}/{r['iteration']}")
    return table(
        ["Arm", "Kind", "Reason", "Count", "Level/iteration"],
        [
            [name, kind, reason, len(which), ", ".join(which[:_MOST_MISSING] + ["…"] * (len(which) > _MOST_MISSING))]
            for (name, kind, reason), which in grouped.items()
        ],
        right=[3],
    )  # fmt: skip


def failed_arms(arms: Sequence[Row]) -> Table | None:
    rows = [
        [a["arm_id"], a["reason"] or a["status"], *(a[c] or f.NA for c in ("detail", "advice", "log_line", "log_path"))]
        for a in arms
        if a["status"] in ("failed", "interrupted")
    ]  # fmt: skip
    return table(["Arm", "Reason", "What happened", "What to do", "From the log", "Log"], rows) if rows else None


def naming(rows: Sequence[Row], names: Mapping[Key, str]) -> Table:
    return table(
        ["Arm", "Points lost", "By naming", "By ability", "Failures for a name", "Of them pass under the other name",
         "Not tried"],
        [
            [
                arm_name(r, names),
                f.number(r["points_lost"], 1),
                f.number(r["points_naming"], 1),
                f.number(r["points_ability"], 1),
                r["n_interface"],
                r["n_naming"],
                r["n_untried"],
            ]
            for r in rows
        ],
        right=range(1, 7),
    )  # fmt: skip


def disagreements(rows: Sequence[Row]) -> Table:
    return table(
        ["Arm", "Level", "Published", "Here", "Cause", "Count", "Iterations", "Why"],
        [
            [
                r["arm_id"],
                r["level_id"],
                r["published_outcome"],
                r["outcome"],
                r["cause"],
                r["n"],
                ", ".join(map(str, r["iterations"])),
                r["why"],
            ]
            for r in rows
        ],
        right=[5],
    )
