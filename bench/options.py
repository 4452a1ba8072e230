"""What a person typed, as values. Every task takes text; this is where it is checked."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from bench.errors import UsageError


def whole_number(name: str, text: str | None, default: int, *, low: int = 1, high: int = 1_000_000) -> int:
    """A whole number between two bounds, or the default when nothing was typed."""
    if text is None:
        return default
    try:
        value = int(str(text).strip())
    except ValueError:
        value = None
    if value is None or not low <= value <= high:
        raise UsageError(f"--{name} takes a whole number from {low} to {high}, not '{text}'")
    return value


def number(name: str, text: str | None, default: float, *, low: float, high: float) -> float:
    """A number between two bounds, or the default when nothing was typed."""
    if text is None:
        return default
    try:
        value = float(str(text).strip())
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise UsageError(f"--{name} takes a number from {low:g} to {high:g}, not '{text}'")
    return value


def counted(n: int, thing: str) -> str:
    """`1 arm`, `2 arms`."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def names(values: Iterable[str] | None) -> list[str]:
    """Ids given repeatedly or separated by commas, in order, each once."""
    out: list[str] = []
    for value in values or ():
        out += [part.strip() for part in str(value).split(",") if part.strip()]
    return list(dict.fromkeys(out))


def one_of(name: str, text: str, known: Sequence[str]) -> str:
    """The word, if it is one of the known ones; else an error that names the nearest."""
    if text in known:
        return text
    near = difflib.get_close_matches(text, known, 1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise UsageError(f"{name}: expected one of {', '.join(known)}, found '{text}'{hint}")
