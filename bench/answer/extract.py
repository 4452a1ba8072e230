"""From an answer to the code in it. The code is cut out, never rewritten."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bench.answer.assemble import Candidate, Choice, choose
from bench.answer.fences import Block, find_blocks
from bench.answer.prose import broken_run, code_runs, inline_code, is_code, looks_like_module, transcript_code
from bench.answer.pycode import MAX_PARSE, Module, Reader
from bench.answer.thinking import split_thinking

EXTRACTOR_VERSION = "1"
"""Part of the grading hash: changes when another piece of an answer would be graded."""

AnswerStatus = Literal["code", "no_answer", "no_code"]

FALLBACK_RULES: frozenset[str] = frozenset(
    {
        "with_later_helpers",
        "earlier_block_parses",
        "entry_in_broken_code",
        "entry_is_stub",
        "entry_imported",
        "entry_partly_found",
        "entry_not_found",
        "unfenced_in_prose",
        "unfenced_broken",
        "mislabelled_block",
        "interpreter_session",
        "inline_code",
        "before_later_thinking",
        "too_long_to_parse",
    }
)
"""Rules that guess. A failure on code that one of them found may be the extractor's doing."""

_MOST_BLOCKS = 100
_END_TOKENS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end|>",
    "<|return|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<eos>",
    "</s>",
)


@dataclass(frozen=True)
class Answer:
    """The code found in an answer, and the rule that found it."""

    status: AnswerStatus
    code: str | None
    rule: str
    """`last_block_defining_entry`, `with_earlier_helpers`, `entry_across_blocks`, `unfenced`, or a fallback."""
    n_blocks: int = 0
    """Fenced blocks in the answer, of any language; reasoning left out."""
    truncated: bool = False
    """The answer ended because the token limit was reached (`finish_reason == "length"`)."""
    think_unclosed: bool = False
    """The answer opened a reasoning tag and never closed it."""
    answer_source: str = "content"


def extract(content: str | None, entry: str | tuple[str, ...], *, finish_reason: str | None = "stop") -> Answer:
    """Find the final code of an answer. `entry` is what it must define at module level. Reasoning is never seen here.

    Never raises, whatever the text. The code is a copy of parts of the answer: only the indent of a list or quote,
    the prompts of an interpreter session, and CR line ends are left out.
    """
    names = (entry,) if isinstance(entry, str) else tuple(entry)
    names = tuple(n.partition(".")[0] for n in names if n)
    truncated = finish_reason == "length"
    text = _clean(content or "")
    if not text.strip():
        return Answer("no_answer", None, "no_answer", truncated=truncated)
    reader = Reader()
    if _is_all_code(reader.module(text), names):
        return Answer("code", _trim(text), "unfenced", truncated=truncated)
    view = split_thinking(text, reader, ended=finish_reason not in (None, "length"))
    found = [_in_part(part, names, reader) for part in view.parts if part.strip()]
    if not found:
        return Answer("no_answer", None, "no_answer", truncated=truncated, think_unclosed=view.unclosed)
    best = max(range(len(found)), key=lambda i: (_rank(found[i]), -i))
    answer = found[best]
    if best and not view.unclosed:
        answer = replace(answer, rule="before_later_thinking")
    return replace(answer, truncated=truncated, think_unclosed=view.unclosed)


def _rank(answer: Answer) -> int:
    if answer.status != "code":
        return 0
    return 1 if answer.rule in ("entry_not_found", "unfenced_broken") else 2


