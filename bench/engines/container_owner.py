"""Whose container it is: labels that tell whether the process that made it still lives, and the removal of the rest."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Collection, Mapping
from pathlib import Path

import docker
from docker.errors import APIError, NotFound

PREFIX = "org.gguf-bench."
"""Prefix of every label that this project writes on images and containers."""
KIND_LABEL = f"{PREFIX}kind"
ARM_KIND, PROBE_KIND = "arm", "probe"
"""Containers that serve an arm, and those that ask an image what it is."""

_PID, _START, _BOOT = f"{PREFIX}owner-pid", f"{PREFIX}owner-start", f"{PREFIX}owner-boot"
_NAMESPACE, _MACHINE = f"{PREFIX}owner-namespace", f"{PREFIX}owner-machine"


def owner_labels(kind: str = ARM_KIND, **further: str) -> dict[str, str]:
    """Labels for a container that this process makes; `further` become `org.gguf-bench.NAME`.

    The owner is a process id with the time at which it started, in one process namespace of one boot of one machine:
    ids are used again, and a machine that was restarted starts them from the beginning.
    """
    pid = os.getpid()
    return {
        KIND_LABEL: kind,
        _PID: str(pid),
        _START: _started(pid) or "",
        _BOOT: _boot(),
        _NAMESPACE: _namespace(),
        _MACHINE: _machine(),
        **{PREFIX + name: value for name, value in further.items()},
    }


def owner_lives(labels: Mapping[str, str]) -> bool | None:
    """Whether the process that made a container still lives; None when that cannot be judged from here: another
    machine's, another process namespace's, or labels that are not ours."""
    if not labels.get(_PID, "").isdigit() or not labels.get(_START) or not labels.get(_BOOT):
        return None
    if labels.get(_MACHINE) != _machine():
        return None
    if labels[_BOOT] != _boot():
        return False  # this machine was restarted since: no process of then lives
    if labels.get(_NAMESPACE) != _namespace():
        return None
    return _started(int(labels[_PID])) == labels[_START]


def sweep_leftovers(client: docker.DockerClient, kinds: Collection[str] = (ARM_KIND, PROBE_KIND)) -> list[str]:
    """Remove containers that this project made and whose owner is dead; their names. Others are left alone."""
    removed = []
    for container in client.containers.list(all=True, filters={"label": KIND_LABEL}, ignore_removed=True):
        if container.labels.get(KIND_LABEL) not in kinds or owner_lives(container.labels) is not False:
            continue
        with contextlib.suppress(NotFound, APIError):  # somebody else may be sweeping too
            container.remove(force=True, v=True)
            removed.append(str(container.name))
    return removed


def leftovers(client: docker.DockerClient) -> list[tuple[str, bool | None]]:
    """Every container of this project by name, with whether its owner lives (None: cannot be judged)."""
    found = client.containers.list(all=True, filters={"label": KIND_LABEL}, ignore_removed=True)
    return [(str(c.name), owner_lives(c.labels)) for c in found]


def _started(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None when there is none. A zombie is dead."""
    try:
        # The command name is in brackets and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id")


def _machine() -> str:
    return _read("/etc/machine-id") or platform.node()


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
