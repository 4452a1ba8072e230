"""A stored response of the reference project's layout: the plain answer, or reasoning and answer in tags."""

from __future__ import annotations

from dataclasses import dataclass

from bench.importing.files import Unusable

_OPEN = "<reasoning_content>"
_BETWEEN = ("\n</reasoning_content>\n\n<content>\n", "\r\n</reasoning_content>\r\n\r\n<content>\r\n")
_CLOSE = "</content>"
_ERROR = "ERROR: "
_LONGEST_ERROR = 2000


@dataclass(frozen=True)
class Response:
    """An answer, its reasoning apart, and whether it is one."""

    content: str
    reasoning: str | None
    outcome: str = "ok"
    """`ok`; `time_limit` or `transport_error` where the file holds what the source's client said instead."""
    detail: str | None = None


def split_response(text: str) -> Response:
    """Take a response file apart. Raises Unusable where it is torn, or can be split in two ways.

    The source writes `ERROR: TEXT` in place of an answer when its request failed.
    """
    if not text.startswith(_OPEN):
        return _judged(text, None)
    head = text[len(_OPEN) :]
    separator = next((s for s in _BETWEEN if s in head), None)
    if separator is None:
        raise Unusable("begins with <reasoning_content>, but no <content> follows: torn")
    if head.count(separator) > 1:
        raise Unusable("the tags between reasoning and content are there more than once: it can be split in two ways")
    reasoning, content = head.split(separator)
    bare = content.rstrip()
    if not bare.endswith(_CLOSE):
        raise Unusable("no </content> at its end: torn")
    content = bare[: -len(_CLOSE)]
    # One line end belongs to the tag; others are the answer's own.
    content = content.removesuffix("\n").removesuffix("\r")
    return _judged(content, reasoning.removeprefix("\r").removeprefix("\n"))


def _judged(content: str, reasoning: str | None) -> Response:
    line = content.strip()
    if not content.startswith(_ERROR.rstrip()) or "\n" in line or "```" in line or len(line) > _LONGEST_ERROR:
        return Response(content, reasoning)
    said = line.removeprefix(_ERROR.rstrip()).strip()
    # An empty message is what a client's read timeout leaves; the source does not stream, so that is the total limit.
    timed_out = not said or "timeout" in said.lower() or "timed out" in said.lower()
    return Response("", reasoning, "time_limit" if timed_out else "transport_error", said or "the request timed out")
