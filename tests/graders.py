"""Graders for tests: opened once per session and provider, closed at its end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.grading import open_grader
from bench.grading.container import BASE_VARIABLE
from bench.grading.pool import SandboxGrader

BASE = "gguf-bench/base-python:bookworm"

PROVIDERS = ["bubblewrap", pytest.param("container", marks=pytest.mark.docker)]


def engine_answers() -> bool:
    """Whether a Docker engine is there."""
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def sandbox_base() -> None:
    """A base image for the container provider: the one named by the environment, else made from Debian's packages."""
    if os.environ.get(BASE_VARIABLE):
        return
    script = Path(__file__).parents[1] / "containers" / "debian-base.sh"
    subprocess.run(["sh", str(script), BASE, "python3"], check=True, capture_output=True)
    os.environ[BASE_VARIABLE] = BASE


def opened(provider: str, workers: int = 1) -> Iterator[SandboxGrader]:
    """A grader of the provider; a test that needs Docker is skipped without an engine, but never under CI."""
    if provider == "container":
        if not engine_answers() and not os.environ.get("CI"):
            pytest.skip("no Docker engine answers")
        sandbox_base()
    with open_grader(provider, workers) as grader:
        yield grader
