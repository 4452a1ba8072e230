"""Suites as a user writes them: what is accepted, what is refused and in which words, hashes, and unnamed names."""

# ruff: noqa: E501 -- each case of a table stands in one line, with the source that it is about.

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bench.suites.load
from bench.errors import UsageError
from bench.grading.providers import open_grader
from bench.suites.check import check_suite
from bench.suites.load import Suite, ambiguities, load_suite, suite_ids
from bench.suites.used_names import unmentioned_names

TOML = """
title = "My own"
max_tokens = 512

[[level]]
id = "double"
title = "Twice a number"
points = 40
entry = ["double"]

[[level]]
id = "Box"
title = "A box"
points = 60
entry = ["Box"]
limit_s = 5
"""


@dataclass
class Draft:
    """A suite to be written, to change before it is."""

    toml: str = TOML
    files: dict[str, str | bytes | None] = field(
        default_factory=lambda: {
            "double/prompt.md": "Write `double(n)`, which returns twice n.\n",
            "double/hidden_test.py": "from solution import double\n\n\ndef test_two():\n    assert double(2) == 4\n",
            "double/reference.py": "def double(n):\n    return n * 2\n",
            "double/mutants/same.py": "def double(n):\n    return n\n",
            "Box/prompt.md": "Write a class `Box` with `put(x)`.\n",
            "Box/hidden_test.py": (
                "from solution import Box\n\n\nclass TestBox:\n    def test_put(self):\n        box = Box()\n"
                "        box.put(3)\n        assert box.take() == 3\n\n\ndef test_alone():\n    Box().put(1)\n"
            ),
            "Box/reference.py": (
                "class Box:\n    def put(self, x):\n        self.x = x\n\n    def take(self):\n        return self.x\n"
            ),
        }
    )

    def write(self, root: Path, name: str = "mine") -> Path:
        folder = root / name
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        (folder / "suite.toml").write_text(self.toml)
        for path, content in self.files.items():
            if content is not None:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    def load(self, root: Path) -> Suite:
        return load_suite(str(self.write(root)), root / "no suites here")

    def refused(self, root: Path) -> str:
        with pytest.raises(UsageError) as caught:
            self.load(root)
        message = str(caught.value)
        assert "\n" not in message, "one line"
        assert caught.value.exit_code == 2
        return message


def test_loads_what_is_written(tmp_path):
    suite = Draft().load(tmp_path)
    assert (suite.suite_id, suite.title, suite.max_tokens, suite.request_limit_s) == ("mine", "My own", 512, 900.0)
    assert suite.max_points == 100
    double, box = suite.levels
    assert (double.level_id, double.points, double.entry, double.limit_s) == ("double", 40, ("double",), 30.0)
    assert (box.limit_s, box.expected) == (5.0, ("TestBox::test_put", "test_alone"))
    assert dict(double.mutants) == {"same": "def double(n):\n    return n\n"}
    assert dict(box.mutants) == {}
    assert double.messages() == ({"role": "user", "content": "Write `double(n)`, which returns twice n."},)


def test_limits_can_be_set_for_all_levels(tmp_path):
    draft = Draft(
        TOML.replace("max_tokens = 512\n", "max_tokens = 512\nrequest_limit_s = 60.5\n[grading]\nlevel_limit_s = 7\n")
    )
    suite = draft.load(tmp_path)
    assert suite.request_limit_s == 60.5
    assert [level.limit_s for level in suite.levels] == [7.0, 5.0]


# Which suite is meant


def test_id_folder_and_file_lead_to_the_same_suite(tmp_path, monkeypatch):
    folder = Draft().write(tmp_path / "suites")
    by_id = load_suite("mine", tmp_path / "suites")
    monkeypatch.chdir(folder)
    for name in (str(folder), str(folder) + "/", str(folder / "suite.toml"), ".", "../mine"):
        found = load_suite(name, tmp_path / "elsewhere")
        assert (found, found.suite_id) == (by_id, "mine")
    assert suite_ids(tmp_path / "suites") == ["mine"]
    assert suite_ids(tmp_path / "elsewhere") == []


