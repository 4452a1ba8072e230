"""Text that a model, a file or a stranger's run brings in: shown as text wherever it is shown, and obeyed nowhere."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from store_rows import RUN, arm_row, fill, generation, grade, plan_row, run_row

from bench.commands.importing import import_run
from bench.commands.look import sql
from bench.errors import UsageError
from bench.report.make import make_report
from bench.report.svg import draw
from bench.reporter import Answered, LiveReporter, PlainReporter, Reporter
from bench.store.write import Store
from bench.visible import visible

ROOT = Path(__file__).parents[1]
FORGED = "\x1b[1A\x1b[2Kiteration 1/1  L1  passed  10/10 points"
"""One line up, wiped, and written again."""
EVIL = (
    "a\x1b[31m\x07\x00\x7f\x85\x9b2J\u202egnp\u061c\u00ad\u200b\u180e\u115f\u3164\u2028\u2029\u2066\ufeff\ufffe\uffff"
    "\ufe0f\U000e0041\U0001fffe\x0b\x0c\rz"
)
UNSEEN = sorted(set(EVIL) - set("a[31m2Jgnpz"))


def code(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


# The one function ------------------------------------------------------------------------------------


def test_every_character_without_a_sign_of_its_own_is_shown_as_its_code() -> None:
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        if unicodedata.category(character) in kinds or number & 0xFFFE == 0xFFFE:
            assert visible(character) != character, hex(number)
            assert visible(character, lines=True) != character or character in "\t\n", hex(number)
    for number in (0x34F, 0x115F, 0x1160, 0x17B4, 0x180B, 0x180E, 0x3164, 0xFE0F, 0xFFA0, 0xE0001, 0xE0100, 0xFDD0):
        assert visible(chr(number)) == code(chr(number))
    assert visible("\r\n\t") == "\\r\\n\\t"


def test_what_people_write_stays_as_it_is() -> None:
    text = "größer ≥ 5 %, naïve – “x”, 模型, модель, नमस्ते, 🤗 \\n | [bold]x[/bold] :smile: a\u00a0b"
    assert visible(text) == text
    assert visible("a\r\nb\rc\n\td", lines=True) == "a\nb\nc\n\td"


@given(st.text(st.characters(exclude_categories=[])))
def test_the_result_can_be_encoded_and_is_shown_the_same_again(text: str) -> None:
    shown = visible(text)
    shown.encode()
    assert visible(shown) == shown and len(shown.splitlines()) <= 1
    ElementTree.fromstring(f"<a>{visible(text, lines=True).replace('&', '').replace('<', '')}</a>")


# A terminal ------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def plain() -> tuple[Reporter, io.StringIO]:
    out = io.StringIO()
    return PlainReporter(out), out


def plain_terminal() -> tuple[Reporter, io.StringIO]:
    out = Terminal()
    return PlainReporter(out), out


def live() -> tuple[Reporter, io.StringIO]:
    out = Terminal()
    console = Console(file=out, force_terminal=True, width=2000, height=50, highlight=False, _environ={"TERM": "xterm"})
    return LiveReporter(console), out


REPORTERS = [plain, plain_terminal, live]
HOSTILE = [
    FORGED,
    EVIL,
    "x\nwritten   /tmp/forged",
    "x\r\nwritten   /tmp/forged",
    "x\rwritten   /tmp/forged",
    "x\u2028written   /tmp/forged",
    "\x1b]0;title\x07\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "half \ud800 of a pair",
]


def tell(out: Reporter, text: str) -> None:
    """Everything that can be told, with the text wherever text goes."""
    out.line(f"now       {text}")
    out.warn(text)
    out.table(text, [text, "b"], [[text, "1"], ["x", text]])
    out.download(text, 1 << 20, 2 << 20)
    out.download(text, 2 << 20, 2 << 20)
    out.progress(text, 1, 2)
    out.progress(text, 2, 2)
    out.begin_arm(text, 1, 1, 2)
    out.phase(text)
    out.question(1, 2, text)
    out.tokens(3)
    for outcome, points in (("exception", 0.0), ("passed", 10.0), (text, None)):
        out.answered(Answered(1, 2, text, outcome, points, 10.0, 3, 81.2, 1.3, text))
    out.end_arm()


# What rich writes by itself: colours, the cursor hidden and shown, the live line wiped.
_OWN = re.compile(r"\x1b\[(?:\?25[lh]|[0-9;]*m|2K|1A)")


@pytest.mark.parametrize("make", REPORTERS)
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_others_moves_the_cursor_or_begins_a_line(
    make: Callable[[], tuple[Reporter, io.StringIO]], text: str
) -> None:
    out, stream = make()
    tell(out, text)
    shown = stream.getvalue()
    harmless, same = make()
    tell(harmless, "harmless")
    assert shown.count("\n") == same.getvalue().count("\n")
    if make is live:
        assert text not in shown and "\x1b[2Kiteration" not in shown
        shown = _OWN.sub("", shown).replace("\r", "")
    assert not re.search(r"[^\n -\U0010ffff]", shown)
    assert not any(c in shown for c in UNSEEN)
    assert not re.search(r"(?m)^\s*written ", shown)
    assert not re.search(r"(?m)^\s*iteration 1/1", shown)


@pytest.mark.parametrize("make", REPORTERS)
def test_markup_in_text_of_others_is_text(make: Callable[[], tuple[Reporter, io.StringIO]]) -> None:
    out, stream = make()
    text = "[red]x[/red] [link=http://evil.example]y[/link] :smile: [/] \\[b]z\\"
    tell(out, text)
    shown = _OWN.sub("", stream.getvalue())
    assert shown.count(text) >= 12
    assert "\U0001f604" not in shown, "no name of an emoji is read"


def test_a_forged_line_stays_inside_the_line_that_quotes_it() -> None:
    out, stream = plain()
    out.begin_arm("a", 1, 1, 1)
    out.answered(Answered(1, 1, "L1", "exception", 0.0, 10.0, 3, 81.2, 1.3, f"ValueError: {FORGED}"))
    (last,) = stream.getvalue().splitlines()[1:]
    assert last.startswith("[1/1 a] iteration 1/1  L1  exception  0/10 points")
    assert "\\u001b[1A\\u001b[2K" in last


def test_the_rest_of_a_long_line_is_not_where_lines_begin() -> None:
    """With spaces before it a text could choose what the terminal's next line begins with."""
    for spaces in range(60):
        out = Terminal()
        reporter = LiveReporter(Console(file=out, force_terminal=True, width=80, highlight=False))
        words = f"ValueError:{' ' * spaces}iteration 1/1  L9  passed  10/10"
        reporter.answered(Answered(1, 1, "L1", "exception", 0.0, 10.0, 3, 81.2, 1.3, words))
        reporter.line(f"stored    {words * 2}")
        reporter.warn(words * 3)
        lines = _OWN.sub("", out.getvalue()).splitlines()
        assert all(len(line.rstrip()) <= 80 for line in lines)
        begun = [line for line in lines if not line.startswith("      ")]
        assert [line.split()[0] for line in begun] == ["iteration", "stored", "warning:"]
        assert "L1" in begun[0]


