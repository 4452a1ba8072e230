"""One bench at a time on a device, on an idle GPU, whose memory is back where it was before the next arm starts."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pynvml

from bench.errors import ArmError, BenchError

DEFAULT_TOLERANCE = 256 << 20
"""VRAM that may be left above the baseline, bytes: a desktop's own use varies."""

_MIB = 1 << 20
_HELD: set[str] = set()
_FDS: set[int] = set()


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on the GPU."""

    pid: int
    name: str
    memory_bytes: int | None
    """Its memory on the GPU; None where the driver does not say (WSL2)."""

    def __str__(self) -> str:
        memory = "" if self.memory_bytes is None else f", {self.memory_bytes / _MIB:.0f} MiB"
        return f"{self.name} (pid {self.pid}{memory})"


@dataclass(frozen=True)
class Settled:
    """How the wait after an arm ended."""

    waited_s: float
    left_bytes: int | None
    """VRAM above the baseline at the end, never below 0; None when it cannot be measured."""
    settled: bool
    """Whether it was back within the tolerance, or could not be measured at all."""


@contextlib.contextmanager
def device_lock(device: str, folder: Path | None = None) -> Iterator[None]:
    """Hold a device, `cpu` or a GPU's UUID, against every other bench on this machine, other users' too.

    The lock dies with the process, and processes that it starts do not hold it. Raises ArmError `gpu_busy` naming the
    process that has it.
    """
    key = re.sub(r"[^A-Za-z0-9.-]", "-", device)
    where = folder or Path(os.environ.get("GGUF_BENCH_LOCKS") or tempfile.gettempdir())
    path = where / f"gguf-bench-{key}.lock"
    if str(path) in _HELD:
        raise ArmError("gpu_busy", f"this process already runs a bench on {device}", advice="one at a time")
    fd = _open(path)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise BenchError(f"cannot lock {device} by {path}: {error.strerror}") from error
            holder = os.pread(fd, 200, 0).decode("utf-8", "replace").strip()
            raise ArmError(
                "gpu_busy",
                f"another bench runs on {device}: {holder or 'process unknown'}",
                advice="wait for it; two at a time measure each other",
            ) from error
        with contextlib.suppress(OSError):  # another user's file can be locked and not written
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"pid {os.getpid()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC".encode(), 0)
        _HELD.add(str(path))
        _FDS.add(fd)
        yield
    finally:
        _HELD.discard(str(path))
        _FDS.discard(fd)
        # The file stays: removing it would let a third process lock a new file beside a second one waiting on this.
        os.close(fd)


def _open(path: Path) -> int:
    """The lock file, made when it is not there. Another user's is opened as it is: the kernel refuses O_CREAT on one in
    a folder like /tmp. Links are not followed."""
    common = os.O_CLOEXEC | os.O_NOFOLLOW
    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
        try:
            fd = os.open(path, flags | common, 0o644)
        except PermissionError:
            continue
        except OSError as error:
            raise BenchError(f"cannot open the lock {path}: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise BenchError(f"expected a file at {path}, found something else; remove it")
        return fd
    raise BenchError(f"cannot open the lock {path}: this user may not read it; remove it")


def _forget_in_child() -> None:
    # A forked child shares the lock and would keep it beyond our death.
    for fd in _FDS:
        with contextlib.suppress(OSError):
            os.close(fd)
    _FDS.clear()
    _HELD.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def gpu_processes(gpu_index: int, ours: Collection[int] = ()) -> list[GpuProcess]:
    """Processes that compute on the GPU, but for `ours` and their children. Raises ArmError `gpu_unavailable`.

    Programs that only draw are no business of a bench: their share is in the VRAM baseline.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise ArmError("gpu_unavailable", f"no NVIDIA GPU can be asked: {error}", advice="check nvidia-smi") from error
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu_index)
        found = [
            GpuProcess(int(p.pid), _name(int(p.pid)), None if p.usedGpuMemory is None else int(p.usedGpuMemory))
            for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        ]
    except pynvml.NVMLError as error:
        raise ArmError(
            "gpu_unavailable", f"GPU {gpu_index} cannot be asked: {error}", advice="check nvidia-smi"
        ) from error
    finally:
        pynvml.nvmlShutdown()
    own = set(ours)
    for pid in ours:
        with contextlib.suppress(psutil.Error):
            own |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return sorted((p for p in found if p.pid not in own), key=lambda p: -(p.memory_bytes or 0))


def require_idle(gpu_index: int, *, allow_busy: bool = False, ours: Collection[int] = ()) -> str | None:
    """None when nothing else computes on the GPU; with `allow_busy` else the caveat. Raises ArmError `gpu_busy`."""
    others = gpu_processes(gpu_index, ours)
    if not others:
        return None
    listed = ", ".join(str(p) for p in others)
    if allow_busy:
        return f"other processes computed on the GPU: {listed}"
    raise ArmError(
        "gpu_busy",
        f"other processes compute on GPU {gpu_index}: {listed}",
        advice="stop them, or measure beside them with --allow-busy (the report then says so)",
    )


def require_room(what: str, need_bytes: int | None, free_bytes: int | None) -> None:
    """Raise ArmError `no_memory` when an arm needs more than is free. What is not known is not judged."""
    if need_bytes is None or free_bytes is None or need_bytes <= free_bytes:
        return
    raise ArmError(
        "no_memory",
        f"the arm needs about {need_bytes / 1e9:.1f} GB of {what}, and {free_bytes / 1e9:.1f} GB are free",
        advice="free some, or take a smaller quant, context or KV cache type",
    )


def wait_until_settled(
    used: Callable[[], int | None],
    baseline: int | None,
    *,
    at_least_s: float = 0.0,
    limit_s: float = 60.0,
    tolerance: int = DEFAULT_TOLERANCE,
    poll_s: float = 0.5,
    stop: Callable[[], bool] = lambda: False,
) -> Settled:
    """After an arm: wait `at_least_s`, and until VRAM is back at its baseline (bytes) or `limit_s` have passed.

    Without a reading or a baseline only the minimum is waited. `stop` breaks the wait off.
    """
    started = time.monotonic()
    while True:
        waited = time.monotonic() - started
        now = used() if baseline is not None else None
        left = None if now is None or baseline is None else max(0, now - baseline)
        back = left is None or left <= tolerance
        if stop() or (waited >= at_least_s and (back or waited >= limit_s)):
            return Settled(waited, left, back)
        time.sleep(min(poll_s, max(0.01, at_least_s - waited) if back else poll_s))


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "unknown"
