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
import types
from collections.abc import Callable, Sequence
from typing import Any

_UNUSED = (
    "cacheprovider terminal terminalprogress junitxml pastebin faulthandler doctest stepwise "
    "threadexception unraisableexception warnings setuponly setupplan legacypath"
).split()

_FILE = "hidden_test.py"
"""Name of the tests' module to pytest; no such file exists."""


def test_id(item: Any) -> str:
    """The id of a test without its file."""
    return str(item.nodeid).split("::", 1)[1]


def configure() -> tuple[Any, types.SimpleNamespace]:
    """Configure pytest and open its session once, in the parent.

    The hooks are functions in a module and not methods of a class: a solution finds every class by `__subclasses__`.
    """
    import _pytest.config
    import pytest

    for plugin in _pytest.config.default_plugins:
        importlib.import_module(f"_pytest.{plugin}")
    state = types.SimpleNamespace()

    class MemoryModule(pytest.Module):
        hidden: Any = None

        def _getobj(self) -> Any:
            return self.hidden

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(session: Any) -> bool:
        module = MemoryModule.from_parent(session, path=session.path / _FILE, nodeid=_FILE)
        module.hidden = state.module
        session.items = list(session.genitems(module))
        session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=session.items)
        session.testscollected = len(session.items)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(pyfuncitem: Any) -> bool:
        function = pyfuncitem.obj
        arguments = {n: pyfuncitem.funcargs[n] for n in pyfuncitem._fixtureinfo.argnames}
        try:
            result = function(**arguments)
            if inspect.iscoroutine(result):
                asyncio.run(result)
        except BaseException as error:
            state.found[test_id(pyfuncitem)] = ("failed", state.explain(error))
            if not isinstance(error, Exception) or isinstance(error, pytest.exit.Exception):
                finish(pyfuncitem, False)
            raise
        state.called.add(test_id(pyfuncitem))
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item: Any, call: Any) -> Any:
        result = yield
        name = test_id(item)
        if call.excinfo is not None and name not in state.found:
            outcome = "skipped" if result.skipped else "failed" if call.when == "call" else "error"
            state.found[name] = (outcome, state.explain(call.excinfo.value))
        if call.when == "call" and call.excinfo is None and hasattr(item, "_testcase"):
            state.called.add(name)  # unittest calls its methods itself
        if call.when == "teardown":
            finish(item, name in state.called and name not in state.found)
        return result

    def finish(item: Any, passed: bool) -> None:
        """Report a test once; the cases of a parametrized test that is expected by its plain name are put together."""
        name = test_id(item)
        if name in state.finished:
            return
        state.finished.add(name)
        if not genuine(item):
            state.trip(f"{name}: not a test of the suite")
        outcome, why = ("passed", None) if passed else state.found.get(name, ("error", None))
        base = name.split("[")[0]
        if name in state.wanted:
            state.report(name, outcome, why)
        elif base in state.wanted:
            if outcome != "passed" and not any(state.groups.get(base, ())):
                state.report(base, outcome, why)
            state.groups.setdefault(base, []).append(None if outcome == "passed" else why or {"failed": True})

    def genuine(item: Any) -> bool:
        """Whether what ran is code of the hidden tests, under whatever decorators they put around it."""
        code = getattr(inspect.unwrap(item.function), "__code__", None)
        return id(code) in state.codes

    hooks = types.ModuleType("hooks")
    hooks.__dict__.update(
        pytest_collection=pytest_collection,
        pytest_pyfunc_call=pytest_pyfunc_call,
        pytest_runtest_makereport=pytest_runtest_makereport,
    )
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    arguments = ["--noconftest", "--capture=no", "--assert=plain", "--rootdir", "/", "-c", os.devnull]
    for plugin in _UNUSED:
        arguments += ["-p", f"no:{plugin}"]
    config = _pytest.config._prepareconfig(arguments, [hooks])
    config._do_configure()
    session = pytest.Session.from_config(config)
    config.hook.pytest_sessionstart(session=session)  # reads the fixtures of all plugins: half the time of a grade
    return session, state


def run(
    configured: tuple[Any, types.SimpleNamespace],
    module: Any,
    expected: Sequence[str],
    report: Callable[..., None],
    explain: Callable[[BaseException], dict[str, Any]],
    trip: Callable[[str], None],
    codes: frozenset[int],
) -> None:
    """Run a module's tests and report each expected one. `codes`: identities of the tests' code objects."""
    import pytest

    session, state = configured
    state.__dict__.update(module=module, report=report, explain=explain, trip=trip, codes=codes)
    state.__dict__.update(wanted=frozenset(expected), groups={}, found={}, called=set(), finished=set())
    config = session.config
    config.hook.pytest_collection(session=session)
    # However the session ends: every test that did not run stays missing.
    with contextlib.suppress(session.Interrupted, session.Failed, pytest.exit.Exception, KeyboardInterrupt):
        config.hook.pytest_runtestloop(session=session)
    for base, outcomes in state.groups.items():
        if not any(outcomes):
            report(base, "passed")