def test_an_id_wins_over_a_folder_of_that_name_here(tmp_path, monkeypatch):
    Draft().write(tmp_path / "suites")
    Draft(TOML.replace("My own", "The folder here")).write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert load_suite("mine", tmp_path / "suites").title == "My own"
    assert load_suite("./mine", tmp_path / "suites").title == "The folder here"


def test_an_unknown_suite_names_the_nearest(tmp_path):
    Draft().write(tmp_path, "coding-v2")
    with pytest.raises(UsageError, match=r"no suite `codng-v2`: the nearest is `coding-v2`"):
        load_suite("codng-v2", tmp_path)


@pytest.mark.parametrize("name", ["", "  ", "a\0b"])
def test_no_name(tmp_path, name):
    with pytest.raises(UsageError, match="expected a suite's id or the path of its folder"):
        load_suite(name, tmp_path)


def test_a_folder_that_is_no_suite(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty: expected a suite's folder, found no suite\.toml in it"):
        load_suite(str(tmp_path / "empty"), tmp_path)
    with pytest.raises(UsageError, match="found no such folder"):
        load_suite("./absent", tmp_path)


# suite.toml


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("max_tokens", "max_token", ["suite.toml: max_token: unknown key", "`max_tokens`"]),
        ("points = 60", "pionts = 60", ["level[Box].pionts: unknown key", "`points`"]),
        ("entry = [\"Box\"]", 'entries = ["Box"]', ["level[Box].entries: unknown key", "`entry`"]),
        ("limit_s = 5", "limit = 5", ["level[Box].limit: unknown key", "`limit_s`"]),
        ("[[level]]\nid = \"double\"", '[grading]\nlevel_limit = 3\n[[level]]\nid = "double"', ["grading.level_limit:", "`level_limit_s`"]),
        ("points = 60", "points = 0", ["level[Box].points: expected a whole number from 1", "found the integer 0"]),
        ("points = 60", "points = -5", ["level[Box].points:", "found the integer -5"]),
        ("points = 60", "points = 2.5", ["level[Box].points:", "found the number 2.5"]),
        ("points = 60", "points = true", ["level[Box].points:", "found the boolean true"]),
        ("points = 60", 'points = "60"', ["level[Box].points:", 'found the text "60"']),
        ("points = 60\n", "", ["level[Box].points: this key is required and missing"]),
        ("max_tokens = 512", "max_tokens = 0", ["max_tokens: expected a whole number from 1"]),
        ("max_tokens = 512", "", ["max_tokens: this key is required"]),
        ("limit_s = 5", "limit_s = 0", ["level[Box].limit_s: expected a number"]),
        ("limit_s = 5", "limit_s = nan", ["level[Box].limit_s: expected a number"]),
        ("limit_s = 5", "limit_s = inf", ["level[Box].limit_s: expected a number"]),
        ('title = "My own"', 'title = " "', ["title: expected a text that is not empty"]),
        ('entry = ["Box"]', "entry = []", ["level[Box].entry: expected at least one name"]),
        ('entry = ["Box"]', 'entry = "Box"', ["level[Box].entry: expected a list"]),
        ('entry = ["Box"]', 'entry = ["Box", "Box"]', ["level[Box].entry[1]", "`Box` twice"]),
        ('entry = ["Box"]', 'entry = ["my box"]', ["level[Box].entry[0]: expected a Python name"]),
        ('entry = ["Box"]', 'entry = ["Crate"]', ["Box/reference.py", "`Crate`", "found Box"]),
        ('id = "Box"', 'id = "double"', ["level[double].id: expected an id of its own", "`double` and `double`"]),
        ('id = "Box"', 'id = "DOUBLE"', ["`double` and `DOUBLE`"]),
        ('id = "Box"', 'id = "../Box"', ["level[../Box].id: expected letters"]),
        ('id = "Box"', "", ["level[1].id: this key is required and missing"]),
        ('id = "Box"', "id = 7", ["level[1].id: expected a text"]),
        ('id = "Box"', 'id = "Crate"', ["Crate: expected the level's folder", "found no such folder"]),
        ('title = "My own"', 'title = "My own', ["line 2", "not valid TOML"]),
    ],
)  # fmt: skip
def test_a_mistake_in_suite_toml_is_one_clear_line(tmp_path, old, new, says):
    assert old in TOML
    message = Draft(TOML.replace(old, new, 1)).refused(tmp_path)
    for words in says:
        assert words in message


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ('title = "T"\nmax_tokens = 1\n', "found nothing"),
        ('title = "T"\nmax_tokens = 1\nlevel = []\n', "found a list of 0"),
        ('title = "T"\nmax_tokens = 1\n[level]\nid = "x"\n', "found a table"),
        ('title = "T"\nmax_tokens = 1\nlevel = [3]\n', "level[0]: expected a table [[level]], found the integer 3"),
        ('title = "T"\nmax_tokens = 1\n[[levels]]\nid = "x"\n', "levels: unknown key; the nearest is `level`"),
    ],
)
def test_levels_have_to_be_tables(tmp_path, toml, says):
    assert says in Draft(toml).refused(tmp_path)


