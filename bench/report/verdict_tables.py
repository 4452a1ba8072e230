"""The verdicts of a run and the pairs of arms they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.report import figures as f
from bench.report.content import Table, table
from bench.report.markdown import Safe

Row = Mapping[str, Any]
Key = tuple[str, str | None]

GOALS = {
    "quality": "Best answers",
    "throughput": "Fastest decoding",
    "answer_time": "Soonest answer",
    "memory": "Least memory",
}


def verdicts(rows: Sequence[Row]) -> list[dict[str, str]]:
    """A line for each goal: the verdict, then what it rests on, or why there is none."""
    if not rows:
        return [{"goal": "", "status": "none", "head": "No arm was measured, so there is no verdict", "text": ""}]
    lines = []
    for row in rows:
        parts = []
        if row["reason"] and row["status"] not in ("winner", "tie"):
            parts.append(sentence("Reason: " + row["reason"]))
        if row["evidence"]:
            as_measured = "As measured: " if row["status"] == "withheld" else ""
            parts.append(sentence(as_measured + row["evidence"]))
        lines.append(
            {
                "goal": GOALS.get(row["goal"], row["goal"]),
                "status": row["status"],
                "head": row["text"],
                "text": " ".join(parts),
            }
        )
    return lines


def stopping(rows: Sequence[Row]) -> str | None:
    """Of a run that stopped by its results: rule, null hypothesis, error rate, and where each arm stopped."""
    found = next((r for r in rows if r["stops"]), None)
    if found is None:
        return None
    parts = ["This run stopped by its results (--until decided)."]
    if found["stopping_rule"]:
        parts.append(sentence(f"Rule and null hypothesis: {found['stopping_rule']}"))
    if found["stopping_alpha"] is not None:
        parts.append(f"Chance of any wrong statement in the whole run: at most {100 * found['stopping_alpha']:g} %.")
    parts.append(sentence(f"Stops: {found['stops']}"))
    parts.append(
        "Intervals for a number of iterations fixed beforehand, the t intervals below among them, do not hold for such "
        "a run; the verdict on answers is that of the e-value rule."
    )
    return " ".join(parts)


def exact_interval(row: Row | None) -> Safe:
    """The interval of a score that holds at 0 and 100; why there is none."""
    if row is None or row["score"] is None:
        return Safe(f.NA)
    if not row["holds"]:
        return Safe("does not hold: stopped by the results")
    return Safe(f"[{f.number(row['score_low'])}, {f.number(row['score_high'])}]")


def pairs(rows: Sequence[Row], names: Mapping[Key, str]) -> Table:
    """Every two arms, the one with the higher score first."""
    return table(
        ["First", "Second", "Difference of score", "n", "Verdict", "Decode, tokens/s", "Seconds to the answer"],
        [
            [
                first := names.get((r["arm_a"], r["identity_a"]), r["arm_a"]),
                second := names.get((r["arm_b"], r["identity_b"]), r["arm_b"]),
                _difference(r, "difference", "low", "high"),
                f.NA if r["n_a"] is None else f"{r['n_a']}, {r['n_b']}",
                _verdict(r, first, second),
                _difference(r, "decode_difference", "decode_low", "decode_high"),
                _difference(r, "answer_difference", "answer_low", "answer_high"),
            ]
            for r in rows
        ],
        right=[2, 3, 5, 6],
    )  # fmt: skip


def _verdict(row: Row, first: str, second: str) -> str:
    if row["verdict"] is None:
        return f"not compared: {row['reason']}" if row["reason"] else f.NA
    verdict = str(row["verdict"])
    text = {"a better": f"{first} better", "b better": f"{second} better"}.get(verdict, verdict)
    return text + ("" if row["robust"] in (None, True) else " (changes with failures that may be the bench's doing)")


def _difference(row: Row, what: str, low: str, high: str) -> Safe:
    if row[what] is None:
        return Safe(f.NA)
    if not row["comparable"]:
        return Safe("not compared")
    if row[low] is None:
        return Safe(f"{f.number(row[what])} (no interval)")
    return Safe(f"{f.number(row[what])} [{f.number(row[low])}, {f.number(row[high])}]")


def sentence(text: str) -> str:
    """With a full stop at its end."""
    return text if text.endswith((".", "!", "?")) else text + "."
