"""The machine: cores, memory, names, and whether something else keeps its cores busy."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60  # cgroup v1 writes a huge number for "no limit"


@dataclass(frozen=True)
class Host:
    """What the machine is."""

    name: str
    os: str
    """Distribution and kernel."""
    cpu_model: str
    cores: int
    """Physical cores open to this process."""
    ram_bytes: int
    """Memory this process may use: the machine's, or its cgroup's limit where that is lower."""


def describe() -> Host:
    """The machine as it is now."""
    return Host(platform.node(), os_name(), cpu_model(), cores(), ram_bytes())


def cores() -> int:
    """Physical cores open to this process, at least 1.

    The smallest of: physical cores among the CPUs of the affinity mask, the machine's physical cores, and the
    cgroup's CPU quota (rounded down). More decoding threads than that collapse decoding, because they wait spinning.
    """
    cpus = os.sched_getaffinity(0)
    limits = [len(cpus), _physical_among(cpus)]
    physical = psutil.cpu_count(logical=False)
    if physical:
        limits.append(physical)
    quota = _cpu_quota()
    if quota is not None:
        limits.append(math.floor(quota))
    return max(1, min(limits))


def ram_bytes() -> int:
    """Memory this process may use, bytes: the machine's, or the cgroup's limit where that is lower."""
    limit = _memory_limit()
    total = int(psutil.virtual_memory().total)
    return total if limit is None else min(total, limit)


def ram_available_bytes() -> int:
    """Memory that can be taken without swapping, bytes; page cache counts as available."""
    available = int(psutil.virtual_memory().available)
    limit = _memory_limit()
    return available if limit is None else min(available, limit)


def cpu_model() -> str:
    """The CPU's model name as the kernel says it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "cpu model") and value.strip():
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def os_name() -> str:
    """Distribution, kernel and machine type on one line."""
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        distribution = platform.system()
    return f"{distribution}, {platform.system()} {platform.release()} {platform.machine()}"


def busy_cores(over_s: float = 0.5) -> float:
    """CPU use of the whole machine over the given time (seconds), in cores. The caller must be idle meanwhile."""
    share = psutil.cpu_percent(interval=over_s)
    return share / 100.0 * (psutil.cpu_count() or 1)


def busy_with(over_s: float = 0.5, allowed_cores: float = 0.25) -> str | None:
    """One line on what else loads the cores when it is more than `allowed_cores`, else None. Blocks for `over_s`."""
    own = os.getpid()
    processes = [p for p in psutil.process_iter(["pid", "name"]) if p.pid != own]
    for process in processes:
        try:
            process.cpu_percent(None)
        except psutil.Error:
            continue
    used = busy_cores(over_s)
    if used <= allowed_cores:
        return None
    shares: list[tuple[float, str]] = []
    for process in processes:
        try:
            shares.append((process.cpu_percent(None) / 100.0, f"{process.info['name']} (pid {process.pid})"))
        except psutil.Error:
            continue
    top = [f"{name} {share:.1f}" for share, name in sorted(shares, reverse=True)[:3] if share >= 0.1]
    return f"{used:.1f} cores busy" + (f": {', '.join(top)}" if top else "")


def _physical_among(cpus: set[int]) -> int:
    siblings: set[str] = set()
    for cpu in cpus:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            siblings.add(path.read_text(encoding="ascii").strip())
        except OSError:
            return len(cpus)
    return len(siblings) or len(cpus)


def _own_cgroups(controller: str) -> list[Path]:
    """Folders of this process's cgroup and its parents for a controller: v2 (unified) first, then v1."""
    folders: list[Path] = []
    try:
        lines = _OWN_CGROUP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return folders
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root = _CGROUP_ROOT
        elif controller in controllers.split(","):
            root = _CGROUP_ROOT / controller
        else:
            continue
        here = root / path.lstrip("/")
        while True:
            folders.append(here)
            if here == root or root not in here.parents:
                break
            here = here.parent
    return folders


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError):
        return []


def _cpu_quota() -> float | None:
    """CPUs that the cgroups allow, or None without a limit."""
    quotas: list[float] = []
    for folder in _own_cgroups("cpu"):
        words = _read_words(folder / "cpu.max")
        if len(words) == 2 and words[0] != "max":
            quotas.append(int(words[0]) / int(words[1]))
        quota, period = _read_words(folder / "cpu.cfs_quota_us"), _read_words(folder / "cpu.cfs_period_us")
        if quota and period and int(quota[0]) > 0:
            quotas.append(int(quota[0]) / int(period[0]))
    return min(quotas, default=None)


def _memory_limit() -> int | None:
    """Bytes that the cgroups allow, or None without a limit."""
    limits: list[int] = []
    for folder in _own_cgroups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            words = _read_words(folder / name)
            if words and words[0].isdigit() and int(words[0]) < _UNLIMITED:
                limits.append(int(words[0]))
    return min(limits, default=None)