# Files


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"double/prompt.md": None}, ["double/prompt.md: expected this file, found none"]),
        ({"double/prompt.md": " \n\t\n"}, ["double/prompt.md: expected a prompt, found an empty file"]),
        ({"double/prompt.md": b"\xff\xfe"}, ["double/prompt.md: expected UTF-8 text", "0xff"]),
        ({"double/reference.py": None}, ["double/reference.py: expected this file"]),
        ({"double/reference.py": "def double(n) return n"}, ["double/reference.py, line 1", "syntax error"]),
        ({"double/reference.py": "def twice(n): return n"}, ["reference.py: expected a definition of `double`", "found twice"]),
        ({"double/hidden_test.py": None, "double/hidden_tests.py": ""}, ["hidden_test.py", "`hidden_tests.py` instead"]),
        ({"double/hidden_test.py": "def test_a(:\n"}, ["double/hidden_test.py, line 1", "syntax error"]),
        ({"double/hidden_test.py": "def test_a():\n    assert 1\n\0"}, ["double/hidden_test.py"]),
        ({"double/hidden_test.py": "from solution import double\n"}, ["expected at least one function `test_...`"]),
        ({"double/hidden_test.py": "def test_a():\n    assert 1\n"}, ["found no use of `solution`"]),
        ({"double/hidden_test.py": ""}, ["double/hidden_test.py"]),
    ],
)  # fmt: skip
def test_a_mistake_in_the_files_is_one_clear_line(tmp_path, changes, says):
    draft = Draft()
    draft.files |= changes
    message = draft.refused(tmp_path)
    for words in says:
        assert words in message


def test_a_folder_in_place_of_a_file(tmp_path):
    draft = Draft()
    draft.files |= {"double/prompt.md": None, "double/prompt.md/x": "x"}
    assert "double/prompt.md: expected this file" in draft.refused(tmp_path)


def test_line_ends_and_byte_order_marks_change_nothing(tmp_path):
    plain = Draft().load(tmp_path / "a")
    draft = Draft()
    draft.files = {
        name: b"\xef\xbb\xbf" + content.encode().replace(b"\n", b"\r\n") for name, content in draft.files.items()
    }
    other = draft.load(tmp_path / "b")
    assert replace(other, path=plain.path) == plain


def test_a_reference_may_define_its_entry_by_assignment_or_on_a_condition(tmp_path):
    for source in (
        "double = lambda n: 2 * n\n",
        "import sys\nif sys.version_info > (3,):\n    def double(n): return 2 * n\n",
        "try:\n    from operator import concat as double\nexcept ImportError:\n    pass\n",
        "double: object = None\n",
    ):
        draft = Draft()
        draft.files["double/reference.py"] = source
        assert draft.load(tmp_path).levels[0].reference == source


# Which tests are expected


def level_with(tests: str, listed: str = "") -> Draft:
    draft = Draft(TOML.replace('entry = ["double"]\n', f'entry = ["double"]\n{listed}\n'))
    draft.files["double/hidden_test.py"] = "import pytest\nfrom solution import double\n" + tests
    return draft


