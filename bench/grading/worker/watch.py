"""An audit hook, set before the solution is imported (PEP 578). It cannot be removed; it marks and does not stop.

A mark is sent at the moment of the event, before it takes effect, so that nothing which follows can take it back.
Who is responsible is the nearest frame outside the standard library: the solution's own code, or ours.
"""

# ruff: noqa: SIM905  (long lists of names read better as text)

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from .vet import opaque
from .wire import TEST_FILE

_STRAIGHT = {
    "sys.settrace": "traces",
    "sys.setprofile": "traces",
    "sys.addaudithook": "audit_hook",
    "sys._current_frames": "frame_walking",
    "sys._current_exceptions": "frame_walking",
    "gc.get_objects": "gc_walking",
    "gc.get_referrers": "gc_walking",
    "gc.get_referents": "gc_walking",
    "code.__new__": "builds_code",
    "function.__new__": "builds_code",
    "marshal.loads": "builds_code",
    "object.__setattr__": "changes_code",
    "object.__delattr__": "changes_code",
    "os.system": "process",
    "os.fork": "process",
    "os.forkpty": "process",
    "os.exec": "process",
    "os.posix_spawn": "process",
    "os.spawn": "process",
    "pty.spawn": "process",
    "subprocess.Popen": "process",
    "os.kill": "kill",
    "os.killpg": "kill",
    "signal.pthread_kill": "kill",
    "resource.setrlimit": "limits",
    "resource.prlimit": "limits",
    "socket.connect": "network",
    "socket.bind": "network",
    "socket.sendto": "network",
    "socket.getaddrinfo": "network",
    "socket.gethostbyname": "network",
    "cpython._PySys_ClearAuditHooks": "audit_hook",
}
_FRAMES = frozenset({"tb_frame", "gi_frame", "cr_frame", "ag_frame", "f_back", "f_locals", "f_globals", "f_code"})
_CODE = frozenset({"__code__", "gi_code", "cr_code", "ag_code", "__defaults__", "__kwdefaults__"})
_HANDS_OUT_FRAMES = frozenset(
    "currentframe stack trace getouterframes getinnerframes walk_stack walk_tb extract <lambda> _getframe "
    "print_stack extract_stack format_stack getargvalues set_trace".split()
)
"""Functions of the library that give frames, or what is in them, to their caller."""
_READS_SIGNATURES = frozenset(
    "signature iscoroutinefunction isgeneratorfunction isasyncgenfunction getfullargspec wraps update_wrapper "
    "partial singledispatch get_type_hints cached_property bind from_callable markcoroutinefunction isfunction".split()
)
_OPEN = ("/dev/null", "/dev/urandom", "/dev/random", "/dev/zero")
_QUIET_READERS = ("zoneinfo", "mimetypes.py", "platform.py", "locale.py", "gettext.py", "ctypes", "multiprocessing")


def install(send: Callable[..., None], library: tuple[str, ...], folders: tuple[str, ...], own_fd: int) -> None:
    """Watch from now on.

    `library` are the folders of the interpreter's modules, `folders` those where the solution may open files.
    """
    getframe, ident, abspath, fspath = sys._getframe, threading.get_ident, os.path.abspath, os.fspath
    straight, frames, code, hands, reads = dict(_STRAIGHT), _FRAMES, _CODE, _HANDS_OUT_FRAMES, _READS_SIGNATURES
    allowed, quiet = _OPEN, _QUIET_READERS
    busy: set[int] = set()
    told: set[str] = set()
    ours = (TEST_FILE, "<grader>")
    stdlib = (*library, "<frozen ")

    def responsible() -> tuple[str, str, str] | None:
        """(file of the solution's code, library function that it called, that function's file); None for ours."""
        frame: Any = getframe(3)  # past this function, `reason` and `hook`
        called = file_called = ""
        while frame is not None:
            name = frame.f_code.co_filename
            if not name.startswith(stdlib):
                return None if name.startswith(ours) else (name, called, file_called)
            called, file_called = frame.f_code.co_name, name
            frame = frame.f_back
        return None

    def reason(event: str, args: tuple[Any, ...]) -> str | None:
        if event in (
            "sys._getframe",
            "object.__getattr__",
            "compile",
            "open",
            "os.listdir",
            "os.scandir",
            "socket.__new__",
        ):
            pass
        elif event not in straight and not event.startswith("ctypes."):
            return None
        who = responsible()
        if who is None:
            return None
        _, called, file = who
        if event == "sys._getframe":
            return "frame_walking" if not called or called in hands else None
        if event == "object.__getattr__":
            if args[1] in frames:
                return "frame_walking" if not called or called in hands else None
            if args[1] in code:
                target = args[0]
                target = getattr(target, "__globals__", None)
                foreign = type(target) is dict and target.get("__name__") == "hidden_test"
                return "reads_test_code" if foreign and called not in reads else None
            return None
        if event == "compile":
            name = args[1]
            named = type(name) is str and (name.startswith(stdlib) or name.startswith(ours))
            return "builds_code" if named and not called else None
        if event in ("code.__new__", "function.__new__", "marshal.loads"):
            return straight[event] if not called or called in ("replace",) else None
        if event in ("object.__setattr__", "object.__delattr__"):
            return "changes_code" if not called and args[1] in code else None
        if event == "socket.__new__":
            return "network" if int(args[1]) not in (1, -1) else None
        if event.startswith("socket."):
            address = args[1] if len(args) > 1 else None
            return None if type(address) in (str, bytes) and event != "socket.gethostbyname" else "network"
        if event.startswith("ctypes."):
            return "ctypes"
        if event in ("open", "os.listdir", "os.scandir"):
            return opened(event, args[0], file)
        return straight[event]

    def opened(event: str, path: Any, file: str) -> str | None:
        if path is None:
            return None
        if type(path) is int:
            return "result_pipe" if path == own_fd else None
        path = fspath(path)
        if type(path) is bytes:
            path = path.decode("utf-8", "surrogateescape")
        if type(path) is not str:
            return "foreign_file"
        whole = abspath(path)
        if "hidden_test" in whole:
            return "opens_tests"
        if whole.startswith("/proc"):
            return "proc"
        if event != "open" or f"{whole}/".startswith((*library, *folders)) or whole in allowed or whole.startswith("<"):
            return None
        return None if any(q in file for q in quiet) else "foreign_file"

    def hook(event: str, args: tuple[Any, ...]) -> None:
        me = ident()
        if me in busy:
            return
        busy.add(me)
        try:
            mark = reason(event, args)
            if mark is not None and mark not in told:
                told.add(mark)
                send("mark", mark)
        finally:
            busy.discard(me)

    sys.addaudithook(hook)


def hide_frames_from_handlers() -> None:
    """Signal handlers get None in place of the interrupted frame, which may be one of ours."""
    inner = signal.signal

    def set_handler(number: Any, handler: Any) -> Any:
        if callable(handler) and not isinstance(handler, signal.Handlers):

            def without_frame(received: int, _frame: Any) -> Any:
                return handler(received, None)

            return inner(number, without_frame)
        return inner(number, handler)

    signal.signal = opaque(set_handler)
