"""What a person sees while the bench works. The only place that prints; tasks.py hands it in.

In a terminal the state of the run is one live line below the lines that stay; in a pipe or under CI there are plain
lines only, and nothing is ever overwritten.

What is told quotes answers, files and runs of others. Every text is therefore made safe to show here, on its way out:
it can neither move the cursor nor begin a line, and markup in it is text.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from bench.options import counted
from bench.visible import visible


@dataclass(frozen=True)
class Answered:
    """One graded answer, for the line that tells of it."""

    iteration: int
    iterations: int
    level_id: str
    outcome: str
    points: float | None
    max_points: float
    tokens: int | None
    rate: float | None
    """Decode rate, tokens per second; None below two tokens."""
    seconds: float
    detail: str = ""


class Reporter(Protocol):
    """Where the runner tells what it does. Every text is one line, whatever is in it; only `data` has more."""

    def line(self, text: str = "") -> None:
        """A line that stays."""

    def data(self, text: str) -> None:
        """What was asked for, in lines of its own: as it is for a program that reads it, safe to show in a terminal."""

    def warn(self, text: str) -> None:
        """A line that stays and stands out."""

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A small table."""

    def download(self, name: str, done: int, total: int | None) -> None:
        """Bytes of a download so far; `done == total` ends it."""

    def progress(self, what: str, done: int, total: int) -> None:
        """So many of a number of like things are done; `done == total` ends it."""

    def begin_arm(self, arm_id: str, position: int, arms: int, questions: int) -> None:
        """An arm starts; so many questions are to be asked."""

    def phase(self, text: str) -> None:
        """What the arm is doing now."""

    def question(self, iteration: int, iterations: int, level_id: str) -> None:
        """A question has been sent."""

    def tokens(self, chunks: int) -> None:
        """Chunks of the answer so far."""

    def answered(self, event: Answered) -> None:
        """An answer has been graded."""

    def end_arm(self) -> None:
        """The arm is done, well or not."""


LONG_ANSWER_S = 60.0
"""After so many seconds of one answer a plain line says that it goes on."""


