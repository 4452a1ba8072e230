"""What processes use of the host, read from /proc: cheap enough for ten times a second."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_TREE_S = 1.0
"""How often the children of a process are looked up, seconds; in between the last answer counts."""


@dataclass(frozen=True)
class HostSample:
    """Use of the host since the sample before. None: it could not be measured."""

    host_cpu_pct: float | None
    other_cpu_pct: float | None
    """The part of it that is neither the server's nor the bench's."""
    host_ram_used_bytes: int | None
    rss_bytes: int | None
    """Resident memory of the server's processes and their children; pages that two share count twice."""
    other_s: float = 0.0
    """Core seconds of others, not clamped: a child's time shows in its parent only once it has ended, so that single
    samples are a little off in both directions and only their sum is right."""
    total_s: float = 0.0
    """Core seconds that there were; 0 where others are unknown."""


class HostReader:
    """Reads the host again and again."""

    def __init__(self) -> None:
        self._me = os.getpid()
        self._trees: dict[int, tuple[float, list[int]]] = {}
        self._before: tuple[float, float] | None = None  # busy, total: seconds of all cores
        self._used: dict[int, float] = {}

    def sample(self, servers: Sequence[int], bench: Sequence[int] = (), *, others_known: bool = True) -> HostSample:
        """Use since the last call. `bench`: roots of further processes of ours. Without `others_known` there is a
        server whose processes we do not see, and so nobody's share can be told from it."""
        server_tree = self.tree(servers)
        ours = {*server_tree, *self.tree((self._me, *bench))}
        used = {pid: t for pid in ours if (t := _cpu_seconds(pid)) is not None}
        cpu = _host_cpu()
        host_pct = other_pct = None
        other = total = 0.0
        if self._before is not None and cpu[1] > self._before[1]:
            total = cpu[1] - self._before[1]
            busy = max(0.0, cpu[0] - self._before[0])
            host_pct = min(100.0, 100 * busy / total)
            if others_known:
                other = busy - sum(max(0.0, t - self._used.get(pid, t)) for pid, t in used.items())
                other_pct = min(host_pct, max(0.0, 100 * other / total))
        self._before, self._used = cpu, used
        sizes = [s for p in server_tree if (s := _rss(p)) is not None]
        known = total if other_pct is not None else 0.0
        return HostSample(host_pct, other_pct, _ram_used(), sum(sizes) if sizes else None, other, known)

    def tree(self, roots: Sequence[int]) -> list[int]:
        """The processes and all that descend from them, each once."""
        now = time.monotonic()
        return list(dict.fromkeys(p for root in roots for p in self._tree(root, now)))

    def _tree(self, root: int, now: float) -> list[int]:
        known = self._trees.get(root)
        if known is None or now - known[0] >= _TREE_S:
            known = (now, _descendants(root))
            self._trees[root] = known
        return known[1]


def _descendants(root: int) -> list[int]:
    out, todo = [], [root]
    while todo:
        pid = todo.pop()
        out.append(pid)
        try:
            tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - half the cost of Path.iterdir
        except OSError:
            continue
        for task in tasks:
            text = _read(f"/proc/{pid}/task/{task}/children")
            todo += [int(p) for p in text.split()] if text else []
    return out


def _cpu_seconds(pid: int) -> float | None:
    """CPU time of a process and of its children that ended and were waited for (proc(5), fields 14 to 17)."""
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    fields = text.rpartition(b")")[2].split()
    return sum(int(f) for f in fields[11:15]) / _TICKS


def _rss(pid: int) -> int | None:
    text = _read(f"/proc/{pid}/statm")
    return int(text.split()[1]) * _PAGE if text else None


def _host_cpu() -> tuple[float, float]:
    """Busy and total seconds of all cores since the boot. Waiting for disks is idle; user time holds guests already."""
    text = _read("/proc/stat")
    if text is None:
        times = psutil.cpu_times()
        total = sum(times)
        return total - times.idle, total
    fields = [int(f) for f in text[: text.index(b"\n")].split()[1:9]]
    total = sum(fields)
    return (total - fields[3] - fields[4]) / _TICKS, total / _TICKS


def _ram_used() -> int | None:
    text = _read("/proc/meminfo")
    if text is None:
        memory = psutil.virtual_memory()
        return int(memory.total - memory.available)
    sizes = {}
    for line in text.split(b"\n", 3)[:3]:
        name, _, size = line.partition(b":")
        sizes[name] = int(size.split()[0]) * 1024
    if b"MemAvailable" not in sizes:
        return None
    return sizes[b"MemTotal"] - sizes[b"MemAvailable"]


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", 0) as file:
            return file.read()
    except OSError:
        return None
