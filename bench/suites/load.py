"""Suites: levels with a prompt, hidden tests and points. Read, check, and nothing else."""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.answer.extract import EXTRACTOR_VERSION
from bench.errors import UsageError
from bench.strict_toml import Table, found, nearest, read_toml
from bench.suites.expected_tests import expected_ids
from bench.suites.keys import GRADING_KEYS, LEVEL_KEYS, SUITE_KEYS
from bench.suites.used_names import unmentioned_names

_MAX_POINTS = 1_000_000
_MAX_TOKENS = 100_000_000
_MAX_SECONDS = 7 * 24 * 3600.0
_LEVEL_FILES = ("prompt.md", "hidden_test.py", "reference.py")


@dataclass(frozen=True)
class Level:
    """One task of a suite."""

    level_id: str
    title: str
    points: int
    entry: tuple[str, ...]
    """Names that an answer must define at module level; the extractor looks for them."""
    prompt: str
    hidden_test: str
    expected: tuple[str, ...]
    """Test ids, in the file's order, read from the hidden test's syntax tree."""
    reference: str
    mutants: Mapping[str, str]
    """Name of a mutant (file stem) -> its source."""
    limit_s: float

    def prompt_hash(self, suite: Suite) -> str:
        """sha256 over the messages and `max_tokens` (template settings belong to the arm, in its preset_hash)."""
        return _sha256({"messages": list(self.messages()), "max_tokens": suite.max_tokens})

    def grading_hash(self) -> str:
        """sha256 over hidden tests, entry, points, limits and the extractor's version; not mutants, not docs."""
        return _sha256(
            {
                "hidden_test": self.hidden_test,
                "expected": list(self.expected),
                "entry": list(self.entry),
                "points": self.points,
                "limit_s": float(self.limit_s),
                "extractor": EXTRACTOR_VERSION,
            }
        )

    def messages(self) -> tuple[dict[str, str], ...]:
        """One user message; no system message."""
        return ({"role": "user", "content": self.prompt},)


@dataclass(frozen=True)
class Suite:
    """Levels that belong together."""

    suite_id: str
    title: str
    path: Path
    max_tokens: int
    request_limit_s: float
    levels: tuple[Level, ...]

    @property
    def max_points(self) -> int:
        return sum(level.points for level in self.levels)


def suite_ids(root: Path) -> list[str]:
    """Ids of the suites below `root`, sorted."""
    if not root.is_dir():
        return []
    return sorted(folder.name for folder in root.iterdir() if (folder / "suite.toml").is_file())


def load_suite(name: str, root: Path) -> Suite:
    """Load a suite by id (below `root`) or by the path of its folder.

    An id wins over a folder of the same name in the working directory; `./NAME` means the folder. The id of a suite
    given by its path is the folder's name. Raises UsageError with file and key path.
    """
    folder = _suite_folder(name, root)
    top = read_toml(folder / "suite.toml")
    top.only(tuple(SUITE_KEYS))
    title = top.text("title")
    max_tokens = top.integer("max_tokens", 1, _MAX_TOKENS)
    request_limit_s = top.number("request_limit_s", 0.001, _MAX_SECONDS, 900.0)
    grading = top.table("grading", {})
    grading.only(tuple(GRADING_KEYS))
    default_limit_s = grading.number("level_limit_s", 0.001, _MAX_SECONDS, 30.0)
    tables = top.values.get("level")
    if not isinstance(tables, list) or not tables:
        what = "nothing" if tables is None else found(tables)
        raise UsageError(f"{top.at('level')}: expected one table [[level]] for each level, found {what}")
    levels: list[Level] = []
    for i, values in enumerate(tables):
        if not isinstance(values, dict):
            raise UsageError(f"{top.at('level')}[{i}]: expected a table [[level]], found {found(values)}")
        level_id = values.get("id")
        table = Table(top.file, f"level[{level_id if isinstance(level_id, str) and level_id.strip() else i}]", values)
        for other in levels:
            if isinstance(level_id, str) and level_id.strip().casefold() == other.level_id.casefold():
                # Some file systems take both for one folder, so letter case does not tell levels apart.
                both = f"`{other.level_id}` and `{level_id.strip()}`"
                raise UsageError(f"{table.at('id')}: expected an id of its own for each level, found {both}")
        levels.append(_level(table, folder, default_limit_s))
    return Suite(folder.resolve().name, title, folder.resolve(), max_tokens, request_limit_s, tuple(levels))


