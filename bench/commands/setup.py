"""Which engine serves which arm, and what keeps it from doing so here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.engines import Engine
from bench.engines.container import ContainerEngine
from bench.engines.docker_host import connect
from bench.engines.endpoint import EndpointEngine
from bench.engines.process import ProcessEngine
from bench.errors import ArmError, UsageError
from bench.image.build import find_image, image_ref
from bench.image.source import known_pin
from bench.options import one_of
from bench.presets.load import Arm
from bench.runner.planning import Wishes, gpu_of
from bench.telemetry.sampler import gpu_info

REFERENCE_REV = "8be759e6f"
"""llama.cpp of the reference run; an arm on the GPU runs on its image unless another is named."""


def engines_for(arms: Sequence[Arm], wishes: Wishes) -> dict[str, Engine]:
    """The engine of each arm: `auto` is a process for an arm on the CPU, a container for one on the GPU."""
    name = one_of("--engine", wishes.engine or "auto", ("auto", "process", "container"))
    gpu = gpu_of(wishes)

    def vram_used() -> int | None:
        return gpu_info(gpu).vram_used_bytes

    process = ProcessEngine(server_path(wishes.server), vram_used=vram_used)
    containers: dict[str, ContainerEngine] = {}
    out: dict[str, Engine] = {}
    for arm in arms:
        if arm.endpoint_model is not None:
            out[arm.arm_id] = EndpointEngine()
            continue
        if name == "process" or (name == "auto" and arm.device == "cpu" and wishes.image is None):
            out[arm.arm_id] = process
            continue
        if arm.device not in containers:
            image = wishes.image or default_image(arm.device)
            number = "0" if gpu is None else str(gpu)
            containers[arm.device] = ContainerEngine(image, gpu=number, vram_used=vram_used)
        out[arm.arm_id] = containers[arm.device]
    return out


def default_image(device: str) -> str:
    """The image for a device: the reference pin's where it is there, else the newest that was built here for it.

    Where there is none, the name that `build-llama` would make.
    """
    pin = known_pin(REFERENCE_REV)
    assert pin is not None
    backends = ("cpu",) if device == "cpu" else ("cuda", "vulkan")
    try:
        client = connect()
        for wanted in (pin, None):
            for backend in backends:
                if found := find_image(client, backend, wanted):
                    return found
    except ArmError:
        pass  # the engine says what is wrong with Docker when it is asked for its problems
    return image_ref(pin, backends[0])


def server_path(named: str | None) -> Path | None:
    """The llama-server that `--server` or $LLAMA_SERVER names. One that merely lies on PATH is never taken: which build
    answers must not depend on chance."""
    for what, text in (("--server", named), ("$LLAMA_SERVER", os.environ.get("LLAMA_SERVER"))):
        if text:
            path = Path(text).expanduser()
            if not (path.is_file() and os.access(path, os.X_OK)):
                raise UsageError(f"{what}: expected an executable llama-server, found none at '{text}'")
            return path.resolve()
    return None


def problems_for(arms: Sequence[Arm], engines: Mapping[str, Engine]) -> dict[str, list[str]]:
    """What keeps each arm from running here, as far as can be seen without starting anything."""
    gpu = gpu_info()
    out = {arm.arm_id: engines[arm.arm_id].problems(arm) for arm in arms}
    for arm in arms:
        texts = out[arm.arm_id]
        if arm.device == "gpu" and gpu.name is None and texts and not any("GPU is visible" in text for text in texts):
            texts.insert(0, f"needs a GPU, and none is visible ({gpu.reason})")
    return out
