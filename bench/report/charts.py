"""The charts of a report: what each shows, declared over the same data as the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from bench.report.svg import ARM_COLOURS, INK, MUTED, draw

Row = Mapping[str, Any]
Data = Mapping[str, Any]

_WIDTH = 400
_CHARACTER = 7.6
"""Width of a character of a label in a wide font, pixels."""

_PERCENT = alt.Axis(values=[0, 20, 40, 60, 80, 100])
_FIXED_INK = "#222222"
"""Ink on a coloured cell, the same on light and dark paper."""


@dataclass(frozen=True)
class Chart:
    """A drawn chart, what it shows, and the views that it was drawn from."""

    name: str
    title: str
    note: str
    views: str
    svg: str


Names = Mapping[tuple[str, str | None], str]
Made = alt.Chart | alt.LayerChart | alt.FacetChart | None


@dataclass(frozen=True)
class Facts:
    """What charts are drawn from: a report's data, the rows that only charts need, and what each arm is called."""

    data: Data
    extra: Mapping[str, Sequence[Row]]
    names: Names

    def called(self, row: Row) -> str:
        """An arm's name; by its id alone where the row is of no one identity."""
        if "identity" in row:
            return self.names.get((row["arm_id"], row["identity"]), str(row["arm_id"]))
        return next((name for (arm, _), name in self.names.items() if arm == row["arm_id"]), str(row["arm_id"]))

    @property
    def order(self) -> list[str]:
        """The names as the summary has them."""
        return list(dict.fromkeys(self.names.values()))


def charts(facts: Facts) -> list[Chart]:
    """Every chart for which a run has values, in the order of the report."""
    drawn = []
    for name, title, note, views, make in _ALL:
        chart = make(facts)
        if chart is not None:
            # What is handed over is made here, row by row: validating every row against the schema only costs time.
            drawn.append(Chart(name, title, note, views, draw(chart.to_dict(validate=False))))
    return drawn


def _arms(order: Sequence[str]) -> alt.Y:
    """The axis of arms, with room for the longest name: fonts differ in width, and none is embedded."""
    room = _CHARACTER * max((min(len(n), 36) for n in order), default=0)
    return alt.Y("arm:N", sort=list(order), title=None, axis=alt.Axis(minExtent=room))


