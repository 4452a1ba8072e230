"""Reading files that others wrote: within limits, and with a reason for whatever cannot be used."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MOST_TEXT = 64 << 20
"""Bytes of a text or JSON file that is read."""
MOST_LINE = 32 << 20
"""Bytes of a line of a JSONL file."""
_ID = re.compile(r"[^A-Za-z0-9_.-]+")
_MOST_ID = 120


class Unusable(Exception):
    """A file cannot be used; the text says why, in a few words."""


def read_bytes(path: Path) -> bytes:
    """A regular file's content. Raises Unusable for anything else, and for a file over the limit."""
    try:
        if path.is_symlink():
            raise Unusable("a link, not a file")
        if not path.is_file():
            raise Unusable("no such file" if not path.exists() else "not a plain file")
        with path.open("rb") as stream:
            data = stream.read(MOST_TEXT + 1)
    except OSError as e:
        raise Unusable(f"cannot be read ({e.strerror})") from None
    if len(data) > MOST_TEXT:
        raise Unusable(f"larger than {MOST_TEXT >> 20} MiB")
    return data


def decode(data: bytes) -> str:
    """UTF-8 text. Raises Unusable for other bytes: an answer is stored as it was written, or not at all."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise Unusable(f"not UTF-8 (byte 0x{e.object[e.start]:02x} at {e.start})") from None


def parse_json(text: str) -> Any:
    """JSON; NaN and infinities, which Python writes where a metric is missing, are read as null. Raises Unusable."""
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except json.JSONDecodeError as e:
        raise Unusable(f"not JSON ({e.msg}, line {e.lineno})") from None
    except (RecursionError, ValueError) as e:
        raise Unusable(f"not JSON that can be read ({type(e).__name__})") from None


def json_object(path: Path) -> tuple[dict[str, Any], bytes]:
    """A file with one JSON object, and its bytes. Raises Unusable."""
    data = read_bytes(path)
    found = parse_json(decode(data))
    if not isinstance(found, dict):
        raise Unusable(f"expected a JSON object, found {type(found).__name__}")
    return found, data


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number, line) of a text file, without blank lines. Raises Unusable for a line over the limit."""
    try:
        with path.open("rb") as stream:
            number = 0
            while line := stream.readline(MOST_LINE + 1):
                number += 1
                if len(line) > MOST_LINE:
                    raise Unusable(f"line {number} is longer than {MOST_LINE >> 20} MiB")
                if line.strip():
                    yield number, line
    except OSError as e:
        raise Unusable(f"cannot be read ({e.strerror})") from None


def folder(path: Path) -> list[Path]:
    """What is in a folder, sorted; nothing where it cannot be read."""
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def safe_id(text: str) -> str:
    """A name as an id: letters, digits, `_`, `.` and `-`, beginning with a letter or a digit. `HumanEval/0` is
    `HumanEval_0`. Empty for a name without any of them."""
    return _ID.sub("_", text).strip("_.-")[:_MOST_ID]


def digest(parts: Iterable[tuple[str, bytes]]) -> str:
    """sha256 over named contents, whatever their order."""
    whole = hashlib.sha256()
    for name, data in sorted((name, hashlib.sha256(data).hexdigest()) for name, data in parts):
        whole.update(f"{name}\0{data}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def import_id(started: datetime, found: str) -> str:
    """The run id of imported answers: their own time, and the beginning of the digest of what was read.

    It is the same whenever the same files are imported, so they cannot become two runs.
    """
    return f"{started.astimezone(UTC):%Y%m%d-%H%M%S}-{found[:10]}"


def moment(value: Any) -> datetime | None:
    """A time from ISO text or seconds since the epoch; without a zone it is taken as UTC. None for anything else."""
    try:
        if isinstance(value, str) and value.strip():
            found = datetime.fromisoformat(value.strip())
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def modified(path: Path) -> datetime:
    """When a file was last written."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> int | None:
    """A number without a fraction that fits into 64 bits, or None."""
    found = number(value)
    return int(found) if found is not None and found == int(found) and abs(found) < 2**62 else None


def text(value: Any) -> str | None:
    """Text that is not empty, or None."""
    return value if isinstance(value, str) and value.strip() else None
