"""Locks that die with the process that holds them. Nothing has to be cleaned up after a crash."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from bench.errors import BenchError, UsageError

_HELD: set[Path] = set()
"""Locks of this process: POSIX locks do not keep a process out of what it holds itself."""
_GUARD = threading.Lock()

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def run_lock(results: Path, run_id: str) -> Iterator[None]:
    """Hold a run, so that no second process carries it on at the same time.

    A lock of a process that was killed is free at once. Children do not inherit it. Raises UsageError with the process
    id of the holder when the run is held.
    """
    folder = results / ".locks"
    path = (folder / f"{run_id}.lock").absolute()
    with _GUARD:
        if path in _HELD:
            raise UsageError(f"run {run_id} is already being carried on by this process ({os.getpid()})")
        _HELD.add(path)
    fd = None
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as e:
            raise BenchError(f"cannot lock run {run_id}: {path}: {e.strerror}; check the results folder") from None
        _take(fd, run_id)
        with contextlib.suppress(OSError):  # on a full disk the lock holds all the same; only its holder is not named
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        # The file stays: to remove it would let a third process lock a new file beside a second one waiting on this.
        if fd is not None:
            os.close(fd)
        with _GUARD:
            _HELD.discard(path)


def _take(fd: int, run_id: str) -> None:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        if e.errno in _NO_LOCKS:
            return
        if e.errno not in (errno.EACCES, errno.EAGAIN):
            raise BenchError(f"cannot lock run {run_id}: {e.strerror}") from None
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        who = f"process {holder}" if holder.isdigit() else "another process"
        raise UsageError(
            f"run {run_id} is being carried on by {who}; wait until it has ended, or stop it first"
        ) from None


def holder_of(results: Path, run_id: str) -> int | None:
    """Process id of the bench that carries a run on now; None when nobody does. 0 when it is not known who.

    It tells a run that goes on from one that was killed: both are `running` in the store.
    """
    path = (results / ".locks" / f"{run_id}.lock").absolute()
    with _GUARD:
        if path in _HELD:
            return os.getpid()
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno not in (errno.EACCES, errno.EAGAIN):
                return None
            text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            return int(text) if text.isdigit() else 0
        finally:
            os.close(fd)
    return None


@contextlib.contextmanager
def folder_lock(folder: Path, *, exclusive: bool) -> Iterator[None]:
    """Hold a folder of the store: many writers share it, a merge has it alone. Waits. Threads are kept apart too.

    On a file system without locks it holds nothing: there only one process may write to a run.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        except OSError as e:
            if e.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(fd)
