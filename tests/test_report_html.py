"""The page of a report in a real browser: it needs nothing else, and what models wrote is text in it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from browser import Browser
from hypothesis import given, settings
from hypothesis import strategies as st
from store_rows import NOON, RUN, arm_row, ask, fill, grade
from test_report import NASTY

from bench.report.content import Cell, Table
from bench.report.html import block, text
from bench.report.make import make_report
from bench.store.write import Store

SCRIPTS = [
    "<script>document.title = 'forged'</script>",
    "</code></pre><script>document.title='forged'</script>",
    '"><img src=x onerror="document.title=\'forged\'">',
    "<svg onload=\"document.title='forged'\"></svg>",
    "<img src='http://127.0.0.1:9/picture.png'>",
    "<link rel=stylesheet href='http://127.0.0.1:9/style.css'>",
    "<style>body{display:none}</style>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "<iframe src='http://127.0.0.1:9/'></iframe>",
    "<base href='http://127.0.0.1:9/'>",
    "</details></section></main><h1>forged</h1>",
    "{{ 7 * 7 }}{% include 'x' %}",
    "&lt;script&gt;",
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run in which hostile text stands wherever a model, a file or a person can put it."""
    results = tmp_path_factory.mktemp("results")
    hostile = NASTY + SCRIPTS
    fill(results, {"a": [[True, False]] * len(hostile), "b": [[True, True], [False, None]]})
    store = Store(results)
    made = ask(
        results,
        "select * exclude (complete, identity, in_plan) from generations_latest "
        "where arm_id = 'a' and level_id = 'L2' order by iteration",
    )
    again = [
        row | {"generation_id": f"h{n}", "content": words, "reasoning": words * 3, "attempt": 2,
               "started_at": NOON + timedelta(hours=2)}
        for n, (row, words) in enumerate(zip(made, hostile, strict=True))
    ]  # fmt: skip
    store.append("generations", again)
    store.append("grades", [
        grade(row, False, grade_id=f"g{row['generation_id']}", outcome="assertion", detail=words, code=words,
              first_failed_test=words, graded_at=NOON + timedelta(hours=3))
        for row, words in zip(again, hostile, strict=True)
    ])  # fmt: skip
    store.append("arms", [arm_row("c", status="failed", reason="cuda_oom", title=SCRIPTS[1], detail=SCRIPTS[0],
                                  advice=SCRIPTS[2], log_line=SCRIPTS[3])])  # fmt: skip
    return make_report(results, RUN, results / "reports").html


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1600])
def test_it_opens_offline_says_nothing_asks_for_nothing_and_fits(
    browser: Browser, page: Path, width: int, dark: bool, tmp_path: Path
) -> None:
    browser.console.clear()
    browser.requests.clear()
    browser.open(page, width=width, dark=dark)
    assert browser.evaluate("document.title") == "smoke: A suite"
    assert browser.evaluate("document.querySelectorAll('h1').length") == 1
    assert browser.evaluate("getComputedStyle(document.body).display") == "block"
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "only tables scroll, the page does not"
    assert browser.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 100)")
    assert browser.evaluate("document.images.length") > 3
    light = browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(254, 254, 254)"
    assert light is not dark
    time.sleep(0.2)
    browser.evaluate("1")
    assert browser.console == []
    assert browser.requests == [page.as_uri()]
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


def test_only_its_own_script_and_style_could_ever_run(browser: Browser, page: Path) -> None:
    browser.open(page, width=1600)
    browser.console.clear()
    for element in ("script", "style", "iframe", "base", "link", "object", "embed", "form"):
        count = browser.evaluate(f"document.querySelectorAll('{element}').length")
        assert count == {"script": 1, "style": 1, "link": 1}.get(element, 0), element
    handlers = "[...document.querySelectorAll('*')].some(e => [...e.attributes].some(a => /^on/.test(a.name)))"
    assert browser.evaluate(handlers) is False
    browser.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'document.title = 1'}))"
    )
    assert browser.evaluate("document.title") == "smoke: A suite"
    browser.evaluate("1")
    assert any("Content Security Policy" in line for line in browser.console), "the policy is what stopped it"


def test_a_failed_square_opens_its_answer_and_shows_the_text_as_it_was(browser: Browser, page: Path) -> None:
    browser.open(page, width=1600)
    squares = browser.evaluate("document.querySelectorAll('.grid td.failed a').length")
    assert squares == len(NASTY + SCRIPTS) + 1
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == 0
    browser.evaluate("[...document.querySelectorAll('.grid td.failed a')].at(-2).click()")
    until = time.monotonic() + 5
    while not browser.evaluate("document.querySelectorAll('details[open]').length") and time.monotonic() < until:
        time.sleep(0.05)
    shown = browser.evaluate("document.querySelector('details[open]').textContent")
    assert SCRIPTS[-1] in shown and "First failed test" in shown and "Reasoning," in shown
    assert browser.evaluate("document.querySelector('details[open] details').open") is False, "reasoning stays folded"
    whole = browser.evaluate("document.body.textContent")
    assert all(words in whole for words in SCRIPTS)
    assert "\u202e" not in whole and "\x1b" not in whole


def test_tables_are_sorted_by_a_click(browser: Browser, page: Path) -> None:
    browser.open(page, width=1600)
    column = "[...document.querySelector('#summary table').tBodies[0].rows].map(r => r.cells[0].textContent)"
    first = browser.evaluate(column)
    click = "document.querySelectorAll('#summary table')[0].tHead.rows[0].cells[{}].querySelector('button').click()"
    browser.evaluate(click.format(2))
    down = browser.evaluate(column)
    assert browser.evaluate("document.querySelectorAll('#summary th[aria-sort=descending]').length") == 1
    browser.evaluate(click.format(2))
    up = browser.evaluate(column)
    assert sorted(first) == sorted(down) == sorted(up)
    known = [n for n in down if not n.startswith("c")]
    assert [n for n in up if not n.startswith("c")] == known[::-1]
    assert down[-1].startswith("c") and up[-1].startswith("c"), "what was not measured is last in both directions"


def test_the_pictures_lie_beside_the_markdown(page: Path) -> None:
    markdown = (page.parent / "report.md").read_text("utf-8")
    named = re.findall(r"\]\((charts/[a-z-]+\.svg)\)", markdown)
    assert len(named) > 3 and {f"charts/{p.name}" for p in (page.parent / "charts").iterdir()} == set(named)
    for name in named:
        svg = (page.parent / name).read_text("utf-8")
        assert svg.startswith("<svg") and "<script" not in svg and "href=" not in svg


def test_a_cell_is_sorted_by_its_number_and_not_by_its_text() -> None:
    shown = str(block(Table(("x",), (("1.5 ± 3",), ("n/a",), (Cell("900 MB", 9e8),), (Cell("?", None),), (7,)))))
    assert re.findall(r"<td([^>]*)>", shown) == [
        ' data-key="1.5"', "", ' data-key="900000000.0"', "", ' data-key="7.0"'
    ]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_stays_text(words: str) -> None:
    shown = str(text(words))
    assert not re.search(r"[<>\"']", shown)
    assert re.fullmatch(r"(?:[^&]|&(?:amp|lt|gt|#34|#39);)*", shown, re.DOTALL)
