"""Hidden tests that need pytest: its session runs in the process of the grade, on a module that is on no disk.

pytest finds and calls the tests; what counts is what our own hooks saw, never its exit code or its output.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

_UNUSED = (
    "cacheprovider terminal terminalprogress junitxml pastebin faulthandler doctest stepwise "
    "threadexception unraisableexception warnings setuponly setupplan legacypath"
).split()


def run(
    module: Any,
    expected: Sequence[str],
    report: Callable[..., None],
    after_each: Callable[[], None],
    explain: Callable[[BaseException], dict[str, Any]],
) -> None:
    """Run the tests of a module object and report each expected test. Private to pytest: `Module._getobj`."""
    import pytest

    wanted = frozenset(expected)
    groups: dict[str, list[dict[str, Any] | None]] = {}
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    called: set[str] = set()
    finished: set[str] = set()

    class MemoryModule(pytest.Module):
        def _getobj(self) -> Any:
            return module

    def test_id(item: Any) -> str:
        return str(item.nodeid).split("::", 1)[1]

    def finish(item: Any, passed: bool) -> None:
        name = test_id(item)
        if name in finished:
            return
        finished.add(name)
        outcome, why = ("passed", None) if passed else found.get(name, ("error", None))
        base = name.split("[")[0]
        if name in wanted:
            report(name, outcome, why)
        elif base in wanted:
            if outcome != "passed" and not any(groups.get(base, ())):
                report(base, outcome, why)
            groups.setdefault(base, []).append(why if outcome == "passed" else (why or {"failed": True}))

    class Hooks:
        def pytest_pycollect_makemodule(self, module_path: Any, parent: Any) -> Any:
            return MemoryModule.from_parent(parent, path=module_path)

        @pytest.hookimpl(tryfirst=True)
        def pytest_pyfunc_call(self, pyfuncitem: Any) -> bool:
            function = pyfuncitem.obj
            arguments = {n: pyfuncitem.funcargs[n] for n in pyfuncitem._fixtureinfo.argnames}
            try:
                result = function(**arguments)
                if inspect.iscoroutine(result):
                    asyncio.run(result)
            except BaseException as error:
                found[test_id(pyfuncitem)] = ("failed", explain(error))
                if not isinstance(error, Exception) or isinstance(error, pytest.exit.Exception):
                    finish(pyfuncitem, False)
                raise
            after_each()
            called.add(test_id(pyfuncitem))
            return True

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
            result = yield
            name = test_id(item)
            if call.excinfo is not None and name not in found:
                outcome = "skipped" if result.skipped else "failed" if call.when == "call" else "error"
                found[name] = (outcome, explain(call.excinfo.value))
            if call.when == "call" and call.excinfo is None and not isinstance(item, pytest.Function):
                called.add(name)
            if call.when == "call" and call.excinfo is None and getattr(item, "_testcase", None) is not None:
                called.add(name)  # unittest calls its methods itself
            if call.when == "teardown":
                finish(item, name in called and name not in found)
            return result

    name = f"hidden_test_{random.getrandbits(40):x}.py"
    with open(name, "w"):
        pass  # pytest wants a path; there is nothing in it
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    arguments = ["--noconftest", "--capture=no", "--assert=plain", "--rootdir", os.getcwd(), "-c", os.devnull]
    for plugin in _UNUSED:
        arguments += ["-p", f"no:{plugin}"]
    pytest.main([*arguments, name], plugins=[Hooks()])
    for base, outcomes in groups.items():
        if not any(outcomes):
            report(base, "passed")