def ids(root: Path, tests: str, listed: str = "") -> tuple[str, ...]:
    return level_with(tests, listed).load(root).levels[0].expected


def test_test_ids_come_from_the_syntax_tree_in_order(tmp_path):
    source = """
CASES = [1, 2]
test_data = {"a": 1}
def helper(): pass
def test_b(): pass
async def test_a(): pass
@pytest.mark.filterwarnings("ignore")
def test_c(): pass
@pytest.fixture
def queue(): return 3
class Helper:
    def test_not_this(self): pass
class TestThings:
    limit = 3
    test_cases = [1]
    def setup_method(self): pass
    def test_z(self): pass
    async def test_y(self): pass
    class TestInner:
        def test_x(self): pass
class TestOff:
    __test__ = False
    def test_not_that(self): pass
def test_nested():
    def test_inside(): pass
    test_inside()
"""
    assert ids(tmp_path, source) == (
        "test_b",
        "test_a",
        "test_c",
        "TestThings::test_z",
        "TestThings::test_y",
        "TestThings::TestInner::test_x",
        "test_nested",
    )


UNCOUNTABLE = [
    "@pytest.mark.parametrize('n', [1, 2])\ndef test_a(n): pass\n",
    "class TestA:\n    @pytest.mark.parametrize('n', [1, 2])\n    def test_a(self, n): pass\n",
    "@pytest.mark.parametrize('n', [1, 2])\nclass TestA:\n    def test_a(self, n): pass\n",
    "pytestmark = pytest.mark.parametrize('n', [1, 2])\ndef test_a(n): pass\n",
    "each = pytest.mark.parametrize('n', [1])\n@pytest.fixture(params=[1, 2])\ndef n(request): return request.param\ndef test_a(n): pass\n",
    "def pytest_generate_tests(metafunc): pass\ndef test_a(): pass\n",
    "class Base:\n    def test_b(self): pass\nclass TestA(Base):\n    def test_a(self): pass\n",
    "import unittest\nclass Checks(unittest.TestCase):\n    def test_a(self): pass\n",
    "if double:\n    def test_a(): pass\n",
    "def make(): return lambda: None\ntest_a = make()\n",
    "for n in (1, 2):\n    def test_a(): pass\n",
    "from helpers import *\ndef test_a(): pass\n",
]  # fmt: skip


@pytest.mark.parametrize("source", UNCOUNTABLE)
def test_tests_that_cannot_be_counted_have_to_be_listed(tmp_path, source):
    message = level_with(source).refused(tmp_path)
    assert "cannot be counted from the source; list their ids in" in message
    assert "level[double].tests" in message
    name = "TestA::test_a" if "TestA" in source else "Checks::test_a" if "Checks" in source else "test_a"
    assert ids(tmp_path, source, f'tests = ["{name}[1]", "{name}[2]"]') == (f"{name}[1]", f"{name}[2]")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def test_a(): pass\ndef test_a(): pass\n", "line 4: a second `test_a` replaces the one on line 3"),
        ("def test_a(): pass\nasync def test_a(): pass\n", "a second `test_a`"),
        ("class TestA:\n    def test_a(self): pass\n    def test_a(self): pass\n", "a second `TestA::test_a`"),
        ("class TestA:\n    def test_a(self): pass\nclass TestA:\n    def test_b(self): pass\n", "a second `TestA`"),
        ("def test_a(): pass\ntest_a = None\n", "`test_a` replaces the test on line 3"),
        ("def test_a(): pass\nfrom os import path as test_a\n", "`test_a` replaces the test on line 3"),
    ],
)
def test_a_test_that_never_runs_because_a_later_one_replaces_it(tmp_path, source, line):
    assert line in level_with(source).refused(tmp_path)


def test_same_name_in_two_classes_is_two_tests(tmp_path):
    source = "def test_a(): pass\nclass TestA:\n    def test_a(self): pass\nclass TestB:\n    def test_a(self): pass\n"
    assert ids(tmp_path, source) == ("test_a", "TestA::test_a", "TestB::test_a")


