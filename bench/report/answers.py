"""Every question of a run and what came of it, with the text behind each that did not pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from bench.report import figures as f
from bench.report.chart_data import rows

MOST_SHOWN = 400
"""Failed answers with their text in one page; the store has all."""

_LONGEST = 20_000
"""Characters of an answer or its code in the page."""

_LONGEST_REASONING = 8_000
"""Characters of a reasoning: half of them from its start, half from its end."""

_GRID = """
    select
        c.arm_id, c.identity, c.level_id, c.level_index, c.iteration, c.outcome, c.passed, c.suspect, c.measured,
        c.gap, c.gap_reason, c.generation_id, l.title
    from cells c left join levels l using (run_id, suite_id, level_id)
    where c.run_id = $run and (c.planned or c.measured)
    order by c.arm_id, c.identity, c.level_index nulls last, c.level_id, c.iteration"""

_TEXTS = f"""
    with wanted as (
        select c.generation_id, c.grade_id from cells c
        where c.run_id = $run and c.measured and (not c.passed or c.suspect) and c.generation_id is not null
        order by c.arm_id, c.identity, c.level_index nulls last, c.level_id, c.iteration
        limit {MOST_SHOWN}
    ),
    said as (
        select
            generation_id, any_value(left(content, {_LONGEST})) as content,
            any_value(length(content)) as content_length,
            any_value(case when length(reasoning) <= {_LONGEST_REASONING} then reasoning
                else left(reasoning, {_LONGEST_REASONING // 2}) || chr(10) || '[…]' || chr(10)
                    || right(reasoning, {_LONGEST_REASONING // 2}) end) as reasoning,
            any_value(length(reasoning)) as reasoning_length, any_value(finish_reason) as finish_reason,
            any_value(detail) as generation_detail
        from generations where run_id = $run and generation_id in (select generation_id from wanted)
        group by generation_id
    ),
    judged as (
        select
            grade_id, any_value(left(code, {_LONGEST})) as code, any_value(code_rule) as code_rule,
            any_value(detail) as detail, any_value(first_failed_test) as first_failed_test,
            any_value(tests_passed) as tests_passed, any_value(tests_expected) as tests_expected,
            any_value(suspect_reasons) as suspect_reasons, any_value(missing_name) as missing_name,
            any_value(offered) as offered
        from grades where run_id = $run and grade_id in (select grade_id from wanted) group by grade_id
    ),
    tested as (
        select t.grade_id, any_value(left(t.message, 4000)) as message, any_value(t.line) as line
        from tests t join judged j on t.grade_id = j.grade_id and t.test_id = j.first_failed_test
        where t.run_id = $run group by t.grade_id
    )
    select w.generation_id, s.* exclude (generation_id), j.* exclude (grade_id), t.message, t.line
    from wanted w
    join said s using (generation_id)
    left join judged j using (grade_id)
    left join tested t using (grade_id)"""


@dataclass(frozen=True)
class Square:
    """A question of the grid: how it looks, what it says, and the answer that it opens, if any."""

    kind: str
    """passed, failed, suspect or missing."""
    says: str
    opens: str | None


def answers(
    connection: duckdb.DuckDBPyConnection, run_id: str, names: Mapping[tuple[str, str | None], str]
) -> dict[str, Any]:
    """For the page: a grid for each arm, and the texts of what did not pass, `n_left_out` of them not shown."""
    cells = rows(connection, _GRID, run=run_id)
    texts = {row["generation_id"]: row for row in rows(connection, _TEXTS, run=run_id)}
    by_arm: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for cell in cells:
        by_arm[names.get((cell["arm_id"], cell["identity"]), cell["arm_id"])].append(cell)
    failed = [c for c in cells if _kind(c) in ("failed", "suspect") and c["generation_id"]]
    return {
        "grids": [_grid(name, found, texts) for name, found in by_arm.items()],
        "failed_answers": [_opened(c, texts[c["generation_id"]], names) for c in failed if c["generation_id"] in texts],
        "n_left_out": sum(c["generation_id"] not in texts for c in failed),
    }


def _kind(cell: Mapping[str, Any]) -> str:
    if not cell["measured"]:
        return "missing"
    if cell["suspect"]:
        return "suspect"
    return "passed" if cell["passed"] else "failed"


def _grid(name: str, cells: Sequence[Mapping[str, Any]], texts: Mapping[str, Any]) -> dict[str, Any]:
    iterations = sorted({c["iteration"] for c in cells})
    levels: dict[str, dict[int, Square]] = defaultdict(dict)
    for c in cells:
        kind = _kind(c)
        says = c["gap_reason"] or c["gap"] or "missing" if kind == "missing" else c["outcome"] or kind
        opens = _anchor(c["generation_id"]) if kind in ("failed", "suspect") and c["generation_id"] in texts else None
        levels[c["level_id"]][c["iteration"]] = Square(
            kind, f"{c['level_id']}, iteration {c['iteration']}: {says}", opens
        )
    return {
        "name": name,
        "iterations": iterations,
        "levels": [
            {
                "level": level,
                "passed": f"{sum(s.kind == 'passed' for s in found.values())}/{len(found)}",
                "squares": [found.get(i) for i in iterations],
            }
            for level, found in levels.items()
        ],
    }


def _anchor(generation_id: str) -> str:
    """A name that is safe as an address: ids of imported runs may hold anything."""
    return "a-" + "".join(c if c.isascii() and c.isalnum() else f"-{ord(c):x}-" for c in generation_id)


def _opened(cell: Mapping[str, Any], text: Mapping[str, Any], names: Mapping[Any, str]) -> dict[str, Any]:
    name = names.get((cell["arm_id"], cell["identity"]), cell["arm_id"])
    facts = []
    if text["tests_expected"] is not None and text["tests_passed"] is not None:
        facts.append(f"{text['tests_passed']} of {text['tests_expected']} tests passed.")
    if text["finish_reason"]:
        facts.append(f"The server's finish reason: {text['finish_reason']}.")
    if text["code_rule"]:
        facts.append(f"Code found by {text['code_rule']}.")
    if text["suspect_reasons"]:
        facts.append(f"Suspect: {', '.join(text['suspect_reasons'])}.")
    if text["missing_name"]:
        facts.append(f"Missing: {text['missing_name']}; offered: {', '.join(text['offered'] or []) or 'nothing'}.")
    test = text["first_failed_test"]
    level = cell["level_id"] + (f" ({cell['title']})" if cell["title"] else "")
    return {
        "anchor": _anchor(cell["generation_id"]),
        "head": f"{name}, {level}, iteration {cell['iteration']}: {cell['outcome'] or f.NA}",
        "kind": _kind(cell),
        "detail": text["detail"] or text["generation_detail"] or "",
        "facts": " ".join(facts),
        "test": None if test is None else test + (f", line {text['line']}" if text["line"] else ""),
        "message": text["message"],
        "code": text["code"],
        "content": text["content"],
        "content_cut": (text["content_length"] or 0) > _LONGEST,
        "reasoning": text["reasoning"],
        "reasoning_length": text["reasoning_length"],
        "generation_id": cell["generation_id"],
    }
