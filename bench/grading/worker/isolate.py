"""Put one grade into a place of its own: namespaces (bubblewrap), a user of its own (container) or a session (unsafe).

`start` forks. In the child that runs the solution it calls `inside()`, which never returns; in the parent it returns
the process to watch. Flags and structures are those of Linux: unshare(2), mount(2), prctl(2), capabilities(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
from collections.abc import Callable
from typing import Any

NEWNS, NEWIPC, NEWUSER, NEWPID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
INNER_ID = 1000
"""User and group id that a solution sees inside its namespaces."""

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: Any) -> None:
    if getattr(_libc, name)(*args) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument; options that this kernel does not have are left out."""
    _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def become_reaper() -> None:
    """Orphans of a grade come to this process, so that it can find and kill them."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def _mount(source: str, target: str, kind: str, flags: int, data: str) -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())


def _drop_capabilities() -> None:
    for cap in range(64):
        _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(cap), 0, 0, 0)
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    _call("capset", header, ctypes.create_string_buffer(24))
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def _limit(what: int, value: int, hard: int | None = None) -> None:
    """Set a limit, never above the hard limit that is already in force."""
    ceiling = resource.getrlimit(what)[1]
    wanted = value if hard is None else hard
    if ceiling != resource.RLIM_INFINITY:
        value, wanted = min(value, ceiling), min(wanted, ceiling)
    resource.setrlimit(what, (value, wanted))


def apply_limits(limits: dict[str, Any], nproc: int | None) -> None:
    """Resource limits of the process that runs the solution, and of each process that it starts."""
    cpu = max(1, int(-(-limits["cpu_s"] // 1)))
    _limit(resource.RLIMIT_CPU, cpu, cpu + 1)
    _limit(resource.RLIMIT_AS, limits["memory_bytes"] + (512 << 20))
    _limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _limit(resource.RLIMIT_NOFILE, 256)
    _limit(resource.RLIMIT_CORE, 0)
    if nproc is not None:
        _limit(resource.RLIMIT_NPROC, nproc)


def start(
    config: dict[str, Any],
    limits: dict[str, Any],
    uid: int,
    status_fd: int,
    inside: Callable[[], None],
    failed: Callable[[BaseException], None],
) -> int:
    """Start the place of one grade; return the process id (a child of the caller) whose end is the grade's end.

    `failed` is told, in the child, why the place could not be made.
    """
    mode = config["mode"]
    if mode == "bubblewrap":
        return _namespaced(config, limits, status_fd, inside, failed)
    pid = os.fork()
    if pid:
        return pid
    try:
        os.close(status_fd)
        os.setsid()
        if mode == "container":
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")  # if memory runs out, this process goes, not its parent
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            apply_limits(limits, limits["processes"])
        else:
            prctl(PR_SET_PDEATHSIG, 9)
            base = config["nproc_base"]
            apply_limits(limits, None if base is None else base + limits["processes"])
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        inside()
    except BaseException as error:
        failed(error)
    finally:
        os._exit(99)


def _namespaced(
    config: dict[str, Any],
    limits: dict[str, Any],
    status_fd: int,
    inside: Callable[[], None],
    failed: Callable[[BaseException], None],
) -> int:
    up_r, up_w = os.pipe()
    down_r, down_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(up_r)
            os.close(down_w)
            _call("unshare", NEWUSER)
            os.write(up_w, b"u")
            if os.read(down_r, 1) != b"m":
                os._exit(99)
            os.close(up_w)
            os.close(down_r)
            _first(limits, status_fd, inside)
        except BaseException as error:
            failed(error)
        finally:
            os._exit(99)
    os.close(up_w)
    os.close(down_r)
    try:
        if os.read(up_r, 1) == b"u":
            outer_uid, outer_gid = (1, 1) if config["many_ids"] else (os.getuid(), os.getgid())
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{INNER_ID} {outer_uid} 1"),
                ("gid_map", f"{INNER_ID} {outer_gid} 1"),
            ):
                with open(f"/proc/{pid}/{name}", "w") as file:
                    file.write(text)
            os.write(down_w, b"m")
    finally:
        os.close(up_r)
        os.close(down_w)
    return pid


def _first(limits: dict[str, Any], status_fd: int, inside: Callable[[], None]) -> None:
    """In the new user namespace: mounts, then process 1 of the grade, then wait for it."""
    if os.getuid() != INNER_ID:
        os.setresgid(INNER_ID, INNER_ID, INNER_ID)
        os.setresuid(INNER_ID, INNER_ID, INNER_ID)
    _call("unshare", NEWNS | NEWIPC | NEWPID)
    _mount("none", "/", "", MS_REC | MS_PRIVATE, "")
    safe = MS_NOSUID | MS_NODEV
    _mount("tmpfs", "/box", "tmpfs", safe, f"size={limits['file_bytes']},mode=0755,nr_inodes=16384")
    os.mkdir("/box/s", 0o700)
    os.mkdir("/box/tmp", 0o700)
    os.mkdir("/box/shm", 0o700)
    _mount("/box/tmp", "/tmp", "", MS_BIND, "")
    _mount("/box/shm", "/dev/shm", "", MS_BIND, "")
    # Nothing of /proc: no memory, no descriptors, no command lines to look into.
    _mount("tmpfs", "/proc", "tmpfs", safe | MS_RDONLY | MS_NOEXEC, "size=4k,mode=0555")
    _drop_capabilities()
    one = os.fork()
    if one == 0:
        try:
            _process_one(limits, status_fd, inside)
        finally:
            os._exit(99)
    os.close(status_fd)
    os.waitpid(one, 0)
    os._exit(0)


def _process_one(limits: dict[str, Any], status_fd: int, inside: Callable[[], None]) -> None:
    """Process 1 of the grade: trusted, runs no code of the solution. When it ends, the kernel kills all the others."""
    pid = os.fork()
    if pid == 0:
        try:
            os.close(status_fd)
            os.setsid()
            apply_limits(limits, limits["processes"] + 3)
            inside()
        finally:
            os._exit(99)
    prctl(PR_SET_DUMPABLE, 0)  # the solution has the same user id: no ptrace, no reading of this memory
    status = -1
    while status < 0:
        got, code = os.wait()
        if got == pid:
            status = code
    left = 0
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
        left = 1
    except ChildProcessError:
        left = 0
    os.write(status_fd, struct.pack("ii", status, left))
    os._exit(0)
