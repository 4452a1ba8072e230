"""Fenced code blocks as models write them: CommonMark, and the ways in which models miss it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["python", "unknown", "other", "markdown"]

_INVISIBLE = "\ufeff\u200b\u200c\u200d\u2060"
_OPEN = re.compile(
    rf"^(?P<lead>[\s>{_INVISIBLE}]*(?:(?:[-*+•]|\d{{1,9}}[.)])\s+)*)(?P<mark>`{{3,}}|~{{3,}})(?P<info>.*)$"
)
_QUOTE = re.compile(r"^\s{0,3}>")
_TAG = re.compile(r"[A-Za-z][\w+#.-]*")
_ATTRIBUTE = re.compile(r"^[\w.-]+[=:]")
_CODE_START = re.compile(r"^(?:async\s+def|def|class|import|from|@)\b|^@")
_LOOKAHEAD = 20_000
"""Lines read ahead for the ends of strings, all blocks of an answer together."""

_OTHER_TAGS = """
    ascii asm bash bat batch bibtex bnf c c# c++ cfg clojure cmake cmd conf console cpp cs csharp css csv cxx dart
    diff docker dockerfile dos ebnf elixir env erlang fish fortran go golang gitignore graphql groovy h haskell hpp hs
    html http ini java javascript jl js json json5 jsonc jsonl jsx julia kotlin kt latex lisp log lua make makefile
    math matlab mermaid nasm nginx nim objc objective-c ocaml output pascal patch perl php pl plain plaintext
    powershell properties proto protobuf ps1 pwsh pytb pytest-output r racket rb regex result rs ruby rust scala scheme
    scss sh shell shell-session shellsession sql stderr stdout svg swift terminal tex text toml traceback ts tsv tsx
    txt typescript vb vbnet vim xml yaml yml zig zsh
"""
_OTHER = frozenset(_OTHER_TAGS.split())
_MARKDOWN = frozenset({"markdown", "md", "mdx", "rst", "gfm"})


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    kind: Kind
    variants: tuple[str, ...]
    """Its text with the indent of its list or quote removed, in the order in which to try them."""
    closed: bool
    first: int
    """Index of the line with the opening fence."""
    end: int
    """Index of the line after the block."""

    @property
    def text(self) -> str:
        return self.variants[0]


@dataclass
class _Open:
    mark: str
    kind: Kind
    indent: str
    quotes: int
    spaced: bool
    """Its quote mark is followed by a space, which then belongs to the mark on every line."""
    rest: str
    first: int


def find_blocks(lines: list[str], parses: Callable[[str], bool]) -> list[Block]:
    """The blocks in order. `parses` settles whether a fence inside a string belongs to the code."""
    return _Scanner(lines, parses).run()


class _Scanner:
    def __init__(self, lines: list[str], parses: Callable[[str], bool], depth: int = 0) -> None:
        self.lines, self.parses, self.depth = lines, parses, depth
        self.out: list[Block] = []
        self.ahead = _LOOKAHEAD

    def run(self) -> list[Block]:
        i = 0
        outer: _Open | None = None
        while i < len(self.lines):
            found = _opening(self.lines[i], i)
            if found is None:
                i += 1
            elif outer is not None and not found.rest and _closes(found.mark, outer.mark):
                outer = None
                i += 1
            elif found.kind == "markdown" and self._holds_tagged_fence(found):
                # A fence of the same length inside: its blocks are ours, and its own end is a bare fence.
                outer = found
                i += 1
            else:
                i = self._block(found)
        return self.out

    def _holds_tagged_fence(self, opened: _Open) -> bool:
        for i in range(opened.first + 1, min(opened.first + 400, len(self.lines))):
            line = _opening(self.lines[i], i)
            if line is not None and _closes(line.mark, opened.mark):
                return bool(line.rest)
        return False

    def _block(self, opened: _Open) -> int:
        """Read one block; returns the index of the line to go on with."""
        body: list[str] = []
        string = ""
        maybe: tuple[int, int, int] | None = None  # a fence inside a string: (lines of body, end, go on at)
        nested = False
        reads_strings = opened.kind in ("python", "unknown")
        i = opened.first + 1
        while i < len(self.lines):
            line = self.lines[i]
            if opened.quotes:
                bare = _unquote(line, opened.quotes, opened.spaced)
                if bare is None:
                    break  # the quotation ends, and the block with it
                line = bare
            hit = _opening(line, i)
            if hit is not None and (hit.quotes or not _closes(hit.mark, opened.mark)):
                nested = nested or not string
                hit = None
            if hit is not None:
                opens = _looks_like_tag(hit.rest)
                go_on = i if opens else i + 1
                if not string:
                    if maybe is None or any(map(self.parses, _variants(opened, body))):
                        return self._close(opened, body, i if opens else i + 1, go_on, nested, closed=not opens)
                    break
                if maybe is None:
                    maybe = (len(body), i if opens else i + 1, go_on)
            elif reads_strings and not string and (cut := _fence_at_end(line, opened.mark)) is not None:
                return self._close(opened, [*body, cut], i + 1, i + 1, nested, closed=True)
            if maybe is not None:
                self.ahead -= 1
                if self.ahead < 0:
                    break
            body.append(line)
            if reads_strings:
                string = string_state(line, string)
            i += 1
        if maybe is not None:
            count, end, go_on = maybe
            return self._close(opened, body[:count], end, go_on, nested, closed=True)
        return self._close(opened, body, i, i, nested, closed=i < len(self.lines))

    def _close(self, opened: _Open, body: list[str], end: int, go_on: int, nested: bool, *, closed: bool) -> int:
        if nested and self.depth < 3 and (opened.kind == "markdown" or opened.rest.strip(" \t") in ("", "text", "txt")):
            inner = _Scanner(body, self.parses, self.depth + 1).run()
            if inner:
                shift = opened.first + 1
                self.out += [Block(b.kind, b.variants, b.closed, b.first + shift, b.end + shift) for b in inner]
                return go_on
        self.out.append(Block(opened.kind, _variants(opened, body), closed, opened.first, end))
        return go_on


def _opening(line: str, index: int) -> _Open | None:
    if "```" not in line and "~~~" not in line:
        return None
    found = _OPEN.match(line)
    if found is None:
        return None
    mark, info, lead = found["mark"], found["info"].strip(), found["lead"]
    if mark[0] == "`" and "`" in info:
        return None
    quotes = lead.count(">")
    after_quotes = lead.rpartition(">")[2]
    spaced = quotes > 0 and after_quotes[:1] in (" ", "\t")
    if spaced:
        after_quotes = after_quotes[1:]
    indent = "".join(c if c.isspace() else " " for c in after_quotes if c not in _INVISIBLE)
    return _Open(mark, _kind(info), indent, quotes, spaced, info, index)


def _closes(mark: str, opened: str) -> bool:
    return mark[0] == opened[0] and len(mark) >= len(opened)


def _kind(info: str) -> Kind:
    if not info:
        return "unknown"
    found = _TAG.search(info)
    tag = found.group().lower().rstrip(".-") if found else ""
    if found and info[found.end() : found.end() + 1] in ("=",):
        return "unknown"
    if tag in _OTHER:
        return "other"
    if tag in _MARKDOWN:
        return "markdown"
    if tag.startswith(("py", "ipython", "sage")) or tag.endswith(".py"):
        return "python"
    return "unknown"


def _looks_like_tag(info: str) -> bool:
    """Whether text after a fence mark inside an open block starts a new block; else it is prose after the end."""
    if not info:
        return False
    words = info.split()
    first = words[0].strip("{}.,:").lower()
    if words[0].startswith("{") or _kind(first) != "unknown":
        return True
    return (len(words) == 1 and bool(re.fullmatch(r"[\w+#.-]+", first))) or all(map(_ATTRIBUTE.match, words))


def _unquote(line: str, depth: int, spaced: bool) -> str | None:
    """The line without its quote marks; None when it has none."""
    for n in range(depth):
        found = _QUOTE.match(line)
        if found is None:
            return None if n == 0 else line
        line = line[found.end() :]
        if (spaced or n < depth - 1) and line[:1] in (" ", "\t"):
            line = line[1:]
    return line


def _fence_at_end(line: str, mark: str) -> str | None:
    """`return 1` of a line such as "return 1```", where the end was put on the last line of code."""
    if mark[0] != "`" or not line.rstrip().endswith(mark):
        return None
    code = line.rstrip().rstrip("`")
    if not code.strip() or "`" in code or "#" in code or string_state(code, ""):
        return None
    return code


_QUOTES = re.compile(r"#|'''|\"\"\"|'|\"")
_ENDS = {q: re.compile(r"\\.|" + q, re.S) for q in ("'''", '"""', "'", '"')}


