"""What a hidden test may compare. A value whose class the solution defines may not bring its own comparison.

`guards` returns the functions that the rewritten tests call. They end the grade at once when they find trickery, so
nothing that the solution or the test catches can hide it. They look at classes through the slots of `type` itself,
because `__class__`, `__mro__` and `__dict__` can be made to lie.
"""

# ruff: noqa: SIM905  (long lists of names read better as text)

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import itertools
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

from .rewrite import AFTER, CALCULATED, CALLEE, CLASSES, LEFT, RIGHT, SAY, TRUTH, VET
from .wire import TEST_FILE

_ATOMS = frozenset(
    {int, float, complex, bool, str, bytes, bytearray, type(None), type(NotImplemented), range, type(...)}
)
_HEAP_TYPE = 1 << 9

COMPARISON = tuple(
    f"__{name}__"
    for name in (
        "eq ne lt le gt ge contains add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow "
        "and rand or ror xor rxor lshift rlshift rshift rrshift matmul rmatmul iadd isub imul iand ior ixor "
        "neg pos abs invert round divmod rdivmod class"
    ).split()
)
"""Methods by which a value takes part in a comparison or a calculation."""

TRUTH_METHODS = ("__bool__", "__len__", "__class__")
CLASS_CHECKS = ("__instancecheck__", "__subclasscheck__", "__eq__", "__ne__", "__hash__", "__class__", "__mro__")


def _both(items: Any) -> Any:
    return itertools.chain(dict.keys(items), dict.values(items))


_CONTAINERS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (list, list.__iter__),
    (tuple, tuple.__iter__),
    (dict, _both),
    (set, set.__iter__),
    (frozenset, frozenset.__iter__),
    (collections.deque, collections.deque.__iter__),
    (type({}.keys()), iter),
    (type({}.values()), iter),
    (type({}.items()), iter),
    (slice, lambda s: iter((s.start, s.stop, s.step))),
    (types.GenericAlias, lambda g: iter((g.__origin__, g.__args__))),
    (types.MappingProxyType, lambda m: iter(gc.get_referents(m))),
)
_PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
_OWN_DICT = type.__dict__["__dict__"]
_OWN_MRO = type.__dict__["__mro__"]
_OWN_FLAGS = type.__dict__["__flags__"]


