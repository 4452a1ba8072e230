"""Put one grade into a place of its own: namespaces (bubblewrap), a user of its own (container) or a session (unsafe).

`start` forks. In the child that runs the solution it calls `inside()`, which never returns; in the parent it returns
the process to watch. Flags and structures are those of Linux: unshare(2), mount(2), prctl(2), capabilities(7).
"""

# ruff: noqa: PTH102  (pathlib is not loaded here: every module makes each fork dearer)

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

SIGCHLD = 17
_SYS_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220}
"""Number of clone(2); the order of its arguments differs between machines, but only the first is used."""

_libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.PyDLL(None, use_errno=True)
_python.syscall.restype = ctypes.c_long


def _last_capability() -> int:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/cap_last_cap") as file:
        return int(file.read())
    return 63


LAST_CAPABILITY = _last_capability()


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
    for cap in range(LAST_CAPABILITY + 1):
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
    _limit(resource.RLIMIT_STACK, 8 << 20)  # a runaway recursion ends here, not after gigabytes of stack
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


def _clone(flags: int) -> int:
    """fork(2) into new namespaces, so that the child is process 1 of the new one at once. The caller has one thread."""
    number = _SYS_CLONE.get(os.uname().machine)
    if number is None:
        raise OSError(f"expected a machine of the kinds {', '.join(_SYS_CLONE)}, found {os.uname().machine}")
    # PyDLL keeps the interpreter's lock: the child must come back holding it.
    pid = int(_python.syscall(ctypes.c_long(number), ctypes.c_ulong(flags | SIGCHLD), *[ctypes.c_void_p()] * 4))
    if pid < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"clone: {os.strerror(code)}")
    return pid


def _namespaced(
    config: dict[str, Any],
    limits: dict[str, Any],
    status_fd: int,
    inside: Callable[[], None],
    failed: Callable[[BaseException], None],
) -> int:
    ready_r, ready_w = os.pipe()
    pid = _clone(NEWUSER | NEWNS | NEWIPC | NEWPID)
    if pid == 0:
        try:
            os.close(ready_w)
            if os.read(ready_r, 1) != b"m":
                os._exit(99)
            os.close(ready_r)
            _furnish(limits)
            _process_one(limits, status_fd, inside, failed)
        except BaseException as error:
            failed(error)
        finally:
            os._exit(99)
    os.close(ready_r)
    try:
        outer_uid, outer_gid = (1, 1) if config["many_ids"] else (os.getuid(), os.getgid())
        for name, text in (
            ("setgroups", b"deny"),
            ("uid_map", b"%d %d 1" % (INNER_ID, outer_uid)),
            ("gid_map", b"%d %d 1" % (INNER_ID, outer_gid)),
        ):
            fd = os.open(f"/proc/{pid}/{name}", os.O_WRONLY)
            os.write(fd, text)
            os.close(fd)
        os.write(ready_w, b"m")
    finally:
        os.close(ready_w)
    return pid


def _furnish(limits: dict[str, Any]) -> None:
    """In the new namespaces: become the grade's user, mount its private folders, give up every capability."""
    if os.getuid() != INNER_ID:
        os.setresgid(INNER_ID, INNER_ID, INNER_ID)
        os.setresuid(INNER_ID, INNER_ID, INNER_ID)
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


def _process_one(
    limits: dict[str, Any], status_fd: int, inside: Callable[[], None], failed: Callable[[BaseException], None]
) -> None:
    """Process 1 of the grade: trusted, runs no code of the solution. When it ends, the kernel kills all the others."""
    pid = os.fork()
    if pid == 0:
        try:
            os.close(status_fd)
            os.setsid()
            apply_limits(limits, limits["processes"] + 2)
            inside()
        except BaseException as error:
            failed(error)
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
