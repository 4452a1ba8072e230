"""Which engine serves which arm, and what keeps it from doing so here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.engines import Engine
from bench.engines.process import ProcessEngine
from bench.errors import UsageError
from bench.options import one_of
from bench.planning import Wishes
from bench.presets import Arm


def engines_for(arms: Sequence[Arm], wishes: Wishes) -> dict[str, Engine]:
    """The engine of each arm: `auto` is a process for an arm on the CPU, a container for one on the GPU."""
    name = one_of("--engine", wishes.engine or "auto", ("auto", "process", "container"))
    process = ProcessEngine(server_path(wishes.server))
    out: dict[str, Engine] = {}
    for arm in arms:
        if name == "process" or (name == "auto" and arm.device == "cpu"):
            out[arm.arm_id] = process
        else:
            raise UsageError("the container engine is not there yet")
    return out


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
    return {arm.arm_id: engines[arm.arm_id].problems(arm) for arm in arms}
