"""`clean`: remove what this project made, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.errors import ArmError, BenchError
from bench.models.obtain import remove_cache
from bench.paths import ROOT, default_cache, places
from bench.reporter import Reporter
from bench.runner.planning import size_text

CACHES = (".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "build", "dist")


def clean(cache: bool, results: bool, images: bool, out: Reporter) -> int:
    """Remove caches of tools; with `cache` the cached models, with `results` the repository's results and reports."""
    doomed = [ROOT / name for name in CACHES]
    doomed += [p for top in ("bench", "tests", "benchmarks") for p in (ROOT / top).rglob("__pycache__")]
    if results:
        where = places()
        doomed += [where.results, where.database, where.reports]
    freed = 0
    for path in doomed:
        if path.is_symlink() or not path.exists():
            continue
        size = _size(path)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        freed += size
        out.line(f"removed {path} ({size_text(size)})")
    if cache:
        freed += _size(default_cache()) if default_cache().is_dir() else 0
        remove_cache(default_cache())
        out.line(f"removed the cached models in {default_cache()}")
    if images:
        _images(out)
    out.line(f"{size_text(freed)} freed" if freed else "nothing to remove")
    return 0


def _images(out: Reporter) -> None:
    """Remove the images with this project's label. Docker is imported here alone: the rest works without it."""
    from bench.engines.docker_host import connect
    from bench.image.build import remove_ours

    try:
        for line in remove_ours(connect()):
            out.line(line)
    except ArmError as e:
        raise BenchError(str(e)) from e


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file() and not p.is_symlink())
