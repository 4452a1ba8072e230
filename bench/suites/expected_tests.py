"""Which tests a hidden test file holds, read from its syntax tree without running anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from bench.errors import UsageError

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def expected_ids(tree: ast.Module, listed: tuple[str, ...] | None, file: str, key: str) -> tuple[str, ...]:
    """Ids of the tests in a file, in its order: `test_x`, and `TestC::test_x` for methods.

    `listed` is the suite's own list, or None. It is needed where the syntax tree cannot tell how many tests pytest
    will run (parametrised, generated, inherited or conditional ones). `file` and `key` name the hidden test file and
    the list's key in errors. Raises UsageError for a file without tests, for a test that a later one replaces, and
    for a list that does not fit the file.
    """
    found, unclear = _collect(tree.body, "", file)
    if listed is None:
        if unclear:
            raise UsageError(f"{file}, {unclear}: the tests cannot be counted from the source; list their ids in {key}")
        if not found:
            raise UsageError(f"{file}: expected at least one function `test_...`, found none")
        return tuple(found)
    if not listed:
        raise UsageError(f"{key}: expected at least one test id, found an empty list")
    for i, test_id in enumerate(listed):
        if test_id in listed[:i]:
            raise UsageError(f"{key}[{i}]: expected each test once, found `{test_id}` twice")
        if not unclear and test_id not in found:
            raise UsageError(f"{key}[{i}]: expected a test of {file}, found `{test_id}`; it has {', '.join(found)}")
    without_parameters = {test_id.partition("[")[0] for test_id in listed}
    for test_id in found:
        if test_id not in without_parameters:
            raise UsageError(f"{key}: expected every test of {file}, but `{test_id}` is not in the list")
    return listed


def _collect(body: list[ast.stmt], prefix: str, file: str) -> tuple[list[str], str | None]:
    """Ids in a body, and where it first holds something that cannot be counted."""
    found: list[str] = []
    unclear: list[tuple[int, str]] = []
    bound: dict[str, int] = {}

    def is_test(name: str, line: int) -> bool:
        if name in bound:
            raise UsageError(
                f"{file}, line {line}: a second `{prefix}{name}` replaces the one on line {bound[name]}, "
                "which then never runs; rename one of them"
            )
        bound[name] = line
        return True

    for node in body:
        if isinstance(node, _Function):
            if node.name == "pytest_generate_tests" or _has_params(node):
                unclear.append((node.lineno, f"`{node.name}` makes tests of its own"))
            if not node.name.startswith("test"):
                continue
            if not node.name.startswith("test_"):
                raise UsageError(
                    f"{file}, line {node.lineno}: `{node.name}` would be collected as a test by its first letters; "
                    "name it `test_...`, or start its name with another word"
                )
            if is_test(node.name, node.lineno):
                found.append(prefix + node.name)
                if _is_parametrised(node.decorator_list):
                    unclear.append((node.lineno, f"`{node.name}` is parametrised"))
        elif isinstance(node, ast.ClassDef):
            by_base = any(ast.unparse(base).endswith("TestCase") for base in node.bases)
            if not (node.name.startswith("Test") or by_base) or _opted_out(node):
                continue
            is_test(node.name, node.lineno)
            if [base for base in node.bases if ast.unparse(base) != "object"] or node.keywords:
                unclear.append((node.lineno, f"`{node.name}` may inherit tests"))
            if any(isinstance(item, _Function) and item.name == "__init__" for item in node.body):
                raise UsageError(f"{file}, line {node.lineno}: pytest runs no test of a class with `__init__`")
            if _is_parametrised(node.decorator_list):
                unclear.append((node.lineno, f"`{node.name}` is parametrised"))
            inner, inner_unclear = _collect(node.body, f"{prefix}{node.name}::", file)
            found += inner
            if inner_unclear:
                unclear.append((node.lineno, inner_unclear))
        else:
            unclear += [(line, why) for line, why in _hidden_bindings(node)]
            names = {name for name, _ in _bindings(node)}
            for name in names & bound.keys():
                raise UsageError(f"{file}, line {node.lineno}: `{name}` replaces the test on line {bound[name]}")
    return found, (f"line {unclear[0][0]} ({unclear[0][1]})" if unclear else None)


def _is_parametrised(decorators: list[ast.expr]) -> bool:
    return any("parametrize" in ast.unparse(decorator) for decorator in decorators)


def _has_params(node: _Function) -> bool:
    """Whether this is a fixture with parameters, which multiplies the tests that use it."""
    return any(
        isinstance(decorator, ast.Call)
        and ast.unparse(decorator.func).endswith("fixture")
        and any(keyword.arg in ("params", None) for keyword in decorator.keywords)
        for decorator in node.decorator_list
    )


def _opted_out(node: ast.ClassDef) -> bool:
    """Whether the class says `__test__ = False`."""
    return any(
        isinstance(item, ast.Assign)
        and [ast.unparse(target) for target in item.targets] == ["__test__"]
        and isinstance(item.value, ast.Constant)
        and not item.value.value
        for item in node.body
    )


def _bindings(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that a statement binds in its own scope, with their lines."""
    if isinstance(node, _Function | ast.ClassDef):
        yield node.name, node.lineno
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (((alias.asname or alias.name), node.lineno) for alias in node.names)
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
    elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        for child in ast.iter_child_nodes(node):
            yield from _bindings(child)


def _is_data(node: ast.stmt) -> bool:
    """Whether the statement binds a literal, such as a list of cases, which no one takes for a test."""
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return True
    literal = ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set | ast.JoinedStr | ast.BinOp
    comprehension = ast.ListComp | ast.SetComp | ast.DictComp
    return isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, literal | comprehension)


def _hidden_bindings(node: ast.stmt) -> Iterator[tuple[int, str]]:
    """Statements besides plain definitions that make, or may make, tests."""
    for name, line in _bindings(node):
        if name == "pytestmark" and "parametrize" in ast.unparse(node):
            yield line, "`pytestmark` parametrises the tests"
        elif name == "*":
            yield line, "names imported by `*` may be tests"
        elif name.startswith("test_") and not _is_data(node):
            yield line, f"`{name}` is not a plain function definition"
        elif name.startswith("Test") and isinstance(node, ast.If | ast.For | ast.While | ast.Try | ast.With):
            yield line, f"`{name}` is defined on a condition"
