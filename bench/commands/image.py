"""`build-llama` and `images`: the pinned llama.cpp image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from bench.engines.docker_host import connect
from bench.errors import ArmError, BenchError
from bench.image.build import Backend, BuildRequest, build, list_images
from bench.models.obtain import obtain
from bench.options import one_of, whole_number
from bench.paths import ROOT, default_cache
from bench.presets.load import load_arm
from bench.reporter import Reporter
from bench.runner.planning import size_text

CHECK_ARM = "smollm2-135m-q4-kv-f16"
"""Its model is what a new image has to load and decode."""


@dataclass(frozen=True)
class BuildWishes:
    """The options of `build-llama`, as text."""

    rev: str | None = None
    backend: str = "cuda"
    source: str | None = None
    build_number: str | None = None
    repo: str | None = None
    cuda_architectures: str | None = None
    base_build: str | None = None
    base_runtime: str | None = None
    flags: str = ""
    leave_out: str | None = None
    network: str | None = None
    jobs: str | None = None
    force: bool = False


def build_llama(wishes: BuildWishes, out: Reporter) -> int:
    """Build the image, prove it, and name it. 1 with the lines that matter when the build fails."""
    usual = BuildRequest()
    request = BuildRequest(
        rev=wishes.rev,
        backend=one_of("--backend", wishes.backend, get_args(Backend)),  # type: ignore[arg-type]
        source=Path(wishes.source).expanduser() if wishes.source else None,
        build_number=whole_number("build-number", wishes.build_number, 0) or None,
        repo=wishes.repo or usual.repo,
        cuda_architectures=wishes.cuda_architectures,
        base_build=wishes.base_build,
        base_runtime=wishes.base_runtime,
        extra_flags=wishes.flags,
        leave_out=usual.leave_out if wishes.leave_out is None else wishes.leave_out,
        jobs=whole_number("jobs", wishes.jobs, 0, high=1024),
        network=wishes.network,
        force=wishes.force,
    )
    try:
        client = connect()
        model = obtain(load_arm(CHECK_ARM, ROOT).model, default_cache(), progress=out.download).path
        built = build(client, request, out.line, check_model=model)
    except ArmError as e:
        raise BenchError(str(e)) from e
    identity = built.identity
    done = "built" if built.made else "is there already (--force builds it again)"
    out.line(f"{built.ref} {done}: build {identity.build} of {built.pin.commit or identity.commit}, {identity.backend}")
    out.line(f"  image  {identity.image_id}")
    if built.decoded is not None:
        out.line(f"  check  {built.decoded}")
    if built.log_path is not None:
        out.line(f"  log    {built.log_path}")
    return 0


def images(out: Reporter) -> int:
    """List the images that this project made."""
    try:
        found = list_images(connect())
    except ArmError as e:
        raise BenchError(str(e)) from e
    if not found:
        out.line("no image yet; make one with: ./invoke build-llama --rev 8be759e6f")
        return 0
    rows = [
        [
            ", ".join(image.refs) or "(no name)",
            image.kind,
            f"b{image.build}" if image.build else "",
            (image.commit or "")[:12],
            image.backend or "",
            size_text(image.size_bytes),
            image.created[:16].replace("T", " "),
        ]
        for image in found
    ]
    out.table("Images", ["name", "kind", "build", "commit", "backend", "size", "made"], rows)
    return 0