def test_columns_stay_below_each_other() -> None:
    out, stream = plain()
    out.table("t", ["a", "b"], [["x\x1b\n", "1"], ["y", "2"]])
    lines = stream.getvalue().splitlines()
    assert [line[-1] for line in lines[1:]] == ["b", "1", "2"] and len({len(line) for line in lines[1:]}) == 1


def test_lines_that_were_asked_for_stay_lines() -> None:
    text = f'a,b\n1,"two\nlines"\n\t{EVIL}'
    out, stream = plain()
    out.data(text)
    assert stream.getvalue() == text + "\n", "a program that reads it gets every character"
    for make in (plain_terminal, live):
        out, stream = make()
        out.data(text)
        assert len(_OWN.sub("", stream.getvalue()).splitlines()) == 5
        assert not any(c in _OWN.sub("", stream.getvalue()) for c in UNSEEN)


def test_sql_shows_cells_and_columns_in_a_line_each(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, True]]}, lineup_id=EVIL)
    asked = "select lineup_id as \"n\x1b[2J\u202e\", 'a\nb' as two from runs"
    out, stream = plain()
    assert sql(asked, "table", str(tmp_path), out) == 0
    shown = stream.getvalue().splitlines()
    assert len(shown) == 4 and not any(c in "".join(shown) for c in UNSEEN) and "a\\nb" in shown[2]
    out, stream = plain_terminal()
    assert sql(asked, "csv", str(tmp_path), out) == 0
    assert not any(c in stream.getvalue() for c in UNSEEN)


