"""From an answer to the code in it. The code is cut out, never rewritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EXTRACTOR_VERSION = "1"
"""Part of the grading hash: changes when another piece of an answer would be graded."""

AnswerStatus = Literal["code", "no_answer", "no_code"]


@dataclass(frozen=True)
class Answer:
    """The code found in an answer, and the rule that found it."""

    status: AnswerStatus
    code: str | None
    rule: str
    """`last_block_defining_entry`, `with_earlier_helpers`, `unfenced`, `entry_not_found`, ..."""
    n_blocks: int = 0
    truncated: bool = False
    """The answer ended because the token limit was reached (`finish_reason == "length"`)."""
    think_unclosed: bool = False
    answer_source: str = "content"


def extract(content: str | None, entry: str | tuple[str, ...], *, finish_reason: str | None = "stop") -> Answer:
    """Find the final code of an answer. `entry` is what it must define at module level. Reasoning is never seen here."""
    raise NotImplementedError
