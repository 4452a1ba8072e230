"""In the process of one grade: import the solution, run the hidden tests, report under the grade's key."""

# ruff: noqa: PTH102, PTH118, PTH120  (pathlib is not loaded here: every module makes each fork dearer)

from __future__ import annotations

import asyncio
import builtins
import contextlib
import gc
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
from . import look, pytests, vet, watch, wire

EXIT_DONE = 0
EXIT_TAMPERING = 97
EXIT_LOST = 98


def run(
    job: dict[str, Any],
    plan: dict[str, Any],
    key: bytes,
    fd: int,
    folder: str,
    config: dict[str, Any],
    configured: Any,
) -> None:
    """Never returns. Exit code 0 says that everything was reported, whatever the tests said."""
    leave = os._exit
    send = wire.make_sender(fd, key)
    try:
        path = _enter(job, folder, config)
        send("ready")
        _grade(job, plan, send, path, fd, config, configured)
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
    config: dict[str, Any],
    configured: Any,
) -> None:
    leave = os._exit
    library = (*config["library"], "<frozen ")
    shutdown: Callable[[], None] = threading._shutdown  # type: ignore[attr-defined]
    notes: list[str] = []
    solution = _new_module("solution", path)

    def trip(what: str) -> None:
        send("tampering", what)
        leave(EXIT_TAMPERING)

    needed: tuple[str, ...] = plan["solution_names"]
    asked: list[tuple[type, ...]] = []

    def named() -> tuple[type, ...]:
        """Classes that the tests ask for: those that they had when they were loaded, whatever the names mean later."""
        return asked[0] if asked else tuple(c for n in needed if isinstance(c := vars(solution).get(n), type))

    def mark(what: str) -> None:
        send("mark", what)

    guards = vet.guards(trip, mark, notes.append, named, library)
    last_said = guards.pop("")
    hidden = _test_module(guards)
    for name in plan["modules"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    watch.hide_frames_from_handlers()
    before = _snapshot(plan)
    why.set_call_sites(plan["call_sites"])
    texts, short, calls = plan["asserts"], why.short, plan["calls"]

    def explain(error: BaseException) -> dict[str, Any]:
        found = why.explain(error, solution, path, calls)
        said = last_said()
        if found["kind"] == "assertion" and error.args == ("",) and said is not None:
            found["message"] = f"AssertionError: assert {texts[said[0]]}"
            if said[1] is not None:
                found["message"] += f", where the left is {short(said[1][0])} and the right is {short(said[1][1])}"
        return found

    def failed_load(found: dict[str, Any]) -> None:
        send("load", *_parts(found))
        leave(EXIT_DONE)

    code = _compile(path, send, failed_load)
    sys.modules["solution"] = solution
    here = os.path.dirname(path)
    watch.install(send, library, (f"{here}/", "/tmp/", "/dev/shm/", "/usr/share/zoneinfo/"), fd)
    solution.__dict__["__builtins__"] = vars(builtins)  # the interpreter's, not those that our modules keep
    try:
        exec(code, solution.__dict__)
    except BaseException as error:
        failed_load(why.explain(error, solution, path, plan["calls"], loading=True))
    _bind(solution, job["bindings"])
    sys.modules["solution"] = solution
    absent = [n for n in plan["solution_names"] if not hasattr(solution, n)]
    try:
        exec(plan["code"], hidden.__dict__)
    except BaseException as error:
        if isinstance(error, ImportError) and absent and error.name == "solution":
            line = why.frames_of(error)[-1][1]
            failed_load(why.interface(solution, absent[0], why.headline(error), line, plan["calls"]))
        failed_load(explain(error))
    asked.append(named())
    intact = _seal(hidden, frozenset(guards))

    def check() -> None:
        """After each test: our tests are still ours, and so are the modules that they rely on."""
        broken = intact()
        if broken is not None:
            trip(f"hidden_test.{broken}")
        changed = _changed(before, plan)
        if changed is not None:
            send("mark", f"patches:{changed}")

    def report(test_id: str, outcome: str, found: dict[str, Any] | None = None) -> None:
        check()
        parts = _parts(found or why.failure("", ""))
        if found is not None and "returned_coroutine" in notes:
            parts[1] = f"returned_coroutine: {parts[1]}"
        send("test", test_id, outcome, *parts)

    check()
    if plan["needs_pytest"]:
        pytests.run(configured, hidden, job["expected"], report, explain, trip, _codes(plan["code"]))
    else:
        _plain(hidden, job["expected"], report, explain, notes)
    shutdown()  # as at the end of any program: threads that are no daemons are waited for
    send("end")


def _plain(
    hidden: types.ModuleType,
    expected: list[str],
    report: Callable[..., None],
    explain: Callable[[BaseException], dict[str, Any]],
    notes: list[str],
) -> None:
    """Call plain `test_*` functions, as they are before the first of them runs."""
    functions = {n: v for n, v in vars(hidden).items() if isinstance(v, types.FunctionType)}
    for test_id in expected:
        function = functions.get(test_id)
        if function is None:
            report(test_id, "missing")
            continue
        notes.clear()
        try:
            result = function()
            if inspect.iscoroutine(result):
                asyncio.run(result)
        except BaseException as error:
            report(test_id, "failed", explain(error))
        else:
            report(test_id, "passed")


def _new_module(name: str, path: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise RuntimeError("no import spec for a .py file")
    return importlib.util.module_from_spec(spec)


def _test_module(guards: dict[str, Any]) -> types.ModuleType:
    """An empty module for the hidden tests, with the guards and with built-in functions of its own."""
    hidden = types.ModuleType("hidden_test")
    hidden.__dict__.clear()
    hidden.__dict__.update(guards)
    hidden.__dict__.update(__name__="hidden_test", __builtins__=dict(vars(builtins)))
    return hidden


def _compile(path: str, send: Callable[..., None], failed_load: Callable[[dict[str, Any]], None]) -> Any:
    with open(path, "rb") as file:
        source = file.read()
    for mark in look.look(source):
        send("mark", mark)
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return failed_load(why.failure("syntax", why.headline(error)))


def _bind(solution: Any, bindings: list[list[str]]) -> None:
    """Counterfactuals: give a missing name what the solution offers in its place."""
    for owner, missing, candidate in bindings:
        holder: Any = getattr(solution, owner, None) if owner else solution
        if holder is not None and hasattr(holder, candidate):
            setattr(holder, missing, inspect.getattr_static(holder, candidate))


def _seal(hidden: types.ModuleType, helpers: frozenset[str]) -> Callable[[], str | None]:
    """A function that says what of the tests is not as it was now; None while nothing was changed."""
    namespace = hidden.__dict__
    kept = {n: v for n, v in namespace.items() if isinstance(v, types.FunctionType | type) or n in helpers}
    codes = {n: v.__code__ for n, v in kept.items() if type(v) is types.FunctionType}
    own = dict(namespace["__builtins__"])

    def intact() -> str | None:
        for name, value in kept.items():
            now: Any = namespace.get(name)
            if now is not value or (name in codes and now.__code__ is not codes[name]):
                return name
        return None if namespace.get("__builtins__") == own else "__builtins__"

    return intact


def _codes(code: types.CodeType) -> frozenset[int]:
    """Identities of all code objects of the hidden tests."""
    found, todo = set(), [code]
    while todo:
        item = todo.pop()
        found.add(id(item))
        todo += [c for c in item.co_consts if isinstance(c, types.CodeType)]
    return frozenset(found)


def _parts(found: dict[str, Any]) -> list[str]:
    return [
        found["kind"],
        found["message"],
        str(found["line"] or ""),
        found["missing"],
        found["owner"],
        "\x1f".join(found["offered"]),
        "\x1f".join(found["near"]),
    ]


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
