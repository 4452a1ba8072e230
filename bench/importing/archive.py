"""A run as one file: a tar.gz with `manifest.json` (sha256 and size of each file) and the run's Parquet files.

The reader takes nothing on trust. It reads plain tar headers only, in the order in which the manifest announces them:
no links, no devices, no long-name records, no name outside of `TABLE/RUN/FILE.parquet`, no byte more than announced,
and no file whose checksum is not the manifest's.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from bench.errors import BenchError, UsageError
from bench.store.schema import TABLES

FORMAT = "gguf-bench run"
VERSION = 1
MANIFEST = "manifest.json"
MOST_BYTES = 8 << 30
MOST_FILES = 20_000
_MOST_MANIFEST = 16 << 20
_BLOCK = 512
_MOST_PADDING = 1 << 20
_SPARE = 1 << 30
"""Bytes of disk that an import leaves free."""
RUN_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$")
_NAME = re.compile(r"^([a-z]+)/([A-Za-z0-9][A-Za-z0-9._+-]{0,127})/([A-Za-z0-9][A-Za-z0-9._+-]{0,127}\.parquet)$")
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)


@dataclass(frozen=True)
class Entry:
    """A file as the manifest announces it."""

    name: str
    """`TABLE/RUN/FILE.parquet`."""
    table: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What an archive holds."""

    run_id: str
    entries: tuple[Entry, ...]


def manifest_text(run_id: str, files: Mapping[str, Path], bench_version: str) -> bytes:
    """The manifest of some files, by their names in the archive."""
    listed = {}
    for name, path in sorted(files.items()):
        size, checksum = _measure(path)
        listed[name] = {"bytes": size, "sha256": checksum}
    found = {"format": FORMAT, "version": VERSION, "run_id": run_id, "bench_version": bench_version, "files": listed}
    return json.dumps(found, indent=1, sort_keys=True).encode()


def _measure(path: Path) -> tuple[int, str]:
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256")
        return stream.tell(), found.hexdigest()


