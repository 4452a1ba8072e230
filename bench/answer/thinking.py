"""Reasoning markup inside an answer: what of the text is the answer.

A closing tag ends the reasoning when it starts a line or stands outside fenced code; the last such tag counts. Tags
that the answer only talks about (in code, in quotes, in a sentence about tags) are text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from bench.answer.fences import Block, find_blocks, string_state
from bench.answer.pycode import Reader

_NAMES = r"(?:think|thinking|thought|thoughts|reasoning|reflection|seed:think)"
_OPEN = re.compile(rf"<{_NAMES}\s{{0,3}}>|\[THINK\]|<\|channel>thought\b", re.I)
_CLOSE = re.compile(rf"</{_NAMES}\s{{0,3}}>|\[/THINK\]|<channel\|>", re.I)
_HARMONY_FINAL = re.compile(r"<\|channel\|>\s{0,3}final\b[^<\n]{0,40}(?:<\|constrain\|>[^<\n]{0,40})?<\|message\|>")
_MARKS = " \t\r\f\v\u00a0>\ufeff\u200b"
_MOST_TAGS = 200
_QUOTES = "`'\"“”‘’«»"
_KEYWORD = re.compile(r"\s(?:def|class|import|from|async|for|if|while|with|try|return|print)\b")


@dataclass(frozen=True)
class View:
    """An answer apart from its reasoning."""

    parts: tuple[str, ...]
    """Texts in which the answer may be, the likeliest first; empty when all of it was reasoning."""
    unclosed: bool = False
    """Reasoning was opened and never closed."""


@dataclass(frozen=True)
class _Tag:
    start: int
    end: int
    strong: bool
    """It starts its line."""


def split_thinking(text: str, reader: Reader, *, ended: bool) -> View:
    """Where the answer is. `ended`: the model stopped by itself, so text after an unclosed tag may be the answer."""
    markup = _Markup(text, reader)
    final = markup.harmony_final()
    if final is not None:
        return View((text[final:],))
    if text.lstrip().startswith(("<|channel|>analysis", "<|start|>assistant<|channel|>analysis")):
        return View((text,) if ended else (), unclosed=True)
    closes, opens = markup.closes(), markup.opens()
    if not closes:
        return _without_closing(text, opens, ended)
    last = closes[-1]
    return _with_closing(text, closes, [o for o in opens if o.start < last.start], opens, ended)


def _without_closing(text: str, opens: list[_Tag], ended: bool) -> View:
    if not opens:
        return View((text,))
    tag = opens[0]
    before = text[: tag.start]
    parts = [before] if before.strip() else []
    if ended:
        parts.append(text[tag.end :])
    return View(tuple(parts), unclosed=True)


def _with_closing(text: str, closes: list[_Tag], before: list[_Tag], opens: list[_Tag], ended: bool) -> View:
    last = closes[-1]
    again = next((o for o in opens if o.start >= last.end), None)
    parts = [text[last.end : again.start if again else len(text)]]
    if again and ended:
        parts.append(text[again.end :])
    # Thinking that was taken up again: what stands between two stretches of reasoning is answer too.
    previous = next((c for c in reversed(closes[:-1]) if c.strong), None)
    floor = previous.end if previous else 0
    reopened = next((o for o in before if o.start >= floor), None)
    if reopened is not None and text[floor : reopened.start].strip():
        parts.append(text[floor : reopened.start])
    elif previous is not None and not last.strong:
        parts.append(text[previous.end :])
    return View(tuple(parts), unclosed=again is not None)


class _Markup:
    def __init__(self, text: str, reader: Reader) -> None:
        self.text, self.reader = text, reader
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        has_tags = _CLOSE.search(text) or _OPEN.search(text) or "<|channel|>" in text
        self.blocks = find_blocks(self.lines, reader.parses) if has_tags else []

    def harmony_final(self) -> int | None:
        for found in reversed(list(_HARMONY_FINAL.finditer(self.text))[-_MOST_TAGS:]):
            line, before, _ = self._around(found.start(), found.end())
            block = self._block(line)
            starts = not before.strip(_MARKS) or before.rstrip().endswith(("<|start|>assistant", "<|end|>"))
            if starts and (block is None or not self._quotes_tag(block, line)):
                return found.end()
        return None

    def closes(self) -> list[_Tag]:
        """The closing tags that are markup."""
        out = []
        for found in list(_CLOSE.finditer(self.text))[-_MOST_TAGS:]:
            line, before, after = self._around(found.start(), found.end())
            opener = _OPEN.match(before.lstrip(_MARKS))
            strong = not before.strip(_MARKS) or opener is not None
            block = self._block(line)
            if block is not None:
                if not strong or self._quotes_tag(block, line):
                    continue
            elif not strong and _is_mention(before, after):
                continue
            out.append(_Tag(found.start(), found.end(), strong))
        return out

    def opens(self) -> list[_Tag]:
        """The opening tags that are markup: at the very start, or alone on a line outside of code."""
        out = []
        first = len(self.text) - len(self.text.lstrip(_MARKS + "\n"))
        for found in list(_OPEN.finditer(self.text))[:_MOST_TAGS]:
            line, before, after = self._around(found.start(), found.end())
            alone = not before.strip(_MARKS) and not after.strip(_MARKS) and self._block(line) is None
            if found.start() == first or alone:
                out.append(_Tag(found.start(), found.end(), True))
        return out

    def _around(self, start: int, end: int) -> tuple[int, str, str]:
        line = bisect_right(self.starts, start) - 1
        low, high = self.starts[line], self.starts[line + 1] - 1
        return line, self.text[max(low, start - 2000) : start], self.text[end : min(high, end + 2000)]

    def _block(self, line: int) -> Block | None:
        i = bisect_right(self.blocks, line, key=lambda b: b.first) - 1
        if i >= 0 and self.blocks[i].first < line < self.blocks[i].end:
            return self.blocks[i]
        return None

    def _quotes_tag(self, block: Block, line: int) -> bool:
        """Whether a tag that starts a line of a block is part of what the block shows."""
        if not block.closed:
            return False
        if any(map(self.reader.parses, block.variants)):
            return True  # a line `</think>` parses inside a string only
        shown = self.lines[block.first + 1 : line]
        return any(_OPEN.match(one.lstrip(_MARKS)) for one in shown[-200:])


def _is_mention(before: str, after: str) -> bool:
    """Whether a tag in the middle of a line of prose, or of code without a fence, is only mentioned."""
    if before[-1:] in tuple(_QUOTES) and after[:1] in tuple(_QUOTES):
        return True
    if before.count("`") % 2 == 1 and "`" in after:
        return True
    if _OPEN.search(before) and not _OPEN.match(before.lstrip(_MARKS)):
        return True  # "between <think> and </think>"
    code = re.sub(r"(?<=\w)['’](?=\w)", "", before)
    if any(code.count(quote) % 2 == 1 and quote in after for quote in "\"'"):
        return True
    if string_state(code, ""):
        return True
    if re.match(r"[.,;:!?)\]]", after):
        return True
    return bool(re.match(r"\s+[a-z]", after)) and not _KEYWORD.match(after)
