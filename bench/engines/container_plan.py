"""What a container of an arm is to be, as data: the same plan makes the container and the dry run's command line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest, LogConfig, Mount

from bench import host
from bench.engines import ports
from bench.image.identity import ImageIdentity
from bench.presets.load import Arm

MODEL_FOLDER = "/models"
SERVER_PORT = 8080
"""Port of the server inside its container; outside it is the arm's, on the loopback interface only."""
NAME_PREFIX = "gguf-bench-arm-"

_TMPFS = "rw,nosuid,nodev,noexec,size=512m,mode=1777"
_LOG_MAX = "256m"
_DEVICE_FILES = {"vulkan": ("/dev/dri",), "rocm": ("/dev/kfd", "/dev/dri")}
"""Device files of GPUs that have no container runtime of their own."""


@dataclass(frozen=True)
class ContainerPlan:
    """A container, before it is made."""

    image: str
    """Id of the image, so that a name that moves meanwhile changes nothing."""
    name: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    models: tuple[tuple[Path, str], ...]
    """Files of this machine and the paths at which they are mounted, read-only."""
    env: tuple[str, ...] = ()
    """`NAME=VALUE`; `NAME` alone takes the image's variable away."""
    port: int = 0
    """Port on the loopback interface; 0 leaves the choice to the engine."""
    gpu: str | None = None
    """Index or UUID of the GPU to ask the engine for."""
    gpu_capabilities: tuple[str, ...] = ("gpu",)
    devices: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    user: str | None = None
    memory_bytes: int = 0
    """Limit of its memory, swap included; 0 is none."""
    init: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)

    def create_arguments(self) -> dict[str, Any]:
        """Keyword arguments for `docker.containers.create`, but for the image and the command."""
        out: dict[str, Any] = {
            "name": self.name,
            "entrypoint": list(self.entrypoint),
            "environment": list(self.env),
            "mounts": [Mount(target, str(source), type="bind", read_only=True) for source, target in self.models],
            "ports": {f"{SERVER_PORT}/tcp": (ports.LOOPBACK, self.port or None)},
            "labels": dict(self.labels),
            "read_only": True,
            "tmpfs": {"/tmp": _TMPFS},
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "pids_limit": 1024,
            "init": self.init,
            "restart_policy": {"Name": "no"},
            "healthcheck": {"test": ["NONE"]},
            "log_config": LogConfig(type=LogConfig.types.JSON, config={"max-size": _LOG_MAX}),
            "stop_signal": "SIGTERM",
            "detach": True,
            "use_config_proxy": False,
        }
        if self.memory_bytes:
            # The same limit for memory and for memory with swap: a server that swaps measures the disk.
            out |= {"mem_limit": self.memory_bytes, "memswap_limit": self.memory_bytes}
        if self.user is not None:
            out["user"] = self.user
        if self.gpu is not None:
            out["device_requests"] = [DeviceRequest(device_ids=[self.gpu], capabilities=[list(self.gpu_capabilities)])]
        if self.devices:
            out["devices"] = [f"{path}:{path}:rwm" for path in self.devices]
        if self.groups:
            out["group_add"] = [str(group) for group in self.groups]
        return out

    def command_line(self) -> list[str]:
        """The same container as a `docker run` command, for the dry run. The two are tested against each other."""
        out = ["docker", "run", "--detach", "--name", self.name, "--read-only", "--tmpfs", f"/tmp:{_TMPFS}"]
        out += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", "1024", "--restart", "no"]
        out += ["--no-healthcheck", "--log-driver", "json-file", "--log-opt", f"max-size={_LOG_MAX}"]
        out += ["--stop-signal", "SIGTERM"]
        outside = str(self.port) if self.port else ""
        out += ["--publish", f"{ports.LOOPBACK}:{outside}:{SERVER_PORT}"]
        for source, target in self.models:
            # A comma or a quote in a field of --mount is written as in a CSV file.
            out += ["--mount", ",".join(_csv(f) for f in ("type=bind", f"src={source}", f"dst={target}", "readonly"))]
        out += ["--init"] if self.init else []
        if self.memory_bytes:
            out += ["--memory", str(self.memory_bytes), "--memory-swap", str(self.memory_bytes)]
        out += ["--user", self.user] if self.user is not None else []
        if self.gpu is not None:
            wish = [f'"device={self.gpu}"']
            further = [c for c in self.gpu_capabilities if c != "gpu"]
            wish += [f'"capabilities={",".join(self.gpu_capabilities)}"'] if further else []
            out += ["--gpus", ",".join(wish)]
        for path in self.devices:
            out += ["--device", f"{path}:{path}:rwm"]
        for group in self.groups:
            out += ["--group-add", str(group)]
        for entry in self.env:
            # Without a value docker's command line takes ours, where the API takes the image's away: empty is closest.
            out += ["--env", entry if "=" in entry else f"{entry}="]
        for name, value in self.labels.items():
            out += ["--label", f"{name}={value}"]
        out += ["--entrypoint", self.entrypoint[0], self.image, *self.entrypoint[1:], *self.command]
        return out