def test_names_that_pytest_takes_and_we_would_not(tmp_path):
    assert "`testing`" in level_with("def testing(): pass\ndef test_a(): pass\n").refused(tmp_path)
    source = "class TestA:\n    def __init__(self): pass\n    def test_a(self): pass\n"
    assert "`__init__`" in level_with(source).refused(tmp_path)


@pytest.mark.parametrize(
    ("listed", "says"),
    [
        ("tests = []", "found an empty list"),
        ('tests = ["test_a", "test_a", "test_b"]', "found `test_a` twice"),
        ('tests = ["test_a"]', "but `test_b` is not in the list"),
        ('tests = ["test_a", "test_b", "test_c"]', "found `test_c`; it has test_a, test_b"),
        ('tests = "test_a"', "expected a list"),
        ("tests = [1]", "tests[0]: expected a text"),
    ],
)
def test_a_list_that_does_not_fit(tmp_path, listed, says):
    source = "def test_a(): pass\ndef test_b(): pass\n"
    assert says in level_with(source, listed).refused(tmp_path)
    assert ids(tmp_path, source, 'tests = ["test_b", "test_a"]') == ("test_b", "test_a")


# Hashes


def hashes(suite: Suite) -> list[tuple[str, str]]:
    return [(level.prompt_hash(suite), level.grading_hash()) for level in suite.levels]


def test_hashes_do_not_change_from_one_release_to_the_next(tmp_path):
    """Stored results are found by these. A change here makes every earlier result incomparable."""
    suite = Draft().load(tmp_path)
    assert [prompt for prompt, _ in hashes(suite)] == [
        "468a10a7524a429df62cd6579cd14b89c94c9202c1fd0b235d0686342ff2f1a9",
        "e59c909f39e77a32e1e68999d663c8f2dcefbe8f0715a94caf2aa520152f012b",
    ]
    text = '{"max_tokens": 512, "messages": [{"content": "Write `double(n)`, which returns twice n.", "role": "user"}]}'
    assert hashes(suite)[0][0] == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("change", "prompt_changes", "grading_changes"),
    [
        (lambda d: d.files.update({"double/prompt.md": "Write `double(n)`, which returns 2 n.\n"}), True, False),
        (lambda d: d.files.update({"double/prompt.md": "Write `double(n)`, which returns twice n.\n\n\n"}), False, False),
        (lambda d: setattr(d, "toml", d.toml.replace("512", "513")), True, False),
        (lambda d: d.files.update({"double/hidden_test.py": "from solution import double\ndef test_two(): pass\n"}), False, True),
        (lambda d: setattr(d, "toml", d.toml.replace("points = 40", "points = 41")), False, True),
        (lambda d: setattr(d, "toml", d.toml.replace('["double"]', '["double", "helper"]')), False, True),
        (lambda d: setattr(d, "toml", d.toml.replace('["double"]\n', '["double"]\nlimit_s = 3\n')), False, True),
        (lambda d: setattr(d, "toml", d.toml.replace('["double"]\n', '["double"]\nlimit_s = 30.0\n')), False, False),
        (lambda d: setattr(d, "toml", d.toml + "[grading]\nlevel_limit_s = 9\n"), False, True),
        (lambda d: setattr(d, "toml", d.toml.replace('["double"]\n', '["double"]\ntests = ["test_two"]\n')), False, False),
        (lambda d: setattr(d, "toml", d.toml.replace("Twice a number", "Doubling").replace("My own", "Other")), False, False),
        (lambda d: setattr(d, "toml", "request_limit_s = 5\n# a remark\n" + d.toml), False, False),
        (lambda d: d.files.update({"double/mutants/other.py": "double = 3\n", "double/README.md": "x"}), False, False),
        (lambda d: d.files.update({"double/reference.py": "def helper(): pass\ndef double(n): return n + n\n"}), False, False),
        (lambda d: d.files.update({"Box/prompt.md": "Another box.\n"}), False, False),
    ],
)  # fmt: skip
def test_hashes_depend_on_what_they_should(tmp_path, change, prompt_changes, grading_changes):
    base = Draft()
    base.files["double/reference.py"] = "def helper(): pass\ndef double(n): return n * 2\n"
    before = hashes(base.load(tmp_path / "a"))[0]
    change(base)
    after = hashes(base.load(tmp_path / "b"))[0]
    assert (before[0] != after[0], before[1] != after[1]) == (prompt_changes, grading_changes)


