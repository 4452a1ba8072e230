"""What the container engine's refusals mean, and what to do about them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from docker.errors import APIError, ImageNotFound

from bench.errors import ArmError, ArmReason

_TOOLKIT = (
    "install the NVIDIA Container Toolkit, run `nvidia-ctk runtime configure --runtime=docker` and restart Docker"
)


@dataclass(frozen=True)
class _Refusal:
    pattern: re.Pattern[str]
    reason: ArmReason
    detail: str
    advice: str


def _refusal(pattern: str, reason: ArmReason, detail: str, advice: str) -> _Refusal:
    return _Refusal(re.compile(pattern, re.IGNORECASE), reason, detail, advice)


# In order: the first that matches is the answer.
_REFUSALS = (
    _refusal(
        r"could not select device driver",
        "gpu_unavailable",
        "the Docker engine cannot give a container a GPU",
        _TOOLKIT,
    ),
    _refusal(
        r"unsatisfied condition: (?P<need>[^,\n\"]+)",
        "gpu_unavailable",
        "the driver is too old for the image ({need})",
        "update the NVIDIA driver, or build the image on an older CUDA (--base-build, --base-runtime)",
    ),
    _refusal(
        r"unknown device|invalid device|unresolvable CDI devices|device not found|no such device",
        "gpu_unavailable",
        "the Docker engine does not know the GPU that was asked for",
        "`nvidia-smi -L` lists indices and UUIDs for --gpu",
    ),
    _refusal(
        r"nvidia-container-cli|nvidia-container-runtime|libnvidia-ml\.so|nvml error|CDI device injection",
        "gpu_unavailable",
        "the NVIDIA container runtime failed",
        "check that `nvidia-smi` works on this machine; after a driver update restart it and Docker",
    ),
    _refusal(
        r"error gathering device information.*?\"(?P<need>/dev/[^\"]+)\"",
        "gpu_unavailable",
        "the device file {need} is not there",
        "check that the GPU's driver is loaded",
    ),
    _refusal(
        r"port is already allocated|address already in use",
        "port_in_use",
        "another program has the port",
        "stop that program, or set port = 0 in the preset for a free port",
    ),
    _refusal(
        r"bind source path does not exist: (?P<need>[^\"\n]+)",
        "model_missing",
        "the Docker engine cannot see {need}",
        "it runs on another machine or in a virtual machine of its own: share the model's folder with it",
    ),
    _refusal(
        r"mounts denied|file sharing|not shared from the host",
        "model_missing",
        "the Docker engine may not see the model's folder",
        "share the folder in Docker Desktop's settings (Resources, File sharing)",
    ),
    _refusal(
        r"no space left on device",
        "engine_unavailable",
        "the Docker engine's disk is full",
        "`docker system df` shows what takes the room",
    ),
    _refusal(
        r"executable file not found|no such file or directory.*exec|exec format error|exec: .*no such file",
        "image_mismatch",
        "the image's server cannot be started",
        "use an image for this machine's processor, made by `./invoke build-llama`",
    ),
)


def as_arm_error(error: Exception, image: str) -> ArmError:
    """The engine's refusal to make or start a container as an ArmError with one line and advice."""
    text = " ".join(str(getattr(error, "explanation", None) or error).split())
    if isinstance(error, ImageNotFound):
        return ArmError(
            "image_missing", f"the Docker engine has no image `{image}`", advice="make it with `./invoke build-llama`"
        )
    for refusal in _REFUSALS:
        match = refusal.pattern.search(text)
        if match:
            detail = refusal.detail.format(**match.groupdict())
            return ArmError(refusal.reason, detail, advice=refusal.advice, log_line=text[:500])
    status = f" ({error.status_code})" if isinstance(error, APIError) and error.status_code else ""
    return ArmError(
        "engine_unavailable",
        f"the Docker engine refused the container{status}: {text[:300]}",
        advice="its own log tells more (`journalctl -u docker`)",
        log_line=text[:500],
    )
