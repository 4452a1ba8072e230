"""In the process of one grade: import the solution, run the hidden tests, report under the grade's key."""

from __future__ import annotations

import asyncio
import builtins
import gc
import importlib.machinery
import importlib.util
import inspect
import os
import random
import site
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from . import explain as why
from . import look, pytests, rewrite, vet, watch, wire

EXIT_DONE = 0
EXIT_TAMPERING = 97
EXIT_LOST = 98


def run(job: dict[str, Any], plan: dict[str, Any], key: bytes, fd: int, folder: str, config: dict[str, Any]) -> None:
    """Never returns. Exit code 0 says that everything was reported, whatever the tests said."""
    leave = os._exit
    send = wire.make_sender(fd, key)
    try:
        path = _enter(job, folder, config)
        send("ready")
        _grade(job, plan, send, path, fd, leave, config)
        leave(EXIT_DONE)
    except BaseException as error:  # whatever the solution made of our own code
        try:
            send("lost", why.headline(error))
        finally:
            leave(EXIT_LOST)


def _enter(job: dict[str, Any], folder: str, config: dict[str, Any]) -> str:
    """A private folder with the solution in it, a small environment, and a `__main__` that is nobody's."""
    if config["mode"] == "container":
        os.mkdir(folder, 0o700)
    os.chdir(folder)
    temporary = "/tmp" if config["mode"] != "unsafe" else folder
    os.environ.clear()
    os.environ.update(
        HOME=folder, PATH="/usr/local/bin:/usr/bin:/bin", LANG="C.UTF-8", TMPDIR=temporary, PYTHONDONTWRITEBYTECODE="1"
    )
    path = os.path.join(folder, "solution.py")
    with open(path, "wb") as file:
        file.write(job["code"].encode("utf-8", "surrogatepass"))
    sys.argv = [path]
    sys.path[:] = [folder, *sys.path, *config["pytest_path"]]
    site.setquit()  # `exit` and `quit`, which an interpreter started without `site` lacks
    sys.modules["__main__"] = types.ModuleType("__main__")
    for name in [n for n in sys.modules if n == "grader_worker" or n.startswith("grader_worker.")]:
        del sys.modules[name]
    sys.meta_path[:] = [f for f in sys.meta_path if not getattr(f, "grader", False)]
    random.seed()
    gc.enable()
    return path


def library_folders(config: dict[str, Any]) -> tuple[str, ...]:
    """Folders of the interpreter's own modules and of pytest, each with a slash at its end."""
    paths = {p for p in sys.path if p} | {os.path.dirname(os.__file__)} | set(config["pytest_path"])
    paths |= {os.path.realpath(p) for p in paths}
    return tuple(sorted(p.rstrip("/") + "/" for p in paths))