def test_a_new_extractor_is_a_new_grading(tmp_path, monkeypatch):
    suite = Draft().load(tmp_path)
    before = hashes(suite)
    monkeypatch.setattr(bench.suites.load, "EXTRACTOR_VERSION", "another")
    assert [a[0] == b[0] and a[1] != b[1] for a, b in zip(before, hashes(suite), strict=True)] == [True, True]


def test_hashes_do_not_depend_on_the_place(tmp_path):
    assert hashes(Draft().load(tmp_path / "a")) == hashes(Draft().load(tmp_path / "b" / "c"))


@settings(max_examples=50, deadline=None)
@given(st.text(), st.text())
def test_different_prompts_have_different_hashes(one, other):
    level = bench.suites.load.Level("x", "x", 1, ("x",), one, "", ("test_x",), "", {}, 1.0)
    suite = Suite("s", "s", Path(), 1, 1.0, (level,))
    assert (level.prompt_hash(suite) == replace(level, prompt=other).prompt_hash(suite)) == (one == other)


# Names that the prompt lacks

REFERENCE = """
class Queue:
    pass
class Job:
    pass
def solve():
    pass
"""


@pytest.mark.parametrize(
    ("test", "names"),
    [
        ("from solution import solve\ndef test(): assert solve([1])[0] == 1\n", ["solve"]),
        ("import solution\ndef test(): solution.solve(3)\n", ["solve"]),
        ("import solution as s\ndef test(): s.Queue().put(3)\n", ["Queue", "put"]),
        ("from solution import Queue as Q\ndef test():\n    q = Q()\n    q.put(1)\n", ["Queue", "put"]),
        ("import importlib\ns = importlib.import_module('solution')\ndef test(): s.Queue().put(3)\n", ["Queue", "put"]),
        ("from solution import *\ndef test(): Queue().put(3)\n", ["put"]),
        ("def test():\n    from solution import Queue\n    Queue().put(3)\n", ["Queue", "put"]),
        # Keyword arguments and attributes given as text.
        ("from solution import Job\ndef test(): Job(size=3)\n", ["Job", "size"]),
        ("from solution import Queue\ndef test(): Queue().put(item=3)\n", ["Queue", "put", "item"]),
        ("from solution import Queue\ndef test(): getattr(Queue(), 'depth')\n", ["Queue", "depth"]),
        ("from solution import Queue\ndef test(): assert hasattr(Queue, 'depth')\n", ["Queue", "depth"]),
        ("from unittest import mock\nfrom solution import Queue\ndef test():\n    with mock.patch.object(Queue, 'run'): pass\n", ["Queue", "run"]),
        ("from operator import attrgetter\nfrom solution import Job\ndef test(): attrgetter('size')(Job())\n", ["Job", "size"]),
        # Values on their way through the test file.
        ("from solution import Queue\ndef make(): return Queue()\ndef test(): make().put(3)\n", ["Queue", "put"]),
        ("from solution import Queue\ndef fill(q): q.put(3)\ndef test(): fill(Queue())\n", ["Queue", "put"]),
        ("from solution import Queue\ndef fill(*, q): q.put(3)\ndef test(): fill(q=Queue())\n", ["Queue", "put"]),
        ("from solution import Queue\ndef fill(*qs):\n    for q in qs: q.put(3)\ndef test(): fill(Queue(), Queue())\n", ["Queue", "put"]),
        ("from solution import Queue\nmake = lambda: Queue()\ndef test(): make().put(3)\n", ["Queue", "put"]),
        ("from solution import Queue\ndef each(f): f(Queue())\ndef test(): each(lambda q: q.put(3))\n", ["Queue", "put"]),
        ("from solution import Queue\ndef test():\n    qs = [Queue() for _ in range(3)]\n    for q in qs: q.put(3)\n", ["Queue", "put"]),
        ("from solution import Queue\ndef test():\n    a, b = Queue(), []\n    b.append(3)\n    a.put(b)\n", ["Queue", "put"]),
        ("from solution import Queue\ndef two(): return Queue(), []\ndef test():\n    q, seen = two()\n    seen.append(q)\n    seen[0].put(3)\n", ["Queue", "put"]),
        ("from solution import Queue\ndef test():\n    d = {}\n    d['a'] = Queue()\n    d['a'].put(3)\n    d.get('a').take()\n", ["Queue", "put", "take"]),
        ("from solution import Queue\ndef test():\n    d = {'a': Queue()}\n    for k, q in d.items(): q.put(k.upper())\n", ["Queue", "put"]),
        ("from solution import Queue\ndef test():\n    for i, q in enumerate([Queue()]): q.put(i.bit_length())\n", ["Queue", "put"]),
        ("from solution import Queue\ndef test():\n    if (q := Queue()): q.put(3)\n", ["Queue", "put"]),
        ("from solution import Queue\ndef test():\n    with Queue() as q: q.put(3)\n", ["Queue", "put"]),
        ("from solution import Queue\nimport threading\ndef test(): threading.Thread(target=Queue().work).start()\n", ["Queue", "work"]),
        ("from solution import Queue\nclass TestQ:\n    def setup_method(self): self.q = Queue()\n    def test_a(self): self.q.put(3)\n", ["Queue", "put"]),
        ("import pytest\nfrom solution import Queue\n@pytest.fixture\ndef q(): return Queue()\ndef test_a(q): q.put(3)\n", ["Queue", "put"]),
        ("import pytest\nfrom solution import Queue\n@pytest.fixture\ndef q():\n    yield Queue()\ndef test_a(q): q.put(3)\n", ["Queue", "put"]),
        ("from solution import Queue\nclass Mine(Queue):\n    def own(self): self.hook(1)\ndef test():\n    m = Mine()\n    m.own()\n    m.put(2)\n", ["Queue", "hook", "put"]),
        ("from solution import Queue\nq = None\ndef setup():\n    global q\n    q = Queue()\ndef test(): q.put(3)\n", ["Queue", "put"]),
        # What a solution returns: its own objects have names, builtin types do not.
        ("from solution import Queue\ndef test():\n    q = Queue()\n    q.put(1).result.strip().upper()\n", ["Queue", "put", "result"]),
        ("from solution import Queue\ndef test():\n    job, ok = Queue().step()\n    assert job.retries == 1\n", ["Queue", "step", "retries"]),
        ("from solution import Queue\ndef test(): Queue().jobs.append(3)\n", ["Queue", "jobs"]),
        ("from solution import Queue\ndef test(): Queue().append(3)\n", ["Queue", "append"]),
        ("from solution import Queue\ndef test(): Queue().log.sort(key=len, reverse=True)\n", ["Queue", "log"]),
        ("from solution import Queue\ndef test(): Queue().log = 3\n", ["Queue", "log"]),
        ("from solution import Queue\ndef test():\n    for job in Queue().jobs: assert job.size\n", ["Queue", "jobs", "size"]),
        ("from solution import Queue, Full\ndef test():\n    try: Queue()\n    except Full as e: assert e.depth and e.args\n", ["Queue", "Full", "depth"]),
        ("from solution import Job\ndef test(j):\n    match Job():\n        case Job(size=3): pass\n", ["Job", "size"]),
        # Not the solution's.
        ("from solution import solve\nimport json\ndef test(): assert json.loads(solve()).get('x')\n", ["solve"]),
        ("from solution import solve\nimport time\ndef test(): solve(); time.monotonic(); [].append(1)\n", ["solve"]),
        ("from solution import solve\nclass Fake:\n    def __init__(self): self.seen = []\n    def note(self, x): self.seen.append(x)\ndef test():\n    f = Fake()\n    solve(f)\n    f.note(solve(3))\n    assert f.seen\n", ["solve"]),
        ("from solution import Job\nimport dataclasses\ndef test(): assert dataclasses.is_dataclass(Job) and Job.__name__\n", ["Job"]),
        ("from solution import solve\ndef test():\n    def solve_it(q): return q.nothing\n    assert solve\n", ["solve"]),
    ],
)  # fmt: skip
def test_names_used_on_the_solution(test, names):
    assert unmentioned_names(test, "", REFERENCE) == names


