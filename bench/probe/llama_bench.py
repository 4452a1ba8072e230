"""llama-bench beside the probe: another program's figures for the same model, as a cross-check.

It measures the bare library: no server, no template, no drafts, no sampler. Its figures are stored under kinds of their
own (`llama-bench-prompt`, `llama-bench-decode`) and never mixed with the server's. It runs after the server has
stopped, for both together would not fit on a GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from bench.engines import Engine
from bench.engines.container import ContainerEngine
from bench.engines.container_plan import ContainerPlan, container_name
from bench.engines.environment import server_env
from bench.engines.process import ProcessEngine
from bench.errors import ArmError
from bench.ids import new_id
from bench.presets.load import Arm

_NO_PROGRAM = re.compile(r"no such file|not found", re.I)

REPETITIONS = 3
LIMIT_S = 120.0
"""Beyond twice the arm's time to start (it loads the model twice), seconds."""


@dataclass(frozen=True)
class Command:
    """How llama-bench is started for an arm."""

    prefix: tuple[str, ...]
    """The program, or what runs it in a container."""
    model: str
    """Path of the model where the program runs."""
    container: str | None = None
    """Name of the container, to be removed when it is broken off."""


def command_for(engine: Engine, arm: Arm, model: Path) -> Command | None:
    """llama-bench of the engine that serves the arm: beside its llama-server; None where there is none."""
    if isinstance(engine, ProcessEngine) and engine.server is not None:
        found = shutil.which(engine.server)
        beside = Path(found).resolve().with_name("llama-bench") if found else None
        return Command((str(beside),), str(model.absolute())) if beside and os.access(beside, os.X_OK) else None
    if isinstance(engine, ContainerEngine) and shutil.which("docker"):
        try:
            return in_container(engine.docker_arguments(arm, model))
        except ArmError:
            return None
    return None


def in_container(plan: ContainerPlan) -> Command:
    """The container of an arm, with llama-bench in place of the server beside which it lies."""
    *init, server = plan.entrypoint
    # The official image with all tools has one program that is told what to be.
    bench = "--bench" if server == "--server" else str(PurePosixPath(server).with_name("llama-bench"))
    name = container_name("llama-bench", new_id())
    line = dataclasses.replace(plan, entrypoint=(*init, bench), command=(), name=name).command_line()
    line[line.index("--detach")] = "--rm"
    at = line.index("--publish")
    return Command((*line[:at], *line[at + 2 :]), plan.models[0][1], name)


def arguments(arm: Arm, threads: int) -> list[str]:
    """The arm's settings as llama-bench takes them; it knows no overrides, drafts or samplers."""
    flash = "auto" if arm.flash_attention == "auto" else "on" if arm.flash_attention else "off"
    layers = "999" if arm.gpu_layers == "all" else str(arm.gpu_layers)
    return ["-t", str(threads), "-ngl", layers, "-ctk", arm.kv_k, "-ctv", arm.kv_v, "-fa", flash]