def ambiguities(level: Level) -> list[str]:
    """Names that the hidden tests use on the solution's objects and the prompt never mentions, in order of use."""
    return unmentioned_names(level.hidden_test, level.prompt, level.reference)


def _sha256(what: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _suite_folder(name: str, root: Path) -> Path:
    if not name.strip() or "\0" in name:
        raise UsageError(f"expected a suite's id or the path of its folder, found {name!r}")
    known = suite_ids(root)
    if name in known:
        return root / name
    folder = Path(name).expanduser()
    if folder.name == "suite.toml" and folder.is_file():
        folder = folder.parent
    if (folder / "suite.toml").is_file():
        return folder
    if folder.is_dir():
        raise UsageError(f"{folder}: expected a suite's folder, found no suite.toml in it")
    if "/" in name or "\\" in name or name.startswith((".", "~")):
        raise UsageError(f"{folder}: expected a suite's folder, found no such folder")
    raise UsageError(f"no suite `{name}`: {nearest(name, known)}; or give the path of a suite's folder")


def _level(table: Table, folder: Path, default_limit_s: float) -> Level:
    table.only(tuple(LEVEL_KEYS))
    level_id = table.text("id")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", level_id):
        raise table.error("id", "letters, digits, `_`, `-` and `.`, as in a folder's name")
    title = table.text("title")
    points = table.integer("points", 1, _MAX_POINTS)
    limit_s = table.number("limit_s", 0.001, _MAX_SECONDS, default_limit_s)
    entry = _names(table)
    files = {name: _read(folder / level_id, name) for name in _LEVEL_FILES}
    where = folder / level_id
    prompt = files["prompt.md"].strip()
    if not prompt:
        raise UsageError(f"{where / 'prompt.md'}: expected a prompt, found an empty file")
    hidden_test, reference = files["hidden_test.py"], files["reference.py"]
    tree = _parse(where / "hidden_test.py", hidden_test)
    if not re.search(r"\bsolution\b", hidden_test):
        raise UsageError(f"{where / 'hidden_test.py'}: expected `from solution import ...`, found no use of `solution`")
    listed: tuple[str, ...] | None = table.texts("tests", None)
    expected = expected_ids(tree, listed, str(where / "hidden_test.py"), table.at("tests"))
    defined = module_names(_parse(where / "reference.py", reference))
    for name in entry:
        if name not in defined:
            raise UsageError(
                f"{where / 'reference.py'}: expected a definition of `{name}`, which {table.at('entry')} names; "
                f"found {', '.join(sorted(defined)) or 'none'}"
            )
    return Level(
        level_id, title, points, entry, prompt, hidden_test, expected, reference, _mutants(where / "mutants"), limit_s
    )


def _names(table: Table) -> tuple[str, ...]:
    entry: tuple[str, ...] = table.texts("entry")
    if not entry:
        raise table.error("entry", "at least one name that an answer must define")
    for i, name in enumerate(entry):
        if not name.isidentifier():
            raise UsageError(f"{table.at('entry')}[{i}]: expected a Python name, found {found(name)}")
        if name in entry[:i]:
            raise UsageError(f"{table.at('entry')}[{i}]: expected each name once, found `{name}` twice")
    return entry


def _read(folder: Path, name: str) -> str:
    path = folder / name
    if not folder.is_dir():
        raise UsageError(f"{folder}: expected the level's folder with {', '.join(_LEVEL_FILES)}, found no such folder")
    if not path.is_file():
        close = difflib.get_close_matches(name, sorted(other.name for other in folder.iterdir()), n=1)
        raise UsageError(f"{path}: expected this file, found {f'`{close[0]}` instead' if close else 'none'}")
    return _text(path)


def _text(path: Path) -> str:
    """A file's text with `\\n` at line ends, so that hashes do not depend on how a checkout writes them."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected UTF-8 text, found byte 0x{error.object[error.start]:02x}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    return text


def _parse(path: Path, source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        raise UsageError(f"{path}{where}: expected Python code, found a syntax error: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path}: expected Python code that can be parsed: {error or 'nested too deeply'}") from None


def _mutants(folder: Path) -> dict[str, str]:
    """Wrong solutions by name. A user's suite may have none; its check then says so."""
    if not folder.is_dir():
        return {}
    return {path.stem: _text(path) for path in sorted(folder.glob("*.py")) if not path.name.startswith(".")}


def module_names(tree: ast.Module) -> set[str]:
    """Names that a module binds at its top level, also below `if`, `try` and `with`; imported ones included."""
    names: set[str] = set()
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            todo += ast.iter_child_nodes(node)
    return names