def write(target: Path, manifest: bytes, files: Mapping[str, Path]) -> None:
    """Write an archive; the same files make the same bytes. Raises BenchError when the disk refuses."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with (
            temporary.open("xb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
        ):
            _add(tar, MANIFEST, len(manifest), io.BytesIO(manifest))
            for name, path in sorted(files.items()):
                with path.open("rb") as stream:
                    _add(tar, name, path.stat().st_size, stream)
        os.link(temporary, target)
    except FileExistsError:
        raise UsageError(f"{target} is there already; give another file with --to") from None
    except OSError as e:
        raise BenchError(f"cannot write {target}: {e.strerror or e}; check the folder and its space") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _add(tar: tarfile.TarFile, name: str, size: int, stream: IO[bytes]) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o644, 0
    tar.addfile(info, stream)


def read_manifest(data: bytes, where: str) -> Manifest:
    """Check a manifest. Raises UsageError for anything that an export would not write."""
    try:
        found = json.loads(data)
        if found["format"] != FORMAT or found["version"] != VERSION:
            raise UsageError(
                f"{where}: expected '{FORMAT}' version {VERSION}, found {found['format']!r:.40} version "
                f"{found['version']!r:.10}; use a bench of the version that made it"
            )
        run_id, files = found["run_id"], found["files"]
        if not isinstance(run_id, str) or not RUN_ID.match(run_id):
            raise UsageError(f"{where}: expected a run id, found {run_id!r:.60}")
        if len(files) > MOST_FILES:
            raise UsageError(f"{where}: {len(files)} files; at most {MOST_FILES} are read")
        entries = []
        for name, facts in sorted(files.items()):
            m = _NAME.match(name)
            if m is None or m[1] not in TABLES or m[2] != run_id:
                raise UsageError(f"{where}: expected TABLE/{run_id}/FILE.parquet, found {name!r:.120}")
            if type(facts["bytes"]) is not int or facts["bytes"] < 0:
                raise UsageError(f"{where}: {name}: expected a size, found {facts['bytes']!r:.40}")
            entries.append(Entry(name, m[1], facts["bytes"], str(facts["sha256"])))
    except UsageError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise UsageError(f"{where}: not a manifest of an exported run ({type(e).__name__}: {e})"[:300]) from None
    total = sum(entry.bytes for entry in entries)
    if total > MOST_BYTES:
        raise UsageError(f"{where}: {total} bytes when unpacked; at most {MOST_BYTES} are read")
    return Manifest(run_id, tuple(entries))


def check_folder(folder: Path, manifest: Manifest) -> None:
    """Prove that a folder holds what its manifest says. Raises UsageError naming the first file that differs."""
    for entry in manifest.entries:
        path = folder / entry.name
        if path.is_symlink() or not path.is_file():
            raise UsageError(f"{path}: expected a file, as the manifest says; found none")
        _prove(entry, *_measure(path), where=str(path))


def _prove(entry: Entry, size: int, checksum: str, where: str) -> None:
    if (size, checksum) != (entry.bytes, entry.sha256):
        raise UsageError(
            f"{where}: expected {entry.bytes} bytes with sha256 {entry.sha256[:16]}…, found {size} bytes with "
            f"{checksum[:16]}…; it was changed after the export: nothing was imported"
        )


def unpack(archive: Path, folder: Path) -> Manifest:
    """Unpack an archive into an empty folder, each file proved. Raises UsageError for one that is torn or hostile."""
    try:
        with gzip.open(archive, "rb") as stream:
            return _unpack(stream, archive, folder)
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        raise UsageError(f"{archive}: not a whole tar.gz file ({e}); export it again") from None
    except OSError as e:
        raise BenchError(f"cannot unpack {archive}: {e.strerror or e}") from None


def _unpack(stream: _Readable, archive: Path, folder: Path) -> Manifest:
    members = _members(stream, archive)
    name, size, data = next(members, ("nothing", 0, io.BytesIO()))
    if name != MANIFEST or size > _MOST_MANIFEST:
        raise UsageError(
            f"{archive}: expected {MANIFEST} first, found {name!r:.120}; make archives with ./invoke export"
        )
    raw = data.read(size)
    manifest = read_manifest(raw, f"{archive}: {MANIFEST}")
    need = sum(entry.bytes for entry in manifest.entries)
    if shutil.disk_usage(folder).free < need + _SPARE:
        raise BenchError(
            f"{archive} needs {need} bytes when unpacked, more than {folder} has to spare; free some space"
        )
    announced = {entry.name: entry for entry in manifest.entries}
    for name, size, data in members:
        entry = announced.pop(name, None)
        if entry is None or size != entry.bytes:
            raise UsageError(f"{archive}: {name!r:.120} with {size} bytes is not what the manifest announces")
        target = folder / entry.name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as made:
            shutil.copyfileobj(data, made, 1 << 20)
        _prove(entry, *_measure(target), where=f"{archive}: {name}")
    if announced:
        raise UsageError(f"{archive}: {len(announced)} announced files are not in it, such as {min(announced)}")
    (folder / MANIFEST).write_bytes(raw)
    return manifest


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Part:
    """The next so many bytes of a stream."""

    def __init__(self, stream: _Readable, size: int) -> None:
        self._stream, self.left = stream, size

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(min(self.left, size if size >= 0 else self.left))
        if not data and self.left and size:
            raise EOFError("it ends within a file")
        self.left -= len(data)
        return data


def _members(stream: _Readable, archive: Path) -> Iterator[tuple[str, int, _Readable]]:
    """(name, size, content) of each file. Folders are passed over; any other kind of member is refused."""
    for _ in range(2 * MOST_FILES):
        block = stream.read(_BLOCK)
        if not block.strip(b"\0"):
            # Only padding may follow; reading to the end is what proves the checksum of the compressed stream.
            if len(rest := stream.read(_MOST_PADDING)) == _MOST_PADDING or rest.strip(b"\0"):
                raise UsageError(f"{archive}: something follows after its end; make archives with ./invoke export")
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, ValueError) as e:
            raise UsageError(f"{archive}: not a plain tar archive ({e}); make archives with ./invoke export") from None
        if info.type == tarfile.DIRTYPE and info.size == 0:
            continue
        if info.type not in _PLAIN or info.size < 0:
            raise UsageError(f"{archive}: {info.name!r:.120} is not a plain file; nothing was imported")
        part = _Part(stream, info.size)
        yield info.name.removeprefix("./"), info.size, part
        while part.read(1 << 20):
            pass
        stream.read(-info.size % _BLOCK)
    raise UsageError(f"{archive}: more than {2 * MOST_FILES} members; nothing was imported")


def names(paths: Sequence[Path], results: Path) -> dict[str, Path]:
    """Files of a results folder by their names in an archive."""
    return {str(path.relative_to(results)): path for path in paths}
