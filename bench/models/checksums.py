"""Is this file the one that was asked for: size, then magic, then sha256, hashed once and remembered."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.errors import ArmError

Progress = Callable[[str, int, int | None], None]
"""Called with a name, the bytes done and the bytes in all where they are known."""

MAGIC = b"GGUF"
_CHUNK = 1 << 20


def size_text(n: int) -> str:
    """A size for people, with the exact bytes."""
    if n < 10_000:
        return f"{n:,} bytes"
    power, unit = next(((p, u) for p, u in ((1, "kB"), (2, "MB"), (3, "GB")) if n < 1000 ** (p + 1)), (4, "TB"))
    return f"{n:,} bytes ({n / 1000**power:.1f} {unit})"


def foreign_content(head: bytes) -> str:
    """What a file without GGUF magic probably is, in plain words; empty when nothing is recognised."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:512].lower()
    if not head:
        return "the file is empty: the download never began or was cut off"
    if start.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer, not the model: run `git lfs pull` there or download the file itself"
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "this is a web page, probably an error or a login page: download the file again"
    if start.startswith((b"{", b"[")):
        return "this is JSON text, probably an error message: download the file again"
    if head.startswith(b"FUGG"):
        return "this GGUF is big-endian, which this machine's server does not load"
    if head.startswith(b"PK\x03\x04"):
        return "this is a zip archive (a wheel or a PyTorch file), not a GGUF"
    if head.startswith((b"tjgg", b"lmgg", b"fmgg", b"ggjt", b"ggml", b"ggmf", b"algg")):
        return "this is a model of the format before GGUF: convert it again"
    if len(head) > 9 and head[8:9] == b"{":
        return "this looks like safetensors: convert it to GGUF first"
    if head.startswith(b"\x1f\x8b"):
        return "this is a gzip archive, not a GGUF"
    return ""


def read_head(path: Path, n: int = 512) -> bytes:
    """The first bytes of a file. Raises ArmError model_missing when there is no readable file."""
    try:
        if path.is_dir():
            raise ArmError("model_missing", f"expected a model file, found a folder: {path}")
        with path.open("rb") as file:
            return file.read(n)
    except FileNotFoundError:
        raise ArmError("model_missing", f"no such file: {path}") from None
    except OSError as error:
        raise ArmError("model_missing", f"cannot read {path}: {error.strerror}") from None


def check_size_and_magic(path: Path, expected_bytes: int | None) -> None:
    """The two checks that cost nothing. Raises ArmError model_corrupt with what was expected and found."""
    head = read_head(path)
    hint = "" if head.startswith(MAGIC) else foreign_content(head)
    size = path.stat().st_size
    if expected_bytes is not None and size != expected_bytes:
        detail = f"{path.name}: size: expected {size_text(expected_bytes)}, found {size_text(size)}"
        if not hint:
            hint = "the download was cut off" if size < expected_bytes else "this is another file, or another version"
        raise ArmError("model_corrupt", detail, advice=hint)
    if not head.startswith(MAGIC):
        detail = f"{path.name}: magic: expected `GGUF` in the first 4 bytes, found {head[:4]!r}"
        raise ArmError("model_corrupt", detail, advice=hint or "this is not a GGUF file")


def checked_sha256(
    path: Path,
    cache: Path,
    *,
    expected: str | None = None,
    verify: bool = False,
    progress: Progress | None = None,
) -> str:
    """sha256 of a file, from the cache's record while path, size and mtime are the same, else computed and recorded.

    `verify` computes it in any case. Raises ArmError model_corrupt when it is not the expected one.
    """
    stat = path.stat()
    recorded = _recall(path, cache, stat)
    sha256 = recorded if recorded and not verify else hash_file(path, progress)
    if recorded is None and _same(stat, path.stat()):
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time, and nothing else
            remember(path, cache, sha256)
    if recorded is not None and sha256 != recorded:
        detail = f"{path.name}: sha256: expected {recorded} as recorded before, found {sha256}"
        raise ArmError("model_corrupt", detail, advice="the bytes changed while size and mtime did not: check the disk")
    if expected is not None and sha256 != expected:
        detail = f"{path.name}: sha256: expected {expected}, found {sha256}"
        raise ArmError("model_corrupt", detail, advice="the bytes differ although the size is right")
    return sha256


def hash_file(path: Path, progress: Progress | None = None) -> str:
    """sha256 of a file, hex. Raises ArmError model_corrupt when the disk fails in the middle."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                done += len(chunk)
                if progress is not None and (done % (64 * _CHUNK) == 0 or done == total):
                    progress(f"checking {path.name}", done, total)
    except OSError as error:
        raise ArmError("model_corrupt", f"{path}: cannot be read to its end: {error.strerror}") from None
    return digest.hexdigest()


def combined_sha256(parts: Sequence[str]) -> str:
    """The checksum of a model: of a single file its own sha256; of a split one the sha256 of its parts' hex digests,
    one a line (`sha256sum PARTS | cut -c-64 | sha256sum`)."""
    if len(parts) == 1:
        return parts[0]
    return hashlib.sha256("".join(f"{part}\n" for part in parts).encode()).hexdigest()


def remember(path: Path, cache: Path, sha256: str) -> None:
    """Record the checksum of a file together with its path, size and mtime."""
    real, stat = path.resolve(), path.stat()
    entry = {"path": str(real), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": sha256}
    target = _entry_path(real, cache)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}")
    temporary.write_text(json.dumps(entry) + "\n", encoding="utf-8")
    temporary.replace(target)


def _recall(path: Path, cache: Path, stat: os.stat_result) -> str | None:
    real = path.resolve()
    try:
        entry = json.loads(_entry_path(real, cache).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    what = {"path": str(real), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    if not isinstance(entry, dict) or any(entry.get(key) != value for key, value in what.items()):
        return None
    sha256 = entry.get("sha256")
    return sha256 if isinstance(sha256, str) and len(sha256) == 64 else None


def _entry_path(real: Path, cache: Path) -> Path:
    return cache / "checksums" / f"{hashlib.sha256(str(real).encode()).hexdigest()[:32]}.json"


def _same(before: os.stat_result, after: os.stat_result) -> bool:
    return (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
