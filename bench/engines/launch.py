"""The keeper: a small process between the bench and a server, so that the server never outlives the bench.

Run by its path, with the standard library alone:

    python -I -S launch.py PARENT_PID STATUS_FD COMMAND...

It starts COMMAND in a process group of its own, writes COMMAND's process id and a newline to STATUS_FD, and ends the
way COMMAND ended (same exit code, or the same signal).

- The kernel sends SIGUSR1 here when the thread that started the keeper dies. That can be a worker thread that only
  finished its work, so the parent's id decides: while the parent lives, the server does too.
- When the parent is gone, and on SIGUSR2, the server and everything it started are killed at once.
- SIGTERM, SIGINT and SIGHUP are handed on to the server's group as SIGTERM.
- When the server ends by itself, what it started and left behind is killed.
- Should the keeper be killed, the kernel kills the server: its parent-death signal is SIGKILL, and the keeper has one
  thread only. A shell script that starts the real server is covered too, since its orphans come to the keeper.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_HANDED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_WATCHED = {*_HANDED_ON, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD}


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _descendants() -> list[int]:
    """Every process below this one, by the parent ids in /proc."""
    parents: dict[int, int] = {}
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    for name in names:
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                # The command name is in brackets and may hold anything; the parent's id is the second field after it.
                parents[int(name)] = int(stat.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    found: list[int] = []
    front = [os.getpid()]
    while front:
        front = [pid for pid, parent in parents.items() if parent in front]
        found += front
    return found


def _reap(into: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        into[pid] = status


def _kill_all(ended: dict[int, int], limit_s: float = 5.0) -> None:
    """Kill everything below this process, what it starts meanwhile too."""
    deadline = time.monotonic() + limit_s
    while left := _descendants():
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        _reap(ended)
        if time.monotonic() > deadline:
            return  # in an uninterruptible wait: the kernel delivers the kill when it ends
        time.sleep(0.01)


def _start(command: list[str]) -> int:
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        os.setpgid(0, 0)
        for sig in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and an exec would hand that on
            signal.signal(sig, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"error: cannot execute {command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def _end_like(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    with contextlib.suppress(OSError, ValueError):
        signal.signal(-code, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.kill(os.getpid(), -code)
    return 128 - code


def main(argv: list[str]) -> int:
    """Keep one server; returns the exit code to end with."""
    parent, status_fd, command = int(argv[0]), int(argv[1]), argv[2:]
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:
        return 1  # it died before the line above could ask for the signal
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash must not write the model to the disk
    os.set_inheritable(status_fd, False)
    server = _start(command)
    with contextlib.suppress(OSError):
        os.setpgid(server, server)  # both sides set it: whoever comes first, it is done before it is used
        os.write(status_fd, f"{server}\n".encode())
    os.close(status_fd)

    ended: dict[int, int] = {}
    while server not in ended:
        got = signal.sigwait(_WATCHED)
        if got == signal.SIGUSR2 or (got == signal.SIGUSR1 and os.getppid() != parent):
            _kill_all(ended)
            break
        if got in _HANDED_ON:
            with contextlib.suppress(OSError):
                os.killpg(server, signal.SIGTERM)
        _reap(ended)
    _kill_all(ended)
    return _end_like(ended[server]) if server in ended else 137


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
