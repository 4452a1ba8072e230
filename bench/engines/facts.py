"""What a server's log at `--verbosity 4` proves: device, layers, KV types, overrides; and the verdict on the device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bench.errors import ArmError
from bench.presets.load import Arm, Device

_MIB = 1024 * 1024


@dataclass(frozen=True)
class LogFacts:
    """What the log says. None is "the log does not say"."""

    layers_on_gpu: int | None = None
    layers_total: int | None = None
    gpu_model_mib: float = 0.0
    """Size of the model's buffers in GPU memory, MiB."""
    cpu_model_mib: float = 0.0
    """Size of the model's buffers in host memory, MiB."""
    gpu_names: tuple[str, ...] = ()
    """Buffer names of GPUs, such as `CUDA0`."""
    gpu_trouble: str | None = None
    """The line that says that no GPU is used although one was asked for."""
    kv_k: str | None = None
    kv_v: str | None = None
    flash_attention: bool | None = None
    overrides: tuple[tuple[str, str], ...] = ()
    """Metadata overrides that the loader applied: key and value."""
    spec_types: tuple[str, ...] = ()
    """Speculative implementations that were set up."""
    verbose: bool = False
    """Whether the log is detailed enough that silence about a setting means that it is not in force."""

    @property
    def device(self) -> Device:
        """Where the model's weights are: `gpu` only when some lie in a GPU's buffer."""
        return "gpu" if self.gpu_model_mib > 0 else "cpu"


_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_BUFFER = re.compile(r"(\S+) model buffer size\s*=\s*([\d.]+) MiB")
_KV = re.compile(r"\bK \((\w+)\):.*\bV \((\w+)\):")
_FLASH = re.compile(r"\bflash_attn\s*=\s*(\w+)")
_FLASH_AUTO = re.compile(r"Flash Attention was auto, set to (\w+)")
_OVERRIDE = re.compile(r"Using metadata override \(\s*\w+\) '([^']+)' = (.*)$")
_SPEC = re.compile(r"adding speculative implementation '([^']+)'")
_TROUBLE = re.compile(
    r"no usable GPU found|ggml_cuda_init: failed|failed to initialize (CUDA|ROCm|Vulkan)|no CUDA-capable device"
    r"|no GPU found|ggml_vulkan: No devices found",
    re.IGNORECASE,
)
_GPU_BUFFER = re.compile(r"^(CUDA|ROCm|HIP|MUSA|Vulkan|SYCL|Metal|MTL|CANN|OpenCL|WebGPU|Kompute)", re.IGNORECASE)


def device_facts(lines: Sequence[str]) -> LogFacts:
    """Read the facts out of the log's lines. The first of repeated lines counts: drafts and side caches come later."""
    layers: tuple[int, int] | None = None
    kv: tuple[str, str] | None = None
    flash: bool | None = None
    trouble: str | None = None
    gpu_mib = cpu_mib = 0.0
    names: dict[str, None] = {}
    overrides: dict[str, str] = {}
    specs: dict[str, None] = {}
    verbose = False
    for line in lines:
        verbose = verbose or "llama_context:" in line or "llama_model_loader: - kv" in line
        if trouble is None and _TROUBLE.search(line):
            trouble = line.strip()
        if layers is None and (match := _OFFLOADED.search(line)):
            layers = int(match[1]), int(match[2])
        elif match := _BUFFER.search(line):
            if _GPU_BUFFER.match(match[1]) and not match[1].endswith("_Host"):
                gpu_mib += float(match[2])
                names[match[1]] = None
            else:  # CPU, CPU_Mapped, CPU_REPACK, and pinned host memory such as CUDA_Host
                cpu_mib += float(match[2])
        elif kv is None and (match := _KV.search(line)):
            kv = match[1], match[2]
        elif match := _FLASH_AUTO.search(line):
            flash = match[1] == "enabled"
        elif flash is None and (match := _FLASH.search(line)) and match[1] in ("enabled", "disabled", "1", "0"):
            flash = match[1] in ("enabled", "1")
        elif match := _OVERRIDE.search(line):
            overrides.setdefault(match[1], match[2].strip())
        elif match := _SPEC.search(line):
            specs[match[1]] = None
    return LogFacts(
        layers_on_gpu=layers[0] if layers else None,
        layers_total=layers[1] if layers else None,
        gpu_model_mib=gpu_mib,
        cpu_model_mib=cpu_mib,
        gpu_names=tuple(names),
        gpu_trouble=trouble,
        kv_k=kv[0] if kv else None,
        kv_v=kv[1] if kv else None,
        flash_attention=flash,
        overrides=tuple(overrides.items()),
        spec_types=tuple(specs),
        verbose=verbose,
    )


def proven_device(
    arm: Arm,
    facts: LogFacts,
    *,
    vram_before: int | None = None,
    vram_after: int | None = None,
    model_bytes: int | None = None,
) -> Device:
    """Where the model really is; raises ArmError `cpu_fallback` when a GPU arm is not on a GPU.

    The line `offloaded 33/33 layers` is no proof: it is printed although CUDA failed. Proof is a GPU buffer with
    weights in the log, or VRAM (bytes, before and after the load) grown by at least half the model's size.
    """
    size = model_bytes or int((facts.cpu_model_mib + facts.gpu_model_mib) * _MIB)
    grown = None if vram_before is None or vram_after is None else vram_after - vram_before
    on_gpu = facts.device == "gpu" or (grown is not None and size > 0 and grown >= size / 2)
    if arm.device == "gpu" and not on_gpu:
        seen = "no GPU buffer with weights in the server's log"
        if grown is not None:
            seen += f", and VRAM grew by {grown / _MIB:.0f} MiB"
            seen += f" for a model of {size / _MIB:.0f} MiB" if size else ""
        raise ArmError(
            "cpu_fallback",
            f"the preset says device = gpu, but the model is on the CPU: {seen}",
            advice="check that the server is built for this GPU and that the driver works (nvidia-smi)",
            log_line=facts.gpu_trouble,
        )
    if arm.device == "cpu" and facts.device == "gpu":
        raise ArmError(
            "settings_differ",
            f"device: expected cpu, found {facts.gpu_model_mib:.0f} MiB of weights on {', '.join(facts.gpu_names)}",
            advice="set device = gpu, or gpu_layers = 0",
        )
    return "gpu" if on_gpu and arm.device == "gpu" else "cpu"
