"""The docs say what the code does: generated pages are up to date, every query runs, every link and command is real."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.store.database import connect
from bench.store.schema import TABLES
from bench.store.view_columns import COLUMNS, TAKEN_FROM, sentence

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.docs", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_column_of_every_view_has_a_sentence(tmp_path: Path) -> None:
    connection, _ = connect(tmp_path)
    views = {
        name: {column[0] for column in connection.sql(f'describe "{name}"').fetchall()}
        for (name,) in connection.sql("select view_name from duckdb_views() where not internal").fetchall()
        if name not in TABLES
    }
    silent = sorted(
        f"{view}.{column}" for view, columns in views.items() for column in columns if not sentence(view, column)
    )
    assert not silent
    anywhere = set().union(*views.values())
    unknown = {
        f"{view}.{column}"
        for view, columns in COLUMNS.items()
        for column in columns
        if column not in (anywhere if view == "*" else views.get(view, set()))
    }
    assert not unknown
    assert set(TAKEN_FROM) <= set(views)
    assert {source for sources in TAKEN_FROM.values() for source in sources} <= set(views) | set(TABLES)


def queries() -> list[str]:
    return re.findall(r"```sql\n(.*?)```", (ROOT / "docs/sql.md").read_text(), re.S)


@pytest.mark.parametrize("query", queries())
def test_every_query_of_the_page_runs(query: str, tmp_path: Path) -> None:
    connection, _ = connect(tmp_path)
    connection.execute(query)


def test_there_are_queries() -> None:
    assert len(queries()) >= 8


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_task_and_flag_that_a_page_types_exists(page: Path) -> None:
    reference = (ROOT / "docs/reference.md").read_text()
    tasks = dict(re.findall(r"^### ([a-z-]+)\n(.*?)(?=^### |^## )", reference, re.M | re.S))
    for line in re.findall(r"\./invoke ([a-z][^`\n;|()]*)", page.read_text()):
        line = line.split("#")[0].split(", then")[0]
        words = line.split()
        task = words[0].strip(".,;:)")
        assert task in tasks, f"{page.name}: there is no task '{task}'"
        for flag in re.findall(r"(?<![\w-])--([a-z][a-z-]+)", line):
            assert f"`--{flag}`" in tasks[task] or flag == "list", f"{page.name}: {task} has no flag --{flag}"


def test_the_readme_gives_exactly_two_commands_for_a_fresh_machine() -> None:
    block = re.search(r"nothing else:\n\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert block is not None
    assert block[1].split("\n")[:2] == ["./invoke bench", "./invoke test"]