def _values(rows: Sequence[Mapping[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=[dict(row) for row in rows])


def _colour(facts: Facts, legend: alt.Legend | None = None) -> alt.Color:
    """Every arm has one colour in all charts."""
    order = facts.order
    scale = alt.Scale(domain=order, range=[ARM_COLOURS[i % len(ARM_COLOURS)] for i in range(len(order))])
    return alt.Color("arm:N", scale=scale, legend=legend)


def _quality(facts: Facts) -> Made:
    exact = {(r["arm_id"], r["identity"]): r for r in facts.data["arm_intervals"]}
    rows = []
    for r in facts.data["summary"]:
        if r["mean_score"] is None:
            continue
        found = exact.get((r["arm_id"], r["identity"]))
        holds = found is not None and found["holds"]
        rows.append({
            "arm": facts.called(r), "score": r["mean_score"], "shown": f"{r['mean_score']:.1f}",
            "low": found["score_low"] if found and holds else None,
            "high": found["score_high"] if found and holds else None,
        })  # fmt: skip
    if not rows:
        return None
    base = alt.Chart(_values(rows)).encode(y=_arms(_best_first(rows, "score")))
    score = alt.X("score:Q", scale=alt.Scale(domain=[0, 100]), axis=_PERCENT, title="mean score, percent of the points")
    interval = base.mark_rule(strokeWidth=3, opacity=0.45).encode(x="low:Q", x2="high:Q", color=_colour(facts))
    point = base.mark_point(filled=True, size=90, opacity=1).encode(x=score, color=_colour(facts))
    text = base.mark_text(dy=-13, fontSize=12, color=INK).encode(x="score:Q", text="shown:N")
    return alt.layer(interval, point, text).properties(width=_WIDTH - 60, height=alt.Step(42))


def _best_first(rows: Sequence[Row], by: str) -> list[str]:
    return [r["arm"] for r in sorted(rows, key=lambda r: (-r[by], r["arm"]))]


def _tradeoff(facts: Facts) -> Made:
    by_time = any(r["answer_s_mean"] is not None and r["mean_score"] is not None for r in facts.data["summary"])
    speed = "answer_s_mean" if by_time else "decode_tps_mean"
    front = {(r["arm_id"], r["identity"]) for r in facts.data.get("pareto", ()) if r["on_front"]}
    rows = []
    for r in facts.data["summary"]:
        if r[speed] is None or r["mean_score"] is None:
            continue
        gpu = r["device"] == "gpu"
        memory = (r["vram_peak_bytes"] or r["vram_idle_bytes"]) if gpu else r["rss_peak_bytes"]
        rows.append({
            "arm": facts.called(r), "score": r["mean_score"], "speed": r[speed],
            "gib": None if memory is None else memory / 2**30, "front": (r["arm_id"], r["identity"]) in front,
        })  # fmt: skip
    if len(rows) < 2:
        return None
    title = "mean seconds to the answer (less is better)" if by_time else "decode rate, tokens/s (more is better)"
    x = alt.X(
        "speed:Q",
        scale=alt.Scale(domain=[0, max(r["speed"] for r in rows) * 1.12]),
        axis=alt.Axis(tickCount=6),
        title=title,
    )
    y = alt.Y(
        "score:Q", scale=alt.Scale(domain=[0, 108]), axis=alt.Axis(values=[0, 20, 40, 60, 80, 100]), title="score"
    )
    base = alt.Chart(_values(rows))
    # By a legend: arms that are alike would hide each other's labels.
    colour = _colour(facts, alt.Legend(columns=1, title=None, symbolType="circle"))
    point = base.mark_circle(opacity=0.85).encode(x=x, y=y, color=colour)
    if all(r["gib"] is not None for r in rows):
        size = alt.Size("gib:Q", scale=alt.Scale(range=[60, 700], zero=True),
                        legend=alt.Legend(title="peak memory, GiB", tickCount=3))  # fmt: skip
        point = point.encode(size=size)
    else:
        point = point.encode(size=alt.value(160))
    layers: list[Any] = [point]
    if sum(r["front"] for r in rows) > 1:
        line = alt.Chart(_values([r for r in rows if r["front"]])).mark_line(strokeDash=[4, 3], color=MUTED)
        layers.insert(0, line.encode(x=x, y=y, order="speed:Q"))
    return alt.layer(*layers).properties(width=_WIDTH, height=260)


def _heat(facts: Facts) -> Made:
    rows = [
        {"arm": facts.called(r), "level": r["level_id"], "rate": r["pass_rate"], "shown": f"{r['k']}/{r['n']}"}
        for r in facts.data["level_pass_rates"]
        if r["n"]
    ]
    if not rows:
        return None
    levels = list(dict.fromkeys(r["level"] for r in rows))
    base = alt.Chart(_values(rows)).encode(
        x=alt.X(
            "level:N", sort=levels, title=None, axis=alt.Axis(orient="top", labelAngle=0 if len(levels) < 7 else -40)
        ),
        y=_arms(facts.order),
    )
    scale = alt.Scale(domain=[0, 50, 100], range=["#e9a38f", "#f3e8c8", "#8fcbb0"])
    cell = base.mark_rect(cornerRadius=3).encode(color=alt.Color("rate:Q", scale=scale, legend=None))
    text = base.mark_text(color=_FIXED_INK).encode(text="shown:N")
    width = max(46, min(90, 380 // len(levels)))
    return alt.layer(cell, text).properties(width=alt.Step(width), height=alt.Step(32))


def _iterations(facts: Facts) -> Made:
    rows = [
        {"arm": facts.called(r), "iteration": r["iteration"], "score": r["score"]}
        for r in facts.data["iteration_scores"]
        if r["score"] is not None
    ]
    if len({r["iteration"] for r in rows}) < 2:
        return None
    last = max(r["iteration"] for r in rows)
    base = alt.Chart().encode(
        x=alt.X("iteration:Q", axis=alt.Axis(tickMinStep=1, tickCount=min(last, 15), format="d"),
                scale=alt.Scale(domain=[min(r["iteration"] for r in rows), last]), title="iteration"),
        y=alt.Y("score:Q", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(values=[0, 50, 100]), title=None),
        color=_colour(facts),
    )  # fmt: skip
    return _per_arm(
        alt.layer(base.mark_line(opacity=0.5), base.mark_point(filled=True, size=40, opacity=1)), rows, facts
    )


def _per_arm(
    chart: alt.LayerChart | alt.FacetChart, rows: Sequence[Row], facts: Facts, height: int = 64
) -> alt.FacetChart:
    present = {r["arm"] for r in rows}
    row = alt.Row(
        "arm:N", sort=[n for n in facts.order if n in present], title=None,
        header=alt.Header(labelOrient="top", labelAnchor="start", labelAngle=0, labelPadding=2),
    )  # fmt: skip
    return chart.properties(width=_WIDTH, height=height).facet(row=row, data=_values(rows), spacing=12)


def _first_tokens(facts: Facts) -> Made:
    rows = [{"arm": facts.called(r), "ms": r["first_token_ms"]} for r in facts.extra["first_tokens"]]
    if not rows:
        return None
    base = alt.Chart(_values(rows)).encode(y=_arms(facts.order))
    x = alt.X("ms:Q", scale=alt.Scale(zero=True), title="milliseconds to the first token")
    ticks = base.mark_tick(opacity=0.45, thickness=1.5, size=18).encode(x=x, color=_colour(facts))
    median = base.mark_point(shape="diamond", filled=True, size=80, color=INK, opacity=1).encode(x="median(ms):Q")
    return alt.layer(ticks, median).properties(width=_WIDTH - 60, height=alt.Step(32))


_PARTS = {"load": "#8c8c8c", "probe": "#cc79a7", "prompt": "#56b4e9", "reasoning": "#e69f00", "answer": "#009e73",
          "unfinished": "#d55e00", "grading": "#7f6bb0"}  # fmt: skip


def _time(facts: Facts) -> Made:
    rows = [
        {"arm": facts.called(r), "part": r["part"], "order": r["part_order"], "s": r["seconds"]}
        for r in facts.extra["time_split"]
    ]
    if not rows:
        return None
    per_arm: dict[str, float] = {}
    for r in rows:
        per_arm[r["arm"]] = per_arm.get(r["arm"], 0.0) + r["s"]
    unit, by = ("minutes", 60.0) if max(per_arm.values()) > 300 else ("seconds", 1.0)
    parts = [p for p in _PARTS if any(r["part"] == p for r in rows)]
    made: alt.Chart = (
        alt.Chart(_values([{**r, "value": r["s"] / by} for r in rows]))
        .mark_bar()
        .encode(
            x=alt.X("value:Q", title=unit),
            y=_arms(facts.order),
            color=alt.Color("part:N", title=None, scale=alt.Scale(domain=parts, range=[_PARTS[p] for p in parts])),
            order="order:Q",
        )
        .properties(width=_WIDTH - 60, height=alt.Step(32))
    )
    return made


def _curve(column: str, title: str) -> Callable[[Facts], Made]:
    """A measurement over an arm's time, with the start of each iteration marked."""

    def make(facts: Facts) -> Made:
        rows: list[dict[str, Any]] = [
            {"arm": facts.called(r), "s": r["s"], "value": r[column], "stretch": r["stretch"]}
            for r in facts.extra["telemetry"]
            if r[column] is not None
        ]
        if not rows:
            return None
        arms = {r["arm"] for r in rows}
        marks = [
            {"arm": facts.called(r), "mark": r["s"]} for r in facts.extra["iteration_starts"] if facts.called(r) in arms
        ]
        x = alt.X("s:Q", title="seconds since the arm's start")
        base = alt.Chart()
        line = base.mark_line(strokeWidth=1.6).encode(
            x=x, y=alt.Y("value:Q", title=title), color=_colour(facts), detail="stretch:N"
        )
        starts = base.mark_rule(color=MUTED, strokeDash=[2, 3], opacity=0.7).encode(x="mark:Q")
        return _per_arm(alt.layer(starts, line), [*rows, *marks], facts, 72)

    return make


_FRONT = (
    "Size of a circle: peak memory, where every arm has it. Dashed: the Pareto front, the arms that no other beats in "
    "score, time and memory together."
)
_ALL: Sequence[tuple[str, str, str, str, Callable[[Facts], Made]]] = (
    ("quality", "Quality", "Mean score with its exact 95 % interval.", "arm_summary, arm_intervals", _quality),
    ("tradeoff", "Quality against speed", _FRONT, "arm_summary, pareto", _tradeoff),
    ("levels", "Passes by level", "Passed of measured answers.", "level_pass_rates", _heat),
    ("iterations", "Scores of each iteration", "Percent of the points; an iteration with a gap has no point.",
     "iteration_scores", _iterations),
    ("first-token", "First token", "A tick an answer, the diamond their median; at the client.", "cells",
     _first_tokens),
    ("time", "Where the time went", "Grading beside the server overlaps with the rest.", "time_split", _time),
    ("vram", "VRAM over time", "Of the device. Dashed: an iteration begins.", "telemetry", _curve("vram_gib", "GiB")),
    ("power", "Power over time", "Of the device. Dashed: an iteration begins.", "telemetry", _curve("power_w", "W")),
    ("memory", "Server memory over time", "Resident. Dashed: an iteration begins.", "telemetry",
     _curve("rss_gib", "GiB")),
    ("cpu", "Host CPU over time", "Of all cores. Dashed: an iteration begins.", "telemetry", _curve("cpu_pct", "%")),
)  # fmt: skip
