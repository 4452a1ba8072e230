"""Two runs side by side: what differs between them, and what it did to the arms that both have."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from bench.errors import BenchError, UsageError
from bench.report import figures as f
from bench.report.data import QUERIES
from bench.report.markdown import Safe, inline, table
from bench.report.names import Key, arm_name, arm_names
from bench.report.runs import resolve_run
from bench.report.values import plain
from bench.store.database import snapshot, understood

Row = Mapping[str, Any]

_MOST_NAMED = 3
"""Levels that are named one by one; of more, their number is said."""

_HASH = re.compile(r"\b(sha256:)?([0-9a-f]{12})[0-9a-f]{20,}\b")

_WORDS = {"better": "better", "worse": "worse", "within margin": "within the margin", "not separated": "not separated"}


@dataclass(frozen=True)
class Section:
    """A table, for the terminal and for Markdown."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Comparison:
    """What is said of two runs. `banners` stand above the figures, `notes` below them."""

    run_a: str
    run_b: str
    lead: tuple[str, ...]
    banners: tuple[str, ...]
    sections: tuple[Section, ...]
    notes: tuple[str, ...]

    def markdown(self) -> str:
        """The page."""
        parts = [f"# {inline(self.run_b)} against {inline(self.run_a)}", *(inline(line, 2000) for line in self.lead)]
        parts += [f"> **{inline(banner, 2000)}**" for banner in self.banners]
        for section in self.sections:
            parts += [f"## {inline(section.title)}", table(section.header, section.rows)]
        if self.notes:
            parts += ["## Notes", "\n".join(f"- {inline(note, 2000)}" for note in self.notes)]
        return "\n\n".join(parts) + "\n"


def compare(
    connection: duckdb.DuckDBPyConnection, text_a: str, text_b: str, *, allow_mixed: bool = False
) -> Comparison:
    """Compare run b with run a; each is named by id, unique prefix or `latest`.

    Raises UsageError for an unknown run, the same run twice, and runs without a common arm; BenchError where the
    common arms differ in model, prompts or tests and `allow_mixed` is False.
    """
    run_a, run_b = resolve_run(connection, text_a), resolve_run(connection, text_b)
    if run_a == run_b:
        raise UsageError(f"expected two runs, found {run_a} twice ('{text_a}' and '{text_b}')")
    with understood(f"runs {run_a} and {run_b}"):
        snapshot(connection, [run_a, run_b])
        facts = _Facts(connection, run_a, run_b)
    if not facts.arms:
        raise UsageError(
            f"no arm was measured in the same suite in both runs: {run_a} has {facts.held(run_a)}, {run_b} has "
            f"{facts.held(run_b)}; to hold models against each other put them into one run: "
            "./invoke bench --arm A --arm B, or --model A.gguf --model B.gguf"
        )
    mixed = _mixed(facts)
    if mixed and not allow_mixed:
        raise BenchError(
            f"the scores of {run_a} and {run_b} are not compared: {mixed}; to see them side by side all the same: "
            "--allow-mixed"
        )
    return Comparison(
        run_a,
        run_b,
        tuple(_lead(facts)),
        tuple(_banners(facts, mixed)),
        tuple(_sections(facts)),
        tuple(_notes(facts)),
    )


