"""Hidden tests that need pytest: its session runs in the process of the grade, on a module that is on no disk.

pytest finds and calls the tests; what counts is what our own hooks saw, never its exit code or its output. Configuring
pytest takes longer than most grades, so the parent does it once (`configure`) and each grade starts from there. That is
private API of the pinned pytest: `_prepareconfig`, `_do_configure` and `Module._getobj`.
"""

# ruff: noqa: SIM905  (long lists of names read better as text)

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

_UNUSED = (
    "cacheprovider terminal terminalprogress junitxml pastebin faulthandler doctest stepwise "
    "threadexception unraisableexception warnings setuponly setupplan legacypath"
).split()

_FILE = "hidden_test.py"
"""Name of the tests' module to pytest; no such file exists."""


class Hooks:
    """What pytest calls in a grade. `state` is empty in the parent and filled in the process of the grade."""

    def __init__(self) -> None:
        self.module: Any = None
        self.report: Callable[..., None] | None = None
        self.explain: Callable[[BaseException], dict[str, Any]] | None = None
        self.wanted: frozenset[str] = frozenset()
        self.groups: dict[str, list[dict[str, Any] | None]] = {}
        self.found: dict[str, tuple[str, dict[str, Any]]] = {}
        self.called: set[str] = set()
        self.finished: set[str] = set()

    def finish(self, item: Any, passed: bool) -> None:
        """Report a test once; the cases of a parametrized test that is expected by its plain name are put together."""
        name = test_id(item)
        if name in self.finished or self.report is None:
            return
        self.finished.add(name)
        outcome, why = ("passed", None) if passed else self.found.get(name, ("error", None))
        base = name.split("[")[0]
        if name in self.wanted:
            self.report(name, outcome, why)
        elif base in self.wanted:
            if outcome != "passed" and not any(self.groups.get(base, ())):
                self.report(base, outcome, why)
            self.groups.setdefault(base, []).append(None if outcome == "passed" else why or {"failed": True})


def test_id(item: Any) -> str:
    """The id of a test without its file."""
    return str(item.nodeid).split("::", 1)[1]


def configure() -> tuple[Any, Hooks]:
    """Configure pytest and open its session once, in the parent."""
    import _pytest.config
    import pytest

    for plugin in _pytest.config.default_plugins:
        importlib.import_module(f"_pytest.{plugin}")
    hooks = Hooks()

    class MemoryModule(pytest.Module):
        def _getobj(self) -> Any:
            return hooks.module

    class Plugin:
        @pytest.hookimpl(tryfirst=True)
        def pytest_collection(self, session: Any) -> bool:
            module = MemoryModule.from_parent(session, path=session.path / _FILE, nodeid=_FILE)
            session.items = list(session.genitems(module))
            session.config.hook.pytest_collection_modifyitems(
                session=session, config=session.config, items=session.items
            )
            session.testscollected = len(session.items)
            return True

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(self, pyfuncitem: Any) -> bool:
            assert hooks.explain is not None
            function = pyfuncitem.obj
            arguments = {n: pyfuncitem.funcargs[n] for n in pyfuncitem._fixtureinfo.argnames}
            try:
                result = function(**arguments)
                if inspect.iscoroutine(result):
                    asyncio.run(result)
            except BaseException as error:
                hooks.found[test_id(pyfuncitem)] = ("failed", hooks.explain(error))
                if not isinstance(error, Exception) or isinstance(error, pytest.exit.Exception):
                    hooks.finish(pyfuncitem, False)
                raise
            hooks.called.add(test_id(pyfuncitem))
            return True

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
            result = yield
            name = test_id(item)
            if call.excinfo is not None and name not in hooks.found and hooks.explain is not None:
                outcome = "skipped" if result.skipped else "failed" if call.when == "call" else "error"
                hooks.found[name] = (outcome, hooks.explain(call.excinfo.value))
            if call.when == "call" and call.excinfo is None and hasattr(item, "_testcase"):
                hooks.called.add(name)  # unittest calls its methods itself
            if call.when == "teardown":
                hooks.finish(item, name in hooks.called and name not in hooks.found)
            return result

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    arguments = ["--noconftest", "--capture=no", "--assert=plain", "--rootdir", "/", "-c", os.devnull]
    for plugin in _UNUSED:
        arguments += ["-p", f"no:{plugin}"]
    config = _pytest.config._prepareconfig(arguments, [Plugin()])
    config._do_configure()
    session = pytest.Session.from_config(config)
    config.hook.pytest_sessionstart(session=session)  # reads the fixtures of all plugins: half the time of a grade
    return session, hooks


def run(
    configured: tuple[Any, Hooks],
    module: Any,
    expected: Sequence[str],
    report: Callable[..., None],
    explain: Callable[[BaseException], dict[str, Any]],
) -> None:
    """Run the tests of a module object and report each expected test."""
    import pytest

    session, hooks = configured
    config = session.config
    hooks.module, hooks.report, hooks.explain = module, report, explain
    hooks.wanted = frozenset(expected)
    config.hook.pytest_collection(session=session)
    # However the session ends: every test that did not run stays missing.
    with contextlib.suppress(session.Interrupted, session.Failed, pytest.exit.Exception, KeyboardInterrupt):
        config.hook.pytest_runtestloop(session=session)
    for base, outcomes in hooks.groups.items():
        if not any(outcomes):
            report(base, "passed")
