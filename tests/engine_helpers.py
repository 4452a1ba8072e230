"""What the engines' tests share: arms, the stub as an executable, and looks at processes."""

from __future__ import annotations

import json
import stat
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from bench.presets.load import Arm, ModelRef, Sampler

STUB = Path(__file__).with_name("server_stub.py")
SAMPLER = Sampler("test", temperature=0.6, top_p=0.95, top_k=20, min_p=0.05, repeat_penalty=1.05)


def make_arm(**changes: Any) -> Arm:
    """An arm that the embedded engine and the stub can run."""
    values: dict[str, Any] = {
        "arm_id": "arm-a",
        "title": "An arm",
        "model": ModelRef("file:model.gguf"),
        "sampler": SAMPLER,
        "context": 1024,
        "startup_limit_s": 30.0,
    }
    return Arm(**{**values, **changes})


def stub_executable(folder: Path, *, through_shell: bool = False) -> Path:
    """The stub as a program; `through_shell` leaves a shell between, which waits and does not replace itself."""
    path = folder / ("llama-server-sh" if through_shell else "llama-server")
    run = f'"{sys.executable}" "{STUB}" "$@"'
    path.write_text(f"#!/bin/sh\n{run}\nexit $?\n" if through_shell else f"#!/bin/sh\nexec {run}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def script(steps: Mapping[str, Any] | None = None, **options: Any) -> dict[str, str]:
    """The environment of an arm that makes the stub follow this script."""
    return {"STUB_SCRIPT": json.dumps({"steps": steps or {"0": {"health": 200}}, "options": options})}


def model_file(folder: Path) -> Path:
    """Some file that passes for a model: the stub does not read it."""
    path = folder / "model.gguf"
    path.write_bytes(b"GGUF" + b"\0" * 1000)
    return path


def wait_for(condition: Callable[[], bool], limit_s: float = 15.0) -> bool:
    """Whether the condition comes true within the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def running(*markers: str) -> list[int]:
    """Living processes whose command line holds all the markers."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        words = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and all(
            any(marker in word for word in words) for marker in markers
        ):
            found.append(process.info["pid"])
    return found


def gone(pid: int) -> bool:
    """Whether the process has ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
