"""From the data of a report to its tables and sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from bench.report import figures as f
from bench.report import setup_tables, verdict_tables
from bench.report.markdown import Safe, fenced, inline, table

Row = Mapping[str, Any]
Data = Mapping[str, Any]

_MOST_MISSING = 20


def page(data: Data, *, bad_files: Sequence[str] = (), allow_mixed: bool = False) -> dict[str, Any]:
    """What the template needs."""
    run, summary = data["run"], data["summary"]
    names = _names(summary)
    groups = _groups(summary, allow_mixed)
    exact = {(r["arm_id"], r["identity"]): r for r in data["arm_intervals"]}
    return {
        "title": f"{run.get('lineup_id') or 'Run'}: {run.get('suite_title') or run.get('suite_id') or 'no suite'}",
        "lead": _lead(run),
        "warnings": _warnings(data, bad_files, allow_mixed),
        "verdicts": verdict_tables.verdicts(data["verdicts"]),
        "stopping": verdict_tables.stopping(data["verdicts"]),
        "pairs": verdict_tables.pairs(data["pairwise"], names) if data["pairwise"] else None,
        "summary": [
            {
                "title": f"Group {number}" if len(groups) > 1 else "",
                "scores": _scores(rows, names, exact),
                "speed": _speed(rows, names),
                "size": _size(rows, names),
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
        "rates": _rates(data["level_pass_rates"], names),
        "scores": _iterations(data["iteration_scores"], names),
        "unscored": _unscored(data["iteration_scores"], names),
        "failures": _failures(data["failures"], names) if data["failures"] else None,
        "examples": Safe("\n\n".join(_example(row, names) for row in data["failures"])),
        "none_measured": not any(r["n"] for r in data["level_pass_rates"]),
        "no_failures": "Every graded answer passed."
        if all(r["k"] == r["n"] for r in data["level_pass_rates"])
        else "Not recorded: the figures are as printed elsewhere, without the answers behind them.",
        "misses": _misses(data["interface_misses"], names) if data["interface_misses"] else None,
        "missing": _missing(data["missing"], names) if data["missing"] else None,
        "failed_arms": _failed_arms(data["arms"]),
        "caveats": _caveats(data["caveats"]),
        "run_id_sql": Safe(str(run["run_id"]).replace("'", "''")),
    }


Key = tuple[str, str | None]


def _names(summary: Sequence[Row]) -> dict[Key, str]:
    """What an arm is called: its id, and its identity too where several servers answered for it."""
    count: dict[str, int] = defaultdict(int)
    for row in summary:
        count[row["arm_id"]] += 1
    return {
        (r["arm_id"], r["identity"]): r["arm_id"]
        + (f" ({r['identity'] or 'no answer'})" if count[r["arm_id"]] > 1 else "")
        for r in summary
    }


def _name(row: Row, names: Mapping[Key, str]) -> str:
    return names.get((row["arm_id"], row["identity"]), row["arm_id"])


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


def _scores(rows: Sequence[Row], names: Mapping[Key, str], exact: Mapping[Key, Row]) -> Safe:
    return table(
        ["Arm", "Score (t, 95 %)", "Mean", "SD", "Min/Max", "t interval, 95 %", "Exact interval, 95 %", "Iterations",
         "No answer", "Cut off", "No verdict"],
        [
            [
                _name(r, names) + (f" - {r['status']}" if r["status"] in ("failed", "interrupted") else ""),
                f.mean(r["mean_score"], r["half_width"], r["n"]),
                f.number(r["mean_score"], 2),
                f.number(r["sd_score"], 2),
                f"{r['min_score']:.4g}/{r['max_score']:.4g}" if r["min_score"] is not None else f.NA,
                f.interval(r),
                verdict_tables.exact_interval(exact.get((r["arm_id"], r["identity"]))),
                f"{r['n']} of {r['n_planned']}" if r["n_planned"] is not None else str(r["n"]),
                f.NA if r["n_no_answer"] is None else str(r["n_no_answer"]),
                f.NA if r["n_truncated"] is None else str(r["n_truncated"]),
                f.NA if r["n_cells"] is None else f"{r['n_missing']} of {r['n_cells']}",
            ]
            for r in rows
        ],
        right=range(1, 11),
    )  # fmt: skip


def _speed(rows: Sequence[Row], names: Mapping[Key, str]) -> Safe:
    return table(
        ["Arm", "Decode, tokens/s", "Seconds to the answer", "Reasoning tokens", "Answer tokens", "First token, ms",
         "First answer token, ms", "Prompt, tokens/s", "Drafts accepted"],
        [
            [
                _name(r, names),
                _or_reason(f.with_sd(r["decode_tps_mean"], r["decode_tps_sd"], r["decode_tps_n"])),
                _or_reason(f.with_sd(r["answer_s_mean"], r["answer_s_sd"], r["answer_s_n"])),
                _or_reason(_count(r, "reasoning_tokens")),
                _or_reason(_count(r, "answer_tokens")),
                _timed(r, "ttft_ms_mean", "ttft_n"),
                _timed(r, "first_answer_ms_mean", "first_answer_n"),
                _timed(r, "prompt_tps_mean", "prompt_tps_n"),
                f.number(r["draft_accepted_pct"], 0, "%"),
            ]
            for r in rows
        ],
        right=range(1, 9),
    )  # fmt: skip


def _or_reason(text: str) -> str:
    return f.not_measured(None) if text == f.NA else text


def _count(row: Row, what: str) -> str:
    value, n = row[f"{what}_mean"], row[f"{what}_n"]
    return f.NA if value is None else f"{f.number(value, 0)} (n={n})"


def _timed(row: Row, value: str, n: str) -> str:
    """A figure that counts only with an empty prompt cache."""
    if row[value] is not None:
        return f"{f.number(row[value], 0)} ({f.counted(row[n])})"
    if row["n_cached"]:
        return f.not_measured("the prompt cache was in use")
    if row["n_cache_unknown"]:
        return f.not_measured("the server does not say whether its prompt cache was used")
    return f.not_measured(None)


def _size(rows: Sequence[Row], names: Mapping[Key, str]) -> Safe:
    return table(
        ["Arm", "File", "VRAM idle / peak", "RAM idle / peak", "Load"],
        [
            [
                _name(r, names),
                f.file_size(r["model_bytes"]),
                f.memory(r["vram_idle_bytes"], r["vram_peak_bytes"], r["vram_reason"]),
                f.memory(r["rss_idle_bytes"], r["rss_peak_bytes"], None),
                "not measured" if r["load_ms"] is None else f.number(r["load_ms"] / 1000, 1, "s"),
            ]
            for r in rows
        ],
        right=range(1, 5),
    )


def _ranges(summary: Sequence[Row], names: Mapping[Key, str]) -> str:
    return " ".join(
        f"{_name(r, names)}: {f.number(r['mean_score'], 2)} with {r['n_suspect']} suspect verdicts as failed, "
        f"{f.number(r['mean_score_with_suspects'], 2)} with them as passed."
        for r in summary
        if r["n_suspect"]
    )


def _rates(rows: Sequence[Row], names: Mapping[Key, str]) -> Safe:
    by_level: dict[str, dict[str, Row]] = defaultdict(dict)
    titles = {r["level_id"]: r["level_title"] for r in rows}
    for r in rows:
        by_level[r["level_id"]][_name(r, names)] = r
    columns = _in_order({_name(r, names) for r in rows}, names)
    return table(
        ["Level", *columns],
        [
            [f"{level} {titles[level] or ''}".strip(), *(f.rate(found.get(c)) for c in columns)]
            for level, found in by_level.items()
        ],
        right=range(1, len(columns) + 1),
    )


def _by_arm(rows: Sequence[Row], names: Mapping[Key, str]) -> dict[str, list[Row]]:
    out: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        out[_name(row, names)].append(row)
    return {name: out[name] for name in _in_order(set(out), names)}


def _in_order(found: set[str], names: Mapping[Key, str]) -> list[str]:
    """Arms as the summary has them."""
    known = list(names.values())
    return sorted(found, key=lambda name: (known.index(name) if name in known else len(known), name))


def _iterations(rows: Sequence[Row], names: Mapping[Key, str]) -> Safe:
    return table(["Arm", "Scores"], [[name, f.scores(found)] for name, found in _by_arm(rows, names).items()])


def _unscored(rows: Sequence[Row], names: Mapping[Key, str]) -> Safe | None:
    lines = []
    for name, found in _by_arm(rows, names).items():
        reasons: dict[str, list[int]] = defaultdict(list)
        for row in found:
            if row["score"] is None:
                reasons[row["reason"] or "not known"].append(row["iteration"])
        lines += [[name, ", ".join(map(str, which)), reason] for reason, which in reasons.items()]
    return table(["Arm", "Iterations without a score", "Reason"], lines) if lines else None


def _failures(rows: Sequence[Row], names: Mapping[Key, str]) -> Safe:
    return table(
        ["Arm", "Level", "Kind", "Count", "Example", "What it said"],
        [
            [_name(r, names), r["level_id"], r["kind"], r["n"], f"iteration {r['example_iteration']}", _said(r)]
            for r in rows
        ],
        right=[3],
    )


def _said(row: Row) -> str:
    parts = [row["example_detail"], f"test {row['example_test']}" if row["example_test"] else None]
    if row["kind"] == "suspect":
        parts.append(", ".join(row["example_suspect_reasons"] or []))
    return "; ".join(p for p in parts if p) or f.NA


def _example(row: Row, names: Mapping[Key, str]) -> str:
    which = f"(iteration {row['example_iteration']}, one of {row['n']})"
    head = f"{_name(row, names)}, {row['level_id']}, {row['kind']} {which}."
    parts = []
    if row["example_tests_expected"] is not None and row["example_tests_passed"] is not None:
        parts.append(f"{row['example_tests_passed']} of {row['example_tests_expected']} tests passed.")
    if row["example_code"] and row["example_code_rule"]:
        parts.append(f"Code found by {row['example_code_rule']}.")
    text = f"**{inline(head)}** {inline(' '.join(parts))}".rstrip()
    return f"{text}\n\n{fenced(row['example_code'], 'python')}" if row["example_code"] else text


def _misses(rows: Sequence[Row], names: Mapping[Key, str]) -> Safe:
    return table(
        ["Arm", "Level", "Missing name", "Count", "Offered instead"],
        [
            [_name(r, names), r["level_id"], r["missing_name"], r["n"], ", ".join(r["offered"] or []) or f.NA]
            for r in rows
        ],
        right=[3],
    )


def _missing(rows: Sequence[Row], names: Mapping[Key, str]) -> Safe:
    grouped: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for r in rows:
        grouped[_name(r, names), r["kind"], r["reason"] or f.NA].append(f"{r['level_id']}/{r['iteration']}")
    return table(
        ["Arm", "Kind", "Reason", "Count", "Level/iteration"],
        [
            [name, kind, reason, len(which), ", ".join(which[:_MOST_MISSING] + ["…"] * (len(which) > _MOST_MISSING))]
            for (name, kind, reason), which in grouped.items()
        ],
        right=[3],
    )  # fmt: skip


def _failed_arms(arms: Sequence[Row]) -> Safe | None:
    rows = [
        [a["arm_id"], a["reason"] or a["status"], *(a[c] or f.NA for c in ("detail", "advice", "log_line", "log_path"))]
        for a in arms
        if a["status"] in ("failed", "interrupted")
    ]  # fmt: skip
    return table(["Arm", "Reason", "What happened", "What to do", "From the log", "Log"], rows) if rows else None


def _caveats(rows: Sequence[Row]) -> Safe | None:
    """One line a caveat; the same sentence of several arms once, with their names."""
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for r in rows:
        grouped[r["rule"], r["text"]].append(r["arm_id"] or "")
    lines = []
    for (rule, text), arms in grouped.items():
        who = ", ".join(dict.fromkeys(a for a in arms if a))
        lines.append(f"- **{inline(rule)}**{': ' + inline(who) if who else ''}: {inline(text, 1000)}.")
    return Safe("\n".join(lines)) if lines else None
