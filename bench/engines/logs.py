"""A server's log: its lines, and what made the server stop. Pure functions but for reading the file."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.errors import ArmError, ArmReason

Phase = Literal["loading", "serving"]

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TAIL_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True)
class Diagnosis:
    """Why a server stopped or never became ready."""

    reason: ArmReason
    detail: str
    """What happened, in one line."""
    log_line: str | None = None
    """The decisive line of the log."""
    advice: str = ""

    def error(self) -> ArmError:
        """The same as an error to raise."""
        return ArmError(self.reason, self.detail, advice=self.advice, log_line=self.log_line)


@dataclass(frozen=True)
class _Sign:
    pattern: re.Pattern[str]
    reason: ArmReason
    detail: str
    """May use the pattern's named groups, and `{line}` for the line without its prefix."""
    advice: str = ""


def _sign(pattern: str, reason: ArmReason, detail: str = "{line}", advice: str = "") -> _Sign:
    return _Sign(re.compile(pattern, re.IGNORECASE), reason, detail, advice)


_NEWER = "the file needs another llama.cpp than this one, or was converted wrongly; loading it again will not help"
_DISK = "if the file's checksum is right, its manifest or the disk is wrong; else fetch it again"
_VRAM = "free the GPU's memory, or lower the context, the KV cache types or gpu_layers"
_FLASH = 'set flash_attention = true in the preset, or kv_v = "f16"'

# In order of how much a line explains: the first sign found anywhere in the log is the answer. A failed start prints
# its cause first and several lines that only pass it on after it.
_SIGNS: tuple[_Sign, ...] = (
    _sign(
        r"couldn't bind HTTP server socket(.*port: (?P<port>\d+))?|address already in use",
        "port_in_use",
        "another program has the port: {line}",
        "stop that program, or set port = 0 in the preset for a free port",
    ),
    _sign(
        r"error: unsupported flag (?P<flag>--[\w-]+)|error: invalid argument: (?P<flag2>\S+)"
        r"|error while handling argument \"(?P<flag3>[^\"]+)\"|unknown (?:value|type) for (?P<flag4>--[\w-]+)",
        "flag_unsupported",
        "the server does not take the flag {flag}: {line}",
        "use a build that has the flag, or change the preset",
    ),
    _sign(r"(quantized V cache|V cache quantization).*requires? flash", "flag_unsupported", advice=_FLASH),
    _sign(
        r"(?P<flag>[KV]) cache type \S+ with block size \d+ does not divide",
        "flag_unsupported",
        advice="choose another type for that cache in the preset",
    ),
    _sign(
        r"(cudaMalloc|hipMalloc|musaMalloc) failed: out of memory|(CUDA|ROCm|HIP) error.*out of memory"
        r"|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|ErrorOutOfDeviceMemory"
        r"|(unable|failed) to allocate (CUDA|ROCm|Vulkan|SYCL|Metal)\w* buffer",
        "cuda_oom",
        "the GPU's memory is too small or in use: {line}",
        _VRAM,
    ),
    _sign(
        r"no CUDA-capable device|CUDA driver version is insufficient|libcuda\.so[^:]*: cannot open"
        r"|(CUDA|ROCm|HIP) error.*(device is lost|unspecified launch failure|launch timed out|ECC error|hardware)"
        r"|GPU (is lost|has fallen off the bus)",
        "gpu_unavailable",
        advice="check the GPU driver with nvidia-smi",
    ),
    _sign(
        r"missing tensor '(?P<name>[^']+)'|error loading model:.* tensor '(?P<name2>[^']+)' not found",
        "model_incompatible",
        "the file lacks the tensor {name}",
        "the file's header announces more than it holds; see its block count. Loading it again will not help",
    ),
    _sign(r"wrong number of tensors.*", "model_incompatible", "{line}", _NEWER),
    _sign(r"(unknown|unsupported) model architecture: '(?P<name>[^']+)'", "model_incompatible", "{line}", _NEWER),
    _sign(r"unknown (pre-)?tokenizer( type)?: '(?P<name>[^']+)'", "model_incompatible", "{line}", _NEWER),
    _sign(
        r"has invalid ggml type|GGUFv1 is no longer supported|this GGUF file is version \d+ but",
        "model_incompatible",
        "{line}",
        _NEWER,
    ),
    _sign(r"failed to open GGUF file.*\((?P<why>No such file|Permission denied|Is a directory)", "model_missing"),
    _sign(
        r"data is not within the file bounds|invalid magic characters|failed to read magic|bad GGUF version"
        r"|exceeds remaining file size|failed to read (key-value pairs|header|tensor (data|info))"
        r"|GGUF file version \d+ is extremely large|unexpectedly reached end of file|has offset \d+, expected"
        r"|model is corrupted or incomplete|failed to seek to beginning of data section",
        "model_corrupt",
        "{line}",
        _DISK,
    ),
    _sign(
        r"(has|have) wrong shape|key not found in model|wrong (array length|type)|is duplicated"
        r"|error loading model (hyperparameters|vocabulary|architecture)|cannot find tokenizer",
        "model_incompatible",
        "{line}",
        _NEWER,
    ),
    _sign(
        r"chat_templates_init: error: .+|chat template parsing error|failed to initialize chat template"
        r"|supplied chat template is not supported"
        r"|failed to (apply|parse) (the )?chat template",
        "template_error",
        "{line}",
        "the model's chat template does not work with this llama.cpp; try a newer build, or a file with a mended one",
    ),
    _sign(
        r"(unable|failed) to allocate (CPU|host)\w* buffer|std::bad_alloc|cannot allocate memory"
        r"|failed to allocate buffer for (kv|rs) cache|mmap failed",
        "no_memory",
        "the machine's memory is too small or in use: {line}",
        "free memory, or lower the context or the KV cache types",
    ),
    _sign(
        r"error while loading shared libraries: (?P<name>[^:]+)|error: cannot execute |cannot execute binary file"
        r"|GLIBC\w*_[\d.]+' not found",
        "engine_unavailable",
        "the server cannot be run: {line}",
        "check the path, its permissions and its libraries",
    ),
)

