"""Reading model-written Python without running it: does it parse, what does it bind, what does it lack.

Everything here works on hostile text: sizes are bounded, warnings are silent, and the parser's own refusals
(recursion, memory, null bytes, lone surrogates) all mean "does not parse".
"""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

MAX_PARSE = 200_000
"""Longest code that is parsed, characters. Longer code is taken as it is."""
_BUDGET = 4_000_000
"""Characters parsed for one answer, all attempts together."""

_BUILTINS = frozenset(dir(builtins)) | {"__file__", "__annotations__", "__builtins__", "__path__", "__debug__"}
_MODULE_DUNDERS = frozenset({"__name__", "__doc__", "__spec__", "__loader__", "__package__"})
_REFUSALS = (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError)

# warnings.catch_warnings changes the process's filters: one thread at a time.
_WARNINGS = threading.Lock()


class Binding(IntEnum):
    """How a module-level name comes to be; a higher one is the better evidence that the name is defined here."""

    FOREIGN_IMPORT = 1
    STUB = 2
    IMPORT = 3
    ASSIGNED = 4
    DEFINED = 5


@dataclass(frozen=True)
class Statement:
    """A module-level statement, compound ones with all that is in them."""

    node: ast.stmt
    first: int
    """Line it starts on, from 1, decorators included."""
    last: int
    binds: dict[str, Binding]

    @property
    def only_binds(self) -> bool:
        """Whether it is a definition, an import or an assignment, and so harmless to take along."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
        if isinstance(self.node, (*kinds, ast.Assign, ast.AnnAssign)):
            return True
        if isinstance(self.node, ast.Expr):
            return isinstance(self.node.value, ast.Constant)
        return isinstance(self.node, (ast.Try, ast.If)) and bool(self.binds)

    def names(self) -> set[str]:
        """Every name that occurs in it."""
        return {n.id for n in ast.walk(self.node) if isinstance(n, ast.Name)}


@dataclass(frozen=True)
class Module:
    """Code that parses."""

    text: str
    tree: ast.Module

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        out = []
        for node in self.tree.body:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            binds: dict[str, Binding] = {}
            for name, how in _bound([node]):
                binds[name] = max(how, binds.get(name, how))
            out.append(Statement(node, first, node.end_lineno or node.lineno, binds))
        return tuple(out)

    @cached_property
    def binds(self) -> dict[str, Binding]:
        """Module-level names, each with the best way in which it is bound."""
        out: dict[str, Binding] = {}
        for statement in self.statements:
            for name, how in statement.binds.items():
                out[name] = max(how, out.get(name, how))
        return out

    @property
    def only_binds(self) -> bool:
        """Whether running it does nothing but define names."""
        return all(s.only_binds for s in self.statements)

    @cached_property
    def missing(self) -> set[str]:
        """Module-level names that it uses and does not bind, or uses while loading before it binds them."""
        lacking = _global_names(self.text) - set(self.binds)
        so_far: set[str] = set()
        for statement in self.statements:
            if not isinstance(statement.node, (ast.If, ast.Try, ast.For, ast.While, ast.With)):
                lacking |= (_eager_names(statement.node) & set(self.binds)) - so_far
            so_far |= set(statement.binds)
        return {n for n in lacking if n not in _BUILTINS and n not in _MODULE_DUNDERS}

    def cut(self, wanted: Iterable[str]) -> tuple[str, set[str]]:
        """The lines of the statements that bind `wanted` and what those use in turn, and the names they bind."""
        chosen: set[int] = set()
        todo, seen = set(wanted), set()
        while todo:
            name = todo.pop()
            seen.add(name)
            for i, statement in enumerate(self.statements):
                if name in statement.binds and i not in chosen:
                    chosen.add(i)
                    todo |= (statement.names() & set(self.binds)) - seen
        lines = self.text.split("\n")
        keep = sorted({n for i in chosen for n in range(self.statements[i].first, self.statements[i].last + 1)})
        names = {n for i in chosen for n in self.statements[i].binds}
        return "".join(lines[n - 1] + "\n" for n in keep), names


class Reader:
    """Parses for one answer: remembers what it has seen, and stops parsing when the budget is spent."""

    def __init__(self, budget: int = _BUDGET) -> None:
        self._left = budget
        self._seen: dict[str, Module | None] = {}

    def module(self, text: str) -> Module | None:
        """The code as a module, or None: it does not parse, is longer than MAX_PARSE, or the budget is spent."""
        if text in self._seen:
            return self._seen[text]
        if len(text) > MAX_PARSE or len(text) > self._left:
            return None
        self._left -= len(text)
        tree = _quiet_parse(text)
        found = None if tree is None else Module(text, tree)
        self._seen[text] = found
        return found

    def parses(self, text: str) -> bool:
        return self.module(text) is not None


def _quiet_parse(text: str) -> ast.Module | None:
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except _REFUSALS:
            return None


def _global_names(text: str) -> set[str]:
    """Names that any scope of the code looks up in the module."""
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            top = symtable.symtable(text, "answer", "exec")
        except _REFUSALS:
            return set()
    out: set[str] = set()
    todo = [top]
    while todo:
        scope = todo.pop()
        todo += scope.get_children()
        at_module = scope.get_type() == "module"
        out |= {s.get_name() for s in scope.get_symbols() if s.is_referenced() and (at_module or s.is_global())}
    return out


def _eager_names(node: ast.AST) -> set[str]:
    """Names that are looked up while the statement itself runs: not those in the bodies of its functions."""
    out: set[str] = set()
    todo: list[ast.AST] = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            todo += [*one.decorator_list, *one.args.defaults, *(d for d in one.args.kw_defaults if d)]
        elif isinstance(one, ast.Lambda):
            todo += [*one.args.defaults, *(d for d in one.args.kw_defaults if d)]
        elif isinstance(one, ast.Name):
            if isinstance(one.ctx, ast.Load):
                out.add(one.id)
        else:
            todo += ast.iter_child_nodes(one)
    return out


def _bound(body: list[ast.stmt]) -> Iterator[tuple[str, Binding]]:
    todo = list(reversed(body))
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, Binding.STUB if _is_stub(node) else Binding.DEFINED
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], _import_kind(alias.name)
        elif isinstance(node, ast.ImportFrom):
            how = _import_kind(node.module or "") if not node.level else Binding.FOREIGN_IMPORT
            for alias in node.names:
                yield alias.asname or alias.name, how
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            if node.value is not None:
                how = Binding.DEFINED if isinstance(node.value, ast.Lambda) else Binding.ASSIGNED
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    yield from ((n, how) for n in _stored(target))
        elif isinstance(node, ast.If) and _is_main_guard(node.test):
            todo += reversed(node.orelse)
        elif isinstance(node, (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith)):
            for part in ("target", "items"):
                for one in _as_list(getattr(node, part, [])):
                    yield from ((n, Binding.ASSIGNED) for n in _stored(one))
            for handler in getattr(node, "handlers", []):
                todo += reversed(handler.body)
            for part in ("finalbody", "orelse", "body"):
                todo += reversed(getattr(node, part, []))
        elif isinstance(node, ast.Match):
            for case in node.cases:
                todo += reversed(case.body)
        elif hasattr(ast, "TypeAlias") and isinstance(node, ast.TypeAlias):
            yield node.name.id, Binding.ASSIGNED


def _as_list(value: object) -> list[ast.AST]:
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, ast.AST)]


def _stored(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _import_kind(module: str) -> Binding:
    top = module.partition(".")[0]
    return Binding.IMPORT if top in sys.stdlib_module_names else Binding.FOREIGN_IMPORT


def _is_main_guard(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(test))
        and any(isinstance(n, ast.Constant) and n.value == "__main__" for n in ast.walk(test))
        and isinstance(test.ops[0], ast.Eq)
    )


def _is_stub(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Whether the body says nothing: `...`, `pass`, a docstring, `raise NotImplementedError`."""
    body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if isinstance(node, ast.ClassDef):
        # `class QueueError(Exception): pass` says all there is to say.
        if node.bases or node.decorator_list:
            return False
        functions = [s for s in body if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef))]
        if functions and len(functions) == len(body):
            return all(_is_stub(f) for f in functions)
        return all(isinstance(s, ast.Pass) for s in body)
    return all(isinstance(s, ast.Pass) or _raises_not_implemented(s) for s in body)


def _raises_not_implemented(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    what = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(what, ast.Name) and what.id == "NotImplementedError"
