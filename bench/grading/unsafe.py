"""The `unsafe` provider: a plain process with limits. Code in it can read and write what the user can."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Any

from bench.grading.bubblewrap import interpreter, pytest_parts
from bench.grading.link import BOOT, PYTHON_FLAGS, ProcessLink, worker_sources


class UnsafeLink(ProcessLink):
    """A worker with a folder that is removed with it."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="gguf-bench-grading-")
        parts = Path(self.folder) / "pytest"
        parts.mkdir()
        for source, target in pytest_parts():
            (parts / Path(target).name).symlink_to(source)
        super().__init__([interpreter(), *PYTHON_FLAGS, "-c", BOOT])
        config: dict[str, Any] = {"mode": "unsafe", "folder": self.folder, "pytest_path": [str(parts)]}
        self.send({"sources": worker_sources(), "config": config | {"nproc_base": _processes_now()}})

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _processes_now() -> int | None:
    """What the user already runs: the limit on processes counts per user. None for root, whom it does not bind."""
    if os.geteuid() == 0:
        return None
    mine = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == os.geteuid():
                    mine += len(list((entry / "task").iterdir()))
            except OSError:
                continue  # it ended meanwhile
    return mine + 32


def start() -> UnsafeLink:
    """Start a worker."""
    return UnsafeLink()


def problem() -> tuple[str, str] | None:
    """(what does not work, how to mend it), or None."""
    if platform.system() != "Linux":
        return "grading needs Linux", "run the bench on Linux"
    return None
