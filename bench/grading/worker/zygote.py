"""The parent in the sandbox: trusted, warm, forks once per grade and watches what comes of it."""

# ruff: noqa: PTH102, PTH108, PTH112, PTH114, PTH118, PTH208  (pathlib is not loaded here: every module makes each fork dearer)

from __future__ import annotations

import base64
import contextlib
import gc
import os
import random
import select
import shutil
import signal
import struct
import sys
import threading
import time
from typing import Any

from . import census, isolate, pytests, rewrite, run, wire

RESULT_BYTES = 4 << 20
"""More than this on the result pipe is no report."""


def main(config: dict[str, Any]) -> None:
    """Serve grades until the host closes the pipe."""
    # The pipes to the host leave 0 and 1, where a solution's child would meet them.
    requests, replies = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    isolate.become_reaper()
    threading.stack_size(2 << 20)  # 64 threads must fit below the limit on address space
    config["library"] = run.library_folders(config)
    _warm()
    try:
        # A broken pipe says that the host is gone.
        with contextlib.suppress(BrokenPipeError):
            _serve(config, requests, replies)
    finally:
        if config["mode"] == "unsafe":
            shutil.rmtree(config["folder"], ignore_errors=True)  # a host that was killed cannot do it


def _serve(config: dict[str, Any], requests: int, replies: int) -> None:
    number = 0
    wire.write_json(replies, {"ready": True, "python": sys.version.split()[0]})
    while True:
        request = wire.read_json(requests)
        if request is None:
            return
        number += 1
        try:
            reply = _grade(config, request, number, requests)
        except (OSError, MemoryError) as error:
            census.sweep(os.getpid())
            reply = {"broken": f"{type(error).__name__}: {error}"}
        wire.write_json(replies, reply)


def _warm() -> None:
    import asyncio  # noqa: F401  # what solutions and tests import most, paid for once
    import collections
    import concurrent.futures  # noqa: F401
    import dataclasses  # noqa: F401
    import heapq  # noqa: F401
    import inspect  # noqa: F401
    import logging  # noqa: F401
    import queue  # noqa: F401
    import re  # noqa: F401
    import typing  # noqa: F401

    del collections
    gc.disable()
    gc.freeze()


def _grade(config: dict[str, Any], request: dict[str, Any], number: int, requests: int) -> dict[str, Any]:
    limits = request["limits"]
    try:
        plan = rewrite.prepare(request["hidden_test"], tuple(request["expected"]))
    except (SyntaxError, ValueError) as error:
        return {"broken": f"the hidden test does not compile: {error}"}
    configured = _warm_pytest(config) if plan["needs_pytest"] else None
    folder = _folder(config, number)
    result_r, result_w = os.pipe()
    out_r, out_w = os.pipe()
    status_r, status_w = os.pipe()
    key = bytes.fromhex(request["key"])
    target = random.SystemRandom().randrange(64, 200)

    def inside() -> None:
        os.dup2(out_w, 1)
        os.dup2(out_w, 2)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(result_w, target, inheritable=False)
        os.closerange(3, target)
        os.closerange(target + 1, 256)
        run.run(request, plan, key, target, folder, config, configured)

    def failed(error: BaseException) -> None:
        os.write(out_w, f"{type(error).__name__}: {error}".encode())

    uid = 20000 + number % 40000
    began = time.monotonic()
    main_pid = isolate.start(config, limits, uid, status_w, inside, failed)
    for fd in (result_w, out_w, status_w):
        os.close(fd)
    try:
        seen = _watch(main_pid, limits, began, result_r, out_r, requests, config["mode"] == "bubblewrap")
    finally:
        swept = census.sweep(os.getpid()) if config["mode"] == "unsafe" else 0
    wall_ms = (time.monotonic() - began) * 1000
    seen["raw"] += _drain(result_r, RESULT_BYTES - len(seen["raw"]))
    status, left = seen["status"], swept
    if config["mode"] == "bubblewrap":
        record = _drain(status_r, 64)
        status, left = struct.unpack("ii", record) if len(record) == 8 else (None, swept)
    for fd in (result_r, out_r, status_r):
        os.close(fd)
    if config["mode"] == "container":
        left = census.sweep(os.getpid())
        _clean_as(uid, folder)
    elif config["mode"] == "unsafe":
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "raw": base64.b64encode(seen["raw"]).decode(),
        "status": status,
        "flags": seen["flags"],
        "left": left,
        "output_head": seen["head"].decode("utf-8", "replace"),
        "wall_ms": wall_ms,
        "cpu_ms": seen["cpu_ms"],
    }