def string_state(line: str, state: str) -> str:
    """Which triple quote is open after a line of Python, given the one open before it ("" for none)."""
    at = 0
    while True:
        if not state:
            found = _QUOTES.search(line, at)
            if found is None or found.group() == "#":
                return ""
            state, at = found.group(), found.end()
        for end in _ENDS[state].finditer(line, at):
            if end.group()[0] != "\\":
                at, state = end.end(), ""
                break
        else:
            return state if len(state) == 3 else ""


def _join(lines: list[str]) -> str:
    return "".join(line + "\n" for line in lines)


def _variants(opened: _Open, body: list[str]) -> tuple[str, ...]:
    """The block's text, its list indent removed in the ways that occur; most likely first, no two alike."""
    filled = [line for line in body if line.strip()]
    indent = opened.indent
    out: list[str] = []
    if all(line.startswith(indent) for line in filled):
        out.append(_join([line[len(indent) :] if line.startswith(indent) else "" for line in body]))
    common = _common_indent(filled)
    dedented = _join([line[len(common) :] if line.startswith(common) else "" for line in body])
    width = len(indent.expandtabs(4))
    out += [dedented, _join([_drop_columns(line, width) for line in body]), _join(body)]
    rest = re.sub(r"^[\w+#.{}]+\s+", "", opened.rest)
    if rest != opened.rest and _CODE_START.match(rest):
        out = [rest + "\n" + text for text in out]  # code that begins on the line of the fence
    return tuple(dict.fromkeys(out))


def _common_indent(lines: list[str]) -> str:
    if not lines:
        return ""
    low, high = min(lines), max(lines)
    n = 0
    while n < min(len(low), len(high)) and low[n] == high[n] and low[n].isspace():
        n += 1
    return low[:n]


def _drop_columns(line: str, width: int) -> str:
    gone = at = 0
    while gone < width and at < len(line) and line[at].isspace():
        gone += 4 - gone % 4 if line[at] == "\t" else 1
        at += 1
    return line[at:]
