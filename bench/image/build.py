"""The pinned image: built from one llama.cpp commit, run, and refused when it is not what was asked for."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

import docker
from docker.errors import APIError, DockerException

from bench.engines.container_owner import KIND_LABEL, PREFIX
from bench.errors import ArmError, UsageError
from bench.image.builder import BuildFailed, Progress, run_build
from bench.image.check import Decoded, prove_decodes
from bench.image.identity import IMAGE_KIND, ImageIdentity, identify
from bench.image.source import REPO, Pin, is_source, open_source, resolve
from bench.paths import ROOT

__all__ = ["BuildFailed", "BuildRequest", "Built", "Pin", "build", "find_image", "identify", "list_images", "resolve"]

Backend = Literal["cpu", "cuda", "vulkan"]
BACKENDS: tuple[Backend, ...] = ("cpu", "cuda", "vulkan")

REFERENCE_REV = "8be759e6f"
"""The llama.cpp of the reference run, build 9784."""

_BOOKWORM = "debian:bookworm-20260824-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171"
_TRIXIE = "debian:trixie-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f"
_CUDA = "nvidia/cuda:12.8.1-{}-ubuntu24.04@sha256:{}"
DEFAULT_BASES: Mapping[str, tuple[str, str]] = {
    "cpu": (_BOOKWORM, _BOOKWORM),
    "vulkan": (_TRIXIE, _TRIXIE),  # bookworm's shader compiler has no cooperative matrices
    "cuda": (
        _CUDA.format("devel", "520292dbb4f755fd360766059e62956e9379485d9e073bbd2f6e3c20c270ed66"),
        _CUDA.format("runtime", "ebef3c171eeef0298e4eb2e4be843105edf3b8b0ac45e0b43acee358e8046867"),
    ),
}
"""Images to build on and to run on, by backend, fixed by digest."""

COMMON_ARCHITECTURES = "75-virtual;80-virtual;86-real;89-real;90-virtual;120a-real"
"""CUDA architectures when no GPU is present to ask: Turing to Blackwell."""

_REPOSITORY = "gguf-bench/llama"


@dataclass(frozen=True)
class BuildRequest:
    """What to build."""

    rev: str | None = None
    """Commit, tag or branch; None is the reference run's. With `source` it is the commit that the tree is said to be,
    and None leaves that to the tree."""
    backend: Backend = "cpu"
    source: Path | None = None
    """A llama.cpp tree or archive on this machine, in place of git."""
    build_number: int | None = None
    """Build number, for a revision or tree that git cannot be asked about."""
    repo: str = REPO
    cuda_architectures: str | None = None
    """CMake's list; None is the GPUs of this machine, else the common ones."""
    base_build: str | None = None
    base_runtime: str | None = None
    extra_flags: str = ""
    """Further CMake arguments."""
    leave_out: str = "sapphirerapids"
    """CPU variants to leave out, separated by blanks."""
    jobs: int = 0
    """Compilers at a time; 0 is one for each CPU."""
    network: str | None = None
    """Network of the build's steps, such as `none` or `host`; None is docker's own choice."""
    force: bool = False
    """Build even when the image exists."""


@dataclass(frozen=True)
class Built:
    """An image that proved to be what was asked for."""

    ref: str
    identity: ImageIdentity
    pin: Pin
    made: bool
    """False when it was there already."""
    seconds: float
    log_path: Path | None
    decoded: Decoded | None = None
    """What came of loading a model and decoding; None when that was not tried."""


@dataclass(frozen=True)
class ListedImage:
    """An image that this project made, as its labels tell."""

    refs: tuple[str, ...]
    image_id: str
    kind: str
    build: int | None
    commit: str | None
    backend: str | None
    size_bytes: int
    created: str
    labels: Mapping[str, str] = field(default_factory=dict)


def image_ref(pin: Pin, backend: str) -> str:
    """The name of the image for a llama.cpp and a backend: `gguf-bench/llama:b9784-8be759e6f-cuda`."""
    return f"{_REPOSITORY}:{pin.fingerprint}-{backend}"