_SERVING_REASONS: tuple[ArmReason, ...] = ("cuda_oom", "no_memory", "gpu_unavailable")
_SERVING_LINES = 50

_PREFIX = re.compile(r"^(\d+\.\d+\.\d+\.\d+ )?([DIWE] )?")
_ERROR_LEVEL = re.compile(r"^\d+\.\d+\.\d+\.\d+ E |\berror\b|\bfailed\b|\bfatal\b|GGML_ASSERT|terminate called", re.I)
_SECONDARY = re.compile(
    r"exiting due to|Failed to init server|failed to load model,? '|common_init_|: failed to load model$"
)


def clean(text: str) -> list[str]:
    """Lines of a log without colour codes; only `\\n` ends a line, a lone `\\r` (progress bars) does not."""
    lines = _ANSI.sub("", text).split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return [line.rstrip("\r") for line in lines]


def read_lines(path: Path, start: int = 0, limit: int = _TAIL_BYTES) -> list[str]:
    """Lines of the log file from byte `start`, at most the last `limit` bytes of them; none when it does not exist."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            begin = max(start, size - limit)
            file.seek(begin)
            data = file.read()
    except FileNotFoundError:
        return []
    if begin > start:
        data = data.partition(b"\n")[2]  # the first line is cut
    return clean(data.decode("utf-8", errors="replace"))


def last_lines(path: Path, n: int = 50, start: int = 0) -> list[str]:
    """The last `n` lines of the log file."""
    return read_lines(path, start, limit=max(64 * 1024, n * 1024))[-n:] if n > 0 else []


def decisive(lines: Sequence[str]) -> Diagnosis | None:
    """What the log alone says went wrong, or None when it shows no known sign."""
    for sign in _SIGNS:
        for line in lines:
            match = sign.pattern.search(line)
            if match is None or "pinned memory" in line:
                continue
            groups = {key.rstrip("0123456789"): value for key, value in match.groupdict().items() if value}
            text = _PREFIX.sub("", line).strip()
            return Diagnosis(sign.reason, sign.detail.format(line=text, **groups), line.strip(), sign.advice)
    return None


def diagnose(
    lines: Sequence[str],
    exit_code: int | None,
    *,
    stopped_by_us: bool = False,
    oom_killed: bool | None = None,
    phase: Phase = "loading",
    commit: str | None = None,
) -> Diagnosis | None:
    """Why a server failed, by its exit and its log; None when we stopped it, or when nothing is wrong with it.

    `exit_code` is None while it lives (then only a known sign in the log counts), negative or above 128 for a signal.
    `oom_killed` is what the container engine says, None where nobody says. `commit` is named when the model does not
    fit the llama.cpp that tried to load it.
    """
    if stopped_by_us:
        return None
    by_signal = _signal_of(exit_code)
    if oom_killed or (by_signal == signal.SIGKILL and oom_killed is None):
        return Diagnosis(
            "oom_killed",
            "the server was killed (SIGKILL), and not by this program: "
            + ("the container ran out of memory" if oom_killed else "most likely the machine ran out of memory"),
            _last_error(lines) or None,
            "free memory, raise the limit, or lower the context; the kernel's log (dmesg) says who was killed",
        )
    found = decisive(lines) if phase == "loading" else decisive(lines[-_SERVING_LINES:])
    if found is not None and phase == "serving" and found.reason not in _SERVING_REASONS:
        found = None  # a refused request leaves such lines too, and the server goes on
    if found is not None:
        if found.reason == "model_incompatible" and commit:
            return Diagnosis(found.reason, f"{found.detail} (llama.cpp {commit})", found.log_line, found.advice)
        return found
    if exit_code is None:
        return None
    line = _last_error(lines)
    reason: ArmReason = "load_failed" if phase == "loading" else "server_died"
    when = "before it was ready" if phase == "loading" else "while it was serving"
    if by_signal is not None:
        advice = ""
        if by_signal == signal.SIGILL:
            advice = (
                "the build uses instructions that this CPU lacks: use one with GGML_NATIVE=OFF and all CPU variants"
            )
        return Diagnosis(reason, f"the server died of {by_signal.name} {when}", line, advice)
    if exit_code in (126, 127) and phase == "loading":
        advice = "check the path, its permissions and its libraries"
        return Diagnosis("engine_unavailable", f"the server cannot be run (exit code {exit_code})", line, advice)
    return Diagnosis(reason, f"the server ended {when} (exit code {exit_code})", line)


def timed_out(lines: Sequence[str], limit_s: float) -> Diagnosis:
    """The diagnosis of a server that lives but did not become ready: a known sign in its log, or the time limit."""
    found = decisive(lines)
    if found is not None:
        return found
    return Diagnosis(
        "load_timeout",
        f"the server was not ready within {limit_s:g} s",
        lines[-1].strip() if lines else None,
        "raise startup_limit_s in the preset if the log shows a load that goes on",
    )


def _signal_of(exit_code: int | None) -> signal.Signals | None:
    if exit_code is None:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128
    try:
        return signal.Signals(number) if number > 0 else None
    except ValueError:
        return None


def _last_error(lines: Sequence[str]) -> str | None:
    """The last line that tells of an error by itself; else one that passes it on; else the last line with text."""
    errors = [line for line in lines if _ERROR_LEVEL.search(line)]
    for pool in ([line for line in errors if not _SECONDARY.search(line)], errors, list(lines)):
        for line in reversed(pool):
            if line.strip():
                return line.strip()
    return None
