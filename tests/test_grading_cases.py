"""Cases from the field: each failure that other graders were seen to make, with its input and the verdict that is right."""

# ruff: noqa: E501  (short programs are easier to read on one line)

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from graders import PROVIDERS, opened

from bench.grading import GradeJob, Limits, Verdict
from bench.grading.pool import SandboxGrader

THREE = """from solution import add
def test_a(): assert add(1, 2) == 3
def test_b(): assert add(0, 0) == 0
def test_c(): assert add(-1, 1) == 0
"""
THREE_IDS = ("test_a", "test_b", "test_c")
TWO = "from solution import add\ndef test_a(): assert add(1,2)==3\ndef test_b(): assert add(2,2)==4\n"
TWO_IDS = ("test_a", "test_b")
WITH_PYTEST = "import pytest\n"
"""A hidden test that imports pytest runs in a pytest session; the verdicts must be the same."""
LIMIT_S = 4.0
RIGHT = "def add(a, b): return a + b\n"


@pytest.fixture(scope="module", params=PROVIDERS)
def grader(request: pytest.FixtureRequest) -> Iterator[SandboxGrader]:
    yield from opened(request.param)


def grade(
    grader: SandboxGrader, code: str, hidden: str = THREE, ids: tuple[str, ...] = THREE_IDS, **limits: float
) -> Verdict:
    began = time.monotonic()
    verdict = grader.grade(GradeJob(code, hidden, ids, Limits(**({"wall_s": LIMIT_S, "cpu_s": LIMIT_S} | limits))))  # type: ignore[arg-type]
    assert time.monotonic() - began < limits.get("wall_s", LIMIT_S) + 2
    assert [t.test_id for t in verdict.tests] == list(ids)
    return verdict


EARLY = {
    "exit_at_import": ("import os\nos._exit(0)\n", "exited", ""),
    "exit_in_call": ("import os\ndef add(a, b): os._exit(0)\n", "exited", ""),
    "atexit_mask": ("import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b): return 99\n", "assertion", ""),
    "sys_exit_import": ("import sys\nsys.exit(0)\ndef add(a, b): return a + b\n", "exited", "SystemExit"),
    "sys_exit_call": ("import sys\ndef add(a, b): sys.exit(0)\n", "exited", "SystemExit"),
    "exit_builtin": ("def add(a, b): exit(0)\n", "exited", "SystemExit"),
    "raise_system_exit": ("raise SystemExit\n", "exited", "SystemExit"),
    "keyboard_interrupt": ("def add(a, b): raise KeyboardInterrupt\n", "exited", "KeyboardInterrupt"),
    "pytest_exit": ("import pytest\ndef add(a, b): pytest.exit('x', returncode=0)\n", "exited", "Exit"),
    "skip_module": ("import pytest\npytest.skip('x', allow_module_level=True)\n", "exited", "skipped"),
    "skip_in_call": ("import pytest\ndef add(a, b): pytest.skip('x')\n", "exited", "skipped"),
    "unittest_skip": ("import unittest\ndef add(a, b): raise unittest.SkipTest('x')\n", "exited", "skipped"),
    "deep_repr": (
        "import sys\nsys.setrecursionlimit(10**7)\ndef add(a, b):\n    x = []\n"
        "    for _ in range(2_000_000): x = [x]\n    return repr(x)\n",
        "exited",
        "crashed:SIGSEGV",
    ),
    "kill_self": (
        "import os, signal\ndef add(a, b): os.kill(os.getpid(), signal.SIGKILL)\n",
        "exited",
        "crashed:SIGKILL",
    ),
    "abort": ("import os\ndef add(a, b): os.abort()\n", "exited", "crashed:SIGABRT"),
    "alarm": ("import signal, time\nsignal.alarm(1)\ndef add(a, b): time.sleep(3)\n", "exited", "crashed:SIGALRM"),
    "exec": ("import os\ndef add(a, b): os.execv('/usr/bin/true', ['true'])\n", "exited", ""),
}


