"""What keeps an arm alone: one bench a device, an idle GPU, room for the model, and memory back after it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

import psutil

from bench.errors import ArmError, BenchError
from bench.gguf.look import GgufFacts
from bench.gguf.memory import estimate
from bench.presets.load import Arm
from bench.runner.isolation import device_lock, require_idle, require_room, wait_until_settled
from bench.telemetry.sampler import gpu_info

SETTLE_LIMIT_S = 60.0
"""Longest wait for VRAM to come back to its baseline after an arm."""


class Guards:
    """The checks around every arm of a run."""

    def __init__(self, arms: Sequence[Arm], gpu: int | str | None, *, allow_busy: bool = False) -> None:
        self._gpu = gpu
        self._allow_busy = allow_busy
        self._devices = sorted({arm.device for arm in arms})
        self._baseline: int | None = None

    @contextlib.contextmanager
    def device(self) -> Iterator[None]:
        """Hold the devices that the arms need. Raises BenchError naming the bench that has one."""
        with contextlib.ExitStack() as stack:
            for device in self._devices:
                key = "cpu" if device == "cpu" else gpu_info(self._gpu).uuid or "gpu"
                try:
                    stack.enter_context(device_lock(key))
                except ArmError as e:
                    raise BenchError(f"{e.detail}; {e.advice}") from e
            yield

    def before(self, arm: Arm, facts: GgufFacts) -> str | None:
        """Check that the arm will be alone and fit. Returns a caveat where the user allowed a busy GPU.

        Raises ArmError `gpu_busy` or `no_memory`.
        """
        need = estimate(facts, arm)
        # Weights in RAM are mapped from the file: what must be there is the rest, and the working set of the weights.
        require_room(f"RAM for {arm.arm_id}", need.ram, psutil.virtual_memory().available)
        if arm.device != "gpu":
            return None
        info = gpu_info(self._gpu)
        self._baseline = info.vram_used_bytes
        caveat = None
        if info.processes_known:
            caveat = require_idle(_index(self._gpu), allow_busy=self._allow_busy)
        if info.vram_bytes is not None and info.vram_used_bytes is not None:
            require_room(f"VRAM for {arm.arm_id}", need.vram, info.vram_bytes - info.vram_used_bytes)
        return caveat

    def after(self, arm: Arm, stop: threading.Event) -> str | None:
        """Wait until the GPU's memory is back where it was, and at least the arm's quiesce time; `stop` breaks it off.

        Returns a sentence when it did not come back in time.
        """
        if arm.device != "gpu":
            stop.wait(arm.quiesce_s)
            return None
        end = wait_until_settled(
            lambda: gpu_info(self._gpu).vram_used_bytes,
            self._baseline,
            at_least_s=arm.quiesce_s,
            limit_s=max(SETTLE_LIMIT_S, arm.quiesce_s),
            stop=stop.is_set,
        )
        if end.settled or end.left_bytes is None:
            return None
        return f"{end.left_bytes / 1e6:.0f} MB of VRAM did not come back within {end.waited_s:.0f} s after {arm.arm_id}"


def _index(gpu: int | str | None) -> int:
    """NVML's index of the chosen GPU."""
    if isinstance(gpu, int):
        return gpu
    if gpu is None:
        return 0
    import pynvml

    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(gpu)))
    except pynvml.NVMLError as e:
        raise ArmError("gpu_unavailable", f"no GPU {gpu}: {e}", advice="nvidia-smi -L lists them") from e
