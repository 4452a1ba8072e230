"""Constants that the views need as tables: exact quantiles, and the thresholds of the rules.

The quantiles are stored as data, so that a query does not wait for SciPy; a test compares every one with SciPy.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from bench.answer.extract import FALLBACK_RULES

_T_FILE = Path(__file__).parent.parent / "sql" / "t_quantiles.csv"
_T_PAIRS_FILE = Path(__file__).parent.parent / "sql" / "t_quantiles_pairs.csv"

RULE_SETTINGS: dict[str, tuple[float, str]] = {
    "min_iterations": (10.0, "Fewer iterations than this are a caveat."),
    "context_margin": (0.05, "Part by which the context should exceed prompt and answer limit together."),
    "alpha": (0.05, "Two-sided error of an interval; of all pairs of arms together where it is adjusted."),
    "margin": (5.0, "Points of 100; arms whose difference is surely smaller are within the margin."),
    "probe_tolerance_pct": (5.0, "Percent by which the speed probe and what it is held against may differ."),
    "probe_spread_pct": (10.0, "Standard deviation of the speed probe that is a caveat, percent of the mean."),
    "bootstrap_draws": (1000.0, "Draws behind rank_stability."),
    "power_gap_s": (1.0, "Seconds between two power samples above which the time between them is not measured."),
    "memory_margin": (0.1, "Part by which a device must exceed the peak memory of an arm that is said to fit."),
}
"""Thresholds of the rules for caveats, verdicts and recommendations, each with what it means."""


def _pattern(path: Path) -> str:
    text = "".join(f"[{c}]" if c in "*?[" else c for c in str(path))
    return "'" + text.replace("'", "''") + "'"


@cache
def t_quantiles() -> list[tuple[int, float]]:
    """(degrees of freedom, 0.975 quantile of Student's t), 1 to 1000: what a two-sided 95 % interval needs."""
    rows = [line.split(",") for line in _T_FILE.read_text("ascii").splitlines()[1:]]
    return [(int(df), float(t)) for df, t in rows]


def constant_tables() -> list[str]:
    """SQL statements that make the constant tables in the current schema."""
    settings = ", ".join(f"('{name}', {value!r}::double, '{text}')" for name, (value, text) in RULE_SETTINGS.items())
    rules = ", ".join(f"('{rule}')" for rule in sorted(FALLBACK_RULES))
    return [
        f"create or replace table t_quantiles as from read_csv({_pattern(_T_FILE)}, header = true, "
        "auto_detect = false, delim = ',', columns = {'df': 'bigint', 't975': 'double'})",
        f"create or replace table t_quantiles_pairs as from read_csv({_pattern(_T_PAIRS_FILE)}, header = true, "
        "auto_detect = false, delim = ',', columns = {'pairs': 'bigint', 'df': 'bigint', 't': 'double'})",
        f"create or replace table rule_settings as from (values {settings}) t(name, value, meaning)",
        f"create or replace table fallback_rules as from (values {rules}) t(rule)",
    ]