def test_a_name_is_mentioned_only_as_a_whole_word():
    test = "from solution import Queue\ndef test(): Queue().set_result(1)\n"
    for prompt in ("Queue.set_result(x)", "the Queue has `set_result`", "Queue: set_result"):
        assert unmentioned_names(test, prompt, REFERENCE) == []
    for prompt in ("Queue set_results", "Queue reset_result", "Queue set result", "Queue Set_Result", "Queue"):
        assert unmentioned_names(test, prompt, REFERENCE) == ["set_result"]


def test_reading_ends_for_variables_that_hold_themselves():
    test = (
        "from solution import Queue\ndef grow(x):\n    x = [x]\n    x = (x, x)\n    x = (x,)\n    x = {1: x}\n"
        "    return grow(x) or x\ndef test():\n    q = Queue()\n    while q: q = (q, [q])\n    grow(q)[0].put(1)\n"
    )
    assert "Queue" in unmentioned_names(test, "", REFERENCE)


# The check of a suite


@pytest.fixture(scope="module")
def grader() -> Iterator[object]:
    opened = open_grader("auto", workers=1)
    yield opened
    opened.close()


def test_a_users_suite_is_checked_like_ours(tmp_path, grader):
    suite = Draft().load(tmp_path)
    report = check_suite(suite, grader)
    assert report.ok and report.problems == () and (report.suite_id, report.provider) == ("mine", grader.provider)
    double, box = report.levels
    assert (double.n_tests, len(double.mutants), double.n_caught) == (1, 1, 1)
    assert double.mutants[0].verdict.outcome == "assertion"
    assert double.mutants[0].failed_tests == ("test_two",)
    assert double.ambiguities == () and double.notes == ()
    assert box.ambiguities == ("take",)
    assert any(note.startswith("no mutants") for note in box.notes)
    assert any("take" in note for note in box.notes)


