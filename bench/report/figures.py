"""Figures as people read them. What is not known says so: never `nan`, `0.0` or an empty cell."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bench.report.markdown import Safe

NA = "n/a"

Row = Mapping[str, Any]


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """A number with so many decimals, or n/a."""
    if value is None:
        return NA
    text = f"{value:.{digits}f}"
    return (text[1:] if float(text) == 0 and text.startswith("-") else text) + (f" {unit}" if unit else "")


def mean(value: float | None, spread: float | None, n: int, digits: int = 1) -> str:
    """A mean with the spread beside it (half an interval, or a standard deviation) and the values it was made of.

    One value has no spread, and a spread of 0 is named: neither looks like certainty. Half an interval wider than a
    whole scale of 100 is no figure.
    """
    if value is None or n == 0:
        return NA
    if n == 1 or spread is None:
        return f"{number(value, digits)} (n={n}, no interval)"
    if spread == 0:
        return f"{number(value, digits)} ± {number(0.0, digits)} (n={n}, no spread)"
    if spread > 100:
        return f"{number(value, digits)} ± over 100 (n={n}, says nothing)"
    return f"{number(value, digits)} ± {number(spread, digits)} (n={n})"


def with_sd(value: float | None, sd: float | None, n: int | None, digits: int = 1) -> str:
    """Mean and standard deviation; one value has none. `n` is None where a printed figure does not say."""
    if value is None or n == 0:
        return NA
    spread = "" if n == 1 or sd is None else f" ± {number(sd, digits)}"
    return f"{number(value, digits)}{spread} ({counted(n)})"


def counted(n: int | None) -> str:
    return "n not given" if n is None else f"n={n}"


def interval(row: Row) -> Safe:
    """The t interval of a score, cut at the ends of the range and marked where it was."""
    if row["mean_score"] is None:
        return Safe(NA)
    if row["half_width"] is None:
        return Safe(f"no interval (n={row['n']})")
    text = f"[{number(row['ci_low'])}, {number(row['ci_high'])}]"
    return Safe(text + " †" if row["ci_cut"] else text)


def rate(row: Row | None) -> Safe:
    """Passes of a level: `4/15, 26.7 % [10.9, 52.0]`; the interval is Wilson's."""
    if row is None or not row["n"]:
        return Safe("n/a (0 tasks)")
    low, high = number(row["wilson_low"]), number(row["wilson_high"])
    return Safe(f"{row['k']}/{row['n']}, {number(row['pass_rate'])} % [{low}, {high}]")


def scores(rows: Sequence[Row]) -> str:
    """The scores of an arm's iterations in order; all alike as `100 × 15`."""
    texts = [NA if r["score"] is None else f"{r['score']:.2f}".rstrip("0").rstrip(".") for r in rows]
    if len(texts) > 2 and len(set(texts)) == 1 and texts[0] != NA:
        return f"{texts[0]} × {len(texts)}"
    return ", ".join(texts) or NA


def mib(value: int | None) -> str | None:
    """Memory in MiB."""
    return None if value is None else f"{value / 2**20:.0f} MiB"


def memory(idle: int | None, peak: int | None, reason: str | None) -> str:
    """Memory after the load and at its highest; with the reason where it was not measured."""
    if idle is None and peak is None:
        return not_measured(reason)
    return f"{mib(idle) or 'not measured'} / {mib(peak) or 'not measured'}"


def not_measured(reason: str | None) -> str:
    return f"not measured: {reason}" if reason else "not measured"


def file_size(value: int | None) -> str:
    """Decimal, as hubs count."""
    if value is None:
        return NA
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.1f} MB"


def sampler(text: str | None) -> str:
    """Sampler settings, one after the other."""
    if not text:
        return NA
    try:
        found = json.loads(text)
    except ValueError:
        return text
    if not isinstance(found, dict):
        return text
    return ", ".join(f"{k} {v:g}" if isinstance(v, (int, float)) else f"{k} {v}" for k, v in found.items())
