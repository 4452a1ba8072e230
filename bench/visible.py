"""Text that somebody else wrote, made safe to show: in a terminal, a page, a picture or a line of a log.

A model's answer, a model file or a run from elsewhere may hold what moves the cursor, hides or turns text around, or
stops a renderer. Everything that shows such text asks here, so that there is one list of what is shown as its code.
"""

from __future__ import annotations

import re

_UNSEEN = (
    # Controls (Cc), but for tab and newline.
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"
    # Format characters (Cf), line and paragraph separators, and the rest of what Unicode says to draw nothing for:
    # soft hyphen, joiners, fillers, direction, variation selectors, tags. By number and not by category: a newer
    # Python knows more characters, and a report must not depend on it.
    r"\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    # Halves of surrogate pairs cannot be encoded; XML and the chart renderer refuse what is no character.
    r"\ud800-\udfff\ufdd0-\ufdef"
) + "".join(f"\\U{plane:04x}fffe\\U{plane:04x}ffff" for plane in range(17))
_IN_LINES = re.compile(f"[{_UNSEEN}]")
_IN_A_LINE = re.compile(f"[\t\n{_UNSEEN}]")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def visible(text: str, *, lines: bool = False) -> str:
    """Text with every control and invisible character as `\\u202e`: to be seen, and without effect.

    The result is one line, a newline in it shown as `\\n`; with `lines` newlines of every system and tabs stay.
    """
    if lines:
        return _IN_LINES.sub(_code, text.replace("\r\n", "\n").replace("\r", "\n"))
    return _IN_A_LINE.sub(_code, text)


def _code(found: re.Match[str]) -> str:
    number = ord(found[0])
    return _SHORT.get(found[0]) or (f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}")
