"""What the tests of images and containers share: the engine, an image with the stub as its server, and the real one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

import docker
import pytest
from docker.errors import ImageNotFound
from engine_helpers import STUB

from bench.engines.container_owner import KIND_LABEL
from bench.engines.docker_host import connect
from bench.errors import ArmError
from bench.image import build as image

PYTHON_BASE = "gguf-bench/base-python:bookworm"
STUB_IMAGE = "gguf-bench/test-stub:latest"


def missing(what: str, how: str) -> NoReturn:
    """Under CI a thing that is not there is a failure; elsewhere the test says what it would take."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing: {how}")
    pytest.skip(f"{what} is missing: {how}")


def docker_client() -> docker.DockerClient:
    """The engine, or no test."""
    try:
        return connect()
    except ArmError as error:
        missing("a Docker engine", str(error))


def stub_image(client: docker.DockerClient, name: str = STUB_IMAGE, library: str = "libggml-cpu-stub.so") -> str:
    """An image whose /app/llama-server is the stub, with the library of a backend beside it."""
    try:
        client.images.get(PYTHON_BASE)
    except ImageNotFound:
        missing(PYTHON_BASE, f"containers/debian-base.sh {PYTHON_BASE} python3")
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        shutil.copyfile(STUB, context / "stub.py")
        shutil.copyfile(STUB.with_name("stub_answers.py"), context / "stub_answers.py")
        (context / "llama-server").write_text('#!/bin/sh\nexec python3 /app/stub.py "$@"\n')
        (context / "llama-server").chmod(0o755)
        (context / library).write_text("")
        (context / "Dockerfile").write_text(
            f"FROM {PYTHON_BASE}\nLABEL {KIND_LABEL}=test\nCOPY . /app/\n"
            "ENV LLAMA_ARG_CTX_SIZE=7 STUB_FROM_IMAGE=1\n"
            'USER 10001:10001\nENTRYPOINT ["/app/llama-server"]\n'
        )
        client.images.build(path=str(context), tag=name, rm=True)
    return name


def cpu_image(client: docker.DockerClient) -> str:
    """The real CPU image of build 9785, or no test. Others that lie about may be of a test's own making."""
    real = (i for i in image.list_images(client) if (i.kind, i.backend, i.build) == (image.IMAGE_KIND, "cpu", 9785))
    found = next((ref for i in real for ref in i.refs), None)
    if found is None:
        missing("the CPU image", "invoke build-llama --backend cpu (docs/container.md)")
    return found


def ours(client: docker.DockerClient) -> set[str]:
    """Names of this project's containers, running or not."""
    found = client.containers.list(all=True, filters={"label": KIND_LABEL}, ignore_removed=True)
    return {str(container.name) for container in found}


def copy_out(client: docker.DockerClient, ref: str, folder: Path) -> Path:
    """The image's server with its libraries on this machine."""
    container = client.containers.create(ref, entrypoint=["/bin/true"])
    try:
        stream, _ = container.get_archive("/opt/llama")
        data = b"".join(stream)
    finally:
        container.remove(force=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=data, check=True)
    return folder / "llama" / "llama-server"


def docker_cli() -> str:
    """Docker's command line, or no test."""
    found = shutil.which("docker")
    if found is None:
        missing("the docker command", "install docker-cli")
    return found
