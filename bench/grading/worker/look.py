"""A static look at a solution: what it would need to look into the grader. Marks, not a verdict."""

# ruff: noqa: SIM905  (long lists of names read better as text)

from __future__ import annotations

import ast

ATTRIBUTES = frozenset(
    "f_back f_locals f_globals f_builtins f_trace f_lineno tb_frame gi_frame cr_frame ag_frame co_consts cell_contents "
    "__globals__ __closure__ __subclasses__ _getframe _current_frames _current_exceptions settrace setprofile "
    "addaudithook get_objects get_referrers get_referents __builtins__ _exit addAuditHook monitoring".split()
)
"""Attributes that lead from a value to the frames, the code or the memory of others."""

MODULES = frozenset(
    "ctypes _ctypes linecache faulthandler _testcapi _testinternalcapi _xxsubinterpreters _interpreters tracemalloc "
    "_pytest bdb pdb".split()
)
"""Modules with no use in a solution but to look around."""

TEXTS = (
    "f_back",
    "f_locals",
    "f_globals",
    "co_consts",
    "tb_frame",
    "gi_frame",
    "__globals__",
    "__closure__",
    "__subclasses__",
    "_getframe",
    "get_objects",
    "get_referrers",
    "hidden_test",
    "/proc/",
)
"""The same names as text, for `getattr` and `eval`."""


def look(source: bytes) -> list[str]:
    """Marks such as `looks_into:f_back`; empty for a solution that does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    marks: set[str] = set()
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported[alias.asname or alias.name.split(".")[0]] = alias.name
                if alias.name.split(".")[0] in MODULES:
                    marks.add(f"imports:{alias.name}")
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module.split(".")[0] in MODULES:
                marks.add(f"imports:{module}")
            marks |= {f"looks_into:{a.name}" for a in node.names if a.name in ATTRIBUTES}
    docs = {id(d) for d in _docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if node.attr in ATTRIBUTES:
                marks.add(f"looks_into:{node.attr}")
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if isinstance(node.ctx, ast.Store | ast.Del) and owner in imported and owner != "self":
                marks.add(f"patches:{imported[owner]}.{node.attr}")
        elif isinstance(node, ast.Name) and node.id == "__builtins__":
            marks.add("looks_into:__builtins__")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in docs:
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            marks |= {f"mentions:{t}" for t in TEXTS if t in text}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
            target = node.args[0] if node.args else None
            if isinstance(target, ast.Name) and target.id in imported:
                marks.add(f"patches:{imported[target.id]}")
        elif isinstance(node, ast.FunctionDef) and node.name in ("__eq__", "__instancecheck__") and _says_yes(node):
            marks.add(f"always_true:{node.name}")
    return sorted(marks)


def _docstrings(tree: ast.Module) -> list[ast.Constant]:
    out = []
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            out.append(body[0].value)
    return out


def _says_yes(node: ast.FunctionDef) -> bool:
    body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return (
        len(body) == 1
        and isinstance(body[0], ast.Return)
        and isinstance(body[0].value, ast.Constant)
        and body[0].value.value is True
    )
