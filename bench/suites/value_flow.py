"""What is known of a value while a test file is read: where it may come from, and in which scope it is bound."""

from __future__ import annotations

import ast
import collections
from collections.abc import Iterable
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef

_BUILTIN_TYPES: tuple[type, ...] = (
    *(list, dict, set, frozenset, tuple, str, bytes, bytearray, int, float, bool),
    *(BaseException, type, object, property, collections.deque, collections.OrderedDict, collections.Counter),
    *(type(iter([])), type(_ for _ in ()), type({}.keys()), type({}.items()), type(len), type(lambda: 0)),
)
OF_BUILTINS = frozenset(name for kind in _BUILTIN_TYPES for name in dir(kind))
"""Attributes of what a solution's function may well return: not names that the solution has to define."""


COLLECT = frozenset(("list", "tuple", "set", "frozenset", "dict", "sorted", "reversed", "iter", "filter", "deque"))
COLLECT |= {"chain", "islice", "values", "cycle", "product", "permutations", "combinations"}
"""Functions and methods that give a container of the elements of what they were given or called on."""
TAKE = frozenset(("next", "max", "min", "get", "get_nowait", "pop", "popleft", "popitem", "setdefault", "choice"))
"""The same, for one element."""
SAME = frozenset(("copy", "deepcopy", "cast", "partial"))
"""Functions that give back what they were given."""
PUTS_IN = frozenset(["append", "appendleft", "add", "extend", "insert", "put", "put_nowait", "setdefault", "update"])
"""Methods after which their object holds what they were given."""
BY_TEXT = frozenset(["getattr", "hasattr", "setattr", "delattr", "getattr_static", "object"])
"""Functions that take an object and an attribute's name as text (`object` is `mock.patch.object`)."""
GETTERS = frozenset(["attrgetter", "methodcaller"])
IMPORTS = frozenset(["import_module", "importorskip", "__import__", "reload"])

_MAX_DEPTH = 4
_MAX_CHANGES = 12


@dataclass(frozen=True)
class Value:
    """What an expression may be, as far as it comes from the solution or from the test file's own code."""

    kinds: frozenset[str] = frozenset()
    """`module`, `class`, `instance`, `function`, or `other`: returned by the solution, of unknown type."""
    tests: frozenset[str] = frozenset()
    """Keys of functions and classes of the test file that it, or its type, may be."""
    items: Value | None = None
    """What it holds, where it is a container."""
    parts: tuple[Value, ...] | None = None
    """What it holds at each position, where it is a tuple or list of known length; `()` for several lengths."""

    def __or__(self, other: Value) -> Value:
        items, parts = self.items, self.parts or other.parts
        if other.items is not None:
            items = other.items if items is None else items | other.items
        if self.parts is not None and other.parts is not None:
            if len(self.parts) == len(other.parts) > 0:
                parts = tuple(a | b for a, b in zip(self.parts, other.parts, strict=True))
            else:
                parts = ()
                for part in (*self.parts, *other.parts):
                    items = part if items is None else items | part
        return Value(self.kinds | other.kinds, self.tests | other.tests, items, parts)

    def __bool__(self) -> bool:
        return bool(self.kinds or self.tests or self.items or any(self.parts or ()))


NOTHING = Value()
INSTANCE = Value(frozenset({"instance"}))
OTHER = Value(frozenset({"other"}))


@dataclass
class Scope:
    """Variables of a function, class body or module; what is not here is looked up further out."""

    outer: Scope | None = None
    own: frozenset[str] | None = None
    """Names that are local to a function, so that an outer variable of the same name is another one."""
    values: dict[str, Value] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Whether the name is bound here."""
        return name in self.values or (self.own is not None and name in self.own)

    def get(self, name: str) -> Value:
        """What a variable may be."""
        place = self.place(name)
        return NOTHING if place is None else place.values.get(name, NOTHING)

    def place(self, name: str) -> Scope | None:
        """The scope in which a variable is found; None where there is none."""
        scope: Scope | None = self
        while scope is not None and not scope.has(name):
            scope = scope.outer
        return scope

    def bind(self, name: str, value: Value) -> bool:
        """Let the variable be this, too. True when that was not known before."""
        old = self.values.get(name)
        new = value | (old or NOTHING)
        if self.changes.get(name, 0) > _MAX_CHANGES:
            # It holds itself, or something like that: from here on only what is in it counts, not how it is nested.
            leaves = _leaves(new)
            new = Value(leaves.kinds, leaves.tests, leaves)
        if new == old:
            return False
        self.values[name] = new
        self.changes[name] = self.changes.get(name, 0) + 1
        return True


def key_of(node: Function | ast.ClassDef | ast.Lambda) -> str:
    """What a function or class of the test file is called here; several may have one name."""
    return f"{getattr(node, 'name', 'lambda')} at {node.lineno}:{node.col_offset}"


def element(value: Value) -> Value:
    """Any element of what may be a container. What an object of the solution yields may be anything of its own."""
    result = OTHER if value.kinds else NOTHING
    for part in (value.items or NOTHING, *(value.parts or ())):
        result |= part
    return result


def part(value: Value, position: int, length: int) -> Value:
    """The element at a position, when a value is unpacked into `length` variables."""
    if value.parts is None or len(value.parts) != length:
        return element(value)
    return value.parts[position] | element(Value(value.kinds, items=value.items))


def container(value: Value) -> Value:
    """A container of such elements."""
    return Value(items=_shallow(value)) if value else NOTHING


def row(values: Iterable[Value]) -> Value:
    """A tuple or list of these."""
    parts = tuple(_shallow(value) for value in values)
    return Value(parts=parts) if any(parts) else NOTHING


def _shallow(value: Value) -> Value:
    """The value, without a nesting so deep that a variable which holds itself would be learnt about for ever."""
    return value if _depth(value) < _MAX_DEPTH else Value(_leaves(value).kinds, _leaves(value).tests)


def _depth(value: Value) -> int:
    return max([1 + _depth(inner) for inner in (*([value.items] if value.items else []), *(value.parts or ()))] or [0])


def _leaves(value: Value) -> Value:
    result = Value(value.kinds, value.tests)
    for inner in (*([value.items] if value.items else []), *(value.parts or ())):
        result |= _leaves(inner)
    return result


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters of a function."""
    return [node for node in ast.walk(arguments) if isinstance(node, ast.arg)]


def local_names(node: Function | ast.Lambda) -> frozenset[str]:
    """Names that are local to a function: parameters and what it binds, but for `global` and `nonlocal`."""
    names = {argument.arg for argument in parameters(node.args)}
    free: set[str] = set()
    todo: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
    while todo:
        item = todo.pop()
        if isinstance(item, ast.Global | ast.Nonlocal):
            free |= set(item.names)
        elif isinstance(item, Function | ast.ClassDef):
            names.add(item.name)
        elif not isinstance(item, ast.Lambda):
            if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
                names.add(item.id)
            todo += ast.iter_child_nodes(item)
    return frozenset(names - free)


def callee_name(func: ast.expr) -> str:
    """The last part of a callee's name."""
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
