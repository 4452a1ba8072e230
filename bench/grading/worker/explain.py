"""Why a test failed, from the exception object and its frames; never from text that the solution printed."""

from __future__ import annotations

import difflib
import errno
import inspect
import sys
import types
from typing import Any

from .wire import TEST_FILE

MESSAGE_CHARS = 500
_FULL = (errno.EFBIG, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


def frames_of(error: BaseException) -> list[tuple[types.FrameType, int]]:
    """Frames from the outermost to the one that raised, with their lines."""
    out: list[tuple[types.FrameType, int]] = []
    tb = error.__traceback__
    while tb is not None and len(out) < 5000:
        out.append((tb.tb_frame, tb.tb_lineno))
        tb = tb.tb_next
    return out


def short(value: Any) -> str:
    """A bounded repr that cannot raise."""
    try:
        text = repr(value)
    except BaseException as error:  # the value may be the solution's
        text = f"<{type(value).__name__}: repr raised {type(error).__name__}>"
    return text if len(text) <= 120 else text[:117] + "..."


def headline(error: BaseException) -> str:
    """`Type: message` on one line, bounded."""
    try:
        text = str(error)
    except BaseException as second:  # an exception class of the solution
        text = f"<str raised {type(second).__name__}>"
    text = " ".join(text.split())
    name = type(error).__name__
    text = f"{name}: {text}" if text else name
    return text if len(text) <= MESSAGE_CHARS else text[: MESSAGE_CHARS - 3] + "..."


def public(owner: Any) -> list[str]:
    """What a module, class or object of the solution offers by name."""
    if isinstance(owner, types.ModuleType):
        return [
            n
            for n, v in vars(owner).items()
            if not n.startswith("_") and getattr(v, "__module__", None) == owner.__name__
        ]
    cls = owner if isinstance(owner, type) else type(owner)
    names = [n for base in cls.__mro__ if base is not object for n in vars(base) if not n.startswith("_")]
    if not isinstance(owner, type):
        names += [n for n in getattr(owner, "__dict__", {}) if not n.startswith("_")]
    return list(dict.fromkeys(names))


def signature_of(value: Any) -> inspect.Signature | None:
    """The signature, or None when there is none to see."""
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):
        return None


def accepts(value: Any, shapes: list[tuple[int, tuple[str, ...]]], skip: int) -> bool:
    """Whether a callable takes the arguments that the tests pass (`skip`: 1 for a method seen on its class)."""
    signature = signature_of(value)
    if signature is None:
        return False
    for count, keywords in shapes:
        try:
            signature.bind(*[None] * (count + skip), **dict.fromkeys(keywords))
        except TypeError:
            return False
    return True


def closest(owner: Any, missing: str, offered: list[str], calls: dict[str, Any]) -> list[str]:
    """Offered names that could stand for the missing one: of compatible signature, best first."""
    shapes = calls.get(missing, [])
    out = []
    for name in offered:
        if name in calls:
            continue  # the tests use it under its own name
        holder = owner if isinstance(owner, types.ModuleType | type) else type(owner)
        value = vars(holder).get(name) if isinstance(holder, types.ModuleType) else getattr(holder, name, None)
        method = isinstance(holder, type) and isinstance(inspect.getattr_static(holder, name, None), types.FunctionType)
        if shapes and not (callable(value) and accepts(value, shapes, 1 if method else 0)):
            continue
        if not shapes and value is not None and callable(value) and not isinstance(value, type):
            continue
        out.append((-difflib.SequenceMatcher(None, missing.lower(), name.lower()).ratio(), name))
    return [name for _, name in sorted(out)]


def failure(kind: str, message: str, line: int | None = None, **more: Any) -> dict[str, Any]:
    """One explanation."""
    return {
        "kind": kind,
        "message": message,
        "line": line,
        "missing": "",
        "owner": "",
        "offered": [],
        "near": [],
    } | more


def interface(owner: Any, missing: str, message: str, line: int | None, calls: dict[str, Any]) -> dict[str, Any]:
    """A name that the tests need and the solution lacks."""
    offered = public(owner)
    cls = owner if isinstance(owner, type) else type(owner)
    return failure(
        "interface",
        message,
        line,
        missing=missing,
        owner="" if isinstance(owner, types.ModuleType) else cls.__name__,
        offered=offered[:50],
        near=closest(owner, missing, offered, calls)[:10],
    )


