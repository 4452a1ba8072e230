"""Code that stands in prose without a fence."""

from __future__ import annotations

import ast
import re

from bench.answer.fences import string_state
from bench.answer.pycode import Module, Reader

_START = re.compile(r"^(?:[A-Za-z_@#'\"(\[{*]|\.\.\.)")
_DEFINES = re.compile(r"^(?:async\s+def|def|class)\s+\w|^@\w|^import\s+\w|^from\s+[\w.]+\s+import\b")
_GOES_ON = re.compile(r"^(?:elif\b.*:|else\s*:|except\b.*:|finally\s*:|[)\]}])")
_INLINE = re.compile(r"`([^`\n]{3,2000})`")
_ONE_LINE = re.compile(r"^\s*```(?:py\w*\s+)?([^`]+)```\s*$")
_PROMPT = re.compile(r"^\s*(>>>|\.\.\.)(?: (.*))?$")
MOST_LINES = 20_000
_MOST_READ = 4_000_000
"""Characters read for one answer in search of the ends of statements."""


def code_runs(lines: list[str], reader: Reader) -> list[str]:
    """Stretches of consecutive module-level statements, each as it stands, prose left out."""
    return _Runs(lines[-MOST_LINES:], reader).find()


class _Runs:
    def __init__(self, lines: list[str], reader: Reader) -> None:
        self.lines, self.reader = lines, reader
        self.left = _MOST_READ

    def find(self) -> list[str]:
        runs: list[list[str]] = [[]]
        comments: list[str] = []
        i = 0
        while i < len(self.lines):
            line = self.lines[i]
            if not line.strip() or line.startswith("#"):
                comments.append(line)
                i += 1
                continue
            size = self._statement(i)
            if size:
                runs[-1] += comments if runs[-1] else _touching(comments)
                runs[-1] += self.lines[i : i + size]
            elif runs[-1]:
                runs.append([])
            comments = []
            i += size or 1
        return ["".join(line + "\n" for line in run) for run in runs if run]

    def _statement(self, start: int) -> int:
        """How many lines from `start` on are one statement at the left margin; 0 for prose."""
        if not _START.match(self.lines[start]) or self.left < 0:
            return 0
        end = self._end(start)
        for stop in dict.fromkeys((end, start + 1)):
            text = "".join(one + "\n" for one in self.lines[start:stop])
            found = self.reader.module(text)
            if found is not None and is_code(found):
                return stop - start
        return 0

    def _end(self, start: int) -> int:
        """Where the next statement begins, or prose does; blank lines before it are not counted in."""
        end, string, decorators = start, "", 0
        decorating = False
        while end < len(self.lines) and self.left >= 0 and decorators < 50:
            line = self.lines[end]
            self.left -= len(line) + 1
            margin = bool(line.strip()) and not line[0].isspace() and not string
            if margin and end > start and not decorating and not _GOES_ON.match(line):
                break
            if margin:
                decorating = line.startswith("@")
                decorators += decorating
            string = string_state(line, string)
            end += 1
        while end > start + 1 and not self.lines[end - 1].strip():
            end -= 1
        return end


def _touching(comments: list[str]) -> list[str]:
    """The comments right above the first statement, without what a blank line parts from it."""
    at = len(comments)
    while at and comments[at - 1].startswith("#"):
        at -= 1
    return comments[at:]


def is_code(module: Module) -> bool:
    """Whether it is a statement and not words that happen to parse ("Done", "Note: this", "Hello, world")."""
    for node in module.tree.body:
        if isinstance(node, ast.Expr) and not isinstance(node.value, (ast.Call, ast.Constant, ast.Await)):
            return False
        if isinstance(node, ast.AnnAssign) and node.value is None:
            return False
    return bool(module.tree.body)


def looks_like_module(module: Module) -> bool:
    """Whether a whole text that parses is code and not prose that happens to."""
    return is_code(module) and any(not isinstance(n, ast.Expr) for n in module.tree.body)


def broken_run(lines: list[str]) -> str | None:
    """From the first to the last line that looks like code, for an answer without a fence that does not parse."""
    hits = [i for i, line in enumerate(lines) if _DEFINES.match(line)]
    if not hits:
        return None
    end = hits[-1] + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace() or _GOES_ON.match(lines[end])):
        end += 1
    return "".join(line + "\n" for line in lines[hits[0] : end]).rstrip() + "\n"


def inline_code(lines: list[str]) -> list[str]:
    """What stands between single backticks, or between three on one line."""
    out = []
    for line in lines[-2000:]:
        whole = _ONE_LINE.match(line)
        if whole:
            out.append(whole.group(1).strip() + "\n")
        else:
            out += [found.group(1).strip() + "\n" for found in _INLINE.finditer(line)]
    return out[-100:]


def transcript_code(text: str) -> str | None:
    """The input of an interpreter session, prompts cut off; None when there is no prompt."""
    if ">>>" not in text:
        return None
    out: list[str] = []
    for line in text.split("\n"):
        found = _PROMPT.match(line)
        if found:
            if found.group(1) == ">>>" and out:
                out.append("\n")
            out.append((found.group(2) or "") + "\n")
    return "".join(out) or None
