"""Make the report of a run: data from the views, one page of HTML, and Markdown with its pictures beside it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from bench.errors import BenchError
from bench.report.answers import answers
from bench.report.chart_data import chart_data
from bench.report.charts import Chart, Facts, charts
from bench.report.data import report_data, resolve_run
from bench.report.html import render_html
from bench.report.markdown import Safe, block, inline
from bench.report.names import arm_names
from bench.report.page import page
from bench.report.svg import dark, size, uri, warm_up
from bench.store.database import connect, understood

_LONGEST = 4000
"""Characters of a sentence: a lineup of many arms has many pairs."""

_SIGNS = {"passed": "✓", "failed": "✗", "suspect": "?", "missing": "–"}


@dataclass(frozen=True)
class Report:
    """The files of a report."""

    html: Path
    """One page that needs nothing else."""
    markdown: Path
    """The same for a repository; its pictures lie in `charts/` beside it."""


def make_report(results: Path, run_id: str, folder: Path, *, allow_mixed: bool = False) -> Report:
    """Write `report.html`, `report.md` and `charts/*.svg` into a folder (`reports/RUN`).

    `run_id` may be `latest` or a unique prefix. Files that cannot be read are named in the report. Raises UsageError
    for an unknown run, BenchError where nothing was run yet, the views cannot work with what is stored, or the folder
    cannot be written to.
    """
    warm_up()
    connection, bad = connect(results)
    with connection, understood(f"run {run_id}"):
        run_id = resolve_run(connection, run_id)
        data = report_data(connection, run_id)
        names = arm_names(data["summary"])
        drawn = charts(Facts(data, chart_data(connection, run_id), names))
        every_answer = answers(connection, run_id, names)
    bad_files = [str(b) for b in bad]
    html = render_html(
        page(data, bad_files=bad_files, allow_mixed=allow_mixed)
        | {"charts": [_figure(c) for c in drawn], "signs": _SIGNS, **every_answer}
    )
    text = render(data, drawn, bad_files=bad_files, allow_mixed=allow_mixed)
    made = Report(Path(folder) / "report.html", Path(folder) / "report.md")
    pictures = {Path(folder) / "charts" / f"{c.name}.svg": c.svg for c in drawn}
    try:
        for old in (Path(folder) / "charts").glob("*.svg"):
            if old not in pictures:
                old.unlink()
        for path, content in {**pictures, made.html: html, made.markdown: text}.items():
            _write(path, content)
    except OSError as e:
        raise BenchError(f"cannot write {e.filename or folder}: {e.strerror or e}; check the reports folder") from e
    return made


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary.write_text(text, "utf-8", newline="\n")
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _figure(chart: Chart) -> dict[str, Any]:
    width, height = size(chart.svg)
    return {
        "name": chart.name,
        "title": chart.title,
        "note": chart.note,
        "views": chart.views,
        "light": uri(chart.svg),
        "dark": uri(dark(chart.svg)),
        "width": width,
        "height": height,
    }


def render(
    data: dict[str, Any], drawn: Sequence[Chart] = (), *, bad_files: Sequence[str] = (), allow_mixed: bool = False
) -> str:
    """The Markdown of a report's data; pictures are named as `charts/NAME.svg`."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bench", "report"),
        finalize=lambda value: inline(block(value), _LONGEST),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # Markdown: `inline` escapes, not HTML's rules
    )
    pictures = [{"image": Safe(f"![{inline(c.title)}: {inline(c.note)}](charts/{c.name}.svg)")} for c in drawn]
    text = environment.get_template("report.md.j2").render(
        page(data, bad_files=bad_files, allow_mixed=allow_mixed) | {"charts": pictures}
    )
    lines = [line.rstrip() for line in text.split("\n")]
    out: list[str] = []
    for line in lines:
        if line or (out and out[-1]):
            out.append(line)
    return "\n".join(out).strip("\n") + "\n"
