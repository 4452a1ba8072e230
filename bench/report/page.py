"""From the data of a report to its tables and sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from bench.report import failure_tables, result_tables, setup_tables, statistics_tables, verdict_tables
from bench.report import figures as f
from bench.report.markdown import Safe
from bench.report.names import Key, arm_name, arm_names
from bench.report.rules import NOTES, rules

Row = Mapping[str, Any]
Data = Mapping[str, Any]


def page(data: Data, *, bad_files: Sequence[str] = (), allow_mixed: bool = False) -> dict[str, Any]:
    """What the template needs."""
    run, summary = data["run"], data["summary"]
    names = arm_names(summary)
    groups = _groups(summary, allow_mixed)
    exact = {(r["arm_id"], r["identity"]): r for r in data["arm_intervals"]}
    return {
        "title": f"{run.get('lineup_id') or 'Run'}: {run.get('suite_title') or run.get('suite_id') or 'no suite'}",
        "lead": _lead(run),
        "warnings": _warnings(data, bad_files, allow_mixed),
        "verdicts": verdict_tables.verdicts(data["verdicts"]),
        "stopping": verdict_tables.stopping(data["verdicts"]),
        "pairs": verdict_tables.pairs(data["pairwise"], names) if data["pairwise"] else None,
        "recommendations": statistics_tables.recommendations(data["recommendations"])
        if data["recommendations"]
        else None,
        "statistics": _statistics(data, names),
        "summary": [
            {
                "title": f"Group {number}" if len(groups) > 1 else "",
                "scores": result_tables.scores(rows, names, exact),
                "speed": result_tables.speed(rows, names),
                "size": result_tables.size(rows, names),
            }
            for number, rows in enumerate(groups, 1)
        ],
        "ranges": _ranges(summary, names),
        "setup": setup_tables.setup(run),
        "models": setup_tables.models(data["arms"]),
        "samplers": setup_tables.samplers(data["arms"]),
        "servers": setup_tables.servers(data["arms"]),
        "methodology": setup_tables.methodology(run, data),
        "levels": setup_tables.levels(data["levels"]),
        "rates": result_tables.rates(data["level_pass_rates"], names),
        "scores": result_tables.iterations(data["iteration_scores"], names),
        "unscored": result_tables.unscored(data["iteration_scores"], names),
        "failures": failure_tables.failures(data["failures"], names) if data["failures"] else None,
        "examples": [failure_tables.example(row, names) for row in data["failures"]],
        "none_measured": not any(r["n"] for r in data["level_pass_rates"]),
        "no_failures": "Every graded answer passed."
        if all(r["k"] == r["n"] for r in data["level_pass_rates"])
        else "Not recorded: the figures are as printed elsewhere, without the answers behind them.",
        "misses": failure_tables.misses(data["interface_misses"], names) if data["interface_misses"] else None,
        "missing": failure_tables.missing(data["missing"], names) if data["missing"] else None,
        "failed_arms": failure_tables.failed_arms(data["arms"]),
        "naming": failure_tables.naming(data["naming"], names) if data["naming"] else None,
        "disagreements": failure_tables.disagreements(data["disagreements"]) if data["disagreements"] else None,
        "reviewed": _reviewed(data["reviewed"]),
        "caveats": _caveats(data["caveats"]),
        "notes": NOTES,
        "rules": rules(),
        "run_id_sql": Safe(str(run["run_id"]).replace("'", "''")),
    }


def _statistics(data: Data, names: Mapping[Key, str]) -> list[dict[str, Any]]:
    """Tables that a run has only where it has their values."""
    out = []
    if len(data["pareto"]) > 1:
        out.append(
            {
                "title": "Pareto front",
                "note": NOTES["pareto"],
                "table": statistics_tables.pareto(data["pareto"], names),
                "views": "pareto",
            }
        )
    if any(r["best_pct"] is not None for r in data["rank_stability"]):
        steady = statistics_tables.steadiness(data["rank_stability"], data["pass_at_k"], names)
        views = "rank_stability, pass_at_k"
        out.append({"title": "Rank and repetition", "note": NOTES["steadiness"], "table": steady, "views": views})
    if data["saturation"]:
        note, levels = statistics_tables.saturation(data["saturation"], data["saturation_summary"])
        views = "saturation, saturation_summary"
        out.append({"title": "What the levels can tell", "note": note, "table": levels, "views": views})
    if any(r["n_powered"] for r in data["energy"]):
        table = statistics_tables.energy(data["energy"], names)
        out.append({"title": "Energy", "note": NOTES["energy"], "table": table, "views": "energy"})
    return out


def _groups(summary: Sequence[Row], allow_mixed: bool) -> list[list[Row]]:
    """Arms that may be compared stand in one table. Arms that never answered are listed in the first."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in summary:
        groups[None if allow_mixed else row["comparable_group"]].append(row)
    silent = groups.pop(None, []) if not allow_mixed else []
    out = list(groups.values())
    if not out:
        return [silent]
    out[0] = out[0] + silent
    return [sorted(rows, key=_rank) for rows in out]


def _rank(row: Row) -> tuple[bool, float, str]:
    return (row["mean_score"] is None, -(row["mean_score"] or 0.0), row["arm_id"])


def _lead(run: Row) -> str:
    started = str(run.get("started_at") or "")[:16].replace("T", " ")
    state = run.get("status") or "state not known"
    return f"Run {run['run_id']}, {state}, started {started or 'at a time not known'} UTC."


def _warnings(data: Data, bad_files: Sequence[str], allow_mixed: bool) -> list[dict[str, str]]:
    out = []
    if data["comparability"]:
        head = "Mixed figures:" if allow_mixed else "Not compared:"
        what = "one table holds arms that differ in" if allow_mixed else "arms stand apart where they differ in"
        out.append({"head": head, "text": f"{what} {'; '.join(_difference(r) for r in data['comparability'])}."})
    for name in bad_files:
        out.append({"head": "Left out, cannot be read:", "text": name})
    for row in data["caveats"]:
        if row["level"] == "error" and row["rule"] != "mixed_identity":
            out.append({"head": "Attention:", "text": f"{(row['arm_id'] or 'run')}: {row['text']}."})
    return out


def _difference(row: Row) -> str:
    values = ", ".join(f"{x['arm_id']}: {x['value'] or 'not known'}" for x in row["arm_values"])
    return f"{row['aspect']} ({values})"


def _ranges(summary: Sequence[Row], names: Mapping[Key, str]) -> str:
    return " ".join(
        f"{arm_name(r, names)}: {f.number(r['mean_score'], 2)} with {r['n_suspect']} suspect verdicts as failed, "
        f"{f.number(r['mean_score_with_suspects'], 2)} with them as passed."
        for r in summary
        if r["n_suspect"]
    )


def _reviewed(rows: Sequence[Row]) -> str:
    """How many verdicts a person decided."""
    decided = ", ".join(f"{r['n']} {r['decision']}" for r in rows)
    return f"Verdicts that a person decided (invoke review): {decided}." if decided else ""


def _caveats(rows: Sequence[Row]) -> list[dict[str, str]]:
    """One line a caveat; the same sentence of several arms once, with their names."""
    grouped: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for r in rows:
        grouped[r["level"], r["rule"], r["text"]].append(r["arm_id"] or "")
    return [
        {"level": level, "rule": rule, "text": text, "arms": ", ".join(dict.fromkeys(a for a in arms if a))}
        for (level, rule, text), arms in grouped.items()
    ]