def explain(
    error: BaseException, solution: Any, path: str, calls: dict[str, Any], loading: bool = False
) -> dict[str, Any]:
    """The kind of failure, its message and line; for `interface` also what is missing and what is offered."""
    frames = frames_of(error)
    ours = [(f, n) for f, n in frames if f.f_code.co_filename == TEST_FILE]
    line = ours[-1][1] if ours else None
    inner = frames[-1][0] if frames else None
    in_test = inner is not None and inner.f_code.co_filename == TEST_FILE
    message = headline(error)
    outcomes = sys.modules.get("_pytest.outcomes")
    skipped = getattr(outcomes, "Skipped", ()), getattr(sys.modules.get("unittest.case"), "SkipTest", ())
    if isinstance(error, tuple(s for s in skipped if s)):
        return failure("exited", f"skipped: {message}", line)
    if isinstance(error, SystemExit | KeyboardInterrupt | GeneratorExit):
        return failure("exited", message, line)
    if outcomes is not None and isinstance(error, outcomes.Exit):
        return failure("exited", message, line)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _FULL):
        return failure("resources", message, line)
    if isinstance(error, BlockingIOError) and not in_test:
        return failure("resources", message, line)  # fork: no more processes
    if (
        type(error) is RuntimeError
        and inner is not None
        and inner.f_code.co_filename == sys.modules["threading"].__file__
    ):
        return failure("resources", message, line)  # Thread.start: no more threads
    if isinstance(error, ImportError) and not in_test:
        return failure(
            "import", f"{message} (module {error.name})" if error.name else message, line, missing=error.name or ""
        )
    if loading:
        return failure("import", message, line)
    if outcomes is not None and isinstance(error, outcomes.Failed):
        return failure("assertion", message, line)
    if isinstance(error, AssertionError):
        library = inner is not None and inner.f_code.co_filename != path
        return failure("assertion" if library else "exception", message, line)
    if isinstance(error, AttributeError) and error.name and inner is not None:
        hook = inner.f_code.co_name in ("__getattr__", "__getattribute__") and len(frames) > 1
        by_test = in_test or (hook and frames[-2][0].f_code.co_filename == TEST_FILE)
        if by_test and belongs(error.obj, solution):
            return interface(error.obj, error.name, message, line, calls)
    if isinstance(error, TypeError) and in_test and inner is not None:
        mismatch = wrong_call(error, inner, path)
        if mismatch is not None:
            return failure("interface", message, line, missing=mismatch[0], owner=mismatch[1], offered=[mismatch[2]])
    return failure("exception", message, line)


def belongs(value: Any, solution: Any) -> bool:
    """Whether a value is the solution's module, a class of it, or an instance of one."""
    if value is solution:
        return True
    cls = value if isinstance(value, type) else type(value)
    return any(vars(base).get("__module__") == "solution" for base in cls.__mro__)


def wrong_call(error: TypeError, frame: types.FrameType, path: str) -> tuple[str, str, str] | None:
    """A call in the hidden test whose arguments the solution's callable does not take: name, owner, its signature.

    The call is found by the position of the failing instruction and the arguments by the names in the code; what
    cannot be told apart is left as an exception.
    """
    tb = error.__traceback__
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    if tb is None:
        return None
    positions = list(frame.f_code.co_positions())
    where = positions[tb.tb_lasti // 2]
    for node_where, chain, count, keywords in _CALL_SITES:
        if node_where != where:
            continue
        value: Any = frame.f_locals.get(chain[0], frame.f_globals.get(chain[0]))
        owner: Any = None
        for part in chain[1:]:
            owner, value = value, getattr(value, part, None)
        code = getattr(getattr(value, "__func__", value), "__code__", None)
        init = getattr(value, "__init__", None) if isinstance(value, type) else None
        code = code or getattr(init, "__code__", None)
        if not isinstance(value, type) and (code is None or code.co_filename != path):
            return None
        signature = signature_of(value)
        if signature is None:
            return None
        try:
            signature.bind(*[None] * count, **dict.fromkeys(keywords))
        except TypeError:
            wanted = ", ".join(["_"] * count + [f"{k}=" for k in keywords])
            name = chain[-1]
            return f"{name}({wanted})", "" if owner is None else type(owner).__name__, f"{name}{signature}"
        return None
    return None


_CALL_SITES: list[tuple[tuple[int | None, ...], tuple[str, ...], int, tuple[str, ...]]] = []


def set_call_sites(sites: Any) -> None:
    """The calls in the hidden tests by position, as `rewrite.prepare` found them."""
    _CALL_SITES[:] = sites
