"""Which sandboxes work on this machine, and how to open one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from bench.errors import BenchError
from bench.grading import bubblewrap, container, unsafe
from bench.grading.pool import SandboxGrader

Provider = Literal["container", "bubblewrap", "unsafe"]


@dataclass(frozen=True)
class ProviderStatus:
    """Whether one provider works here, and if not, what to do."""

    provider: str
    works: bool
    reason: str = ""
    fix: str = ""


def available(docker_client: Any | None = None) -> list[ProviderStatus]:
    """The isolating providers, best first, each tried for real; never `unsafe`, which is asked for by name."""
    out = []
    for name, found in (("bubblewrap", bubblewrap.problem()), ("container", container.problem(docker_client))):
        out.append(ProviderStatus(name, found is None, *(found or ("", ""))))
    return out


def open_grader(provider: str = "auto", workers: int = 1, docker_client: Any | None = None) -> SandboxGrader:
    """Open a grader. `auto` takes bubblewrap, else the container; never `unsafe`.

    Raises BenchError with the fix when the provider does not work here.
    """
    if provider == "unsafe":
        return SandboxGrader("unsafe", unsafe.start, workers)
    if provider not in ("auto", "bubblewrap", "container"):
        raise BenchError(f"expected a sandbox auto, bubblewrap, container or unsafe, found {provider!r}")
    problems = []
    if provider in ("auto", "bubblewrap"):
        found = bubblewrap.problem()
        if found is None:
            return SandboxGrader("bubblewrap", bubblewrap.start, workers)
        problems.append(f"bubblewrap: {found[0]} ({found[1]})")
    if provider in ("auto", "container"):
        found = container.problem(docker_client)
        if found is None:
            return SandboxGrader("container", container.starter(docker_client), workers)
        problems.append(f"container: {found[0]} ({found[1]})")
    raise BenchError("no sandbox for model-written code works here: " + "; ".join(problems))
