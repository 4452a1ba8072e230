"""What a run ran on: the columns of `runs` that describe the machine and the bench."""

from __future__ import annotations

import platform
import socket
import subprocess
from typing import Any

import psutil

from bench import __version__
from bench.host import cores, cpu_model, os_name
from bench.paths import ROOT
from bench.telemetry.sampler import gpu_info


def facts(gpu_index: int | str | None) -> dict[str, Any]:
    """Host, GPU and bench, as columns of `runs`. What cannot be known is None; `gpu_reason` says why."""
    gpu = gpu_info(gpu_index)
    return {
        "host": socket.gethostname(),
        "os": os_name(),
        "python": platform.python_version(),
        "cpu_model": cpu_model(),
        "cpu_cores": cores(),
        "ram_bytes": psutil.virtual_memory().total,
        "gpu_name": gpu.name,
        "gpu_uuid": gpu.uuid,
        "gpu_vram_bytes": gpu.vram_bytes,
        "gpu_driver": gpu.driver,
        "gpu_reason": gpu.reason,
        "bench_version": __version__,
        "bench_commit": commit(),
    }


def commit() -> str | None:
    """Commit of this checkout, with `+dirty` where tracked files were changed; None outside a checkout."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+dirty" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
