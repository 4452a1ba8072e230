"""NVIDIA's management library: every call may fail by itself, and then its value is None with a reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")

THROTTLING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""Clock event reasons that slow work down: power cap, hardware slowdown, thermal (software, hardware), power brake.
Idle (0x1), chosen clocks (0x2), sync boost (0x10) and display clocks (0x100) are none."""

_LASTING = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "not in this driver",
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "another driver interface",
}
_PASSING = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "GPU is lost",
    pynvml.NVML_ERROR_UNKNOWN: "unknown error",
    pynvml.NVML_ERROR_TIMEOUT: "timeout",
    pynvml.NVML_ERROR_RESET_REQUIRED: "GPU needs a reset",
    pynvml.NVML_ERROR_IN_USE: "in use",
    pynvml.NVML_ERROR_NO_DATA: "no data",
}
_OPENING = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver on this machine",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver and its library differ in version; reboot",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission to talk to the NVIDIA driver",
    pynvml.NVML_ERROR_NOT_FOUND: "no such GPU",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: "no such GPU",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the NVIDIA library is too old",
}


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds memory of a GPU."""

    pid: int
    name: str | None
    used_bytes: int | None


@dataclass(frozen=True)
class GpuInfo:
    """A GPU and what is on it. Without one every value is None and `reason` says why."""

    name: str | None = None
    uuid: str | None = None
    vram_bytes: int | None = None
    """Memory of the GPU."""
    vram_used_bytes: int | None = None
    driver: str | None = None
    processes: tuple[GpuProcess, ...] = ()
    reason: str | None = None
    """Why something is None; None when all is known."""
    count: int = 0
    """GPUs of this machine."""
    processes_known: bool = False
    """Whether the list of processes could be read; an empty list says nothing otherwise."""
    mig: bool = False
    """The GPU is split into instances, and most of its figures cannot be had."""


@dataclass(frozen=True)
class GpuSample:
    """A GPU's figures at one moment."""

    vram_used_bytes: int | None = None
    vram_process_bytes: int | None = None
    power_w: float | None = None
    gpu_util_pct: float | None = None
    gpu_temp_c: float | None = None
    sm_clock_mhz: float | None = None
    mem_clock_mhz: float | None = None
    throttle_reasons: int | None = None
    reason: str | None = None


class GpuUnavailable(Exception):
    """There is no GPU to read; the message says why."""


@dataclass
class _Calls:
    """What failed and need not be tried again, and what failed this time."""

    lasting: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def get(self, what: str, call: Callable[[], T]) -> T | None:
        if what in self.lasting:
            self.failed[what] = self.lasting[what]
            return None
        try:
            return call()
        except pynvml.NVMLError as error:
            code = error.value
            if code in _LASTING:
                self.lasting[what] = _LASTING[code]
            self.failed[what] = _LASTING.get(code) or _PASSING.get(code) or f"NVML error {code}"
        except (UnicodeDecodeError, ValueError, pynvml.NVMLLibraryMismatchError) as error:
            self.failed[what] = f"unreadable answer ({type(error).__name__})"
        return None

    def reason(self) -> str | None:
        """ "power: not supported; ..." of this round, equal causes together."""
        by_cause: dict[str, list[str]] = {}
        for what, why in self.failed.items():
            by_cause.setdefault(why, []).append(what)
        self.failed = {}
        return "; ".join(f"{', '.join(whats)}: {why}" for why, whats in by_cause.items()) or None


