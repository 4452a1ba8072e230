"""`compare`: two runs side by side."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from bench.commands.stored import opened
from bench.errors import BenchError
from bench.report.compare import Comparison
from bench.report.compare import compare as work
from bench.reporter import Reporter


def compare(run_a: str, run_b: str, allow_mixed: bool, results: str | None, out: Reporter) -> int:
    """Print the comparison of two runs and write it to `compare-A-B.md`. 3 when unreadable files were left out."""
    where, connection, code = opened(results, out)
    with connection:
        found = work(connection, run_a, run_b, allow_mixed=allow_mixed)
    for line in found.lead:
        out.line(line)
    for banner in found.banners:
        out.warn(banner)
    for section in found.sections:
        out.table(section.title, section.header, section.rows)
    for note in found.notes:
        out.line(f"note: {note}")
    out.line(f"written   {_write(found, where.reports)}")
    return code


def _write(found: Comparison, folder: Path) -> Path:
    path = folder / f"compare-{found.run_a}-{found.run_b}.md"
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary.write_text(found.markdown(), "utf-8", newline="\n")
        temporary.replace(path)
    except OSError as e:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise BenchError(f"cannot write {path}: {e.strerror or e}; check the reports folder") from e
    return path
