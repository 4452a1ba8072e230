"""Our own hidden tests, prepared: which names they need, and every comparison put under a guard.

Only the tests are rewritten; the solution never is. A guarded operand goes through trusted code (`vet`) before the
interpreter calls any comparison method on it, so an object that equals everything is seen before it can answer.
"""

# ruff: noqa: SIM905  (long lists of names read better as text)

from __future__ import annotations

import ast
import functools
from typing import Any

from .wire import TEST_FILE

VET, TRUTH, CALLEE, CLASSES, SAY = "__gb_vet__", "__gb_truth__", "__gb_method__", "__gb_classes__", "__gb_say__"
LEFT, RIGHT, AFTER, CALCULATED = "__gb_left__", "__gb_right__", "__gb_after__", "__gb_calculated__"
HELPERS = (VET, TRUTH, CALLEE, CLASSES, SAY, LEFT, RIGHT, AFTER, CALCULATED)

LIARS = frozenset(
    {"ANY", "approx", "Mock", "MagicMock", "NonCallableMock", "NonCallableMagicMock", "AsyncMock", "call"}
)
"""Names of library objects that equal more than themselves; a test that compares with one names it there."""

COMBINING = frozenset(
    {"max", "min", "sum", "divmod", "pow", "any", "all", "sorted", "filter", "map", "zip", "abs", "round"}
)
"""Built-in functions that compare or calculate with what they are given."""

COMBINING_MODULES = frozenset({"math", "cmath", "statistics", "operator", "itertools", "functools", "heapq", "bisect"})

PREDICATES = frozenset(
    "startswith endswith issubset issuperset isdisjoint isdigit isalpha isalnum isupper islower "
    "isspace isnumeric isdecimal isidentifier is_integer".split()
)
"""Methods that answer a question about their argument, as built-in types have them."""


