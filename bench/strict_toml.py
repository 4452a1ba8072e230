"""TOML tables read strictly: an unknown key, a wrong type or a value out of range is one clear line."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import Any, Final, TypeVar

from bench.errors import UsageError

_Missing = type("_Missing", (), {})
REQUIRED: Final = _Missing()
"""Default of a key that must be there."""

T = TypeVar("T")


def nearest(word: str, options: Iterable[str]) -> str:
    """The end of an error message: what was probably meant by `word`, or else everything that is known."""
    known = sorted(options)
    by_folded = {option.casefold().replace("-", "_"): option for option in known}
    folded = word.casefold().replace("-", "_").replace(" ", "_")
    close = difflib.get_close_matches(folded, list(by_folded), n=1, cutoff=0.55)
    if not close:
        close = [name for name in by_folded if len(folded) >= 3 and (folded in name or name in folded)][:1]
    if close:
        return f"the nearest is `{by_folded[close[0]]}`"
    return "known: " + (", ".join(known) if known else "none")


def shown(path: Path, root: Path | None = None) -> str:
    """A file's name for messages: relative to `root` where it lies below it."""
    if root is not None:
        try:
            return str(path.resolve().relative_to(root.resolve()))
        except ValueError:
            pass
    return str(path)


def found(value: object) -> str:
    """A value as the user wrote it, with its type in TOML's own words."""
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int):
        return f"the integer {value}"
    if isinstance(value, float):
        return f"the number {value!r}"
    if isinstance(value, str):
        return f'the text "{value if len(value) <= 60 else value[:57] + "..."}"'
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "a table"
    return f"the {type(value).__name__} {value}"


