"""Where things lie."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The repository."""


@dataclass(frozen=True)
class Places:
    """The folders of one invocation. The default results have their database and reports beside them in the repository
    root; results elsewhere hold both inside."""

    results: Path
    database: Path
    reports: Path


def places(results: str | os.PathLike[str] | None = None) -> Places:
    """The folders for `--results DIR`, or the default ones."""
    folder = Path(results).expanduser().absolute() if results else ROOT / "results"
    if folder == ROOT / "results":
        return Places(folder, ROOT / "results.duckdb", ROOT / "reports")
    return Places(folder, folder / "results.duckdb", folder / "reports")


def default_cache() -> Path:
    """$GGUF_BENCH_CACHE, else gguf-bench below $XDG_CACHE_HOME, else ~/.cache/gguf-bench."""
    if own := os.environ.get("GGUF_BENCH_CACHE"):
        return Path(own).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification: a relative path there is to be ignored.
    base = Path(xdg) if Path(xdg).is_absolute() else Path.home() / ".cache"
    return base / "gguf-bench"
