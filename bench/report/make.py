"""Make the report of a run: data from the views, Markdown from a template."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jinja2

from bench.errors import BenchError
from bench.report.data import report_data, resolve_run
from bench.report.markdown import inline
from bench.report.page import page
from bench.store.database import connect


def make_report(results: Path, run_id: str, folder: Path, *, allow_mixed: bool = False) -> Path:
    """Write `report.md` into a folder (`reports/RUN`) and return its path. `run_id` may be `latest` or a unique prefix.

    Files that cannot be read are named in the report. Raises UsageError for an unknown run, BenchError where nothing
    was run yet or the folder cannot be written to.
    """
    connection, bad = connect(results)
    with connection:
        run_id = resolve_run(connection, run_id)
        data = report_data(connection, run_id)
    text = render(data, bad_files=[str(b) for b in bad], allow_mixed=allow_mixed)
    path = Path(folder) / "report.md"
    temporary = path.with_name(f".report.md.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, "utf-8", newline="\n")
        temporary.replace(path)
    except OSError as e:
        raise BenchError(f"cannot write {path}: {e.strerror or e}; check the reports folder") from e
    return path


def render(data: dict[str, Any], *, bad_files: list[str] | None = None, allow_mixed: bool = False) -> str:
    """The Markdown of a report's data."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bench", "report"),
        finalize=lambda value: inline(value, 2000),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # Markdown: `inline` escapes, not HTML's rules
    )
    text = environment.get_template("report.md.j2").render(
        page(data, bad_files=bad_files or [], allow_mixed=allow_mixed)
    )
    lines = [line.rstrip() for line in text.split("\n")]
    out: list[str] = []
    for line in lines:
        if line or (out and out[-1]):
            out.append(line)
    return "\n".join(out).strip("\n") + "\n"