@pytest.mark.parametrize("name", EARLY)
@pytest.mark.parametrize("head", ["", WITH_PYTEST], ids=["plain", "pytest"])
def test_leaving_early_is_no_pass(grader: SandboxGrader, name: str, head: str) -> None:
    code, outcome, detail = EARLY[name]
    # repr() of a deep list takes seconds before it overflows the stack; no time limit belongs to this case.
    verdict = grade(grader, code, head + THREE, wall_s=30.0, cpu_s=30.0)
    assert not verdict.passed and len(verdict.tests) == 3
    assert verdict.outcome == outcome, verdict
    assert detail in verdict.detail
    assert all(t.outcome != "passed" for t in verdict.tests) or name == "atexit_mask"
    assert grade(grader, RIGHT, head + THREE).passed


TOTAL = "from solution import total\ndef test_a(): assert total([1, 2]) == 3\ndef test_b(): assert total([]) == 0\n"
PAIR = "from solution import pair\ndef test(): assert pair(1) == [1, 1]\n"
ANY_INT = "class Any(int):\n    __hash__ = int.__hash__\n    def __eq__(self, other): return True\n"
YES = "class Any:\n    def __eq__(self, other): return True\n"
CLOSE = "from solution import total\ndef test_a(): assert abs(total([1, 2]) - 3) < 1e-9\ndef test_b(): assert 0 <= total([]) <= 0\n"
LIES = {
    "plain": (TOTAL, YES + "    def __bool__(self): return True\ndef total(xs): return Any()\n"),
    "int_child": (TOTAL, ANY_INT + "def total(xs): return Any(7)\n"),
    "float_like": (
        CLOSE,
        "class Any(float):\n    def __eq__(self, other): return True\n    def __sub__(self, other): return Any(0)\n"
        "    def __rsub__(self, other): return Any(0)\n    def __abs__(self): return 0.0\ndef total(xs): return Any(0)\n",
    ),
    "ordered": (
        CLOSE,
        "class Any(float):\n    def __sub__(self, o): return 0.0\n    def __le__(self, o): return True\n"
        "    def __ge__(self, o): return True\ndef total(xs): return Any(0)\n",
    ),
    "ne_only": (
        "from solution import total\ndef test(): assert not total([1]) != 1\n",
        "class Any(int):\n    def __ne__(self, o): return False\ndef total(xs): return Any(9)\n",
    ),
    "type_made": (
        TOTAL,
        "Any = type('Any', (int,), {'__eq__': lambda s, o: True, '__hash__': int.__hash__})\ndef total(xs): return Any(1)\n",
    ),
    "borrowed_slot": (
        TOTAL,
        "class Any(int):\n    __eq__ = int.__ne__\n    __hash__ = int.__hash__\ndef total(xs): return Any(-5)\n",
    ),
    "assigned_later": (
        TOTAL,
        "class Any(int): pass\ndef total(xs):\n    Any.__eq__ = lambda s, o: True\n    return Any(1)\n",
    ),
    "fake_dataclass": (
        TOTAL,
        "import dataclasses\n@dataclasses.dataclass\nclass Any:\n    x: int = 0\n    def __eq__(self, o): return True\n"
        "def total(xs): return Any()\n",
    ),
    "mock_any": (TOTAL, "from unittest.mock import ANY\ndef total(xs): return ANY\n"),
    "approx": (TOTAL, "import pytest\ndef total(xs): return pytest.approx(0, abs=float('inf'))\n"),
    "weak_proxy": (TOTAL, "import weakref\n" + YES + "keep = Any()\ndef total(xs): return weakref.proxy(keep)\n"),
    "user_list": (
        "from solution import pair\ndef test(): assert pair(1) == [1, 1]\n",
        "import collections\n" + YES + "def pair(x): return collections.UserList([Any(), Any()])\n",
    ),
    "nested": (PAIR, ANY_INT + "def pair(x): return [Any(0), Any(0)]\n"),
    "nested_deep": (
        "from solution import pair\ndef test(): assert pair(1) == {'a': [(1, {'b': 1})]}\n",
        ANY_INT + "def pair(x): return {'a': [(1, {'b': Any(0)})]}\n",
    ),
    "dict_keys": (
        "from solution import pair\ndef test(): assert pair(1) == {1: 1}\n",
        "class Any(int):\n    def __hash__(self): return hash(1)\n    def __eq__(self, o): return True\ndef pair(x): return {Any(0): 1}\n",
    ),
    "list_child": (PAIR, "class L(list):\n    def __eq__(self, o): return True\ndef pair(x): return L()\n"),
    "str_child": (
        "from solution import pair\ndef test(): assert pair(1).startswith('abc')\n",
        "class S(str):\n    def startswith(self, *a): return True\ndef pair(x): return S()\n",
    ),
    "contains": (
        "from solution import pair\ndef test(): assert 17 in pair(1)\n",
        "class L(list):\n    def __contains__(self, o): return True\ndef pair(x): return L()\n",
    ),
    "class_property": (
        "from solution import pair\ndef test():\n    r = pair(1)\n    assert isinstance(r, int)\n    assert r == 1\n",
        "class Any:\n    __class__ = property(lambda self: int)\n    def __eq__(self, o): return True\ndef pair(x): return Any()\n",
    ),
    "flipping_truth": (
        "from solution import pair\ndef test():\n    assert pair(1)\n    assert not pair(2)\n",
        "class B:\n    n = 0\n    def __bool__(self):\n        B.n += 1\n        return B.n % 2 == 1\ndef pair(x): return B()\n",
    ),
    "metaclass": (
        "from solution import kind\ndef test(): assert kind() == int\n",
        "class M(type):\n    def __eq__(cls, o): return True\n    __hash__ = type.__hash__\nclass A(metaclass=M): pass\ndef kind(): return A\n",
    ),
    "caught": (
        "from solution import total\ndef test():\n    try:\n        assert total([1]) == 1\n    except BaseException:\n        pass\n",
        ANY_INT + "def total(xs): return Any(7)\n",
    ),
    "loop_operand": (
        "from solution import pair\ndef test(): assert all(x == 1 for x in pair(1))\n",
        ANY_INT + "def pair(x): return [Any(0), Any(0)]\n",
    ),
    "helper_builtin": (
        "from solution import total\ndef test(): assert max(total([1]), 1) == min(1, total([1]))\n",
        "class Any(int):\n    def __gt__(self, o): return False\n    def __lt__(self, o): return False\ndef total(xs): return Any(7)\n",
    ),
    "unittest_style": (
        "import unittest\nfrom solution import total\nclass TestT(unittest.TestCase):\n"
        "    def test_a(self): self.assertEqual(total([1, 2]), 3)\n",
        ANY_INT + "def total(xs): return Any(7)\n",
    ),
    "callback": (
        "from solution import run\ndef test():\n    seen = []\n    run(seen.append)\n    assert seen == [1, 2]\n",
        ANY_INT + "def run(f):\n    f(Any(5)); f(Any(6))\n",
    ),
    "attribute": (
        "from solution import Box\ndef test(): assert Box().value == 5\n",
        ANY_INT + "class Box:\n    value = Any(0)\n",
    ),
    "named_class": (
        "from solution import Box\ndef test(): assert Box().get() == 5\n",
        "class Box:\n    def get(self): return self\n    def __eq__(self, o): return True\n",
    ),
    "yield": (
        "from solution import gen\ndef test():\n    for i, x in enumerate(gen()): assert x == i\n",
        ANY_INT + "def gen():\n    yield Any(5)\n",
    ),
}