class PlainReporter:
    """Plain lines, for a pipe, a file or CI."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._arm = ""
        self._earned, self._graded = 0.0, 0
        self._asked, self._asked_at, self._said_at = "", 0.0, 0.0
        self._shown: dict[str, int] = {}

    def line(self, text: str = "") -> None:
        self._print(visible(text))

    def data(self, text: str) -> None:
        # A program that reads CSV or JSON needs every character; a terminal without colours still obeys controls.
        self._print(visible(text, lines=True) if self._stream.isatty() else text)

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def warn(self, text: str) -> None:
        self.line(f"warning: {text}")

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        shown = [[visible(str(c)) for c in row] for row in [header, *rows]]
        widths = [max(len(row[i]) for row in shown) for i in range(len(header))]
        self.line(title)
        for row in shown:
            self.line("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())

    def download(self, name: str, done: int, total: int | None) -> None:
        # One line for each tenth: enough to see that it moves, few enough for a log.
        step = min(10, 10 * done // total) if total else done // (50 << 20)
        if step > self._shown.get(name, -1):
            self._shown[name] = step
            of = f" of {total / 1e6:.0f}" if total else ""
            self.line(f"downloading {name}: {done / 1e6:.0f}{of} MB")

    def progress(self, what: str, done: int, total: int) -> None:
        step = 10 * done // max(1, total)
        if step > self._shown.get(what, 0):
            self._shown[what] = step
            self.line(f"{what}: {done} of {total}")
        if done >= total:
            self._shown.pop(what, None)

    def begin_arm(self, arm_id: str, position: int, arms: int, questions: int) -> None:
        self._arm = f"[{position}/{arms} {arm_id}]"
        self._earned, self._graded = 0.0, 0
        self.line(f"{self._arm} {counted(questions, 'question')}")

    def phase(self, text: str) -> None:
        self.line(f"{self._arm} {text}")

    def question(self, iteration: int, iterations: int, level_id: str) -> None:
        self._asked = f"iteration {iteration}/{iterations}  {level_id}"
        self._asked_at = self._said_at = time.monotonic()

    def tokens(self, chunks: int) -> None:
        # A long answer must not look like a program that stands still.
        now = time.monotonic()
        if now - self._said_at >= LONG_ANSWER_S:
            self._said_at = now
            self.line(f"{self._arm} {self._asked}  answering for {now - self._asked_at:.0f} s, {chunks} chunks so far")

    def answered(self, event: Answered) -> None:
        self._earned += event.points or 0.0
        self._graded += event.points is not None
        self.line(f"{self._arm} {answer_line(event)}")

    def end_arm(self) -> None:
        points = f", {self._earned:g} points" if self._graded else ""
        self.line(f"{self._arm} ended: {counted(self._graded, 'answer')} graded{points}")


_FURTHER_IN = "      "
"""Before the rest of a line that was too long for the terminal: deeper than any line begins."""


def _text(text: str, style: str = "") -> Text:
    """One line for the console. Text and not str: rich reads markup and emoji names in a str."""
    return Text(visible(text), style=style)


class LiveReporter:
    """A terminal: lines that stay, and one line below them that moves."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._status = self._console.status("")
        self._progress: Progress | None = None
        self._downloads: dict[str, TaskID] = {}
        self._head = self._now = ""
        self._earned, self._asked, self._questions = 0.0, 0, 0
        self._sent_at = 0.0
        self._drawn_at = 0.0

    def line(self, text: str = "") -> None:
        self._print(_text(text))

    def _print(self, text: Text) -> None:
        """A line that stays. What does not fit goes on further in: no spaces in it can put words where lines begin."""
        if text.cell_len <= self._console.width:
            self._console.print(text)
            return
        first, *rest = text.wrap(self._console, max(1, self._console.width - len(_FURTHER_IN)))
        self._console.print(Text("\n").join([first, *(Text(_FURTHER_IN) + line for line in rest)]))

    def data(self, text: str) -> None:
        self._console.print(Text(visible(text, lines=True)))

    def warn(self, text: str) -> None:
        self._print(_text(f"warning: {text}", "yellow"))

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(title=_text(title, "bold"), title_justify="left", box=None, pad_edge=False)
        for name in header:
            table.add_column(_text(name), overflow="fold")
        for row in rows:
            table.add_row(*(_text(str(c)) for c in row))
        self._console.print(table)

    def download(self, name: str, done: int, total: int | None) -> None:
        if self._progress is None:
            self._status.stop()
            name_column = TextColumn("{task.description}", markup=False)
            columns = (name_column, BarColumn(), DownloadColumn(), TransferSpeedColumn())
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._progress.start()
        if name not in self._downloads:
            self._downloads[name] = self._progress.add_task(visible(name), total=total)
        self._progress.update(self._downloads[name], completed=done, total=total)
        if total is not None and done >= total:
            self._downloads.pop(name)
            self._end_downloads()

    def progress(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done >= total:
            self._status.stop()
            self.line(f"{what}: {done} of {total}")
        elif now - self._drawn_at > 0.1:
            self._drawn_at = now
            bar = "\u2501" * (24 * done // total)
            self._status.start()
            self._status.update(_text(f"{what}  {bar:<24}  {done}/{total}"))

    def _end_downloads(self) -> None:
        if self._progress is not None and not self._downloads:
            self._progress.stop()
            self._progress = None

    def begin_arm(self, arm_id: str, position: int, arms: int, questions: int) -> None:
        self._downloads.clear()
        self._end_downloads()
        self._head = f"{position}/{arms} {arm_id}"
        self._earned, self._asked, self._questions = 0.0, 0, questions
        self.line()
        self._print(_text(arm_id, "bold"))
        self._status.start()

    def phase(self, text: str) -> None:
        self._now = text
        self._draw()

    def question(self, iteration: int, iterations: int, level_id: str) -> None:
        self._now = f"iteration {iteration}/{iterations}  {level_id}"
        self._sent_at = time.monotonic()
        self._draw()

    def tokens(self, chunks: int) -> None:
        # The client calls this for every chunk; drawing each would cost more than reading it.
        now = time.monotonic()
        if now - self._drawn_at > 0.2:
            seconds = now - self._sent_at
            self._draw(f"  {chunks} chunks  {chunks / seconds:.0f}/s" if seconds > 0 else "")

    def answered(self, event: Answered) -> None:
        self._earned += event.points or 0.0
        self._asked += 1
        style = "green" if event.outcome == "passed" else "yellow" if event.points is None else "red"
        self._print(_text("  " + answer_line(event), style))

    def end_arm(self) -> None:
        self._status.stop()

    def _draw(self, tail: str = "") -> None:
        self._drawn_at = time.monotonic()
        done = f"{self._asked}/{self._questions} answers  {self._earned:g} points"
        self._status.update(_text(f"{self._head}  {self._now}  {done}{tail}"))


def answer_line(event: Answered) -> str:
    """`iteration 2/5  L4  passed  15/15 points  81.2 tok/s  1.3 s`."""
    points = "not measured" if event.points is None else f"{event.points:g}/{event.max_points:g} points"
    rate = "no rate" if event.rate is None else f"{event.rate:.1f} tok/s"
    tokens = "" if event.tokens is None else f"  {event.tokens} tokens"
    detail = f"  ({event.detail[:100]})" if event.detail and event.outcome != "passed" else ""
    head = f"iteration {event.iteration}/{event.iterations}  {event.level_id}  {event.outcome}  {points}"
    return f"{head}{tokens}  {rate}  {event.seconds:.1f} s{detail}"


def for_stream(stream: TextIO | None = None) -> Reporter:
    """The reporter that suits a stream: live in a terminal, plain lines elsewhere."""
    out = stream or sys.stdout
    console = Console(file=out, highlight=False)
    return LiveReporter(console) if console.is_terminal and not console.is_dumb_terminal else PlainReporter(out)