def _clean(text: str) -> str:
    """LF line ends, no byte order mark, no control tokens at the end."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    while True:
        bare = text.rstrip()
        token = next((t for t in _END_TOKENS if bare.endswith(t)), None)
        if token is None:
            return text
        text = bare[: -len(token)]


def _trim(text: str) -> str:
    """Without blank lines around it; ends in one line end."""
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    return "\n".join(lines[first:]).rstrip() + "\n"


def _is_all_code(whole: Module | None, names: tuple[str, ...]) -> bool:
    return whole is not None and bool(names) and is_code(whole) and all(n in whole.binds for n in names)


def _in_part(text: str, names: tuple[str, ...], reader: Reader) -> Answer:
    """The code of a text that holds no reasoning."""
    text = _trim(text)
    whole = reader.module(text)
    if _is_all_code(whole, names):
        return Answer("code", text, "unfenced")
    lines = text.removesuffix("\n").split("\n")
    blocks = [b for b in find_blocks(lines, reader.parses) if b.text.strip()]
    recent = blocks[-_MOST_BLOCKS:]
    main = [_candidate(b, names, reader) for b in recent if b.kind in ("python", "unknown")]
    best: Choice | None = None
    for rule, candidates in _sources(lines, recent, main, names, reader):
        choice = choose(candidates, names, reader)
        if choice is None:
            continue
        if rule:
            choice = replace(choice, rule=rule)
        if not choice.absent:
            return Answer("code", choice.code, choice.rule, len(blocks))
        if best is None or len(choice.absent) < len(best.absent):
            best = choice
    if best is not None:
        return Answer("code", best.code, "entry_partly_found", len(blocks))
    return replace(_without_entry(lines, whole, main, names, reader), n_blocks=len(blocks))


def _sources(
    lines: list[str],
    recent: Sequence[Block],
    main: list[Candidate],
    names: tuple[str, ...],
    reader: Reader,
) -> Iterator[tuple[str, list[Candidate]]]:
    """Where the entry may be defined, the safest place first, each with its rule's name ("" for the usual ones)."""
    yield "", main
    if not names:
        return
    others = [_candidate(b, names, reader) for b in recent if b.kind in ("other", "markdown")]
    yield "mislabelled_block", [c for c in others if c.module is not None]
    yield "unfenced_in_prose", _plain(code_runs(lines, reader), reader)
    sessions = [s for b in recent if (s := transcript_code(b.variants[-1])) is not None]
    plain = None if recent else transcript_code("\n".join(lines))
    yield "interpreter_session", _plain([*sessions, *([plain] if plain else [])], reader)
    yield "inline_code", _plain(inline_code(lines), reader)


def _without_entry(
    lines: list[str], whole: Module | None, main: list[Candidate], names: tuple[str, ...], reader: Reader
) -> Answer:
    parsing = [c for c in main if c.module is not None]
    broken = [c for c in main if c.module is None]
    if parsing:
        return Answer("code", parsing[-1].text, "entry_not_found" if names else "last_block")
    if tagged := [c for c in broken if c.python or _looks_like_code(c.text)]:
        return Answer("code", tagged[-1].text, "entry_not_found")
    if not main:
        if whole is not None and looks_like_module(whole):
            return Answer("code", whole.text, "entry_not_found" if names else "unfenced")
        runs = [r for r in _plain(code_runs(lines, reader), reader) if r.module and looks_like_module(r.module)]
        if runs:
            return Answer("code", runs[-1].text, "entry_not_found" if names else "unfenced_in_prose")
        code = broken_run(lines)
        if code is not None:
            return Answer("code", code, "unfenced_broken")
    return Answer("no_code", None, "no_code")


def _looks_like_code(text: str) -> bool:
    return broken_run(text.split("\n")) is not None


def _candidate(block: Block, names: tuple[str, ...], reader: Reader) -> Candidate:
    """A block with the first of its variants that parses."""
    for text in block.variants:
        module = reader.module(text)
        if module is not None:
            return Candidate(text, module, python=block.kind == "python")
    means = frozenset(n for n in names if _defines_in_words(block.text, n))
    return Candidate(block.text, None, block.kind == "python", means, too_long=len(block.text) > MAX_PARSE)


def _plain(texts: Sequence[str], reader: Reader) -> list[Candidate]:
    return [Candidate(t, m) for t in texts[-_MOST_BLOCKS:] if (m := reader.module(t)) is not None]


def _defines_in_words(text: str, name: str) -> bool:
    """Whether text that does not parse holds a definition of the name with a body: a signature alone is none."""
    if re.search(r"^(?:>>> |[+-](?:def|class) |@@ )", text, re.M):
        return False  # a session or a diff
    word = re.escape(name)
    head = rf"^(?:async[ \t]+)?(?:def|class)[ \t]+{word}\b.*\n(?:[ \t]*\n)*(?:[ \t]+\S|[)\]])"
    return re.search(head, text, re.M) is not None
