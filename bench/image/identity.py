"""What an image is: which llama.cpp is in it, for which backend, and how its server is called."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import docker
import requests
from docker.errors import APIError, ContainerError, DockerException, ImageNotFound
from docker.models.images import Image

from bench.engines.container_owner import KIND_LABEL, PREFIX, PROBE_KIND, owner_labels
from bench.errors import ArmError

IMAGE_KIND = "llama-server"
"""Kind of an image that this project built, in its label."""

_VERSION = re.compile(r"^version:\s*(\d+)\s*\((\S+?)\)", re.MULTILINE)
_BACKENDS = (("cuda", "libggml-cuda"), ("vulkan", "libggml-vulkan"), ("rocm", "libggml-hip"), ("sycl", "libggml-sycl"))
_USUAL_SERVERS = (["/app/llama-server"], ["/opt/llama/llama-server"], ["llama-server"])


@dataclass(frozen=True)
class ImageIdentity:
    """What was read from an image by running it. None is "could not be found out"."""

    ref: str
    """The name it was asked for by."""
    image_id: str
    """The engine's id: a digest over configuration and layers, the same on every machine that has this image."""
    digest: str | None
    """Digest in the registry it was pulled from; None for an image that was built here."""
    build: int | None
    """Build number that the server says."""
    commit: str | None
    """Commit that the server says, shortened as it says it."""
    full_commit: str | None
    """Full commit from the label of an image that this project built."""
    backend: str | None
    """`cpu`, `cuda`, `vulkan`, `rocm` or `sycl`: by the backend libraries beside the server."""
    server: tuple[str, ...]
    """Entry point that starts llama-server, with the arguments it needs before the server's own."""
    has_init: bool
    """Whether the entry point brings an init as PID 1."""
    scrub: tuple[str, ...]
    """Variables of the image that would change the server's settings and are removed when it is run."""
    size_bytes: int
    created: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether this project built it."""
        return self.labels.get(KIND_LABEL) == IMAGE_KIND

    @property
    def fingerprint(self) -> str | None:
        """`system_fingerprint` that its server's answers carry."""
        return None if self.build is None or self.commit is None else f"b{self.build}-{self.commit}"


def assumed(ref: str) -> ImageIdentity:
    """What an image that is not there would be, if our Dockerfile made it: for plans, never for a run."""
    backend = next((name for name, _ in _BACKENDS if ref.endswith(f"-{name}")), "cpu")
    server = ("/usr/bin/tini", "-s", "--", "/opt/llama/llama-server")
    return ImageIdentity(ref, ref, None, None, None, None, backend, server, True, (), 0, "")


def identify(client: docker.DockerClient, ref: str) -> ImageIdentity:
    """Read an image's identity by running `llama-server --version` in it, without a network and without a GPU.

    Raises ArmError: `image_missing` when the engine does not have it, `image_mismatch` when no llama-server in it
    answers.
    """
    image = get_image(client, ref)
    config = cast(Mapping[str, Any], image.attrs.get("Config") or {})
    labels = dict(config.get("Labels") or {})
    server, text = _find_server(client, image, config)
    match = _VERSION.search(text)
    assert match is not None
    commit = None if match[2] == "unknown" else match[2]
    digests = cast(Sequence[str], image.attrs.get("RepoDigests") or [])
    env = [str(entry) for entry in config.get("Env") or []]
    return ImageIdentity(
        ref=ref,
        image_id=str(image.id),
        digest=digests[0].rpartition("@")[2] if digests else None,
        build=int(match[1]) or None,
        commit=commit,
        full_commit=labels.get(f"{PREFIX}commit") or None,
        backend=_backend(client, image, server),
        server=tuple(server),
        has_init=any(part.rpartition("/")[2] in ("tini", "dumb-init", "docker-init", "catatonit") for part in server),
        scrub=tuple(sorted(n for n in (e.partition("=")[0] for e in env) if n.startswith(("LLAMA_", "GGML_")))),
        size_bytes=int(image.attrs.get("Size", 0)),
        created=str(image.attrs.get("Created", "")),
        labels=labels,
    )


