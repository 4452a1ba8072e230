"""Which processes descend from this one, and what memory they hold. Reads /proc."""

# ruff: noqa: PTH208  (pathlib is not loaded here: every module makes each fork dearer)

from __future__ import annotations

import contextlib
import os
import signal
import time

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


def descendants(root: int) -> dict[int, int]:
    """Process id -> resident bytes, for every living descendant of `root` that can be seen."""
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rsplit(b")", 1)[1].split()
        except OSError:
            continue  # it ended meanwhile
        if fields[0] in (b"Z", b"X"):
            continue
        parents[int(name)] = int(fields[1])
        resident[int(name)] = int(fields[21]) * PAGE
    found: dict[int, int] = {}
    grown = True
    while grown:
        grown = False
        for pid, parent in parents.items():
            if pid not in found and (parent == root or parent in found):
                found[pid] = resident[pid]
                grown = True
    return found


def cpu_ms(pids: dict[int, int]) -> float:
    """CPU time so far of living processes, milliseconds."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks * 1000 / TICKS


def proportional_bytes(pids: dict[int, int]) -> int:
    """Memory of the processes with shared pages counted once (PSS); falls back to resident bytes."""
    total = 0
    for pid, rss in pids.items():
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                total += next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
        except (OSError, StopIteration):
            total += rss
    return total


def kill_all(root: int) -> int:
    """Kill every descendant, also those born meanwhile; return how many there were at first."""
    first: int | None = None
    for _ in range(500):
        left = list(descendants(root))
        if first is None:
            first = len(left)
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    return first or 0


def sweep(root: int) -> int:
    """Kill every descendant and reap it; return how many there were. Orphans come to `root`, a subreaper."""
    killed = kill_all(root)
    reap()
    return killed


def reap() -> None:
    """Take the exit status of every child that has ended."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return