@functools.lru_cache(maxsize=64)
def prepare(source: str, expected: tuple[str, ...]) -> dict[str, Any]:
    """Compile a hidden test. Raises SyntaxError or ValueError for a test that is no Python."""
    tree = ast.parse(source, TEST_FILE)
    names, modules, aliases = _imports(tree)
    mentioned = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    mentioned |= {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    plan: dict[str, Any] = {
        "needs_pytest": _needs_pytest(tree, expected),
        "solution_names": tuple(names),
        "solution_aliases": tuple(sorted(aliases)),
        "modules": tuple(sorted(modules)),
        "mentioned": frozenset(mentioned),
        "calls": _calls(tree),
        "call_sites": tuple(_call_sites(tree)),
    }
    guard = _Guard(set(names), aliases)
    plan["code"] = compile(ast.fix_missing_locations(guard.visit(tree)), TEST_FILE, "exec", dont_inherit=True)
    plan["asserts"] = tuple(guard.asserts)
    return plan


def _imports(tree: ast.Module) -> tuple[list[str], set[str], set[str]]:
    """Names taken from `solution`, other modules that are imported, and names that stand for the solution module."""
    names: list[str] = []
    modules: set[str] = set()
    aliases: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "solution":
            names += [a.name for a in node.names if a.name != "*" and a.name not in names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            modules.add(node.module)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "solution":
                    aliases.add(alias.asname or "solution")
                else:
                    modules.add(alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            names += [node.attr] if node.attr not in names else []
    return names, modules, aliases


def _needs_pytest(tree: ast.Module, expected: tuple[str, ...]) -> bool:
    """Whether anything but plain `test_*` functions is in the file."""
    if any("::" in test_id or "[" in test_id for test_id in expected):
        return True
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(a.name in ("pytest", "unittest") for a in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pytest":
            return True
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith(("setup_", "teardown_")):
                return True
            a = node.args
            if node.name.startswith("test") and (
                len(a.args) + len(a.posonlyargs) > len(a.defaults) or node.decorator_list
            ):
                return True
    return False


def _calls(tree: ast.Module) -> dict[str, list[tuple[int, tuple[str, ...]]]]:
    """How each name is called in the tests: number of positional arguments and the keywords."""
    calls: dict[str, list[tuple[int, tuple[str, ...]]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            shape = (len(node.args), tuple(k.arg for k in node.keywords if k.arg))
            if shape not in calls.setdefault(name, []):
                calls[name].append(shape)
    return calls


def _chain(node: ast.expr) -> tuple[str, ...] | None:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        start = _chain(node.value)
        return None if start is None else (*start, node.attr)
    return None


def _call_sites(tree: ast.Module) -> list[tuple[tuple[int | None, ...], tuple[str, ...], int, tuple[str, ...]]]:
    """Calls of plain names and attributes: position (line, end line, column, end column), callee, arguments."""
    sites: list[tuple[tuple[int | None, ...], tuple[str, ...], int, tuple[str, ...]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not any(isinstance(a, ast.Starred) for a in node.args):
            chain = _chain(node.func)
            if chain is not None and all(k.arg for k in node.keywords):
                where = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
                sites.append((where, chain, len(node.args), tuple(k.arg for k in node.keywords if k.arg)))
    return sites


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


class _Guard(ast.NodeTransformer):
    """Puts `vet` around what the tests compare, calculate with or test for truth."""

    def __init__(self, names: set[str], aliases: set[str]) -> None:
        self.names = names
        self.aliases = aliases
        self.asserts: list[str] = []
        self.operations = 0

    def _mentions_liar(self, node: ast.expr) -> bool:
        return any(
            (isinstance(n, ast.Name) and n.id in LIARS) or (isinstance(n, ast.Attribute) and n.attr in LIARS)
            for n in ast.walk(node)
        )

    def _vet(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.Lambda | ast.Starred):
            return node
        own = [ast.Constant(True)] if self._mentions_liar(node) else []
        return ast.copy_location(_call(VET, node, *own), node)

    def _operands(self, nodes: list[ast.expr]) -> tuple[list[ast.expr], ast.Constant]:
        """The operands of one operation with `left` and `right` around them, and the number that ties them together."""
        self.operations += 1
        number = ast.Constant(self.operations)
        out: list[ast.expr] = []
        for i, node in enumerate(nodes):
            own = ast.Constant(self._mentions_liar(node))
            rest = [own] if i == 0 else [own, ast.Constant(i < len(nodes) - 1)]
            out.append(ast.copy_location(_call(RIGHT if i else LEFT, number, node, *rest), node))
        return out, number

    def _truth(self, node: ast.expr) -> ast.expr:
        plain = (ast.Compare, ast.BoolOp, ast.Constant, ast.NamedExpr)
        guarded = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HELPERS
        if guarded or isinstance(node, plain) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return node
        return ast.copy_location(_call(TRUTH, node), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            return node
        operands, number = self._operands([node.left, *node.comparators])
        node.left, node.comparators = operands[0], operands[1:]
        return ast.copy_location(_call(AFTER, number, node), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant):
            return node
        (node.left, node.right), number = self._operands([node.left, node.right])
        return ast.copy_location(_call(CALCULATED, number, node), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        node.value = self._vet(node.value)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        node.operand = self._truth(node.operand) if isinstance(node.op, ast.Not) else self._vet(node.operand)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        node.values = [self._truth(v) for v in node.values]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        node.test = self._truth(node.test)
        return node

    def visit_If(self, node: ast.If) -> ast.stmt:
        self.generic_visit(node)
        node.test = self._truth(node.test)
        return node

    def visit_While(self, node: ast.While) -> ast.stmt:
        self.generic_visit(node)
        node.test = self._truth(node.test)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) and not any(isinstance(part, ast.Slice) for part in ast.walk(node.slice)):
            node.slice = self._vet(node.slice)
        return node

    def visit_Match(self, node: ast.Match) -> ast.stmt:
        self.generic_visit(node)
        node.subject = self._vet(node.subject)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        func = node.func
        if isinstance(func, ast.Name) and func.id in ("isinstance", "issubclass") and len(node.args) == 2:
            node.args = [ast.copy_location(_call(CLASSES, a), a) for a in node.args]
        elif self._combines(func):
            node.args = [self._vet(a) for a in node.args]
            for keyword in node.keywords:
                keyword.value = self._vet(keyword.value)
        elif isinstance(func, ast.Attribute) and func.attr in PREDICATES:
            func.value = ast.copy_location(_call(CALLEE, func.value, ast.Constant(func.attr)), func.value)
            node.args = [self._vet(a) for a in node.args]
        return node

    def _combines(self, func: ast.expr) -> bool:
        if isinstance(func, ast.Name):
            return func.id not in self.names and (func.id in COMBINING or func.id in LIARS or func.id == "isclose")
        if not isinstance(func, ast.Attribute):
            return False
        root = func.value.id if isinstance(func.value, ast.Name) else ""
        return root in COMBINING_MODULES or (func.attr.startswith("assert") and root not in self.aliases)

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        text = ast.unparse(node.test)
        self.generic_visit(node)
        node.test = self._truth(node.test)
        if node.msg is not None:
            return node
        self.asserts.append(text)
        node.msg = _call(SAY, ast.Constant(len(self.asserts) - 1))
        return node
