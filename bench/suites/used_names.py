"""Names that hidden tests use on a solution's objects, found in the syntax tree.

A test that calls `queue.set_result(...)` needs a solution with that name. If the prompt does not mention it, a right
solution can fail for its spelling alone. This follows, through the test file, every value that comes from the
`solution` module: classes, their instances, what their methods return, and containers of these. It knows no control
flow and takes a variable for everything that is ever bound to it, so it finds a name too much rather than too little.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from bench.suites import value_flow as flow
from bench.suites.value_flow import INSTANCE, NOTHING, OTHER, Function, Scope, Value, container, element, part, row

_Named = list[tuple[ast.keyword, Value]]


def unmentioned_names(hidden_test: str, prompt: str, reference: str) -> list[str]:
    """Names that the test uses on the solution and the prompt lacks as a word, in order of first use.

    Counted are imported names, attributes, keyword arguments of the solution's callables, and attribute names given
    as text (`getattr(queue, "x")`). Not counted are names with two underscores at both ends, and attributes of
    builtin types on values that the solution returned. The three arguments are source text; `reference` tells
    classes from functions.
    """
    used = _Reader(ast.parse(hidden_test), ast.parse(reference)).read()
    return [name for name in used if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", prompt)]


class _Reader:
    """Reads a test file again and again until nothing new is learnt about its variables."""

    def __init__(self, tree: ast.Module, reference: ast.Module) -> None:
        self._tree = tree
        self._solution_classes = {node.name for node in reference.body if isinstance(node, ast.ClassDef)}
        self._public = [
            node.name for node in reference.body if isinstance(node, Function | ast.ClassDef) and node.name[0] != "_"
        ]
        nodes = list(ast.walk(tree))
        self._functions = {flow.key_of(node): node for node in nodes if isinstance(node, Function | ast.Lambda)}
        self._classes = {flow.key_of(node): node for node in nodes if isinstance(node, ast.ClassDef)}
        self._fixtures = {
            node.name: key
            for key, node in self._functions.items()
            if isinstance(node, Function) and any("fixture" in ast.unparse(item) for item in node.decorator_list)
        }
        self._scopes: dict[int, Scope] = {}
        self._returned = Scope()
        self._attributes: dict[str, Scope] = {}
        """Key of a class of the test file -> what its attributes may be."""
        self._used: dict[str, tuple[int, int]] = {}
        self._changed = True

    def read(self) -> list[str]:
        """Names used on the solution, in the order of the file."""
        module = Scope()
        while self._changed:
            self._changed = False
            self._body(self._tree.body, module)
        return sorted(self._used, key=lambda name: self._used[name])

    # What is learnt

    def _use(self, name: str, node: ast.AST) -> None:
        if not (name.startswith("__") and name.endswith("__")):
            at = (getattr(node, "lineno", 0), getattr(node, "end_col_offset", 0))
            self._used[name] = min(at, self._used.get(name, at))

    def _bind(self, scope: Scope, name: str, value: Value) -> None:
        self._changed |= scope.bind(name, value)

    def _attribute(self, owner: Value, name: str, node: ast.AST) -> Value:
        """Note the use of an attribute, and say what it may be."""
        own = [self._attributes[key].values for key in owner.tests if key in self._attributes]
        result = NOTHING
        for values in own:
            result |= values.get(name, NOTHING)
        if any(name in values for values in own) or not owner.kinds:
            return result
        if owner.kinds & {"module", "class", "instance"} or ("other" in owner.kinds and name not in flow.OF_BUILTINS):
            self._use(name, node)
        if "module" in owner.kinds:
            return result | self._solution_name(name)
        return result | (OTHER if owner.kinds - {"function"} else NOTHING)

    def _solution_name(self, name: str) -> Value:
        is_class = name in self._solution_classes or name[:1].isupper()
        return Value(frozenset({"class" if is_class else "function"}))

    def _instance_of(self, key: str) -> Value:
        """An object of a class of the test file, which may inherit from one of the solution's."""
        bases = self._returned.get(key)
        return Value(frozenset({"instance"}) if "class" in bases.kinds else frozenset(), bases.tests | {key})

    def _assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        match target:
            case ast.Name():
                # In a function, a name that is not local is `global` or `nonlocal`.
                is_local = scope.own is None or scope.has(target.id)
                place = scope if is_local else scope.place(target.id)
                self._bind(place or scope, target.id, value)
            case ast.Starred():
                self._assign(target.value, value, scope)
            case ast.Tuple() | ast.List():
                starred = any(isinstance(item, ast.Starred) for item in target.elts)
                for i, item in enumerate(target.elts):
                    inner = element(value) if starred else part(value, i, len(target.elts))
                    self._assign(item, container(inner) if isinstance(item, ast.Starred) else inner, scope)
            case ast.Attribute():
                owner = self._value(target.value, scope)
                for key in owner.tests & self._classes.keys():
                    self._bind(self._attributes.setdefault(key, Scope()), target.attr, value)
                self._attribute(owner, target.attr, target)
            case ast.Subscript():
                self._value(target.slice, scope)
                if value:
                    self._put_in(target.value, container(value), scope)

    def _put_in(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """What is put into a container of the test file may come out of it. The solution's own are left alone."""
        if isinstance(target, ast.Subscript):
            self._put_in(target.value, container(value), scope)
        elif isinstance(target, ast.Attribute):
            owner = self._value(target.value, scope)
            for key in owner.tests & self._classes.keys():
                self._bind(self._attributes.setdefault(key, Scope()), target.attr, value)
        if not isinstance(target, ast.Name):
            return
        self._bind(scope.place(target.id) or scope, target.id, value)

    # Statements

    def _body(self, body: Iterable[ast.stmt], scope: Scope, owner: str = "") -> None:
        for statement in body:
            self._statement(statement, scope, owner)

    def _statement(self, node: ast.stmt, scope: Scope, owner: str) -> None:
        """Read a statement. `owner` is the key of the class of the test file in whose body it stands."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node, scope, owner)
            case ast.ClassDef():
                self._class(node, scope)
            case ast.Import():
                for alias in node.names:
                    if alias.name == "solution":
                        self._bind(scope, alias.asname or alias.name, Value(frozenset({"module"})))
            case ast.ImportFrom(module="solution"):
                for alias in node.names:
                    if alias.name != "*":
                        self._use(alias.name, alias)
                    for name in self._public if alias.name == "*" else [alias.name]:
                        self._bind(scope, alias.asname or name, self._solution_name(name))
            case ast.Assign():
                value = self._value(node.value, scope)
                for target in node.targets:
                    self._assign(target, value, scope)
            case ast.AnnAssign() | ast.AugAssign():
                if node.value is not None:
                    self._assign(node.target, self._value(node.value, scope), scope)
            case ast.For() | ast.AsyncFor():
                self._assign(node.target, element(self._value(node.iter, scope)), scope)
                self._body([*node.body, *node.orelse], scope, owner)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    value = self._value(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, value, scope)
                self._body(node.body, scope, owner)
            case ast.Return(value=ast.expr() as returned):
                self._bind(scope, "return", self._value(returned, scope))
            case ast.Match():
                subject = self._value(node.subject, scope)
                for case in node.cases:
                    self._case(case, subject, scope, owner)
            case ast.Try() | ast.TryStar():
                for handler in node.handlers:
                    value = self._value(handler.type, scope) if handler.type is not None else NOTHING
                    if handler.name:
                        # What an exception of the solution carries is the solution's, but `args` is Python's.
                        self._bind(scope, handler.name, OTHER if value.kinds else NOTHING)
                    self._body(handler.body, scope, owner)
                self._body([*node.body, *node.orelse, *node.finalbody], scope, owner)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.stmt):
                        self._statement(child, scope, owner)
                    elif isinstance(child, ast.expr):
                        self._value(child, scope)

    def _case(self, case: ast.match_case, subject: Value, scope: Scope, owner: str) -> None:
        for node in ast.walk(case.pattern):
            if isinstance(node, ast.MatchClass) and self._value(node.cls, scope).kinds:
                for name in node.kwd_attrs:
                    self._use(name, node)
            elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
                self._bind(scope, node.name, subject | element(subject))
        if case.guard is not None:
            self._value(case.guard, scope)
        self._body(case.body, scope, owner)

    def _function(self, node: Function, scope: Scope, owner: str) -> None:
        key = flow.key_of(node)
        # The body of a class is no scope for the functions in it.
        inner = self._scope(node, scope.outer if owner and scope.outer is not None else scope)
        for decorator in node.decorator_list:
            self._value(decorator, scope)
        positional = [*node.args.posonlyargs, *node.args.args]
        is_static = any(ast.unparse(decorator) == "staticmethod" for decorator in node.decorator_list)
        if owner and positional and not is_static:
            self._bind(inner, positional[0].arg, self._instance_of(owner))
        for argument in flow.parameters(node.args):
            if argument.arg in self._fixtures:
                self._bind(inner, argument.arg, self._returned.get(self._fixtures[argument.arg]))
        self._defaults(node.args, inner, scope)
        self._body(node.body, inner)
        self._bind(self._returned, key, inner.values.get("return", NOTHING))
        self._bind(scope, node.name, Value(tests=frozenset({key})))

    def _defaults(self, arguments: ast.arguments, inner: Scope, scope: Scope) -> None:
        positional = [*arguments.posonlyargs, *arguments.args]
        first = len(positional) - len(arguments.defaults)
        pairs = [*zip(positional[first:], arguments.defaults, strict=True)]
        pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
        for argument, default in pairs:
            self._bind(inner, argument.arg, self._value(default, scope))

    def _class(self, node: ast.ClassDef, scope: Scope) -> None:
        key = flow.key_of(node)
        bases = NOTHING
        for base in node.bases:
            bases |= self._value(base, scope)
        self._bind(self._returned, key, Value(bases.kinds & {"class"}, bases.tests))
        self._bind(scope, node.name, Value(bases.kinds & {"class"}, bases.tests | {key}))
        inner = self._scope(node, scope)
        self._body(node.body, inner, key)
        attributes = self._attributes.setdefault(key, Scope())
        for name, value in inner.values.items():
            self._bind(attributes, name, value)

    def _scope(self, node: Function | ast.ClassDef | ast.Lambda, outer: Scope) -> Scope:
        own = None if isinstance(node, ast.ClassDef) else flow.local_names(node)
        return self._scopes.setdefault(id(node), Scope(outer, own))

    # Expressions

    def _value(self, node: ast.expr, scope: Scope) -> Value:
        """What an expression may be; the uses in it are noted."""
        match node:
            case ast.Name():
                return scope.get(node.id)
            case ast.Attribute():
                return self._attribute(self._value(node.value, scope), node.attr, node)
            case ast.Call():
                return self._call(node, scope)
            case ast.NamedExpr():
                value = self._value(node.value, scope)
                self._assign(node.target, value, scope)
                return value
            case ast.Lambda():
                inner = self._scope(node, scope)
                self._defaults(node.args, inner, scope)
                self._bind(self._returned, flow.key_of(node), self._value(node.body, inner))
                return Value(tests=frozenset({flow.key_of(node)}))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for generator in node.generators:
                    self._assign(generator.target, element(self._value(generator.iter, scope)), scope)
                    for condition in generator.ifs:
                        self._value(condition, scope)
                if isinstance(node, ast.DictComp):
                    self._value(node.key, scope)
                    return container(self._value(node.value, scope))
                return container(self._value(node.elt, scope))
            case ast.Tuple() | ast.List() if not any(isinstance(item, ast.Starred) for item in node.elts):
                return row([self._value(item, scope) for item in node.elts])
            case ast.Dict():
                held = NOTHING
                for key, item in zip(node.keys, node.values, strict=True):
                    if key is not None:
                        self._value(key, scope)
                    held |= self._value(item, scope) if key is not None else element(self._value(item, scope))
                return container(held)
            case ast.Tuple() | ast.List() | ast.Set():
                held = NOTHING
                for item in node.elts:
                    value = self._value(item, scope)
                    held |= element(value) if isinstance(item, ast.Starred) else value
                return container(held)
            case ast.Subscript():
                self._value(node.slice, scope)
                value = self._value(node.value, scope)
                if isinstance(node.slice, ast.Slice):
                    return container(element(value))
                if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int) and value.parts:
                    return part(value, node.slice.value % len(value.parts), len(value.parts))
                return element(value)
            case ast.Yield(value=ast.expr() as given) | ast.YieldFrom(value=given):
                self._bind(scope, "return", container(value := self._value(given, scope)) | value)
                return NOTHING
        # Displays, conditions, operators, `await`, `*x`: may be, or hold, each of their parts.
        result = NOTHING
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                result |= self._value(child, scope)
        return NOTHING if isinstance(node, ast.Compare | ast.JoinedStr | ast.FormattedValue) else result

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        called = self._value(node.func, scope)
        given = [self._value(argument, scope) for argument in node.args]
        named = [(keyword, self._value(keyword.value, scope)) for keyword in node.keywords]
        name = flow.callee_name(node.func)
        result = NOTHING
        for key in called.tests:
            result |= self._call_test(key, node, given, named)
        owner = self._value(node.func.value, scope) if isinstance(node.func, ast.Attribute) else NOTHING
        of_builtin = owner.kinds == {"other"} and name in flow.OF_BUILTINS
        if called.kinds and not of_builtin:
            for keyword, _ in named:
                if keyword.arg is not None:
                    self._use(keyword.arg, keyword)
            return result | (INSTANCE if "class" in called.kinds else OTHER)
        texts = [a.value if isinstance(a, ast.Constant) and isinstance(a.value, str) else None for a in node.args]
        if name in flow.BY_TEXT and len(given) > 1 and texts[1]:
            self._assign_text(name, node, given, texts[1])
            return result | self._attribute(given[0], texts[1], node.args[1])
        if name in flow.IMPORTS and texts and (texts[0] == "solution" or "module" in given[0].kinds):
            return Value(frozenset({"module"}))
        if isinstance(node.func, ast.Call) and given and flow.callee_name(node.func.func) in flow.GETTERS:
            for argument in node.func.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    return self._attribute(given[0], argument.value, argument)
        if name in flow.SAME:
            for value in given[:2] if name == "cast" else given[:1]:
                result |= value
        elif name == "zip":
            result |= container(row([element(value) for value in given]))
        elif name in flow.COLLECT or name in flow.TAKE or name in ("items", "enumerate"):
            held = NOTHING
            for value in [owner, *given]:
                held |= element(value)
            if name in flow.COLLECT:
                held = container(held)
            elif name not in flow.TAKE:
                held = container(row([NOTHING, held]))
            elif len(given) > 1:
                # `max(a, b)`, and the default of `d.get(key, default)`.
                held |= given[0] | given[-1]
            result |= held
        if isinstance(node.func, ast.Attribute) and name in flow.PUTS_IN:
            for value in [*given, *(value for _, value in named)]:
                if value:
                    held = value if name in ("extend", "update") else container(value)
                    self._put_in(node.func.value, held, scope)
        return result

    def _assign_text(self, name: str, node: ast.Call, given: list[Value], attribute: str) -> None:
        """`setattr` on an object of the test file's own classes."""
        if name == "setattr" and len(node.args) > 2:
            for key in given[0].tests & self._classes.keys():
                self._bind(self._attributes.setdefault(key, Scope()), attribute, given[2])

    def _call_test(self, key: str, node: ast.Call, given: list[Value], named: _Named) -> Value:
        """A call of a function or class of the test file: its parameters may be what is given here."""
        function = self._functions.get(key)
        result = self._returned.get(key)
        skip = 0
        if key in self._classes:
            items = self._classes[key].body
            function = next((item for item in items if isinstance(item, Function) and item.name == "__init__"), None)
            skip, result = 1, self._instance_of(key)
        elif isinstance(node.func, ast.Attribute):
            skip = 1
        inner = self._scopes.get(id(function))
        if function is None or inner is None:
            return result
        positional = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)][skip:]
        rest = [function.args.vararg.arg] if function.args.vararg else []
        for i, value in enumerate(given):
            if any(isinstance(item, ast.Starred) for item in node.args[: i + 1]):
                value = element(value) if isinstance(node.args[i], ast.Starred) else value
                for name in positional[i:]:
                    self._bind(inner, name, value)
            elif i < len(positional):
                self._bind(inner, positional[i], value)
                continue
            for name in rest:
                self._bind(inner, name, container(value))
        others = [function.args.kwarg.arg] if function.args.kwarg else []
        for keyword, value in named:
            if keyword.arg is not None and inner.has(keyword.arg):
                self._bind(inner, keyword.arg, value)
            else:
                for name in others:
                    self._bind(inner, name, container(value))
        return result