def build(
    client: docker.DockerClient,
    request: BuildRequest,
    progress: Progress,
    *,
    check_model: Path | None = None,
    log_dir: Path | None = None,
) -> Built:
    """Build the image, run it, and give it its name only when it says that it is what was asked for.

    With `check_model`, a small GGUF file, it must also load it and decode: on the CPU, or for another backend on the
    GPU where NVML shows one. An image of the same recipe that is there already is asked what it is and returned.

    Raises UsageError for what was typed, BuildFailed with the lines that matter, ArmError `image_mismatch` when the
    result is something else; its name then stays with the image that had it.
    """
    started = time.monotonic()
    if request.backend not in BACKENDS:
        raise UsageError(f"--backend: expected {', '.join(BACKENDS)}, found '{request.backend}'")
    with tempfile.TemporaryDirectory(prefix="gguf-bench-build-") as scratch:
        context = Path(scratch) / "context"
        context.mkdir()
        pin = _prepare(request, context, Path(scratch) / "unpacked")
        ref = image_ref(pin, request.backend)
        arguments = _arguments(client, request, pin)
        recipe = _recipe(arguments, pin)
        if not request.force:
            there = _existing(client, ref, recipe, progress)
            if there is not None:
                _require(there, pin, request.backend)
                return Built(ref, there, pin, False, time.monotonic() - started, None)
        shutil.copyfile(ROOT / "Dockerfile", context / "Dockerfile")
        candidate = f"{_REPOSITORY}:candidate-{secrets.token_hex(6)}"
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        log_path = (log_dir or ROOT / ".cache" / "builds") / f"{ref.rpartition(':')[2]}-{stamp}.log"
        options = [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
        options += ["--label", f"{PREFIX}recipe={recipe}", "--tag", candidate]
        options += ["--network", request.network] if request.network else []
        options += ["--file", str(context / "Dockerfile"), str(context)]
        progress(f"building {ref}")
        run_build(options, log_path, progress, what=ref)
    try:
        identity = identify(client, candidate)
        _require(identity, pin, request.backend)
        decoded = _decode(client, candidate, check_model, request.backend, progress)
        client.images.get(candidate).tag(_REPOSITORY, ref.rpartition(":")[2])
    finally:
        client.images.remove(candidate, noprune=True)
    return Built(ref, replace(identity, ref=ref), pin, True, time.monotonic() - started, log_path, decoded)


def _decode(
    client: docker.DockerClient, ref: str, model: Path | None, backend: str, progress: Progress
) -> Decoded | None:
    if model is None:
        progress("not tried: no model at hand to load and decode with")
        return None
    if backend != "cpu" and present_architectures() is None:
        progress("not tried: this machine shows no GPU to load a model on")
        return None
    found = prove_decodes(client, ref, model, "cpu" if backend == "cpu" else "gpu")
    progress(f"it loads {model.name} in {found.load_ms:.0f} ms and answers as {found.fingerprint}: {found.text[:60]!r}")
    return found


def _prepare(request: BuildRequest, context: Path, unpacked: Path) -> Pin:
    """The pin; a local source is laid into the build context."""
    if request.source is None:
        return resolve(request.rev or REFERENCE_REV, repo=request.repo, build_number=request.build_number)
    said = None
    if request.rev:
        said = resolve(request.rev, repo=request.repo, build_number=request.build_number)
    number = request.build_number if request.build_number is not None else said.build if said else None
    source = open_source(request.source, unpacked, commit=said.commit if said else None, build=number)

    def leave(folder: str, names: list[str]) -> set[str]:
        here = Path(folder)
        return {n for n in names if n.endswith(".gguf") or not is_source((here / n).relative_to(source.tree))}

    shutil.copytree(source.tree, context / "llama.cpp", ignore=leave, symlinks=True)
    return source.pin


def _arguments(client: docker.DockerClient, request: BuildRequest, pin: Pin) -> dict[str, str]:
    base_build, base_runtime = DEFAULT_BASES[request.backend]
    out = {
        "BACKEND": request.backend,
        "SOURCE": "local" if request.source else "git",
        "LLAMA_COMMIT": pin.commit or "",
        "BUILD_NUMBER": str(pin.build or 0),
        "BUILD_COMMIT": pin.build_commit,
        "BASE_BUILD": request.base_build or base_build,
        "BASE_RUNTIME": request.base_runtime or base_runtime,
        "LEAVE_OUT": request.leave_out,
    }
    out["BASE_BUILD_DIGEST"] = _digest(client, out["BASE_BUILD"])
    out["BASE_RUNTIME_DIGEST"] = _digest(client, out["BASE_RUNTIME"])
    if request.repo != REPO:
        out["LLAMA_REPO"] = request.repo
    if pin.source_sha256:
        out["SOURCE_SHA256"] = pin.source_sha256
    if request.backend == "cuda":
        out["CUDA_ARCHITECTURES"] = request.cuda_architectures or present_architectures() or COMMON_ARCHITECTURES
    if request.extra_flags:
        out["EXTRA_FLAGS"] = request.extra_flags
    if request.jobs:
        out["JOBS"] = str(request.jobs)
    return out


def _digest(client: docker.DockerClient, ref: str) -> str:
    """The digest in a reference, else that of the local image of this name; empty when it is still to be pulled."""
    if "@sha256:" in ref:
        return ref.rpartition("@")[2]
    try:
        image = client.images.get(ref)
    except DockerException:
        return ""
    digests = cast(list[str], image.attrs.get("RepoDigests") or [])
    return digests[0].rpartition("@")[2] if digests else str(image.id)


def _recipe(arguments: Mapping[str, str], pin: Pin) -> str:
    """A checksum over all that the image is made of: the Dockerfile, its arguments, the source. Not how fast."""
    what = {k: v for k, v in arguments.items() if k != "JOBS"}
    text = json.dumps([what, pin.source_sha256, (ROOT / "Dockerfile").read_text(encoding="utf-8")], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _existing(client: docker.DockerClient, ref: str, recipe: str, progress: Progress) -> ImageIdentity | None:
    try:
        identity = identify(client, ref)
    except ArmError as e:
        if e.reason not in ("image_missing", "image_mismatch"):
            raise
        return None
    if identity.labels.get(f"{PREFIX}recipe") == recipe:
        return identity
    progress(f"{ref} is there, but was made from other arguments or another Dockerfile: building it again")
    return None


def _require(identity: ImageIdentity, pin: Pin, backend: str) -> None:
    """Raise ArmError `image_mismatch` unless the image says what was asked for."""
    pairs = (
        ("build", pin.build, identity.build),
        ("commit", pin.build_commit, identity.commit),
        ("backend", backend, identity.backend),
    )
    wrong = [f"{name} expected {want}, found {have}" for name, want, have in pairs if want != have]
    if wrong:
        raise ArmError(
            "image_mismatch",
            f"the image that was built is not what was asked for: {'; '.join(wrong)}",
            advice="see the build's log; a --source tree may be of another commit than --rev says",
        )


def present_architectures() -> str | None:
    """CUDA architectures of this machine's GPUs in CMake's words, such as `89-real`; None when NVML shows none."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        found = set()
        for i in range(pynvml.nvmlDeviceGetCount()):
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(pynvml.nvmlDeviceGetHandleByIndex(i))
            # Blackwell's and Hopper's special instructions are only in the "a" variants; llama.cpp uses Blackwell's.
            found.add(f"{major}{minor}{'a' if major >= 12 else ''}-real")
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    return ";".join(sorted(found)) or None


def list_images(client: docker.DockerClient) -> list[ListedImage]:
    """Images that this project made, newest first, by their labels."""
    out: dict[str, ListedImage] = {}
    for image in client.images.list(filters={"label": KIND_LABEL}):
        labels = dict(image.labels)
        number = labels.get(f"{PREFIX}build", "")
        out[str(image.id)] = ListedImage(
            refs=tuple(image.tags),
            image_id=str(image.id),
            kind=labels.get(KIND_LABEL, ""),
            build=int(number) or None if re.fullmatch(r"\d+", number) else None,
            commit=labels.get(f"{PREFIX}commit") or labels.get(f"{PREFIX}build-commit") or None,
            backend=labels.get(f"{PREFIX}backend") or None,
            size_bytes=int(image.attrs.get("Size", 0)),
            created=str(image.attrs.get("Created", "")),
            labels=labels,
        )
    return sorted(out.values(), key=lambda i: i.created, reverse=True)


def find_image(client: docker.DockerClient, backend: str, pin: Pin | None = None) -> str | None:
    """The name of an image to use for a backend: the pin's, or without a pin the newest; None when there is none."""
    for image in list_images(client):
        if image.kind != IMAGE_KIND or image.backend != backend or not image.refs:
            continue
        named = [r for r in image.refs if not r.startswith(f"{_REPOSITORY}:candidate-")]
        if pin is None and named:
            return named[0]
        if pin is not None and image_ref(pin, backend) in named:
            return image_ref(pin, backend)
    return None


def remove_ours(client: docker.DockerClient, kinds: Collection[str] | None = None) -> list[str]:
    """Remove every image that carries this project's label (of these kinds), and nothing else; one line for each,
    removed or not.

    Docker's build cache is not touched: it cannot be told apart from other projects'.
    """
    out = []
    for image in list_images(client):
        if kinds is not None and image.kind not in kinds:
            continue
        for name in image.refs or (image.image_id,):
            try:
                client.images.remove(name)
            except APIError as e:
                why: Any = e.explanation or e
                out.append(f"kept {name}: {str(why).splitlines()[0]}")
            else:
                out.append(f"removed {name}")
    return out
