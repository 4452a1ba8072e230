"""`doctor`: what this machine has and lacks for each lineup, each line with the fix."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from bench.commands.setup import engines_for, problems_for, server_path
from bench.errors import UsageError
from bench.grading import available
from bench.host import busy_with, cores, cpu_model, ram_bytes
from bench.paths import ROOT, default_cache
from bench.presets.load import load_arm, load_lineups
from bench.reporter import Reporter
from bench.runner.planning import Wishes, download_bytes, size_text
from bench.telemetry.sampler import gpu_info


@dataclass(frozen=True)
class Line:
    """One thing that was looked at."""

    state: str
    """`ok`, `note` (works without it) or `lack`."""
    what: str
    found: str
    fix: str = ""


def doctor(out: Reporter) -> int:
    """Print what is there, what is not, and the fix. 0 when the smoke lineup can run, 1 when it cannot."""
    _table(out, "This machine", [*_host(), *_grading(), _gpu(), _docker(), *_server()])
    smoke_runs = True
    for lineup in load_lineups(ROOT).values():
        lines = _lineup(lineup.arms)
        _table(out, f"Lineup {lineup.lineup_id}: {lineup.title}", lines)
        if lineup.lineup_id == "smoke":
            smoke_runs = all(line.state != "lack" for line in lines)
    return 0 if smoke_runs else 1


def _table(out: Reporter, title: str, lines: list[Line]) -> None:
    out.table(title, ["", "what", "found", "fix"], [[line.state, line.what, line.found, line.fix] for line in lines])


def _host() -> list[Line]:
    cache = default_cache()
    free = shutil.disk_usage(_existing(cache)).free
    busy = busy_with()
    room = free > 2e9
    return [
        Line("ok", "Python", platform.python_version()),
        Line("ok", "CPU", f"{cpu_model()}, {cores()} physical cores open to us"),
        Line("ok", "memory", size_text(ram_bytes())),
        Line("ok" if room else "lack", "disk", f"{size_text(free)} free for models", "" if room else "make room"),
        Line("note", "load", f"busy: {busy}", "stop it before a run: other load makes decoding slow")
        if busy
        else Line("ok", "load", "idle"),
    ]


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _grading() -> list[Line]:
    statuses = available()
    some = any(s.works for s in statuses)
    return [
        Line("ok" if s.works else "note" if some else "lack", f"sandbox: {s.provider}", s.reason or "works", s.fix)
        for s in statuses
    ]


def _gpu() -> Line:
    gpu = gpu_info()
    if gpu.name is None:
        fix = "needed only for arms on the GPU: install the NVIDIA driver"
        return Line("note", "GPU", gpu.reason or "none", fix)
    memory = size_text(gpu.vram_bytes) if gpu.vram_bytes else "memory unknown"
    return Line("ok", "GPU", f"{gpu.name}, {memory}, driver {gpu.driver or 'unknown'}")


def _docker() -> Line:
    import docker  # slow to import, and only doctor needs it here

    try:
        client = docker.from_env(timeout=10)
        version = client.version()["Version"]
        client.close()
    except docker.errors.DockerException as e:
        text = " ".join(str(e).split())[:100]
        return Line("note", "Docker", text, "needed only for the container engine: install Docker and start it")
    return Line("ok", "Docker", f"engine {version}")


def _server() -> list[Line]:
    try:
        named = server_path(None)
    except UsageError as e:
        return [Line("lack", "llama-server", str(e), "unset LLAMA_SERVER or correct it")]
    if named:
        return [Line("ok", "llama-server", f"{named} (from $LLAMA_SERVER)")]
    lines = [Line("ok", "llama-server", "embedded (xllamacpp)")]
    on_path = shutil.which("llama-server")
    if on_path:
        use = f"to bench with it: LLAMA_SERVER={os.path.realpath(on_path)} ./invoke bench"
        lines.append(Line("note", "llama-server", f"{on_path} lies on PATH and is not used", use))
    return lines


def _lineup(arm_ids: tuple[str, ...]) -> list[Line]:
    arms = [load_arm(arm_id, ROOT) for arm_id in arm_ids]
    problems = problems_for(arms, engines_for(arms, Wishes()))
    cache = default_cache()
    lines: list[Line] = []
    before: list[str] = []
    for arm in arms:
        texts = problems[arm.arm_id]
        size, whole = download_bytes([arm], cache)
        model = (
            "model here" if not size and whole else f"model to download, {size_text(size) if size else 'size unknown'}"
        )
        fix = "see above" if texts and texts == before else "; ".join(texts)
        lines.append(Line("lack", arm.arm_id, "cannot run here", fix) if texts else Line("ok", arm.arm_id, model))
        before = texts
    return lines