def read_toml(path: Path, root: Path | None = None) -> Table:
    """Read a file. Raises UsageError naming file, line and what stands there when it is not TOML."""
    name = shown(path, root)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{name}: no such file") from None
    except OSError as error:
        raise UsageError(f"{name}: cannot be read ({error.strerror})") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError(f"{name}, line {line}: expected UTF-8 text, found byte 0x{raw[error.start]:02x}") from None
    try:
        return Table(name, "", tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(_syntax_message(name, text, str(error))) from None
    except RecursionError:
        raise UsageError(f"{name}: not valid TOML: nested too deeply") from None


def _syntax_message(name: str, text: str, message: str) -> str:
    match = re.search(r"^(.*?)\s*\(at (?:line (\d+), column (\d+)|end of document)\)$", message, re.DOTALL)
    what = (match[1] if match else message).replace("\n", " ")
    lines = text.splitlines() or [""]
    if match and match[2]:
        number, column = int(match[2]), int(match[3])
        content = lines[number - 1].strip() if number <= len(lines) else ""
        # The parser stops where it can go on no more; a text left open is noticed only at the line's end.
        return f"{name}, line {number}, column {column}: not valid TOML: {what}; found `{content[:80]}`"
    filled = [(i, line.strip()) for i, line in enumerate(lines, 1) if line.strip()] or [(1, "")]
    number, content = filled[-1]
    return f"{name}, line {number}: not valid TOML: {what}; the file ends with `{content[:80]}`"


@dataclass(frozen=True)
class Table:
    """A TOML table with the file and key path it stands at."""

    file: str
    path: str
    values: Mapping[str, Any]

    def at(self, key: str) -> str:
        """File and key path, as errors name them."""
        bare = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'
        return f"{self.file}: {self.path + '.' if self.path else ''}{bare}"

    def error(self, key: str, expected: str) -> UsageError:
        """The error for a value that is not what is expected."""
        return UsageError(f"{self.at(key)}: expected {expected}, found {found(self.values[key])}")

    def only(
        self,
        known: Collection[str],
        *,
        aliases: Mapping[str, str] | None = None,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse every key that is not known.

        `aliases` maps other programs' names to the right key (a dotted one stands in another table); `notes` maps a
        key to a sentence about where that setting is made instead.
        """
        aliases, notes = aliases or {}, notes or {}
        for key in self.values:
            if key in known:
                continue
            folded = key.strip().lstrip("-").casefold().replace("-", "_")
            if folded in notes:
                raise UsageError(f"{self.at(key)}: unknown key; {notes[folded]}")
            right = aliases.get(folded) or (folded if folded in known else None)
            if right is not None:
                raise UsageError(f"{self.at(key)}: unknown key; the right name here is `{right}`")
            raise UsageError(f"{self.at(key)}: unknown key; {nearest(key, known)}")

    def _get(self, key: str, default: Any) -> tuple[bool, Any]:
        if key in self.values:
            return True, self.values[key]
        if isinstance(default, _Missing):
            raise UsageError(f"{self.at(key)}: this key is required and missing")
        return False, default

    def text(self, key: str, default: Any = REQUIRED, *, empty: bool = False) -> Any:
        """A text, without surrounding blanks; not an empty one unless `empty`."""
        given, value = self._get(key, default)
        if given:
            if not isinstance(value, str):
                raise self.error(key, "a text in quotes")
            if not value.strip() and not empty:
                raise self.error(key, "a text that is not empty")
            if "\0" in value:
                raise UsageError(f"{self.at(key)}: expected a text without NUL characters")
            return value.strip()
        return value

    def integer(self, key: str, low: int, high: int, default: Any = REQUIRED) -> Any:
        """A whole number from `low` to `high`, both included."""
        given, value = self._get(key, default)
        if given and (isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high):
            raise self.error(key, f"a whole number from {low} to {high}")
        return value

    def integer_or(self, key: str, word: str, low: int, high: int, default: Any = REQUIRED) -> Any:
        """A whole number from `low` to `high`, or one certain word."""
        given, value = self._get(key, default)
        if (
            given
            and value != word
            and (isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high)
        ):
            raise self.error(key, f'"{word}" or a whole number from {low} to {high}')
        return value

    def number(self, key: str, low: float, high: float, default: Any = REQUIRED) -> Any:
        """A finite number from `low` to `high`, both included."""
        given, value = self._get(key, default)
        if not given:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.error(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def boolean(self, key: str, default: Any = REQUIRED) -> Any:
        """true or false."""
        given, value = self._get(key, default)
        if given and not isinstance(value, bool):
            raise self.error(key, "true or false, without quotes")
        return value

    def choice(self, key: str, options: Collection[str], default: Any = REQUIRED) -> Any:
        """One of some words."""
        given, value = self._get(key, default)
        if given and (not isinstance(value, str) or value not in options):
            hint = f"; {nearest(value, options)}" if isinstance(value, str) else ""
            listed = ", ".join(f'"{option}"' for option in options)
            raise UsageError(f"{self.at(key)}: expected one of {listed}, found {found(value)}{hint}")
        return value

    def texts(self, key: str, default: Any = REQUIRED) -> Any:
        """A list of texts, as a tuple. A single text is not taken for a list of one."""
        given, value = self._get(key, default)
        if not given:
            return value
        if not isinstance(value, list):
            raise self.error(key, "a list of texts in [ ]")
        for i, item in enumerate(value):
            if not isinstance(item, str) or not item.strip():
                raise UsageError(f"{self.at(key)}[{i}]: expected a text that is not empty, found {found(item)}")
        return tuple(item.strip() for item in value)

    def table(self, key: str, default: Any = REQUIRED) -> Table:
        """A table below this one."""
        given, value = self._get(key, default)
        if given and not isinstance(value, dict):
            raise self.error(key, f"a table [{self.path + '.' if self.path else ''}{key}]")
        return Table(self.file, f"{self.path}.{key}" if self.path else key, value)

    def json_table(self, key: str) -> dict[str, Any]:
        """A table of values that JSON can hold; empty when it is not there."""
        table = self.table(key, {})
        _check_json(table.file, table.path, table.values)
        return dict(table.values)


def _check_json(file: str, path: str, value: object) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_json(file, f"{path}.{key}", item)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _check_json(file, f"{path}[{i}]", item)
    elif isinstance(value, date | time) or (isinstance(value, float) and not math.isfinite(value)):
        raise UsageError(f"{file}: {path}: expected a value that JSON can hold, found {found(value)}")