def test_what_disproves_a_suite_is_said(tmp_path, grader):
    draft = Draft()
    draft.files |= {
        "double/reference.py": "def double(n):\n    return n * 3\n",
        "Box/mutants/right_after_all.py": draft.files["Box/reference.py"],
        "Box/mutants/typing_error.py": "class Box\n    pass\n",
        "Box/mutants/forgets.py": "class Box:\n    def put(self, x): pass\n    def take(self): return None\n",
    }
    report = check_suite(draft.load(tmp_path), grader)
    assert not report.ok
    assert len(report.problems) == 3
    assert report.problems[0].startswith("double: the reference solution must pass and does not: assertion")
    assert "test_two" in report.problems[0]
    assert report.problems[1] == "Box: the mutant `right_after_all` passes: no test sees its mistake"
    assert report.problems[2].startswith("Box: the mutant `typing_error` never ran: syntax")
    box = report.levels[1]
    assert (len(box.mutants), box.n_caught) == (3, 1)
    assert "no mutant fails test_alone" not in box.notes, "the mutant that never ran fails every test"


def test_a_limit_of_the_level_is_the_limit_of_the_check(tmp_path, grader):
    draft = Draft(TOML.replace('entry = ["double"]\n', 'entry = ["double"]\nlimit_s = 1\n'))
    draft.files["double/mutants/never_ends.py"] = "def double(n):\n    while True:\n        pass\n"
    report = check_suite(draft.load(tmp_path), grader)
    verdicts = {mutant.name: mutant.verdict for mutant in report.levels[0].mutants}
    assert verdicts["never_ends"].outcome in ("timeout", "resources")
    assert (verdicts["never_ends"].wall_ms or 0) < 15_000
    assert report.levels[0].ok


def test_ambiguities_of_a_level(tmp_path):
    assert [ambiguities(level) for level in Draft().load(tmp_path).levels] == [[], ["take"]]