def test_an_error_that_quotes_text_is_one_line() -> None:
    program = (
        "import sys, tasks\nfrom bench.errors import UsageError\n"
        f"def work(out):\n    raise UsageError('found ' + {FORGED + chr(10) + 'next'!r})\n"
        "try:\n    tasks._do(work)\nexcept BaseException as e:\n    print(ascii(e.message), e.code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == repr(f"error: found {visible(FORGED)}\\nnext") + " 2\n"


# Charts and pages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["\x1b", "\ufffe", "\uffff", "\x00", "\x08", "\ud800", "\u202e", "\x85"])
def test_a_chart_is_drawn_whatever_an_arm_is_called(bad: str) -> None:
    """Unclean, the renderer ends the whole process: this test would not fail but kill its runner."""
    name = f"a{bad}b"
    svg = draw({
        "mark": "point", "data": {"values": [{"arm": "a", "x": 1}, {"arm": name, "x": 1}]},
        "encoding": {"y": {"field": "arm", "type": "nominal", "sort": [name, "a"]},
                     "x": {"field": "x", "type": "quantitative"},
                     "color": {"field": "arm", "type": "nominal", "scale": {"domain": [name, "a"]}}},
    })  # fmt: skip
    ElementTree.fromstring(svg)
    assert bad not in svg and code(bad) in svg
    assert svg.index(f">{visible(name)}</text>") < svg.index(">a</text>"), "and sorted as it was asked for"


def test_every_chart_is_drawn_of_arms_and_levels_with_unseen_characters(tmp_path: Path) -> None:
    folder = hostile_run(tmp_path)
    for picture in sorted((folder / "charts").glob("*.svg")):
        text = picture.read_text("utf-8")
        ElementTree.fromstring(text)
        assert not any(c in text for c in UNSEEN), picture.name
        assert "\\u001b" in text
    assert len(list((folder / "charts").glob("*.svg"))) > 3


def hostile_run(tmp_path: Path) -> Path:
    """The report of a run that has unseen characters in every text."""
    arms, levels = (EVIL, EVIL + "2"), (f"L1{EVIL}", f"L2{EVIL}")
    store = Store(tmp_path)
    texts = dict.fromkeys(("lineup_id", "suite_title", "reason", "origin"), EVIL)
    store.append("runs", [run_row(**texts | {"arm_order": list(arms), "status": "interrupted"})])
    for arm in arms:
        told = dict.fromkeys(("title", "reason", "detail", "advice", "log_line"), EVIL)
        store.append("arms", [arm_row(arm, **told | {"status": "failed"})])
        slots = [(level, i) for level in levels for i in (1, 2)]
        store.append("plan", [plan_row(level, i, arm, level_title=EVIL) for level, i in slots])
        body = f"def f():\n\tpass\r\n# {EVIL}"
        made = [generation(level, i, arm, content=body, reasoning=body, detail=EVIL) for level, i in slots]
        store.append("generations", made)
        store.append("grades", [
            grade(g, g["iteration"] == 1, detail=EVIL, code=body, first_failed_test=EVIL, missing_name=EVIL,
                  offered=[EVIL], suspect=g["iteration"] == 1, suspect_reasons=[EVIL])
            for g in made
        ])  # fmt: skip
    return make_report(tmp_path, RUN, tmp_path / "reports").html.parent


def test_nothing_unseen_is_in_a_report(tmp_path: Path) -> None:
    folder = hostile_run(tmp_path)
    page, text = (folder / "report.html").read_bytes().decode(), (folder / "report.md").read_bytes().decode()
    for whole in (page, text):
        found = {hex(ord(c)) for c in whole if visible(c) != c and c != "\n" and c != "\t"}
        assert found == set()
        for character in set(UNSEEN) - set("\r"):
            assert re.search(re.escape(code(character)).replace(r"\\", r"\\{1,2}"), whole), hex(ord(character))
    assert "def f():\n\tpass\n# a\\u001b[31m" in page, "code keeps its lines and tabs"


# Import ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["a\x1b[2J", "a\nb", "a\u202eb", "a\ufffe", "a\u00ad"])
@pytest.mark.parametrize("where", ["arm_id", "level_id", "suite_id", "arm_order", "lineup_id"])
def test_a_run_with_unseen_characters_in_its_names_is_refused(tmp_path: Path, where: str, bad: str) -> None:
    there = tmp_path / "there"
    store = Store(there)
    run = {"arm_order": [bad]} if where == "arm_order" else {where: bad} if where in ("lineup_id", "suite_id") else {}
    store.append("runs", [run_row(**run)])
    row = {"arm_id": "a", "level": "L1"} | ({"arm_id": bad} if where == "arm_id" else {})
    row |= {"level": bad} if where == "level_id" else {}
    store.append("plan", [plan_row(row["level"], 1, row["arm_id"])])
    with pytest.raises(UsageError) as error:
        import_run(str(there), None, str(tmp_path / "results"), PlainReporter(io.StringIO()))
    said = str(error.value)
    assert f"{where} '{visible(bad)}' holds control or invisible characters" in said and visible(said) == said
    assert not (tmp_path / "results" / "runs" / RUN).exists()
