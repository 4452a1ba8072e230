"""The tables of a report that hold its results: scores, speed, size, levels, iterations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from bench.report import figures as f
from bench.report import verdict_tables
from bench.report.content import Cell, Table, table
from bench.report.names import Key, Row, arm_name


def scores(rows: Sequence[Row], names: Mapping[Key, str], exact: Mapping[Key, Row]) -> Table:
    return table(
        ["Arm", "Score (t, 95 %)", "Mean", "SD", "Min/Max", "t interval, 95 %", "Exact interval, 95 %", "Iterations",
         "No answer", "Cut off", "No verdict"],
        [
            [
                arm_name(r, names) + (f" - {r['status']}" if r["status"] in ("failed", "interrupted") else ""),
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


def speed(rows: Sequence[Row], names: Mapping[Key, str]) -> Table:
    return table(
        ["Arm", "Decode, tokens/s", "Seconds to the answer", "Reasoning tokens", "Answer tokens", "First token, ms",
         "First answer token, ms", "Prompt, tokens/s", "Drafts accepted"],
        [
            [
                arm_name(r, names),
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


def size(rows: Sequence[Row], names: Mapping[Key, str]) -> Table:
    return table(
        ["Arm", "File", "VRAM idle / peak", "RAM idle / peak", "Load"],
        [
            [
                arm_name(r, names),
                Cell(f.file_size(r["model_bytes"]), r["model_bytes"]),
                f.memory(r["vram_idle_bytes"], r["vram_peak_bytes"], r["vram_reason"]),
                f.memory(r["rss_idle_bytes"], r["rss_peak_bytes"], None),
                "not measured" if r["load_ms"] is None else f.number(r["load_ms"] / 1000, 1, "s"),
            ]
            for r in rows
        ],
        right=range(1, 5),
    )


def rates(rows: Sequence[Row], names: Mapping[Key, str]) -> Table:
    by_level: dict[str, dict[str, Row]] = defaultdict(dict)
    titles = {r["level_id"]: r["level_title"] for r in rows}
    for r in rows:
        by_level[r["level_id"]][arm_name(r, names)] = r
    columns = _in_order({arm_name(r, names) for r in rows}, names)
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
        out[arm_name(row, names)].append(row)
    return {name: out[name] for name in _in_order(set(out), names)}


def _in_order(found: set[str], names: Mapping[Key, str]) -> list[str]:
    """Arms as the summary has them."""
    known = list(names.values())
    return sorted(found, key=lambda name: (known.index(name) if name in known else len(known), name))


def iterations(rows: Sequence[Row], names: Mapping[Key, str]) -> Table:
    return table(["Arm", "Scores"], [[name, f.scores(found)] for name, found in _by_arm(rows, names).items()])


def unscored(rows: Sequence[Row], names: Mapping[Key, str]) -> Table | None:
    lines = []
    for name, found in _by_arm(rows, names).items():
        reasons: dict[str, list[int]] = defaultdict(list)
        for row in found:
            if row["score"] is None:
                reasons[row["reason"] or "not known"].append(row["iteration"])
        lines += [[name, ", ".join(map(str, which)), reason] for reason, which in reasons.items()]
    return table(["Arm", "Iterations without a score", "Reason"], lines) if lines else None
