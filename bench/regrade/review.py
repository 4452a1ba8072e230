"""Suspect verdicts, and what a person decides on them.

A suspect verdict counts as failed until somebody has looked at the code. The decision is a row of its own beside the
grade (table `reviews`): who, why, and on what it was made. The grade stays as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bench.errors import UsageError
from bench.ids import new_id
from bench.regrade.stored import query
from bench.store.write import Store
from bench.visible import visible

_MOST_LINES = 8
_WIDEST = 160
_MOST_LISTED = 10

_WORDS = {
    "frame_walking": r"_getframe|f_back|f_locals|f_globals|tb_frame|gi_frame|cr_frame|ag_frame|currentframe"
    r"|inspect\.stack|_current_frames|walk_stack|extract_stack|getattr",
    "reads_test_code": r"__globals__|__code__|__closure__|co_consts|getsource|getattr",
    "builds_code": r"\bcompile\b|\bexec\b|\beval\b",
    "changes_code": r"__code__|__defaults__|__kwdefaults__|setattr",
    "network": r"socket|urllib|http|requests|asyncio\.open_connection",
    "ctypes": r"ctypes",
    "opens_tests": r"open|hidden_test|read_text|listdir|scandir|glob|walk|getsource",
    "foreign_file": r"open|Path|read_text|read_bytes|listdir|scandir|glob|walk",
    "proc": r"/proc|open|Path|listdir|scandir|glob",
    "result_pipe": r"os\.write|fdopen|open",
    "left_process": r"subprocess|Popen|fork|spawn|Process\(|daemon",
}
"""What to look for in the code of a mark that does not name it. Other marks are searched by the words they hold."""


@dataclass(frozen=True)
class Suspect:
    """A suspect verdict that counts, or would."""

    grade_id: str
    run_id: str
    arm_id: str
    level_id: str
    iteration: int
    verdict: str
    """What the tests say."""
    reasons: tuple[str, ...]
    points: float
    """Points that hang on the decision: 0 where the tests fail anyway."""
    decision: str | None
    reviewer: str | None
    note: str | None
    lines: tuple[tuple[int, str], ...]
    """(line number, line) of the code that the marks speak of, as far as its text shows."""


_SUSPECTS = """
    select h.grade_id, h.generation_id, h.run_id, h.arm_id, h.suite_id, h.level_id, h.iteration, g.outcome, g.passed,
        g.points, g.suspect_reasons, g.code, g.grading_hash, h.decision, h.reviewer, h.review_note
    from grades_latest h join grades g using (grade_id)
    where g.suspect and h.in_plan is not false and ($run is null or h.run_id = $run)
    qualify row_number() over (partition by h.grade_id order by g.graded_at desc) = 1
    order by h.decision is not null, g.passed desc nulls last, h.run_id, h.arm_id, h.level_id, h.iteration"""


def suspects(store: Store, run_id: str | None = None) -> list[Suspect]:
    """Suspect headline verdicts, of one run or of all; undecided ones first, and those first that points hang on."""
    return [_suspect(row) for row in query(store.results, _SUSPECTS, {"run": run_id})]


def _suspect(row: Mapping[str, Any]) -> Suspect:
    return Suspect(
        grade_id=row["grade_id"],
        run_id=row["run_id"],
        arm_id=row["arm_id"],
        level_id=row["level_id"],
        iteration=row["iteration"],
        verdict=row["outcome"],
        reasons=tuple(row["suspect_reasons"] or ()),
        points=(row["points"] or 0.0) if row["passed"] else 0.0,
        decision=row["decision"],
        reviewer=row["reviewer"],
        note=row["review_note"],
        lines=decisive_lines(row["code"] or "", row["suspect_reasons"] or ()),
    )


def decide(store: Store, grade_id: str, decision: str, reviewer: str, note: str) -> Suspect:
    """Store what a person decided on a suspect verdict: `accepted` or `rejected`. Returns the verdict as it was before.

    `grade_id` may be a unique beginning of one. Raises UsageError when it names no suspect headline verdict, or when
    reviewer or note are missing: a decision without them is no evidence.
    """
    if decision not in ("accepted", "rejected"):
        raise ValueError(f"expected accepted or rejected, found {decision!r}")
    if not reviewer.strip():
        raise UsageError("a decision needs the name of who made it: --by NAME")
    if not note.strip():
        raise UsageError("a decision needs its reason: --note TEXT")
    row = _find(query(store.results, _SUSPECTS, {"run": None}), grade_id.strip())
    key = ("grade_id", "generation_id", "run_id", "arm_id", "suite_id", "level_id", "iteration")
    code = row["code"]
    store.append(
        "reviews",
        [
            {
                "review_id": new_id(),
                **{name: row[name] for name in key},
                "decided_at": datetime.now(UTC),
                "decision": decision,
                "reviewer": reviewer.strip(),
                "note": note.strip(),
                "outcome": row["outcome"],
                "suspect_reasons": list(row["suspect_reasons"] or ()),
                "grading_hash": row["grading_hash"],
                "code_sha256": None if code is None else hashlib.sha256(code.encode()).hexdigest(),
            }
        ],
    )
    return _suspect(row)


def _find(rows: Sequence[dict[str, Any]], text: str) -> dict[str, Any]:
    found = [row for row in rows if text and row["grade_id"].startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        some = ", ".join(row["grade_id"] for row in found[:_MOST_LISTED])
        raise UsageError(f"grade '{text}' could be {some}; type more of its id")
    raise UsageError(f"no suspect headline verdict '{text}'; ./invoke review lists those that there are")


def decisive_lines(code: str, reasons: Sequence[str]) -> tuple[tuple[int, str], ...]:
    """The lines of the code that hold what the marks speak of, at most 8, each cut to 160 printable characters."""
    patterns = []
    for reason in reasons:
        kind, _, what = reason.partition(":")
        if what:
            words = [what, what.rpartition(".")[2]]
            patterns.append("|".join(re.escape(word) for word in dict.fromkeys(words) if word))
        elif kind in _WORDS:
            patterns.append(_WORDS[kind])
    if not patterns:
        return ()
    wanted = re.compile("|".join(patterns))
    lines = [(n, line) for n, line in enumerate(code.split("\n"), 1) if wanted.search(line)]
    return tuple((n, printable(line)) for n, line in lines[:_MOST_LINES])


def printable(line: str) -> str:
    """A line that cannot move the cursor or colour a terminal, cut to 160 characters."""
    line = visible(line.replace("\t", "    ").rstrip())
    return line if len(line) <= _WIDEST else line[: _WIDEST - 1] + "…"
