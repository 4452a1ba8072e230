"""The `./invoke` wrapper: what it says when it cannot work, and that it starts at once when it can."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def copy(tmp_path: Path) -> Path:
    """A repository with the wrapper alone: enough for everything before the installation."""
    root = tmp_path / "with a space"
    root.mkdir()
    for name in ("invoke", "requirements.lock", "pyproject.toml", "tasks.py"):
        shutil.copy(ROOT / name, root / name)
    return root


def run(root: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(root / "invoke"), *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def tools(tmp_path: Path, *names: str) -> Path:
    """A PATH with these programs alone."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return folder


NEEDED = ("sh", "cmp", "cat", "dirname", "readlink", "mkdir", "rm", "sleep", "tail", "cp")


def test_no_python_is_one_line(tmp_path: Path) -> None:
    done = run(copy(tmp_path), "--list", PATH=str(tools(tmp_path, *NEEDED)))
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "needs Python 3.11 or newer, found none" in done.stderr
    assert "apt install python3" in done.stderr


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    path = tools(tmp_path, *NEEDED)
    old = path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && { echo Python 3.9.2; exit 0; }\nexit 1\n')
    old.chmod(0o755)
    done = run(copy(tmp_path), "--list", PATH=str(path))
    assert done.returncode == 2
    assert "found Python 3.9.2" in done.stderr


def test_no_venv_module_is_one_line(tmp_path: Path) -> None:
    path = tools(tmp_path, *NEEDED)
    bare = path / "python3"
    bare.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; *) exit 0 ;; esac\n')
    bare.chmod(0o755)
    done = run(copy(tmp_path), "--list", PATH=str(path))
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "apt install python3-venv" in done.stderr


def test_a_named_python_that_does_not_suit_is_an_error(tmp_path: Path) -> None:
    done = run(copy(tmp_path), "--list", PYTHON="/bin/false")
    assert done.returncode == 2
    assert "$PYTHON is '/bin/false'" in done.stderr


def test_arguments_and_exit_codes_go_through(tmp_path: Path) -> None:
    done = run(ROOT, "sql", "select 'a b' as x, 1 as y", "--format", "csv", "--results", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["x,y", "a b,1"]
    assert run(ROOT, "no-such-task").returncode != 0


def test_it_works_from_another_folder_and_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "bench-link"
    link.symlink_to(ROOT / "invoke")
    done = subprocess.run([str(link), "--list"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "check-suites" in done.stdout


@pytest.mark.slow
def test_a_changed_lock_installs_again_and_a_moved_repository_too(tmp_path: Path) -> None:
    """With a lock of nothing but what the wrapper itself needs, so that this takes seconds."""
    root = copy(tmp_path)
    (root / "bench").mkdir()
    shutil.copy(ROOT / "bench" / "__init__.py", root / "bench" / "__init__.py")
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, root / name)
    (root / "tasks.py").write_text("from invoke import task\n\n@task\ndef hello(c):\n    print('hello')\n")
    wanted = ("invoke", "hatchling", "editables", "packaging", "pathspec", "pluggy", "trove-classifiers", "tomlkit")
    blocks = (ROOT / "requirements.lock").read_text().split("\n")
    lines, keep = [], False
    for line in blocks:
        if line and not line.startswith((" ", "#")):
            keep = line.split("==")[0] in wanted
        if keep:
            lines.append(line)
    (root / "requirements.lock").write_text("\n".join(lines) + "\n")
    first = run(root, "hello")
    assert first.returncode == 0, first.stderr
    assert "installing the pinned packages" in first.stderr
    assert first.stdout.strip().endswith("hello")
    second = run(root, "hello")
    assert second.stderr == ""
    (root / "requirements.lock").write_text("\n".join(lines) + "\n# changed\n")
    assert "installing the pinned packages" in run(root, "hello").stderr
    assert run(root, "hello").stderr == ""
    moved = root.rename(tmp_path / "moved")
    assert "installing the pinned packages" in run(moved, "hello").stderr
    # A wrong hash installs nothing, says so, and is not taken for an installation afterwards.
    text = (moved / "requirements.lock").read_text()
    (moved / "requirements.lock").write_text(text.replace("sha256:", "sha256:0000", 400))
    broken = run(moved, "hello")
    assert broken.returncode == 2
    assert "could not be installed" in broken.stderr
    assert "could not be installed" in run(moved, "hello").stderr