def get_image(client: docker.DockerClient, ref: str) -> Image:
    """The image, or ArmError `image_missing`. Nothing is pulled: what runs is what the user chose to have."""
    try:
        return client.images.get(ref)
    except ImageNotFound as e:
        raise ArmError(
            "image_missing",
            f"the Docker engine has no image `{ref}`",
            advice="make it with `./invoke build-llama`, or fetch it with `docker pull`",
        ) from e
    except (APIError, DockerException) as e:
        raise ArmError("image_missing", f"the image `{ref}` cannot be read: {e}") from e


def run_once(
    client: docker.DockerClient, image: Image, entrypoint: Sequence[str], command: Sequence[str], limit_s: float = 60
) -> tuple[int, str]:
    """Run a command in a container without network, rights or writable files; exit code and output. The container is
    removed in any case. An entry point that does not exist is exit code 127."""
    try:
        container = client.containers.create(
            image,
            list(command),
            entrypoint=list(entrypoint),
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            mem_limit="2g",
            healthcheck={"test": ["NONE"]},
            labels=owner_labels(PROBE_KIND),
        )
    except (APIError, ContainerError) as e:
        raise ArmError("engine_unavailable", f"the Docker engine could not make a container: {e}") from e
    try:
        container.start()
        code = int(container.wait(timeout=limit_s)["StatusCode"])
        return code, container.logs().decode("utf-8", "replace")
    except APIError as e:
        if e.status_code in (400, 404) or "executable file not found" in str(e) or "no such file" in str(e):
            return 127, str(e)
        raise ArmError("engine_unavailable", f"the Docker engine could not run a container: {e}") from e
    except requests.RequestException as e:
        # A client's wait that runs out looks like a lost connection.
        raise ArmError(
            "engine_unavailable",
            f"`{' '.join([*entrypoint, *command])}` did not end within {limit_s:g} s in a container",
        ) from e
    finally:
        with contextlib.suppress(APIError, requests.RequestException):
            container.remove(force=True, v=True)


def _find_server(client: docker.DockerClient, image: Image, config: Mapping[str, Any]) -> tuple[list[str], str]:
    """The entry point that answers `--version` like llama-server, and its answer."""
    own = [str(part) for part in config.get("Entrypoint") or []]
    candidates = [own] if own else []
    if any(part.endswith("tools.sh") for part in own):
        candidates = [[*own, "--server"]]  # the official image with all tools
    candidates += [c for c in _USUAL_SERVERS if c not in candidates]
    heard = ""
    for candidate in candidates:
        code, text = run_once(client, image, candidate[:1], [*candidate[1:], "--version"])
        if _VERSION.search(text):
            return candidate, text
        if code not in (126, 127) and text.strip():
            heard = heard or text.strip().splitlines()[-1][:200]
    names = ", ".join(image.tags) or str(image.id)
    said = f"; it said: {heard}" if heard else ""
    raise ArmError(
        "image_mismatch",
        f"expected an image with llama-server, found none in {names}{said}",
        advice="use an image that `./invoke build-llama` made, or llama.cpp's own `server` images",
    )


def _backend(client: docker.DockerClient, image: Image, server: Sequence[str]) -> str | None:
    """By the libraries in the server's folder; None when the folder cannot be listed or has none of them."""
    binary = next((part for part in server if part.endswith("llama-server")), "/app/llama-server")
    folder = binary.rpartition("/")[0]
    if not folder:
        return None
    code, text = run_once(client, image, ["/bin/ls"], [folder])
    if code != 0:
        return None
    for backend, library in _BACKENDS:
        if library in text:
            return backend
    return "cpu" if "libggml-cpu" in text else None
