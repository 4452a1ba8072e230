"""The tests can fail: nothing in this repository turns a failing test into a passing one.

An attack program of the grading tests once had a name that pytest imports by itself. It wrote a conftest.py that made
every test of the repository pass without running.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from conftest import DOCKER_FILES

ROOT = Path(__file__).resolve().parent.parent


def test_a_failing_test_fails_under_this_configuration() -> None:
    """In the repository's own test folder, under its configuration and every conftest that applies there."""
    canary = ROOT / "tests" / "canary_of_test_canary.py"
    canary.write_text("def test_it():\n    assert False\n")
    try:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(canary)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    finally:
        canary.unlink()
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout


def test_no_hostile_program_has_a_name_that_pytest_imports() -> None:
    for path in (ROOT / "tests" / "attacks").rglob("*.py"):
        assert path.name != "conftest.py", path
        assert not path.name.startswith("test_"), path
    assert not (ROOT / "conftest.py").exists()


def test_the_files_that_look_at_the_docker_engine_run_in_one_process() -> None:
    files = (ROOT / "tests").glob("test_*.py")
    users = {file.name for file in files if re.search("^from container_helpers", file.read_text(), re.MULTILINE)}
    assert users == DOCKER_FILES