def opaque(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function as an object of C that shows neither its code, nor its globals, nor what it closes over.

    The tests' names are reachable from any callback that a test hands to the solution; what stands behind them is not
    without frames or the collector, and those are watched. (It is `lru_cache` of size 0, which caches nothing.)
    """
    return functools._lru_cache_wrapper(function, 0, False, tuple)  # type: ignore[call-arg]


def guards(
    trip: Callable[[str], None],
    mark: Callable[[str], None],
    note: Callable[[str], None],
    named: Callable[[], tuple[type, ...]],
    library: tuple[str, ...],
) -> dict[str, Callable[..., Any]]:
    """The functions behind the guard names of `rewrite`.

    `trip` ends the grade as tampering, `mark` marks it and returns, `note` records a coroutine, `named` gives the
    classes that the tests import from the solution by name, `library` the folders of the interpreter's own modules.
    """
    make_dataclass, field, fields, get_object = (
        dataclasses.make_dataclass,
        dataclasses.field,
        dataclasses.fields,
        object,
    )
    atoms, containers, proxies, coroutine = _ATOMS, _CONTAINERS, _PROXIES, types.CoroutineType
    own_dict, own_mro, own_flags = _OWN_DICT.__get__, _OWN_MRO.__get__, _OWN_FLAGS.__get__
    function, descriptors = types.FunctionType, (types.WrapperDescriptorType, types.MethodDescriptorType)
    member, getset = types.MemberDescriptorType, types.GetSetDescriptorType
    comparison, truth_names, class_checks = COMPARISON, TRUTH_METHODS, CLASS_CHECKS
    namespace, heap, test_file, local = types.SimpleNamespace, _HEAP_TYPE, TEST_FILE, threading.local()
    get_interval, set_interval = sys.getswitchinterval, sys.setswitchinterval
    usual = get_interval()
    no_classes: frozenset[type] = frozenset()
    whole = random.Random(0x5EED).getrandbits

    def provider(cls: type, name: str) -> type | None:
        for base in own_mro(cls):
            if name in own_dict(base):
                found: type = base
                return found
        return None

    def generated(cls: type, entry: Any) -> bool:
        """Whether `__eq__` (or an order) is exactly what @dataclass writes for the fields of this class."""
        if "__dataclass_params__" not in own_dict(cls) or entry.__code__.co_freevars:
            return False
        names = [(f.name, Any, field(compare=True)) for f in fields(cls) if f.compare]
        twin = make_dataclass("Twin", names, order=True)
        code, model = entry.__code__, getattr(twin, entry.__name__, None)
        if not isinstance(model, function) or entry.__defaults__ or entry.__kwdefaults__:
            return False
        other = model.__code__
        return bool(
            code.co_code == other.co_code and code.co_names == other.co_names and code.co_consts == other.co_consts
        )

    def foreign(cls: type, names: tuple[str, ...]) -> str | None:
        """The first of these methods that is written by the solution; None when there is none."""
        if not own_flags(cls) & heap:
            return None
        for name in names:
            base = provider(cls, name)
            if base is None or not own_flags(base) & heap:
                continue
            entry = own_dict(base)[name]
            kind = type(entry)
            if entry is None or (kind in descriptors and entry.__objclass__ is base):
                continue
            if kind in (member, getset) and entry.__objclass__ is base:
                continue
            if kind is function:
                file = entry.__code__.co_filename
                if file.startswith(library) or file == test_file or generated(base, entry):
                    continue
            return name
        return None

    def liar(cls: type) -> bool:
        module = own_dict(cls).get("__module__", "") if own_flags(cls) & heap else ""
        return type(module) is str and module in ("unittest.mock", "mock", "_pytest.python_api", "_pytest.approx")

    def equals_junk(value: Any, cls: Any) -> bool:
        """Whether a class that the tests name says yes to values that nothing can equal."""
        for junk in (get_object(), whole(62), hex(whole(90)), (get_object(),), 0.1 + whole(40), [get_object()], None):
            try:
                if cls.__eq__(value, junk) is True:
                    return True
            except BaseException:  # the class's own code: an error is an honest answer
                continue
        return False

    def describe(cls: type, name: str) -> str:
        return f"{type.__dict__['__name__'].__get__(cls)}.{name}"

    def is_named(cls: type) -> bool:
        classes = named()
        return any(base in classes for base in own_mro(cls))

    def inspect(value: Any, own: bool) -> frozenset[type]:
        """Look at a value at any depth; return the classes with a comparison of their own that the tests ask for."""
        if type(value) in atoms:
            return no_classes
        asked: set[type] = set()
        seen: dict[int, Any] = {}  # holds the items: an id is used again once its object is gone
        todo = [value]
        while todo:
            item = todo.pop()
            cls = type(item)
            if cls in atoms or id(item) in seen:
                continue
            seen[id(item)] = item
            if cls is coroutine:
                note("returned_coroutine")
                continue
            if cls in proxies:
                trip("weakref.proxy")
            if not own and any(liar(base) for base in own_mro(cls)):
                trip(describe(cls, "__eq__"))
            bad = foreign(cls, comparison)
            if bad is not None:
                if bad == "__class__" or not is_named(cls) or equals_junk(item, cls):
                    trip(describe(cls, bad))
                asked.add(cls)
            if type(cls) is not type:
                worse = foreign(type(cls), class_checks)
                if worse is not None:
                    trip(describe(cls, f"metaclass.{worse}"))
            if type in own_mro(cls):
                continue  # a class: compared by identity, its metaclass was looked at
            for base, walk in containers:
                if base in own_mro(cls):
                    if not atoms.issuperset(map(type, walk(item))):
                        todo.extend(walk(item))
                    break
            decides = provider(cls, "__eq__")
            if cls is namespace or (decides is not None and own_flags(decides) & heap):
                todo.extend(attributes(item, cls))
        return frozenset(asked)

    def vet(value: Any, own: bool = False) -> Any:
        inspect(value, own)
        return value

    # An operation of two operands is guarded in three steps: `left` and `right` around the operands, `after` around the
    # whole. Entries that an exception left on the stack lie above the one that is looked for, and go with it.

    def stack() -> list[list[Any]]:
        try:
            entries: list[list[Any]] = local.entries
        except AttributeError:
            entries = local.entries = []
        return entries

    def left(number: int, value: Any, own: bool = False) -> Any:
        stack().append([number, value, own, False, None])
        return value

    def right(number: int, value: Any, own: bool = False, more: bool = False) -> Any:
        entries = stack()
        while entries[-1][0] != number:
            entries.pop()
        entry = entries[-1]
        # Other threads wait while the operands are looked at and compared: what was seen is what is compared.
        set_interval(0.2)
        mine, other = inspect(entry[1], entry[2]), inspect(value, own)
        if mine != other and not empty(entry[1]) and not empty(value):
            entry[3] = True
        entry[4] = (entry[1], value)
        if more:
            entry[1], entry[2] = value, own
        return value

    def empty(value: Any) -> bool:
        return value is None or (type(value) in (list, tuple, dict, set, frozenset) and not value)

    def after(number: int, result: Any) -> Any:
        """The result of a comparison. It may be true only between classes that the tests know, or plain values."""
        entries = stack()
        while entries[-1][0] != number:
            entries.pop()
        _, _, _, mixed, sides = entries.pop()
        set_interval(usual)
        local.sides = sides if result is False else None
        if mixed and result is not False:
            trip("a class of the solution that says it equals a value of another kind")
        return result if type(result) is bool else truth(result)

    def calculated(number: int, result: Any) -> Any:
        """The result of a calculation. A plain number out of the solution's own class and a value is marked."""
        entries = stack()
        while entries[-1][0] != number:
            entries.pop()
        mixed = entries.pop()[3]
        set_interval(usual)
        if mixed and not is_named(type(result)):
            mark("own_arithmetic")
        return result

    def say(number: int) -> str:
        """Keep which assertion failed. The exception has no text: a solution that called a callback could read it."""
        local.said = (number, getattr(local, "sides", None))
        return ""

    def last_said() -> tuple[int, Any] | None:
        found: tuple[int, Any] | None = getattr(local, "said", None)
        local.said = local.sides = None
        return found

    def attributes(item: Any, cls: type) -> list[Any]:
        """Values in the instance dictionary and the slots, read past the class's own methods."""
        found: list[Any] = []
        for base in own_mro(cls):
            for entry in list(own_dict(base).values()):
                if type(entry) is getset and entry.__name__ == "__dict__":
                    found += list(dict.values(entry.__get__(item)))
                elif type(entry) is member:
                    try:
                        found.append(entry.__get__(item))
                    except AttributeError:
                        continue
        if cls is namespace:
            found += list(dict.values(item.__dict__))
        return found

    def truth(value: Any) -> Any:
        cls = type(value)
        if cls is coroutine:
            note("returned_coroutine")
        bad = foreign(cls, truth_names)
        if bad is not None and not is_named(cls):
            trip(describe(cls, bad))
        return value

    def method(value: Any, name: str) -> Any:
        cls = type(value)
        if own_flags(cls) & heap and not is_named(cls) and type not in own_mro(cls):
            bad = foreign(cls, (name, "__class__", "__getattribute__", "__getattr__"))
            if bad is not None:
                trip(describe(cls, bad))
        return value

    def classes(value: Any) -> Any:
        for item in value if type(value) is tuple else (value,):
            bad = foreign(type(item), ("__class__",))
            if bad is not None:
                trip(describe(type(item), bad))
            if type in own_mro(type(item)) and type(item) is not type:
                bad = foreign(type(item), class_checks)
                if bad is not None:
                    trip(describe(type(item), bad))
        return value

    return {
        VET: opaque(vet),
        TRUTH: opaque(truth),
        CALLEE: opaque(method),
        CLASSES: opaque(classes),
        LEFT: opaque(left),
        RIGHT: opaque(right),
        AFTER: opaque(after),
        CALCULATED: opaque(calculated),
        SAY: opaque(say),
        "": last_said,
    }