def llama_bench(
    command_prefix: Sequence[str],
    model_path: str,
    settings: Sequence[str] = (),
    *,
    sizes: Sequence[int],
    n_predict: int,
    repetitions: int = REPETITIONS,
    limit_s: float = LIMIT_S,
    env: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> list[dict[str, Any]]:
    """Run llama-bench: prompts of `sizes` tokens, and `n_predict` tokens at each of those depths.

    Returns measurements as `measurements` does. What fails is one row with the reason and without figures; nothing is
    raised. Nothing is returned where there is no such program, and once `stop` is set, which breaks it off.
    """
    stop = stop or threading.Event()
    end = time.monotonic() + limit_s
    listed = ",".join(map(str, sizes))
    out: list[dict[str, Any]] = []
    # Two calls: one would measure every prompt at every depth.
    for kind, test in (
        ("prompt", ["-p", listed, "-n", "0"]),
        ("decode", ["-p", "0", "-n", str(n_predict), "-d", listed]),
    ):
        line = [*command_prefix, "-m", model_path, *settings, *test, "-r", str(repetitions), "-o", "json"]
        at = datetime.now(UTC)
        try:
            said = _run(line, server_env(env or {}), end, stop)
            out += measurements(said)
        except (_Stopped, FileNotFoundError):
            return []
        except (OSError, ValueError) as error:
            detail = " ".join(str(error).split())[:500]
            out.append(_row(f"llama-bench-{kind}", None, 1, at, outcome="failed", detail=detail))
    return out


def measurements(text: str) -> list[dict[str, Any]]:
    """Columns of `probes` from what `llama-bench -o json` printed, a row for each repetition; warm-ups it keeps itself.

    Times are of all n steps, in ms. A test of a prompt and an answer together is left out, and so is a prompt at a
    depth. Raises ValueError when the text is not what llama-bench prints.
    """
    try:
        tests = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(
            f"expected JSON from llama-bench, found: {' '.join(text.split())[:200] or 'nothing'}"
        ) from None
    if not isinstance(tests, list) or not all(isinstance(test, dict) for test in tests):
        raise ValueError("expected a list of tests from llama-bench")
    out = []
    for test in tests:
        try:
            n_prompt, n_gen, depth = int(test["n_prompt"]), int(test["n_gen"]), int(test.get("n_depth", 0))
            samples = [float(ns) / 1e6 for ns in test["samples_ns"]]
            at = datetime.fromisoformat(str(test["test_time"]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"a test of llama-bench lacks what is needed: {error!r}") from None
        if (n_prompt > 0) == (n_gen > 0) or (n_prompt > 0 and depth > 0):
            continue
        detail = (
            f"llama-bench b{test.get('build_number')}-{test.get('build_commit')} on {test.get('backends')}, "
            f"{test.get('n_threads')} threads, {test.get('n_gpu_layers')} layers on the GPU, "
            f"KV {test.get('type_k')}/{test.get('type_v')}, flash attention {test.get('flash_attn')}"
        )
        for number, ms in enumerate(samples, 1):
            if n_prompt > 0:
                row = _row("llama-bench-prompt", n_prompt, number, at, detail=detail)
                row |= {"prompt_n": n_prompt, "prompt_ms": ms}
            else:
                row = _row("llama-bench-decode", depth, number, at, detail=detail)
                row |= {"prompt_n": depth, "predicted_n": n_gen, "predicted_ms": ms}
            out.append(row)
    return out


def _row(
    kind: str, size: int | None, repetition: int, at: datetime, *, outcome: str = "ok", detail: str
) -> dict[str, Any]:
    return {
        "request_id": new_id(),
        "stage": "apart",
        "kind": kind,
        "size": size,
        "repetition": repetition,
        "warmup": False,
        "measured_at": at if at.tzinfo else at.replace(tzinfo=UTC),
        "outcome": outcome,
        "detail": detail,
    }


class _Stopped(Exception):
    """The run is being stopped."""


def _run(line: Sequence[str], env: Mapping[str, str], end: float, stop: threading.Event) -> str:
    """What a program prints. Raises ValueError when it fails or takes too long, OSError when it cannot be run,
    FileNotFoundError among them when it is not there, be it in a container."""
    process = subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(env),
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        while True:
            try:
                out, err = process.communicate(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                if stop.is_set():
                    raise _Stopped from None
                if time.monotonic() > end:
                    raise ValueError("llama-bench took longer than it may") from None
    finally:
        # The whole group, whatever it started.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode == 127 and _NO_PROGRAM.search(err):
        raise FileNotFoundError(line[0])
    if process.returncode != 0:
        last = [text.strip() for text in err.splitlines() if text.strip()][-3:]
        raise ValueError(f"llama-bench ended with exit code {process.returncode}: {'; '.join(last) or 'no message'}")
    return out


def remove_container(command: Command) -> None:
    """Take away the container of a run that was broken off: docker's command line does not when it is killed."""
    if command.container is not None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["docker", "rm", "--force", command.container], capture_output=True, timeout=30, check=False)