class Gpu:
    """One GPU, opened. Raises GpuUnavailable when there is none, or when it is not said which of several."""

    def __init__(self, which: int | str | None = None) -> None:
        self._calls = _Calls()
        self.count = 0
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise GpuUnavailable(_OPENING.get(error.value, f"NVML does not start: error {error.value}")) from None
        try:
            self._handle = self._find(which)
        except pynvml.NVMLError as error:
            self.close()
            named = "" if which is None else f" ({which})"
            raise GpuUnavailable(_OPENING.get(error.value, f"NVML error {error.value}") + named) from None
        except GpuUnavailable:
            self.close()
            raise

    def _find(self, which: int | str | None) -> Any:
        self.count = pynvml.nvmlDeviceGetCount()
        if self.count == 0:
            raise GpuUnavailable("the NVIDIA driver sees no GPU")
        if which is None:
            which = _visible()
        if which is None and self.count > 1:
            raise GpuUnavailable(f"{self.count} GPUs and none is named: set CUDA_VISIBLE_DEVICES to one")
        if isinstance(which, str) and which.isdecimal():
            which = int(which)
        if isinstance(which, str):
            return pynvml.nvmlDeviceGetHandleByUUID(self._whole_uuid(which).encode())
        if which is not None and not 0 <= which < self.count:
            raise GpuUnavailable(f"no such GPU ({which}): this machine has {self.count}")
        return pynvml.nvmlDeviceGetHandleByIndex(which or 0)

    def _whole_uuid(self, start: str) -> str:
        """CUDA takes the start of a UUID; NVML wants all of it."""
        for i in range(self.count):
            try:
                uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(i))
            except pynvml.NVMLError:
                continue
            if uuid.startswith(start):
                return str(uuid)
        return start

    def sample(self, pids: Sequence[int]) -> GpuSample:
        """The figures now. `pids`: whose memory counts as the server's."""
        h, get = self._handle, self._calls.get
        memory = get("VRAM", lambda: pynvml.nvmlDeviceGetMemoryInfo(h))
        power = get("power", lambda: pynvml.nvmlDeviceGetPowerUsage(h))
        use = get("utilisation", lambda: pynvml.nvmlDeviceGetUtilizationRates(h))
        sm = get("SM clock", lambda: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_SM))
        mem = get("memory clock", lambda: pynvml.nvmlDeviceGetClockInfo(h, pynvml.NVML_CLOCK_MEM))
        temperature = get("temperature", lambda: pynvml.nvmlDeviceGetTemperature(h, pynvml.NVML_TEMPERATURE_GPU))
        return GpuSample(
            vram_used_bytes=None if memory is None else int(memory.used),
            vram_process_bytes=self._of_processes(pids),
            power_w=None if power is None else power / 1000,
            gpu_util_pct=None if use is None else float(use.gpu),
            gpu_temp_c=None if temperature is None else float(temperature),
            sm_clock_mhz=None if sm is None else float(sm),
            mem_clock_mhz=None if mem is None else float(mem),
            throttle_reasons=get("throttle reasons", lambda: self._throttle_reasons()),
            reason=self._calls.reason(),
        )

    def _throttle_reasons(self) -> int:
        try:
            return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
            return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))  # its name before driver 535

    def _processes(self) -> list[Any]:
        # Versioned on purpose: the plain name raises an error of its own kind on older drivers.
        try:
            return list(pynvml.nvmlDeviceGetComputeRunningProcesses_v3(self._handle))
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
            return list(pynvml.nvmlDeviceGetComputeRunningProcesses_v2(self._handle))

    def _of_processes(self, pids: Sequence[int]) -> int | None:
        what = "VRAM per process"
        found = self._calls.get(what, self._processes)
        if found is None:
            return None
        ours = [p.usedGpuMemory for p in found if p.pid in set(pids)]
        if not pids:
            self._calls.failed[what] = "no server process known"
        elif not ours:
            # A container's numbers are not the host's: "not in the list" is no proof of zero.
            self._calls.failed[what] = "the server is not in NVML's list"
        elif None in ours:
            self._calls.failed[what] = "not reported on this system"  # WSL2
        else:
            return int(sum(ours))
        return None

    def info(self) -> GpuInfo:
        """What the GPU is and what is on it."""
        h, get = self._handle, self._calls.get
        name = get("name", lambda: pynvml.nvmlDeviceGetName(h))
        uuid = get("UUID", lambda: pynvml.nvmlDeviceGetUUID(h))
        memory = get("VRAM", lambda: pynvml.nvmlDeviceGetMemoryInfo(h))
        driver = get("driver", lambda: pynvml.nvmlSystemGetDriverVersion())
        found = get("processes", self._processes)
        reason = self._calls.reason()
        mig = get("MIG", lambda: pynvml.nvmlDeviceGetMigMode(h))
        processes = tuple(GpuProcess(int(p.pid), self._name(int(p.pid)), p.usedGpuMemory) for p in found or ())
        self._calls.reason()  # a GPU without MIG and a process without a name are nothing to report
        return GpuInfo(
            name=name,
            uuid=uuid,
            vram_bytes=None if memory is None else int(memory.total),
            vram_used_bytes=None if memory is None else int(memory.used),
            driver=driver,
            processes=processes,
            reason=reason,
            count=self.count,
            processes_known=found is not None,
            mig=bool(mig and mig[0]),
        )

    def _name(self, pid: int) -> str | None:
        try:
            name = pynvml.nvmlSystemGetProcessName(pid)
        except (pynvml.NVMLError, UnicodeDecodeError):
            return None
        return str(name) or None

    def close(self) -> None:
        """Let the library go."""
        self._calls.get("shutdown", pynvml.nvmlShutdown)


def gpu_info(index_or_uuid: int | str | None = None) -> GpuInfo:
    """What is known of a GPU: by index, by UUID, or the one that this machine (or CUDA_VISIBLE_DEVICES) has.

    Never raises; `reason` says why something is None.
    """
    try:
        gpu = Gpu(index_or_uuid)
    except GpuUnavailable as error:
        return GpuInfo(reason=str(error))
    try:
        return gpu.info()
    finally:
        gpu.close()


def _visible() -> int | str | None:
    """The GPU that CUDA_VISIBLE_DEVICES names, when it names one.

    An index there counts in CUDA's order, which is NVML's only under CUDA_DEVICE_ORDER=PCI_BUS_ID; on a machine with
    several kinds of GPU a UUID is the safe name.
    """
    names = [n.strip() for n in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if n.strip()]
    return names[0] if len(names) == 1 and names[0] not in ("-1", "NoDevFiles", "void", "none", "all") else None
