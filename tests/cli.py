"""`./invoke` as a person types it, and questions to what it left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent

# Two test sessions on one machine, or a user's bench beside one, must not wait for each other's device lock.
os.environ.setdefault("GGUF_BENCH_LOCKS", tempfile.mkdtemp(prefix="gguf-bench-test-locks-"))


def invoke(
    *arguments: str, timeout: float = 560, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a task to its end."""
    return subprocess.run(
        [str(ROOT / "invoke"), *arguments],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def start(*arguments: str, env: dict[str, str] | None = None, log: Path | None = None) -> subprocess.Popen[str]:
    """Start a task in a session of its own, so that a signal to it reaches nobody else."""
    with open(log or os.devnull, "w") as out:
        return subprocess.Popen(
            [str(ROOT / "invoke"), *arguments],
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def small_suite(folder: Path, levels: int = 3) -> str:
    """The first levels of the suite `smoke` as a suite of one's own: what a run does is the same, and sooner done."""
    made = folder / "small"
    shutil.copytree(ROOT / "suites" / "smoke", made)
    head, *parts = re.split(r"^(?=\[\[level\]\])", (made / "suite.toml").read_text("utf-8"), flags=re.MULTILINE)
    (made / "suite.toml").write_text(head + "".join(parts[:levels]), "utf-8")
    for part in parts[levels:]:
        found = re.search(r'^id = "(.+)"', part, re.MULTILINE)
        assert found is not None
        shutil.rmtree(made / found[1])
    return str(made)


def sql(results: Path, query: str) -> list[dict[str, Any]]:
    """Rows of a query, through the task."""
    done = invoke("sql", query, "--results", str(results), "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout, parse_constant=lambda text: (_ for _ in ()).throw(ValueError(text)))
    assert isinstance(rows, list)
    return rows


def children_of(marker: str) -> list[str]:
    """Command lines of living processes that mention a text, such as a results folder of this test alone."""
    out = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if marker in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            out.append(line)
    return out


def wait_for(condition: Any, seconds: float = 30, step: float = 0.1) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(step)
    return bool(condition())
