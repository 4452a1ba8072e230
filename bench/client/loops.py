"""Repetition loops: an answer that ends in the same text over and over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_REPEATS = 6
"""Repeats before it is called a loop. Honest code repeats itself too: a table of like lines seldom has six that are
equal to the last character."""

MIN_CHARACTERS = 200
"""Characters that the repeats must cover: `======` below a heading, or a row of zeros, is no loop."""

MAX_PERIOD = 1500
"""Longest text that is looked for, characters."""

MIN_BLANK_CHARACTERS = 400
MIN_BLANK_LINES = 100
"""White space at the end from which it is a loop, whether it repeats or not: so many characters, or so many line ends.
The deepest indentation, the empty rows of a drawing and the lines that close an answer are far below both."""


@dataclass(frozen=True)
class Loop:
    """A text that ends in repeats."""

    period: int
    """Characters of what is repeated."""
    repeats: int
    """Whole repeats at the end."""
    blank: bool = False
    """Whether it is white space and nothing else; each character counts as a repeat then."""

    def __str__(self) -> str:
        if self.blank:
            return f"ends in {self.repeats} characters of white space"
        return f"ends in {self.repeats} repeats of the same {self.period} characters"


WATCH_EVERY = 2000
"""Characters between two looks at an answer that is still coming. One look takes a few milliseconds at most."""

END_CHARACTERS = 2000
"""Characters that the repeats must cover before an answer that is still coming is ended: it might have gone on."""


def find(text: str) -> Loop | None:
    """The loop that a text ends in, by the shortest period, or None. A last repeat that is cut short does not matter.

    White space without end is a loop of its own; less of it is passed over, and what stands before it counts.

    Linear in the part that is looked at: the failure function of Knuth, Morris and Pratt over the reversed text gives
    the shortest period of every suffix.
    """
    said = text.rstrip()
    blank = text[len(said) :]
    if len(blank) >= MIN_BLANK_CHARACTERS or blank.count("\n") >= MIN_BLANK_LINES:
        return Loop(1, len(blank), blank=True)
    tail = said[-(MAX_PERIOD * (MIN_REPEATS + 1)) :][::-1]
    if len(tail) < MIN_CHARACTERS:
        return None
    border = [0] * (len(tail) + 1)
    best: tuple[int, int] | None = None  # period, length that has it
    k = 0
    for i in range(1, len(tail)):
        while k and tail[i] != tail[k]:
            k = border[k]
        k += tail[i] == tail[k]
        border[i + 1] = k
        length, period = i + 1, i + 1 - k
        if length >= MIN_CHARACTERS and period * MIN_REPEATS <= length and (best is None or period <= best[0]):
            best = (period, length)
    return None if best is None else Loop(best[0], best[1] // best[0])


class Watch:
    """Looks at an answer while it comes. The cost does not grow with the answer: now and then, and at its end alone."""

    def __init__(self) -> None:
        self._next = WATCH_EVERY

    def caught(self, size: int, parts: Sequence[str]) -> Loop | None:
        """The loop that the answer is caught in, or None. `size`: characters so far; `parts`: what came, in order."""
        if size < self._next:
            return None
        self._next = size + WATCH_EVERY
        found = find(_tail(parts, MAX_PERIOD * (MIN_REPEATS + 1)))
        return found if found is not None and found.period * found.repeats >= END_CHARACTERS else None


def _tail(parts: Sequence[str], n: int) -> str:
    """The last parts that hold at least n characters together."""
    out: list[str] = []
    for part in reversed(parts):
        out.append(part)
        n -= len(part)
        if n <= 0:
            break
    return "".join(reversed(out))
