"""Text that somebody else wrote, inside Markdown: as text, never as markup.

A model's answer may hold HTML, links, tables, fences, control characters and text that runs from right to left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Self

from bench.report.content import Code, Table
from bench.visible import visible

_SPECIAL = re.compile(
    r"(?P<markup>[\\`*\[\]|~$^{}]"
    # An underscore inside a word is one to every renderer; at its edge it may be emphasis.
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))"
    # What HTML reads, and what renderers make links of: addresses, names, numbers of issues.
    r"|[&<>@]|\#(?=\d)|:(?=//)|(?<=mailto):|(?<=xmpp):|(?<=www)\.",
    re.IGNORECASE,
)
_ENTITY = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_SPACE = re.compile(r"[ \t\r\n]+")
_LEADING = re.compile(r"^(?:[#+=:-]|\d+[.)])")


class Safe(str):
    """Markdown that was put together here, from parts that were escaped."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Invisible characters are shown as their codes here too: no part of a report can bring one in."""
        return super().__new__(cls, visible(text, lines=True))


def inline(value: object, limit: int = 300) -> Safe:
    """Text for a cell or a sentence: one line, every sign of Markdown and HTML taken literally, cut at `limit`."""
    if isinstance(value, Safe):
        return value
    text = _SPACE.sub(" ", str(value)).strip(" ")
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    text = visible(text)
    text = _SPECIAL.sub(lambda m: "\\" + m[0] if m["markup"] else _ENTITY.get(m[0], f"&#{ord(m[0])};"), text)
    return Safe("\\" + text if _LEADING.match(text) and not text[0].isdigit() else text)


def fenced(text: str, language: str = "", *, lines: int = 40, width: int = 200) -> Safe:
    """Text as a code block, behind a fence longer than any inside it; cut after so many lines."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    rows = [row if len(row) <= width else row[: width - 1] + "…" for row in text.strip("\n").split("\n")]
    if len(rows) > lines:
        rows = [*rows[:lines], f"… ({len(rows) - lines} more lines)"]
    longest = max((len(m) for row in rows for m in re.findall(r"`+", row)), default=0)
    fence = "`" * max(3, longest + 1)
    return Safe("\n".join([fence + language, *rows, fence]))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[int] = ()) -> Safe:
    """A pipe table; the columns numbered in `right` are set to the right."""
    to_right = set(right)
    head = "| " + " | ".join(inline(c) for c in columns) + " |"
    rule = "|" + "|".join("---:" if i in to_right else "---" for i in range(len(columns))) + "|"
    body = ["| " + " | ".join(inline(v) for v in row) + " |" for row in rows]
    return Safe("\n".join([head, rule, *body]))


def block(value: object) -> object:
    """A part of a report as Markdown; whatever is no table and no code is text, and stays as it is."""
    if isinstance(value, Table):
        return table(value.columns, value.rows, right=value.right)
    if isinstance(value, Code):
        return fenced(value.text, value.language)
    return value