def _folder(config: dict[str, Any], number: int) -> str:
    if config["mode"] == "bubblewrap":
        return "/box/s"
    if config["mode"] == "container":
        return f"/box/g{number}"
    folder = os.path.join(config["folder"], f"g{number}")
    os.mkdir(folder, 0o700)
    return folder


def _watch(
    pid: int, limits: dict[str, Any], began: float, result_r: int, out_r: int, requests: int, namespaces: bool
) -> dict[str, Any]:
    """Read what the grade says until its process ends or a limit is hit."""
    raw = bytearray()
    flags: list[str] = []
    output = 0
    head = b""
    poll = select.poll()
    end = os.pidfd_open(pid)
    for fd in (result_r, out_r, end):
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    poll.register(requests, 0)  # only its hang-up matters: the host is gone
    deadline = began + limits["wall_s"]
    look = began + 0.15
    ended = False
    while not ended and not flags:
        now = time.monotonic()
        for fd, event in poll.poll(max(0.0, min(deadline, look) - now) * 1000):
            if fd == requests:
                if event & (select.POLLHUP | select.POLLERR):
                    flags.append("host_gone")
            elif fd == end:
                ended = True
            elif fd == result_r:
                data = os.read(fd, 1 << 16)
                raw += data
                if not data:
                    poll.unregister(fd)
                if len(raw) > RESULT_BYTES:
                    flags.append("result_flood")
            else:
                data = os.read(fd, 1 << 16)
                output += len(data)
                head = head or data[:500]
                if not data:
                    poll.unregister(fd)
                if output > limits["output_bytes"]:
                    flags.append("output")
        now = time.monotonic()
        if ended:
            break
        if now >= deadline:
            flags.append("wall")
        elif now >= look:
            look = now + 0.05
            flags += _over(limits)
    os.close(end)
    killed_ms = 0.0
    if not ended:
        # What the kernel ends with process 1 passes its CPU time on to nobody.
        killed_ms = census.cpu_ms(census.descendants(os.getpid()))
        if namespaces:
            os.kill(pid, signal.SIGKILL)  # process 1: the kernel ends all the others with it
        else:
            census.kill_all(os.getpid())
    _, status, usage = os.wait4(pid, 0)
    cpu_ms = max(killed_ms, (usage.ru_utime + usage.ru_stime) * 1000)
    if not flags:
        rest = _drain(out_r, 1 << 22)
        output, head = output + len(rest), head or rest[:500]
        if output > limits["output_bytes"]:
            flags.append("output")
    return {"raw": raw, "flags": flags, "output": output, "status": status, "cpu_ms": cpu_ms, "head": head}


def _over(limits: dict[str, Any]) -> list[str]:
    """Limits that the kernel does not keep for a group of processes."""
    found = census.descendants(os.getpid())
    flags = []
    if len(found) > limits["processes"] + 4:
        flags.append("processes")
    if sum(found.values()) > limits["memory_bytes"] and census.proportional_bytes(found) > limits["memory_bytes"]:
        flags.append("memory")
    return flags


def _drain(fd: int, most: int) -> bytes:
    os.set_blocking(fd, False)
    data = bytearray()
    while len(data) < most:
        try:
            chunk = os.read(fd, min(1 << 16, most - len(data)))
        except BlockingIOError:
            break
        if not chunk:
            break
        data += chunk
    return bytes(data)


def _clean_as(uid: int, folder: str) -> None:
    """As the grade's own user: end its processes and remove its files. The parent may do neither."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # every process of this user but the caller
            shutil.rmtree(folder, ignore_errors=True)
            for place in ("/tmp", "/dev/shm", "/box"):
                for name in os.listdir(place):
                    path = os.path.join(place, name)
                    if os.lstat(path).st_uid == uid:
                        if os.path.isdir(path) and not os.path.islink(path):
                            shutil.rmtree(path, ignore_errors=True)
                        else:
                            with contextlib.suppress(OSError):
                                os.unlink(path)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _warm_pytest(config: dict[str, Any]) -> Any:
    """pytest, imported and configured once, when the first hidden test needs it."""
    if "configured" not in _PYTEST:
        sys.path[:0] = config["pytest_path"]
        try:
            _PYTEST["configured"] = pytests.configure()
        finally:
            del sys.path[: len(config["pytest_path"])]
        gc.freeze()
    return _PYTEST["configured"]


_PYTEST: dict[str, Any] = {}
