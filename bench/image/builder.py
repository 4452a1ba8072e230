"""Running a BuildKit build: which docker command can, its output as lines, and what of it matters when it fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bench.engines.docker_host import docker_host
from bench.errors import BenchError

Progress = Callable[[str], None]
"""Takes one line of what happens."""

_STEP = re.compile(r"^#\d+ (?:(?:\d+\.\d+) )?(.*)$")
_NOISE = re.compile(
    r"^(sha256:|\.\.\.|DONE|CACHED|transferring|extracting|resolve |naming to|writing image|exporting|\[internal\]|$)"
)
_MATTERS = re.compile(
    r"\berror\b|\bFAILED\b|CMake Error|undefined reference|No such file|not found|cannot |Killed|failed to|expected ",
    re.IGNORECASE,
)
_WRAPPER = re.compile(
    r"executor failed running|did not complete successfully|failed to solve|ninja: build stopped"
    r"|^\s*>|^-{3,}$|^Dockerfile:\d+"
)


class BuildFailed(BenchError):
    """The build ended with an error. `lines` are the last ones that matter; the log holds all."""

    def __init__(self, message: str, lines: Sequence[str], log_path: Path) -> None:
        super().__init__(message)
        self.lines = tuple(lines)
        self.log_path = log_path


def build_command() -> tuple[list[str], dict[str, str]]:
    """The docker command that can build with BuildKit, and its environment. Raises BenchError when there is none.

    Clients from 23 on need their buildx plugin; older ones have BuildKit built in. Machines with several are searched
    in the order of PATH.
    """
    env = {**os.environ, "DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain"}
    host = docker_host()
    if host.url is not None and "DOCKER_HOST" not in env:
        env["DOCKER_HOST"] = host.url
    tried = []
    for binary in _docker_clients():
        if _runs([binary, "buildx", "version"]):
            return [binary, "buildx", "build", "--load"], env
        version = _output([binary, "version", "--format", "{{.Client.Version}}"], env)
        major = re.match(r"(\d+)\.", version)
        if major and int(major[1]) < 23:
            return [binary, "build"], env
        tried.append(f"{binary} {version or '(not runnable)'}".strip())
    found = f"found {', '.join(tried)} without the buildx plugin" if tried else "found no `docker` command"
    raise BenchError(f"expected a docker client with BuildKit to build the image, {found}; install docker-buildx")


def _docker_clients() -> list[str]:
    found: dict[str, str] = {}
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        binary = shutil.which("docker", path=folder) if folder else None
        if binary:
            found.setdefault(os.path.realpath(binary), binary)
    return list(found.values())


def _runs(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _output(command: Sequence[str], env: Mapping[str, str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, env=dict(env)).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def run_build(arguments: Sequence[str], log_path: Path, progress: Progress, *, what: str) -> None:
    """Run the build; every line goes to the log, those with news also to `progress`.

    Raises BuildFailed. An interrupt stops the build.
    """
    command, env = build_command()
    log_path.parent.mkdir(parents=True, exist_ok=True)
    kept: deque[str] = deque(maxlen=4000)
    with log_path.open("w", encoding="utf-8") as log:
        log.write(" ".join([*command, *arguments]) + "\n")
        process = subprocess.Popen(
            [*command, "--progress=plain", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=env,
        )
        assert process.stdout is not None
        try:
            for raw in process.stdout:
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                log.write(line + "\n")
                text = plain(line)
                if text:
                    kept.append(text)
                    progress(text)
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code != 0:
        lines = lines_that_matter(kept)
        last = lines[-1] if lines else "it said nothing"
        raise BuildFailed(
            f"building {what} failed (exit code {code}): {last[:300]}; the whole log is {log_path}", lines, log_path
        )


def plain(line: str) -> str:
    """A line of BuildKit's plain output without step number and time; empty when it tells nothing."""
    match = _STEP.match(line)
    text = match[1] if match else line
    return "" if _NOISE.match(text) else text


def lines_that_matter(lines: Iterable[str], n: int = 12) -> list[str]:
    """The last lines that name an error, with what follows them up to a line; wrappers that only pass on the exit code
    are left out. Without such a line the last lines there are."""
    own = [line for line in lines if line.strip() and not _WRAPPER.search(line)]
    marked = [i for i, line in enumerate(own) if _MATTERS.search(line)]
    if not marked:
        return own[-n:]
    chosen = sorted({j for i in marked for j in (i, i + 1) if j < len(own)})
    return list(dict.fromkeys(own[i] for i in chosen))[-n:]