def ids_of(hidden: str) -> tuple[str, ...]:
    names = [line.split("def ")[1].split("(")[0] for line in hidden.splitlines() if line.strip().startswith("def test")]
    return tuple(f"TestT::{n}" if "class TestT" in hidden else n for n in names)


@pytest.mark.parametrize("name", LIES)
def test_a_value_that_brings_its_own_comparison_is_tampering(grader: SandboxGrader, name: str) -> None:
    hidden, code = LIES[name]
    for head in ("", WITH_PYTEST):
        verdict = grade(grader, code, head + hidden, ids_of(hidden))
        assert verdict.outcome == "tampering", verdict


HONEST = {
    "plain_sum": (TOTAL, "def total(xs): return sum(xs)\n"),
    "own_class_inside": (
        TOTAL,
        "class Acc:\n    def __init__(self): self.v = 0\n    def __eq__(self, o): return self.v == o.v\n"
        "def total(xs):\n    a = Acc()\n    for x in xs: a.v += x\n    return a.v\n",
    ),
    "named_tuple": (
        "from solution import pair\ndef test(): assert pair(1) == (1, 1)\n",
        "from typing import NamedTuple\nclass P(NamedTuple):\n    a: int\n    b: int\ndef pair(x): return P(x, x)\n",
    ),
    "int_enum": (
        "from solution import pair\ndef test(): assert pair(1) == 1\n",
        "import enum\nclass E(enum.IntEnum):\n    A = 1\ndef pair(x): return E.A\n",
    ),
    "str_enum": (
        "from solution import pair\ndef test(): assert pair(1) == 'a'\n",
        "import enum\nclass E(str, enum.Enum):\n    A = 'a'\ndef pair(x): return E.A\n",
    ),
    "dataclass_fields": (
        "from solution import Job\ndef test():\n    j = Job('a', 1)\n    assert j.id == 'a' and j.data == 1\n    assert Job('a', 1) == j\n    assert Job('b', 1) != j\n",
        "from dataclasses import dataclass\n@dataclass(order=True)\nclass Job:\n    id: str\n    data: object\n    retries: int = 0\n",
    ),
    "ordered_items": (
        "from solution import Q\ndef test():\n    q = Q()\n    q.put(2, 'b'); q.put(1, 'a')\n    assert q.get() == 'a'\n    assert len(q) == 1\n    assert q\n",
        "import heapq\nclass Item:\n    def __init__(s, p, v): s.p, s.v = p, v\n    def __lt__(s, o): return s.p < o.p\n"
        "    def __eq__(s, o): return s.p == o.p\nclass Q:\n    def __init__(s): s.h = []\n    def put(s, p, v): heapq.heappush(s.h, Item(p, v))\n"
        "    def get(s): return heapq.heappop(s.h).v\n    def __len__(s): return len(s.h)\n",
    ),
    "asked_for": (
        "from solution import Vec\ndef test():\n    assert Vec(1, 2) == Vec(1, 2)\n    assert Vec(1, 2) != Vec(2, 1)\n    assert Vec(1, 2) + Vec(1, 1) == Vec(2, 3)\n",
        "class Vec:\n    def __init__(s, x, y): s.x, s.y = x, y\n    def __add__(s, o): return Vec(s.x + o.x, s.y + o.y)\n"
        "    def __eq__(s, o): return isinstance(o, Vec) and (s.x, s.y) == (o.x, o.y)\n    def __hash__(s): return 1\n",
    ),
    "fractions": (TOTAL, "from fractions import Fraction\ndef total(xs): return sum(xs, Fraction(0))\n"),
    "decimals": (TOTAL, "from decimal import Decimal\ndef total(xs): return sum(map(Decimal, xs), Decimal(0))\n"),
    "counter": (
        "from solution import c\ndef test(): assert c('aab') == {'a': 2, 'b': 1}\n",
        "from collections import Counter\ndef c(s): return Counter(s)\n",
    ),
    "user_list": (PAIR, "import collections\ndef pair(x): return collections.UserList([x, x])\n"),
    "tests_own_objects": (
        "from solution import same\nclass K:\n    def __eq__(self, o): return isinstance(o, K)\ndef test(): assert same(K()) == K()\n",
        "def same(x): return x\n",
    ),
    "approx_in_test": (
        "import pytest\nfrom solution import total\ndef test(): assert total([0.1, 0.2]) == pytest.approx(0.3)\n",
        "def total(xs): return sum(xs)\n",
    ),
    "any_in_test": (
        "from unittest.mock import ANY\nfrom solution import pair\ndef test(): assert pair(1) == [1, ANY]\n",
        "def pair(x): return [x, object()]\n",
    ),
    "mock_passed_through": (
        "from unittest import mock\nfrom solution import same\ndef test():\n    m = mock.Mock()\n    assert same(m) is m\n    m.assert_not_called()\n",
        "def same(x): return x\n",
    ),
    "cycle": (
        "from solution import loop\ndef test():\n    x = loop()\n    assert len(x) == 1\n    assert x != [1]\n",
        "def loop():\n    x = []\n    x.append(x)\n    return x\n",
    ),
    "own_exception": (
        "from solution import Bad, f\ndef test():\n    try: f()\n    except Bad as e: assert e.args == (1,)\n    else: assert False\n",
        "class Bad(Exception): pass\ndef f(): raise Bad(1)\n",
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_class_is_no_tampering(grader: SandboxGrader, name: str) -> None:
    hidden, code = HONEST[name]
    verdict = grade(grader, code, hidden, ids_of(hidden))
    assert verdict.passed and not verdict.suspect, verdict


BAD = {
    "missing": (b"def plus(a, b): return a + b\n", "interface", "add"),
    "coroutine": (b"async def add(a, b): return a + b\n", "assertion", "returned_coroutine"),
    "third_party": (b"import some_third_party_pkg\ndef add(a, b): return a + b\n", "import", "some_third_party_pkg"),
    "third_party_late": (b"def add(a, b):\n    import some_third_party_pkg\n", "import", "some_third_party_pkg"),
    "no_such_name": (b"from math import no_such_thing\ndef add(a, b): return a + b\n", "import", "math"),
    "syntax": (b"def add(a, b) return a + b\n", "syntax", "SyntaxError"),
    "indent": (b"def add(a, b):\nreturn a + b\n", "syntax", "IndentationError"),
    "null": (b"def add(a, b): return a + b\0\n", "syntax", ""),
    "prose": (b"Here is the function you asked for:\n", "syntax", "SyntaxError"),
    "empty": (b"", "interface", "add"),
    "nested_brackets": (b"x = " + b"(" * 5000 + b")" * 5000 + b"\n", "syntax", ""),
    "raises_at_import": (b"1 / 0\n", "import", "ZeroDivisionError"),
    "stdin": (b"n = input()\ndef add(a, b): return a + b\n", "import", "EOFError"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("head", ["", WITH_PYTEST], ids=["plain", "pytest"])
def test_tests_that_never_ran_are_no_pass(grader: SandboxGrader, name: str, head: str) -> None:
    code, outcome, detail = BAD[name]
    verdict = grade(grader, code.decode(), head + THREE)
    assert verdict.outcome == outcome and detail in verdict.detail, verdict
    assert sum(t.outcome == "passed" for t in verdict.tests) == 0
    assert len(verdict.tests) == 3


GOOD = {
    "escape": b'def add(a, b):\n    "match \\d digits"\n    return a + b\n',
    "crlf": b"def add(a, b):\r\n    return a + b\r\n",
    "noisy": b'def add(a, b):\n    """SyntaxError: invalid syntax"""\n    print("SyntaxError: invalid syntax")\n    return a + b\n',
    "main_guard": b'def add(a, b):\n    return a + b\nif __name__ == "__main__":\n    print(add(int(input()), int(input())))\n',
    "no_final_newline": b"def add(a, b): return a + b",
    "bom": b"\xef\xbb\xbfdef add(a, b): return a + b\n",
    "form_feed": b"\x0cdef add(a, b): return a + b\n",
    "old_mac": b"def add(a, b):\r    return a + b\r",
    "cookie": b"# -*- coding: utf-8 -*-\ndef add(a, b): return a + b\n",
    "warns": b"import warnings\nwarnings.warn('old', DeprecationWarning)\ndef add(a, b):\n    warnings.warn('x')\n    return a + b\n",
    "future": b"from __future__ import annotations\ndef add(a: Unknown, b): return a + b\n",
    "umlaut": "def add(a, b):\n    größe = a + b\n    return größe  # ✓\n".encode(),
    "prints_much": b"def add(a, b):\n    for i in range(20000): print('step', i)\n    return a + b\n",
    "stderr": b"import sys\ndef add(a, b):\n    print('x' * 100000, file=sys.stderr)\n    return a + b\n",
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("head", ["", WITH_PYTEST], ids=["plain", "pytest"])
def test_right_but_odd_text_passes(grader: SandboxGrader, name: str, head: str) -> None:
    verdict = grade(grader, GOOD[name].decode(), head + THREE)
    assert verdict.passed and not verdict.suspect, verdict


ENDLESS = {
    "loop": ("while True: pass\n" + RIGHT, "timeout"),
    "stubborn": (
        "import time\ndef add(a, b):\n    while True:\n        try: time.sleep(0.05)\n        except BaseException: pass\n",
        "timeout",
    ),
    "stubborn_signals": (
        "import signal, time\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\n"
        "def add(a, b):\n    while True: time.sleep(1)\n",
        "timeout",
    ),
    "thread": ("import threading, time\nthreading.Thread(target=lambda: time.sleep(600)).start()\n" + RIGHT, "timeout"),
    "c_loop": ("def add(a, b): return sum(range(10**12))\n", "timeout"),
    "orphan": ("import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\n" + RIGHT, "passed"),
    "double_fork": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(600)\n    os._exit(0)\n"
        + RIGHT,
        "passed",
    ),
    "daemon_thread": (
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(600), daemon=True).start()\n" + RIGHT,
        "passed",
    ),
    "stdin_at_import": ("n = input()\n" + RIGHT, "import"),
    "stdin_in_call": ("import sys\ndef add(a, b):\n    assert sys.stdin.read() == ''\n    return a + b\n", "passed"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_ended(grader: SandboxGrader, name: str) -> None:
    code, outcome = ENDLESS[name]
    hidden = TWO.replace("add(1,2)", "add(1, 2)")
    verdict = grade(grader, code, hidden, TWO_IDS)
    assert verdict.outcome == outcome, verdict
    assert verdict.left_behind == (name in ("orphan", "double_fork"))
    assert grade(grader, RIGHT, hidden, TWO_IDS).passed


def test_a_burst_of_processes_is_stopped(grader: SandboxGrader) -> None:
    code = "import os, time\nfor _ in range(200):\n    if os.fork() == 0:\n        time.sleep(600)\n" + RIGHT
    assert grade(grader, code, TWO, TWO_IDS).outcome in ("resources", "timeout")
    threads = "import threading, time\ndef add(a, b):\n    for _ in range(500): threading.Thread(target=time.sleep, args=(1,)).start()\n"
    assert grade(grader, threads, TWO, TWO_IDS).outcome == "resources"
    assert grade(grader, RIGHT, TWO, TWO_IDS).passed


READ_FILE = r"""
import pathlib, re
_t = "".join(p.read_text() for p in pathlib.Path(__file__).parent.glob("test_*.py"))
_t += "".join(p.read_text() for p in pathlib.Path(".").rglob("*.py"))
_k = {(int(a), int(b)): int(c) for a, b, c in re.findall(r"add\((\d+),(\d+)\)==(\d+)", _t)}
def add(a, b): return _k.get((a, b))
"""
READ_FRAME = r"""
import linecache, re, sys
def add(a, b):
    f = sys._getframe(1)
    return int(re.search(r"== *(\d+)", linecache.getline(f.f_code.co_filename, f.f_lineno)).group(1))
"""
READ_CONSTANTS = r"""
import sys
def add(a, b):
    return sys._getframe(1).f_code.co_consts[-1]
"""
REWRITE = r"""
import pathlib
for name in ("test_solution.py", "test_hidden.py", "hidden_test.py"):
    pathlib.Path(name).write_text("def test_a(): pass\ndef test_b(): pass\n")
pathlib.Path("conftest.py").write_text("def pytest_collection_modifyitems(items): items.clear()\n")
def add(a, b): return -1
"""


@pytest.mark.parametrize("head", ["", WITH_PYTEST], ids=["plain", "pytest"])
def test_the_tests_cannot_be_read_or_changed(grader: SandboxGrader, head: str) -> None:
    hidden = head + TWO
    for code in (READ_FILE, READ_FRAME, READ_CONSTANTS):
        verdict = grade(grader, code, hidden, TWO_IDS)
        assert not verdict.passed or verdict.suspect, verdict
    assert grade(grader, READ_FILE, hidden, TWO_IDS).outcome == "assertion"
    for code in (REWRITE, "def add(a, b): return -1\n"):
        assert grade(grader, code, hidden, TWO_IDS).outcome == "assertion"
    assert grade(grader, RIGHT, hidden, TWO_IDS).passed


def test_nothing_of_one_grade_is_there_in_the_next(grader: SandboxGrader) -> None:
    leave = (
        "import os, builtins\nfor f in ('x', '/tmp/x', '/dev/shm/x', '/box/x'):\n"
        "    try: open(f, 'w').write('left'); os.chmod(f, 0o666)\n    except OSError: pass\n"
        "builtins.add_left = 1\nimport json; json.left = 1\n" + RIGHT
    )
    look = (
        "import os, builtins, json\nassert os.listdir('.') == ['solution.py'], os.listdir('.')\n"
        "for f in ('/tmp', '/dev/shm'): assert os.listdir(f) == [], (f, os.listdir(f))\n"
        "assert not hasattr(builtins, 'add_left') and not hasattr(json, 'left')\n" + RIGHT
    )
    for _ in range(2):
        assert grade(grader, leave, TWO, TWO_IDS).passed
        verdict = grade(grader, look, TWO, TWO_IDS)
        assert verdict.passed, verdict