class _Facts:
    """What the views say of the two runs."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, run_a: str, run_b: str) -> None:
        self._connection = connection
        self.ids = (run_a, run_b)
        self.runs = {r["run_id"]: r for r in self._rows("from runs_latest")}
        pair = {"a": run_a, "b": run_b}
        where = "where run_a = $a and run_b = $b"
        self.arms = self._rows(
            f"from compared_runs {where} order by score_b desc nulls last, arm_id, identity_a, identity_b", pair
        )
        common = {r["arm_id"] for r in self.arms}
        found = self._rows(f"from run_differences {where} order by arm_id nulls first, aspect", pair)
        self.differences = [d for d in found if d["arm_id"] is None or d["arm_id"] in common]
        self.levels = self._rows("from level_pass_rates order by level_index nulls last, level_id")
        self.states = self._rows("from arms_latest order by position nulls last, arm_id")
        self.summary = {run: self._rows(QUERIES["summary"], {"run": run}) for run in self.ids}
        named = self._rows("from run_aspects where aspect = 'model sha256' and value is not null")
        self.with_model = {r["run_id"] for r in named}
        self.margin = self._rows("select value from rule_settings where name = 'margin'")[0]["value"]
        self.names: dict[Key, str] = {}
        for run in self.ids:
            for key, name in arm_names(self.summary[run]).items():
                self.names[key] = max(name, self.names.get(key, ""), key=len)

    def _rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        cursor = self._connection.execute(sql, dict(values or {}))
        names = [d[0] for d in cursor.description or ()]
        return [{n: plain(v) for n, v in zip(names, row, strict=True)} for row in cursor.fetchall()]

    def held(self, run: str) -> str:
        """The arms of a run with its suite, for a message."""
        arms = sorted({r["arm_id"] + ("" if r["n_measured"] else " (without verdicts)") for r in self.summary[run]})
        return f"{', '.join(arms) or 'no arms'} on {self.runs[run].get('suite_id') or 'no suite'}"

    def of(self, side: int, row: Row) -> Row:
        """The summary row of a compared arm on one side (0: a, 1: b)."""
        key = (row["arm_id"], row["identity_b" if side else "identity_a"])
        return next(r for r in self.summary[self.ids[side]] if (r["arm_id"], r["identity"]) == key)

    def name(self, row: Row) -> str:
        """What a compared arm is called; both servers are named where one side has several."""
        first = arm_name({"arm_id": row["arm_id"], "identity": row["identity_a"]}, self.names)
        second = arm_name({"arm_id": row["arm_id"], "identity": row["identity_b"]}, self.names)
        return first if first == second else f"{first} and {second}"


def _mixed(facts: _Facts) -> str:
    """In what the questions, the tests or the models differ; empty where they are the same."""
    found = defaultdict(list)
    for d in facts.differences:
        if d["kind"] == "question":
            found[d["arm_id"]].append(d)
    texts: dict[str, list[str]] = defaultdict(list)
    for arm, rows in found.items():
        texts[_aspects(rows)].append(arm)
    return "; ".join(f"{', '.join(arms)}: {text}" for text, arms in texts.items())


def _aspects(rows: Sequence[Row]) -> str:
    """Aspects with both values, `prompt of L1 (a, b)`; only counted where they are many."""
    texts = [f"{r['aspect']} ({_value(r['value_a'])}, {_value(r['value_b'])})" for r in rows[:_MOST_NAMED]]
    more = len(rows) - len(texts)
    return "they differ in " + ", ".join(texts) + (f" and {more} more" if more else "")


def _value(value: object) -> str:
    return "not recorded" if value is None else _HASH.sub(r"\1\2", str(value))


def _lead(facts: _Facts) -> Iterable[str]:
    for letter, run_id in zip("AB", facts.ids, strict=True):
        run = facts.runs[run_id]
        what = f"lineup {run.get('lineup_id') or f.NA}, suite {run.get('suite_id') or f.NA}"
        origin = "" if run.get("origin") in (None, "bench") else f", taken from {run['origin']}"
        yield f"{letter} = {run_id}: {what}, {run.get('status')}{origin}"
    yield "Differences are B less A; verdicts are of B against A."


def _banners(facts: _Facts, mixed: str) -> Iterable[str]:
    if mixed:
        yield f"Mixed: {mixed}. The scores answer different questions; their difference is nobody's doing alone."
    kinds: dict[str, list[str]] = defaultdict(list)
    for d in facts.differences:
        if d["aspect"] not in kinds[d["kind"]]:
            kinds[d["kind"]].append(d["aspect"])
    if kinds["server"]:
        what = ", ".join(kinds["server"])
        yield f"The server differs ({what}): a difference in score, speed or memory may be the server's."
    if kinds["machine"]:
        yield (
            f"The machine differs ({', '.join(kinds['machine'])}): speeds and memory compare the machines; of the arms "
            "they say nothing. Scores can be compared."
        )
    changed = [a for a in kinds["settings"] if a in ("preset hash", "sampler", "context", "KV cache", "chat template")]
    if changed:
        yield f"The preset differs ({', '.join(changed)}): a difference in score may be the preset's."


def _sections(facts: _Facts) -> Iterable[Section]:
    if facts.differences:
        yield Section("What differs", ("Of", "What", "A", "B"), tuple(_differing(facts)))
    yield Section(
        "Answers",
        ("Arm", "Score A", "Score B", "Difference, 95 %", "n", "Verdict", "Missing A", "Missing B"),
        tuple(_answers(facts)),
    )
    yield Section(
        "Speed",
        ("Arm", "Tokens/s A", "Tokens/s B", "Difference, 95 %", "Verdict", "s to answer A", "s to answer B",
         "Difference, 95 %", "Verdict"),
        tuple(_speeds(facts)),
    )  # fmt: skip
    yield Section("Memory, idle / peak", ("Arm", "A", "B"), tuple(_memory(facts)))
    yield Section("Levels passed", ("Arm", "Level", "A", "B"), tuple(_levels(facts)))
    if rows := tuple(_alone(facts)):
        yield Section("Arms without a comparison", ("Arm", "Why"), rows)


def _differing(facts: _Facts) -> Iterable[tuple[str, ...]]:
    arms = {r["arm_id"] for r in facts.arms}
    groups: dict[tuple[str, str | None, str | None], list[str | None]] = defaultdict(list)
    for d in facts.differences:
        groups[d["aspect"], d["value_a"], d["value_b"]].append(d["arm_id"])
    levels: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (aspect, a, b), of in groups.items():
        who = "run" if of == [None] else "all arms" if len(arms) > 1 and set(of) == arms else ", ".join(map(str, of))
        if match := re.match(r"(prompt|grading) of (.*)", aspect):
            levels[who, match[1]].append(match[2])
            if len(levels[who, match[1]]) > _MOST_NAMED:
                continue
        yield who, aspect, _value(a), _value(b)
    for (who, what), names in levels.items():
        if len(names) > _MOST_NAMED:
            yield who, f"{what} of {len(names) - _MOST_NAMED} more", "not shown", "not shown"


def _answers(facts: _Facts) -> Iterable[tuple[str, ...]]:
    for row in facts.arms:
        verdict = row["verdict"] or row["mixed_verdict"]
        if verdict is None:
            said = f"none: {row['reason'] or 'not measured'}"
        else:
            said = _WORDS[verdict] + ("" if row["verdict"] else " (mixed)")
            said += "" if row["robust"] else " (changes with failures that may be the bench's doing)"
        yield (
            facts.name(row),
            f.number(row["score_a"]),
            f.number(row["score_b"]),
            _difference(row, "difference", "low", "high"),
            f.NA if row["n_a"] is None else f"{row['n_a']}, {row['n_b']}",
            said,
            *(_missing(facts.of(side, row)) for side in (0, 1)),
        )


def _missing(row: Row) -> str:
    return f.NA if row["n_cells"] is None else f"{row['n_missing']} of {row['n_cells']}"


def _speeds(facts: _Facts) -> Iterable[tuple[str, ...]]:
    for row in facts.arms:
        sides = [facts.of(side, row) for side in (0, 1)]
        busy = any(_busy(facts, row["arm_id"]))
        yield (
            facts.name(row),
            *(f.with_sd(s["decode_tps_mean"], s["decode_tps_sd"], s["decode_tps_n"]) for s in sides),
            _difference(row, "decode_difference", "decode_low", "decode_high"),
            _speed_verdict(row["decode_low"], row["decode_high"], ("faster", "slower"), busy),
            *(f.with_sd(s["answer_s_mean"], s["answer_s_sd"], s["answer_s_n"]) for s in sides),
            _difference(row, "answer_difference", "answer_low", "answer_high"),
            _speed_verdict(row["answer_low"], row["answer_high"], ("slower", "faster"), busy),
        )


def _speed_verdict(low: float | None, high: float | None, words: tuple[str, str], busy: bool) -> str:
    if low is None or high is None:
        return f.NA
    if busy:
        return "withheld: the host was busy"
    return words[0] if low > 0 else words[1] if high < 0 else "not separated"


def _busy(facts: _Facts, arm_id: str) -> Iterable[str]:
    """What else loaded the host while the arm ran on its CPU."""
    for state in facts.states:
        if state["arm_id"] == arm_id and state["host_busy"] and state["device"] != "gpu":
            yield f"{arm_id} in {state['run_id']}: {state['host_busy']}"


def _memory(facts: _Facts) -> Iterable[tuple[str, ...]]:
    for row in facts.arms:
        cells = []
        for s in (facts.of(side, row) for side in (0, 1)):
            gpu = s["device"] == "gpu"
            what = "vram" if gpu else "rss"
            idle, peak = s[f"{what}_idle_bytes"], s[f"{what}_peak_bytes"]
            cells.append(("VRAM " if gpu else "RAM ") + f.memory(idle, peak, s["vram_reason"] if gpu else None))
        yield facts.name(row), *cells


def _levels(facts: _Facts) -> Iterable[tuple[str, ...]]:
    rates = {(r["run_id"], r["arm_id"], r["identity"], r["level_id"]): r for r in facts.levels}
    order = list(dict.fromkeys(r["level_id"] for r in facts.levels))
    for row in facts.arms:
        keys = [(run, row["arm_id"], row[f"identity_{x}"]) for run, x in zip(facts.ids, "ab", strict=True)]
        for level in order:
            sides = [rates.get((*key, level)) for key in keys]
            if any(sides):
                yield facts.name(row), level, *(f.rate(side) for side in sides)


def _alone(facts: _Facts) -> Iterable[tuple[str, ...]]:
    """Arms that only one run has, or that both have and one did not measure."""
    compared = {r["arm_id"] for r in facts.arms}
    has = {run: {r["arm_id"]: r for r in facts.summary[run]} for run in facts.ids}
    for arm in sorted((has[facts.ids[0]].keys() | has[facts.ids[1]].keys()) - compared):
        here = [letter for letter, run in zip("AB", facts.ids, strict=True) if arm in has[run]]
        if len(here) == 1:
            yield arm, f"only in {here[0]}"
            continue
        sides = [has[run][arm] for run in facts.ids]
        if {s["suite_id"] for s in sides} != {sides[0]["suite_id"]}:
            yield arm, "put to different suites"
            continue
        lacks = [
            f"{letter}: {s['reason'] or s['status'] or 'no answer'}"
            for letter, s in zip("AB", sides, strict=True)
            if not s["n_measured"] and not s["is_published"]
        ]
        yield arm, f"not measured in {'; '.join(lacks)}"


def _notes(facts: _Facts) -> Iterable[str]:
    compared = max(r["n_compared"] for r in facts.arms)
    yield (
        "Score intervals are exact for each level (Clopper-Pearson) and combined by MOVER, speed intervals are Welch's"
        + (f"; all {compared} arms together miss at most once in twenty comparisons" if compared > 1 else "")
        + f"; within the margin: the interval lies inside {facts.margin:g} points to either side."
    )
    for row in facts.arms:
        if row["n_shared"]:
            yield (
                f"{facts.name(row)}: {row['n_shared']} answers of both runs were asked with the same seed of the same "
                "identity. They are one question put twice, not independent results: a difference between them is what "
                "does not repeat, and agreement is no new evidence."
            )
    for run_id in facts.ids:
        run = facts.runs[run_id]
        if run.get("status") != "finished":
            yield f"{run_id} is {run.get('status')}: the figures are of what is there."
        if run_id not in facts.with_model:
            yield f"{run_id} does not say which model file was loaded: that it is the other run's is not proved."
        if (run_slots := _slots(facts, run_id)) and run_slots > 1:
            yield f"{run_id} asked {run_slots} questions at a time: no speed comes from its answers."
    for arm in dict.fromkeys(r["arm_id"] for r in facts.arms):
        yield from (f"The host was busy: {text}; speeds of that arm are not judged." for text in _busy(facts, arm))


def _slots(facts: _Facts, run_id: str) -> int | None:
    found = re.search(r'"slots": (\d+)', facts.runs[run_id].get("settings") or "")
    return int(found[1]) if found else None


def _difference(row: Row, what: str, low: str, high: str) -> Safe:
    if row[what] is None:
        return Safe(f.NA)
    if row[low] is None:
        return Safe(f"{_signed(row[what])} (no interval)")
    return Safe(f"{_signed(row[what])} [{f.number(row[low])}, {f.number(row[high])}]")


def _signed(value: float) -> str:
    text = f.number(value)
    return text if text.startswith("-") or float(text) == 0 else f"+{text}"