def plan_container(
    arm: Arm,
    files: Sequence[Path],
    image: ImageIdentity,
    *,
    name: str,
    alias: str,
    threads: int,
    gpu: str | None,
    labels: Mapping[str, str],
    memory_bytes: int | None = None,
    rootless: bool = False,
) -> ContainerPlan:
    """The container of an arm. `files` are the model's parts, the first first; `gpu` is None for no particular one."""
    # The first part's name says that there are more; a link's target (a cache's blob) need not end in .gguf.
    mounted = tuple((file.resolve(), f"{MODEL_FOLDER}/{file.name}") for file in files)
    command = ["--model", mounted[0][1], "--alias", alias, "--host", "0.0.0.0", "--port", str(SERVER_PORT)]
    command += arm.flags(threads=threads)
    env = {"HOME": "/tmp", "NVIDIA_VISIBLE_DEVICES": "void"}  # caches go to /tmp; a CPU arm sees no GPU
    wish: str | None = None
    capabilities: tuple[str, ...] = ("gpu",)
    devices: tuple[str, ...] = ()
    if arm.device == "gpu":
        del env["NVIDIA_VISIBLE_DEVICES"]
        files_of_gpu = _DEVICE_FILES.get(image.backend or "", ())
        nvidia = Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()
        if files_of_gpu and (image.backend == "rocm" or not nvidia):
            devices = tuple(path for path in files_of_gpu if Path(path).exists())
        else:
            wish = gpu or "0"
            capabilities = ("gpu", "graphics", "utility") if image.backend == "vulkan" else ("gpu",)
    env |= dict(arm.env)
    scrubbed = [name for name in image.scrub if name not in env]
    return ContainerPlan(
        image=image.image_id,
        name=name,
        entrypoint=image.server,
        command=tuple(command),
        models=mounted,
        env=(*(f"{key}={value}" for key, value in sorted(env.items())), *scrubbed),
        port=arm.port,
        gpu=wish,
        gpu_capabilities=capabilities,
        devices=devices,
        groups=_groups_of(devices),
        user=_user(mounted[0][0], rootless),
        memory_bytes=memory_limit() if memory_bytes is None else memory_bytes,
        init=not image.has_init,
        labels=labels,
    )


def memory_limit() -> int:
    """Memory for a container, bytes: the machine's less 2 GiB or an eighth, whichever is more. An arm that needs more
    is killed by itself, and takes nothing else with it."""
    total = host.ram_bytes()
    return max(total - max(2 << 30, total // 8), total // 2)


def container_name(arm_id: str, token: str) -> str:
    """A name that docker takes and that is used once."""
    return f"{NAME_PREFIX}{re.sub(r'[^a-zA-Z0-9_.-]', '-', arm_id)[:80]}-{token}"


def _user(model: Path, rootless: bool) -> str | None:
    """Who the server runs as: somebody who may read the model, and never more than this user may.

    A rootless engine's root is this user. Root itself stays out: then it is the image's user, or, where that one
    could not read the file, the file's owner.
    """
    if rootless:
        return "0:0"
    if os.getuid() != 0:
        return f"{os.getuid()}:{os.getgid()}"
    try:
        stat = model.stat()
    except OSError:
        return None
    return None if stat.st_mode & 0o004 or stat.st_uid == 0 else f"{stat.st_uid}:{stat.st_gid}"


def _groups_of(devices: Sequence[str]) -> tuple[int, ...]:
    """Groups that may use the device files, their folders' files included."""
    found: set[int] = set()
    for device in devices:
        path = Path(device)
        for file in path.glob("*") if path.is_dir() else [path]:
            if not file.is_dir():
                found.add(file.stat().st_gid)
    return tuple(sorted(found - {0}))


def _csv(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"') else text