def _grade(
    job: dict[str, Any],
    plan: dict[str, Any],
    send: Callable[..., None],
    path: str,
    fd: int,
    leave: Callable[[int], Any],
    config: dict[str, Any],
) -> None:
    library = (*config["library"], "<frozen ")
    shutdown: Callable[[], None] = threading._shutdown  # type: ignore[attr-defined]
    namespace: dict[str, Any] = {"__name__": "hidden_test", "__builtins__": dict(vars(builtins))}
    hidden = types.ModuleType("hidden_test")
    hidden.__dict__.clear()
    hidden.__dict__.update(namespace)
    namespace = hidden.__dict__
    notes: list[str] = []
    needed = tuple(plan["solution_names"])
    solution = types.ModuleType("solution")

    def trip(what: str) -> None:
        send("tampering", what)
        leave(EXIT_TAMPERING)

    def named() -> tuple[type, ...]:
        return tuple(c for n in needed if isinstance(c := vars(solution).get(n), type))

    helpers = dict(
        zip(
            (rewrite.VET, rewrite.TRUTH, rewrite.CALLEE, rewrite.CLASSES),
            vet.guards(trip, notes.append, named, library),
            strict=True,
        )
    )
    texts, short = plan["asserts"], why.short

    def say(number: int, *sides: Any) -> str:
        text = f"assert {texts[number]}"
        return f"{text}, where the left is {short(sides[0])} and the right is {short(sides[1])}" if sides else text

    helpers[rewrite.SAY] = say
    namespace.update(helpers)
    for name in plan["modules"]:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    watch.hide_frames_from_handlers()
    before = _snapshot(plan)
    why.set_call_sites(plan["call_sites"])

    def report(test_id: str, outcome: str, found: dict[str, Any] | None = None) -> None:
        f = found or why.failure("", "")
        kind, message = f["kind"], f["message"]
        if found is not None and "returned_coroutine" in notes:
            message = f"returned_coroutine: {message}"
        send(
            "test",
            test_id,
            outcome,
            kind,
            message,
            str(f["line"] or ""),
            f["missing"],
            f["owner"],
            "\x1f".join(f["offered"]),
            "\x1f".join(f["near"]),
        )

    def failed_load(found: dict[str, Any]) -> None:
        send(
            "load",
            found["kind"],
            found["message"],
            str(found["line"] or ""),
            found["missing"],
            found["owner"],
            "\x1f".join(found["offered"]),
            "\x1f".join(found["near"]),
        )
        leave(EXIT_DONE)

    with open(path, "rb") as file:
        source = file.read()
    for mark in look.look(source):
        send("mark", mark)
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return failed_load(why.failure("syntax", why.headline(error)))
    spec = importlib.util.spec_from_file_location("solution", path)
    if spec is None:
        raise RuntimeError("no import spec for a .py file")
    solution = importlib.util.module_from_spec(spec)
    sys.modules["solution"] = solution
    folders = tuple(f"{f}/" for f in (os.path.dirname(path), "/tmp", "/dev/shm", "/usr/share/zoneinfo"))
    watch.install(send, library, folders, fd)
    try:
        exec(code, solution.__dict__)
    except BaseException as error:
        return failed_load(why.explain(error, solution, path, plan["calls"], loading=True))
    changed = _changed(before, plan)
    if changed:
        send("mark", f"patches:{changed}")
    for owner, missing, candidate in job["bindings"]:
        holder: Any = getattr(solution, owner, None) if owner else solution
        if holder is not None and hasattr(holder, candidate):
            setattr(holder, missing, inspect.getattr_static(holder, candidate))
    sys.modules["solution"] = solution
    absent = [n for n in needed if not hasattr(solution, n)]
    try:
        exec(plan["code"], namespace)
    except BaseException as error:
        if isinstance(error, ImportError) and absent and error.name == "solution":
            line = why.frames_of(error)[-1][1]
            message = f"{why.headline(error)}"
            return failed_load(why.interface(solution, absent[0], message, line, plan["calls"]))
        return failed_load(why.explain(error, solution, path, plan["calls"]))
    functions = {n: v for n, v in namespace.items() if isinstance(v, types.FunctionType | type) or n in helpers}
    codes = {n: v.__code__ for n, v in functions.items() if isinstance(v, types.FunctionType)}

    def intact() -> str | None:
        """What of the tests was changed under our hands; None when nothing was."""
        for name, value in functions.items():
            if namespace.get(name) is not value or (name in codes and value.__code__ is not codes[name]):
                return name
        return None

    def after_each() -> None:
        broken = intact()
        if broken is not None:
            trip(f"hidden_test.{broken}")
        changed = _changed(before, plan)
        if changed:
            send("mark", f"patches:{changed}")

    if plan["needs_pytest"]:
        pytests.run(
            hidden, job["expected"], report, after_each, lambda e: why.explain(e, solution, path, plan["calls"])
        )
    else:
        for test_id in job["expected"]:
            function = functions.get(test_id)
            if not isinstance(function, types.FunctionType):
                report(test_id, "missing")
                continue
            notes.clear()
            try:
                result = function()
                if inspect.iscoroutine(result):
                    asyncio.run(result)
            except BaseException as error:
                report(test_id, "failed", why.explain(error, solution, path, plan["calls"]))
            else:
                after_each()
                report(test_id, "passed")
    shutdown()  # as at the end of any program: threads that are no daemons are waited for
    send("end")


def _snapshot(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    out = {}
    for name in (*plan["modules"], "builtins", "inspect", "threading", "time", "random", "unittest"):
        module = sys.modules.get(name)
        if module is not None:
            out[name] = {n: v for n, v in vars(module).items() if callable(v) and not n.startswith("_")}
    return out


def _changed(before: dict[str, dict[str, Any]], plan: dict[str, Any]) -> str | None:
    """A function or class of a module that the tests rely on and that is another now; None when there is none."""
    for name, old in before.items():
        now = vars(sys.modules[name]) if name in sys.modules else {}
        for attribute, value in old.items():
            if now.get(attribute) is not value and attribute not in plan["mentioned"]:
                if (name, attribute) in (("builtins", "print"), ("builtins", "input")):
                    continue
                return f"{name}.{attribute}"
    return None
