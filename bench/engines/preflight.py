"""What keeps an arm from running on this machine, whichever engine serves it."""

from __future__ import annotations

from pathlib import Path

from bench import host
from bench.engines import ports
from bench.errors import ArmError, BenchError
from bench.models.sources import split_parts
from bench.presets.load import Arm


def host_refusals(arm: Arm, model_bytes: int | None) -> list[ArmError]:
    """What would fail for certain: the port in use, more threads than cores, a model (bytes) larger than the memory."""
    out: list[ArmError] = []
    if arm.port and ports.in_use(arm.port):
        out.append(
            ArmError(
                "port_in_use",
                f"port {arm.port} is in use by another program",
                advice="stop that program, or set port = 0 in the preset for a free port",
            )
        )
    cores = host.cores()
    if arm.device == "cpu" and arm.threads != "cores" and arm.threads > cores:
        out.append(
            ArmError(
                "settings_differ",
                f"threads = {arm.threads}, but {cores} physical cores are open to us, and more threads than cores"
                " collapse decoding on the CPU",
                advice='set threads = "cores" in the preset',
            )
        )
    available = host.ram_available_bytes()
    if arm.device == "cpu" and model_bytes is not None and model_bytes > available:
        out.append(
            ArmError(
                "no_memory",
                f"the model file has {model_bytes / 1e9:.1f} GB, and {available / 1e9:.1f} GB of memory are free",
                advice="free memory, or take a smaller file",
            )
        )
    return out


def one_line(error: ArmError) -> str:
    """A refusal as a problem's line: what was found, and what to do."""
    return error.detail + (f"; {error.advice}" if error.advice else "")


def threads_for(arm: Arm) -> int:
    """Threads that the arm's server gets."""
    return host.cores() if arm.threads == "cores" else arm.threads


def model_files(model: Path, *, must_exist: bool = True) -> tuple[Path, ...]:
    """All parts of a model, the first first. Raises ArmError `model_missing` naming the part that is not there."""
    try:
        files = tuple(model.parent / name for name in split_parts(model.name))
    except BenchError as error:
        raise ArmError("model_missing", str(error)) from error
    for file in files:
        if must_exist and not file.is_file():
            raise ArmError("model_missing", f"expected a model file, found none at {file}")
    return files
