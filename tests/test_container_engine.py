"""The container engine on a real Docker engine, with a scripted server in the image: cases 17, 18 and 22, the limits of
the containers, what happens to their owner, and that nothing is left behind.

Times are the cases' scaled down; bounds are loose, because a machine can be busy.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import httpx
import pytest
from container_helpers import docker_cli, docker_client, ours, stub_image
from docker.errors import APIError, ImageNotFound, NotFound
from engine_helpers import make_arm, model_file, script, wait_for
from hypothesis import given
from hypothesis import strategies as st

from bench.engines import ports
from bench.engines.container import ContainerEngine, ContainerServer, model_files
from bench.engines.container_errors import as_arm_error
from bench.engines.container_life import ContainerLife
from bench.engines.container_owner import KIND_LABEL, leftovers, owner_labels, owner_lives, sweep_leftovers
from bench.engines.container_plan import ContainerPlan, container_name, memory_limit, plan_container
from bench.engines.docker_host import DockerHost, connect, docker_host, why_not_here
from bench.errors import ArmError
from bench.image.identity import ImageIdentity, identify
from bench.image.source import Pin
from bench.presets.load import Arm

ROOT = Path(__file__).resolve().parents[1]
GIB = 1 << 30


@pytest.fixture(scope="module")
def client() -> docker.DockerClient:
    return docker_client()


@pytest.fixture(scope="module")
def stub(client: docker.DockerClient) -> str:
    return stub_image(client)


@pytest.fixture
def engine(client: docker.DockerClient, stub: str) -> Iterator[ContainerEngine]:
    before = ours(client)
    yield ContainerEngine(stub, run_id="test-run", memory_bytes=GIB)
    assert ours(client) - before == set(), "a container outlived its test"


def start(engine: ContainerEngine, tmp_path: Path, arm: Arm) -> ContainerServer:
    return engine.start(arm, model_file(tmp_path), tmp_path / "logs" / "server.log")


def failure(engine: ContainerEngine, tmp_path: Path, arm: Arm) -> ArmError:
    with pytest.raises(ArmError) as error:
        start(engine, tmp_path, arm)
    return error.value


def image_identity(**changes: Any) -> ImageIdentity:
    values: dict[str, Any] = {
        "ref": "some:image", "image_id": "sha256:1", "digest": None, "build": 9784, "commit": "8be759e6f",
        "full_commit": None, "backend": "cpu", "server": ("/app/llama-server",), "has_init": False, "scrub": (),
        "size_bytes": 1, "created": "",
    }  # fmt: skip
    return ImageIdentity(**{**values, **changes})


def some_plan(arm: Arm, files: list[Path], **changes: Any) -> ContainerPlan:
    values: dict[str, Any] = {
        "name": container_name(arm.arm_id, os.urandom(4).hex()), "alias": "a", "threads": 2, "gpu": None,
        "labels": owner_labels(run="r", arm=arm.arm_id), "memory_bytes": GIB,
    }  # fmt: skip
    return plan_container(arm, files, **{"image": image_identity(), **values, **changes})


# --- a server that works ----------------------------------------------------------------------------------------------
@pytest.mark.docker
def test_an_arm_from_start_to_stop(client: docker.DockerClient, engine: ContainerEngine, tmp_path: Path) -> None:
    steps = {"0": {"health": 503, "log": "the first line"}, "1": {"health": 200, "log": "ready now"}}
    arm = make_arm(env={**script(steps), "GGML_CUDA_NO_PINNED": "1"})
    server = start(engine, tmp_path, arm)
    try:
        assert server.alive()
        assert server.death() is None
        assert 900 < server.load_ms < 30_000
        identity = server.identity
        assert (identity.engine, identity.build, identity.commit) == ("container", 9784, "8be759e6f")
        assert identity.fingerprint == "b9784-8be759e6f"
        assert identity.image_digest is not None and identity.image_digest.startswith("sha256:")
        assert identity.model_path == str(tmp_path / "model.gguf")
        assert (identity.n_ctx, identity.slots, identity.device) == (1024, 1, "cpu")
        assert identity.sampler["repeat_penalty"] == 1.05
        assert server.pids, "the engine runs here, so its processes can be seen"

        attrs = client.containers.get(server.container_name).attrs
        config, limits = attrs["Config"], attrs["HostConfig"]
        assert limits["ReadonlyRootfs"] is True
        assert limits["CapDrop"] == ["ALL"] and not limits["CapAdd"]
        assert "no-new-privileges" in limits["SecurityOpt"][0]
        assert limits["Privileged"] is False
        assert limits["Memory"] == GIB and limits["MemorySwap"] == GIB
        assert limits["PidsLimit"] == 1024
        assert limits["RestartPolicy"]["Name"] == "no"
        assert limits["Init"] is True, "the stub's image has no init of its own"
        assert not limits["DeviceRequests"]
        (mount,) = attrs["Mounts"]
        assert (mount["Type"], mount["RW"], mount["Destination"]) == ("bind", False, "/models/model.gguf")
        (bound,) = limits["PortBindings"]["8080/tcp"]
        assert bound["HostIp"] == "127.0.0.1"
        env = dict(entry.partition("=")[::2] for entry in config["Env"])
        assert env["GGML_CUDA_NO_PINNED"] == "1"
        assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
        assert config["User"] not in ("", "0", "root")
        assert config["Labels"]["org.gguf-bench.run"] == "test-run"
        assert config["Labels"]["org.gguf-bench.arm"] == "arm-a"
        assert owner_lives(config["Labels"]) is True

        inside = httpx.get(f"{server.base_url}/env", trust_env=False).json()
        assert inside["STUB_FROM_IMAGE"] == "1"
        assert "LLAMA_ARG_CTX_SIZE" not in inside, "the image's own settings must not reach the server"
    finally:
        server.stop()
    assert server.log_path.read_text().splitlines()[0] == "the first line"
    assert "ready now" in server.last_lines(1)[0]
    assert not ports.accepts(server.port)
    with pytest.raises(NotFound):
        client.containers.get(server.container_name)
    assert server.death() is None, "we stopped it"
    server.stop()


@pytest.mark.docker
def test_two_servers_at_once_and_one_after_the_other(engine: ContainerEngine, tmp_path: Path) -> None:
    arm = make_arm(env=script())
    first = start(engine, tmp_path, arm)
    try:
        second = start(engine, tmp_path, arm)
        assert first.port != second.port and first.container_name != second.container_name
        second.stop()
        assert first.alive()
    finally:
        first.stop()
    fixed = make_arm(env=script(), port=first.port)
    again = start(engine, tmp_path, fixed)
    assert again.port == first.port
    again.stop()


@pytest.mark.docker
def test_split_models_and_odd_names(engine: ContainerEngine, tmp_path: Path) -> None:
    folder = tmp_path / 'a b,c="d"'
    folder.mkdir()
    blob = tmp_path / "0123abcd"
    blob.write_bytes(b"GGUF")
    (folder / "m-00001-of-00002.gguf").symlink_to(blob)
    (folder / "m-00002-of-00002.gguf").write_bytes(b"GGUF")
    server = engine.start(make_arm(env=script()), folder / "m-00001-of-00002.gguf", tmp_path / "log")
    try:
        assert [target for _, target in server.plan.models] == [
            "/models/m-00001-of-00002.gguf",
            "/models/m-00002-of-00002.gguf",
        ]
        assert server.plan.models[0][0] == blob
    finally:
        server.stop()
    (folder / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(ArmError, match=r"model_missing: .*m-00002-of-00002\.gguf"):
        engine.start(make_arm(env=script()), folder / "m-00001-of-00002.gguf", tmp_path / "log")


@pytest.mark.docker
def test_a_server_that_ignores_sigterm_is_killed(engine: ContainerEngine, tmp_path: Path) -> None:
    server = start(engine, tmp_path, make_arm(env=script(ignore_term=True, child=True)))
    pids = server.pids
    server._life.stop(limit_s=1)
    server.stop()
    assert not ports.accepts(server.port)
    assert wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


@pytest.mark.docker
def test_silence_longer_than_the_clients_timeout(stub: str, tmp_path: Path) -> None:
    engine = ContainerEngine(stub, client=connect(2), memory_bytes=GIB)
    steps = {"0": {"health": 200}, "6": {"log": "a late line"}, "7": {"exit": 3, "log": "the last line"}}
    server = start(engine, tmp_path, make_arm(env=script(steps)))
    try:
        time.sleep(3.5)
        assert server.alive(), "the watch must not take silence for the end"
        assert wait_for(lambda: not server.alive(), 30)
        assert server.last_lines(2) == ["a late line", "the last line"]
        assert server.death() is not None
    finally:
        server.stop()


# --- case 17: 503 while loading, then ready, or then dead -------------------------------------------------------------
@pytest.mark.docker
def test_known_reason_soon_after_the_exit(engine: ContainerEngine, tmp_path: Path) -> None:
    steps = {"0": {"health": 503}, "1": {"log": "cudaMalloc failed: out of memory", "exit": 1}}
    started = time.monotonic()
    error = failure(engine, tmp_path, make_arm(env=script(steps), startup_limit_s=120.0))
    assert error.reason == "cuda_oom"
    assert error.log_line == "cudaMalloc failed: out of memory"
    assert time.monotonic() - started < 60, "known at the exit, not at the deadline"


@pytest.mark.docker
def test_out_of_memory_and_still_alive(engine: ContainerEngine, tmp_path: Path) -> None:
    steps = {"0": {"health": 503}, "0.5": {"log": "cudaMalloc failed: out of memory"}}
    assert failure(engine, tmp_path, make_arm(env=script(steps), startup_limit_s=4.0)).reason == "cuda_oom"


@pytest.mark.docker
def test_killed_for_host_memory(client: docker.DockerClient, stub: str, tmp_path: Path) -> None:
    small = ContainerEngine(stub, memory_bytes=64 << 20, client=client)
    steps = {"0": {"health": 503}, "1": {"eat": 400}}
    error = failure(small, tmp_path, make_arm(env=script(steps), startup_limit_s=60.0))
    assert error.reason == "oom_killed"


@pytest.mark.docker
def test_killed_by_somebody_is_not_out_of_memory(engine: ContainerEngine, tmp_path: Path) -> None:
    error = failure(engine, tmp_path, make_arm(env=script({"0": {"health": 503}, "1": {"signal": 9}})))
    assert error.reason == "load_failed"
    assert "SIGKILL" in error.detail


@pytest.mark.docker
def test_readiness_follows_health_only_and_never_ready(engine: ContainerEngine, tmp_path: Path) -> None:
    early = {"0": {"health": 503, "models": 200}, "2": {"health": 200}}
    server = start(engine, tmp_path, make_arm(env=script(early)))
    server.stop()
    assert server.load_ms > 1900
    error = failure(engine, tmp_path, make_arm(env=script({"0": {"health": 503}}), startup_limit_s=3.0))
    assert error.reason == "load_timeout"


@pytest.mark.docker
def test_death_while_serving(client: docker.DockerClient, engine: ContainerEngine, tmp_path: Path) -> None:
    server = start(engine, tmp_path, make_arm(env=script({"0": {"health": 200}, "2": {"exit": 3, "log": "oh"}})))
    assert wait_for(lambda: not server.alive(), 30)
    assert server.death() == ("server_died", "the server ended while it was serving (exit code 3)")
    server.stop()
    server = start(engine, tmp_path, make_arm(env=script()))
    client.containers.get(server.container_name).remove(force=True)
    assert wait_for(lambda: not server.alive(), 30)
    assert server.death() is not None, "somebody else removed it"
    server.stop()


# --- case 18: another server answers on our port ----------------------------------------------------------------------
@pytest.mark.docker
def test_fixed_port_in_use(client: docker.DockerClient, engine: ContainerEngine, tmp_path: Path) -> None:
    with socket.create_server((ports.LOOPBACK, 0)) as foreign:
        port = foreign.getsockname()[1]
        arm = make_arm(env=script(), port=port)
        assert f"port {port} is in use" in engine.problems(arm)[0]
        error = failure(engine, tmp_path, arm)
        assert error.reason == "port_in_use" and str(port) in error.detail
        assert not (tmp_path / "logs" / "server.log").exists(), "no server was started"
        # Lost between our look and the engine's bind: the engine's own words say the same.
        plan = some_plan(arm, [model_file(tmp_path)], image=identify(client, engine.image))
        with pytest.raises(ArmError, match="port_in_use"):
            ContainerLife.start(client, plan, tmp_path / "log")
        other = start(engine, tmp_path, make_arm(env=script(), port=0))
        assert other.port != port
        other.stop()


@pytest.mark.docker
def test_a_server_with_another_name_or_model_or_build(engine: ContainerEngine, tmp_path: Path) -> None:
    for options in (
        {"alias": "somebody"},
        {"props": {"model_path": "/models/other.gguf"}},
        {"props": {"build_info": "b1-x"}},
    ):
        error = failure(engine, tmp_path, make_arm(env=script(**options)))
        assert error.reason == "wrong_server", options


@pytest.mark.docker
def test_a_setting_that_was_not_taken(engine: ContainerEngine, tmp_path: Path) -> None:
    error = failure(engine, tmp_path, make_arm(env=script(props={"params": {"repeat_penalty": 1.0}})))
    assert error.reason == "settings_differ"
    assert "repeat_penalty: expected 1.05, found 1.0" in error.detail


# --- case 22: no GPU in the container ---------------------------------------------------------------------------------
DOCKER_ERROR = 'could not select device driver "" with capabilities: [[gpu]]'


@pytest.mark.docker
def test_gpu_arm_on_this_machine(client: docker.DockerClient, tmp_path: Path) -> None:
    """Without a GPU the engine refuses; with one, the stub's log shows no GPU buffer. Both are typed reasons."""
    gpu_image = stub_image(client, "gguf-bench/test-stub-gpu:latest", "libggml-cuda.so")
    before = ours(client)
    engine = ContainerEngine(gpu_image, client=client, memory_bytes=GIB)
    assert engine.image_identity().backend == "cuda"
    error = failure(engine, tmp_path, make_arm(device="gpu", gpu_layers="all", env=script()))
    runtimes = client.info().get("Runtimes") or {}
    assert error.reason == ("cpu_fallback" if "nvidia" in runtimes else "gpu_unavailable")
    assert "\n" not in str(error)
    if error.reason == "gpu_unavailable":
        assert "NVIDIA Container Toolkit" in error.advice
        assert DOCKER_ERROR in (error.log_line or "")
    assert ours(client) == before


@pytest.mark.docker
def test_gpu_arm_on_a_cpu_image(engine: ContainerEngine, tmp_path: Path) -> None:
    arm = make_arm(device="gpu", gpu_layers="all", env=script())
    assert any("built for the CPU only" in line for line in engine.problems(arm))
    assert failure(engine, tmp_path, arm).reason == "gpu_unavailable"


@pytest.mark.docker
@pytest.mark.parametrize(
    ("gpu", "backend", "device_ids", "capabilities"),
    [
        (None, "cuda", ["0"], [["gpu"]]),
        ("1", "cuda", ["1"], [["gpu"]]),
        ("GPU-8f6d0bb2-1c4e-4a7b-9d7b-000000000000", "cuda", ["GPU-8f6d0bb2-1c4e-4a7b-9d7b-000000000000"], [["gpu"]]),
    ],
)
def test_device_requests_as_the_engine_sees_them(
    client: docker.DockerClient, stub: str, tmp_path: Path, gpu: str | None, backend: str,
    device_ids: list[str], capabilities: list[list[str]],
) -> None:  # fmt: skip
    arm = make_arm(device="gpu", gpu_layers="all", kv_k="q8_0", env={"GGML_CUDA_NO_PINNED": "1"}, port=7111)
    plan = some_plan(
        arm,
        [model_file(tmp_path)],
        image=image_identity(backend=backend, image_id=identify(client, stub).image_id),
        gpu=gpu,
    )
    container = client.containers.create(plan.image, list(plan.command), **plan.create_arguments())
    try:
        attrs = client.containers.get(plan.name).attrs
        (request,) = attrs["HostConfig"]["DeviceRequests"]
        assert (request["DeviceIDs"], request["Capabilities"]) == (device_ids, capabilities)
        assert "GGML_CUDA_NO_PINNED=1" in attrs["Config"]["Env"]
        assert not any(entry.startswith("NVIDIA_VISIBLE_DEVICES=void") for entry in attrs["Config"]["Env"])
        assert attrs["HostConfig"]["PortBindings"]["8080/tcp"] == [{"HostIp": "127.0.0.1", "HostPort": "7111"}]
        command = attrs["Config"]["Cmd"]
        assert command[command.index("--n-gpu-layers") + 1] == "999"
        assert command[command.index("--cache-type-k") + 1] == "q8_0"
    finally:
        container.remove(force=True)


# --- the dry run's command is the container ---------------------------------------------------------------------------
@pytest.mark.docker
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_command_line_makes_the_same_container(
    client: docker.DockerClient, stub: str, tmp_path: Path, device: str
) -> None:
    odd = tmp_path / 'dir, with "signs"'
    odd.mkdir()
    arm = make_arm(device=device, gpu_layers="all" if device == "gpu" else 0, port=7345, env={"A": "b c", "E": ""})
    known = identify(client, stub)
    plan = some_plan(
        arm, [model_file(odd)], gpu="1" if device == "gpu" else None,
        image=image_identity(backend="cuda", image_id=known.image_id, server=known.server),
    )  # fmt: skip
    made = []
    try:
        by_sdk = client.containers.create(plan.image, list(plan.command), **plan.create_arguments())
        made.append(by_sdk)
        line = plan.command_line()
        assert line[:3] == ["docker", "run", "--detach"]
        line[1:3] = ["create"]
        line[line.index("--name") + 1] += "-cli"
        done = subprocess.run([docker_cli(), *line[1:]], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        by_cli = client.containers.get(done.stdout.strip())
        made.append(by_cli)
        one, other = client.containers.get(plan.name).attrs, by_cli.attrs
        for key in (
            "ReadonlyRootfs", "CapDrop", "SecurityOpt", "Memory", "MemorySwap", "PidsLimit", "PortBindings", "Tmpfs",
            "LogConfig", "Init", "RestartPolicy", "Privileged",
        ):  # fmt: skip
            assert (one["HostConfig"][key] or None) == (other["HostConfig"][key] or None), key
        requests = [
            [(r["DeviceIDs"], r["Capabilities"]) for r in a["HostConfig"]["DeviceRequests"] or []] for a in (one, other)
        ]
        assert requests[0] == requests[1]
        for key in ("Entrypoint", "Cmd", "Labels", "User", "Healthcheck", "StopSignal", "Image"):
            assert flat(one["Config"], key) == flat(other["Config"], key), key
        assert sorted(one["Config"]["Env"]) == sorted(other["Config"]["Env"])
        keys = ("Type", "Source", "Target", "ReadOnly")
        mounts = [[{k: m.get(k) for k in keys} for m in a["HostConfig"]["Mounts"]] for a in (one, other)]
        assert mounts[0] == mounts[1]
    finally:
        for container in made:
            container.remove(force=True)


def flat(config: dict[str, Any], key: str) -> Any:
    """Entry point and command as one list: the command line can only split them after the first word."""
    if key in ("Entrypoint", "Cmd"):
        return (config["Entrypoint"] or []) + (config["Cmd"] or [])
    return config.get(key)


@pytest.mark.docker
def test_docker_arguments_need_no_model(engine: ContainerEngine, tmp_path: Path) -> None:
    line = engine.docker_arguments(make_arm(port=7101), tmp_path / "not-downloaded.gguf").command_line()
    assert "127.0.0.1:7101:8080" in line
    assert f"type=bind,src={tmp_path}/not-downloaded.gguf,dst=/models/not-downloaded.gguf,readonly" in line


# --- owners -----------------------------------------------------------------------------------------------------------
OWNER = """
import sys, time
from pathlib import Path
sys.path[:0] = [{tests!r}, {root!r}]
from engine_helpers import make_arm, script
from bench.engines.container import ContainerEngine
server = ContainerEngine({image!r}, memory_bytes=1 << 30).start(
    make_arm(env=script({steps!r}), startup_limit_s=60.0), Path({model!r}), Path({log!r}))
print(server.container_name, flush=True)
time.sleep(600)
"""


def owner(stub: str, tmp_path: Path, steps: dict[str, Any] | None = None) -> subprocess.Popen[str]:
    text = OWNER.format(
        tests=str(ROOT / "tests"), root=str(ROOT), image=stub, model=str(model_file(tmp_path)),
        log=str(tmp_path / "owner.log"), steps=steps,
    )  # fmt: skip
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.docker
def test_leftovers_of_a_killed_run(client: docker.DockerClient, stub: str, tmp_path: Path) -> None:
    bystander = client.containers.create(stub, name=f"somebody-{os.getpid()}", labels={"unrelated": "1"})
    process = owner(stub, tmp_path)
    try:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert name.startswith("gguf-bench-arm-"), process.stderr.read() if process.stderr else ""
        assert name not in sweep_leftovers(client), "its owner lives"
        assert client.containers.get(name).status == "running"
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert client.containers.get(name).status == "running", "a container outlives a killed owner"
        assert (name, False) in leftovers(client)
        assert name in sweep_leftovers(client)
        with pytest.raises(NotFound):
            client.containers.get(name)
        assert client.containers.get(str(bystander.id)).status == "created"
    finally:
        process.kill()
        process.wait()
        bystander.remove(force=True)
        sweep_leftovers(client)


@pytest.mark.docker
def test_interrupted_while_loading(client: docker.DockerClient, stub: str, tmp_path: Path) -> None:
    before = ours(client)
    process = owner(stub, tmp_path, {"0": {"health": 503}})
    assert wait_for(lambda: len(ours(client) - before) == 1 and (tmp_path / "owner.log").exists(), 60)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) != 0
    assert ours(client) == before


def test_owner_labels() -> None:
    labels = owner_labels(arm="x")
    assert owner_lives(labels) is True
    assert labels["org.gguf-bench.arm"] == "x" and labels[KIND_LABEL] == "arm"
    other_start = {**labels, "org.gguf-bench.owner-start": "1"}
    assert owner_lives(other_start) is False, "the same id, and another process"
    assert owner_lives({**labels, "org.gguf-bench.owner-boot": "other"}) is False, "this machine was restarted"
    assert owner_lives({**labels, "org.gguf-bench.owner-machine": "other"}) is None
    assert owner_lives({**labels, "org.gguf-bench.owner-namespace": "pid:[1]"}) is None
    assert owner_lives({}) is None
    assert owner_lives({"org.gguf-bench.owner-pid": "x"}) is None
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    pid = child.pid
    assert wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    zombie = {**labels, "org.gguf-bench.owner-pid": str(pid)}
    assert owner_lives(zombie) is False
    child.wait()


# --- the image and the engine themselves ------------------------------------------------------------------------------
@pytest.mark.docker
def test_image_missing_or_of_another_build(stub: str, tmp_path: Path) -> None:
    arm = make_arm()
    missing = ContainerEngine("gguf-bench/none:nowhere")
    assert "no image `gguf-bench/none:nowhere`" in missing.problems(arm)[0]
    assert failure(missing, tmp_path, arm).reason == "image_missing"
    other = ContainerEngine(stub, expected=Pin("f" * 40, 9999))
    error = failure(other, tmp_path, arm)
    assert error.reason == "image_mismatch"
    assert "expected llama.cpp b9999-fffffffff, found b9784-8be759e6f" in error.detail
    same = ContainerEngine(stub, expected=Pin("8be759e6f70d629638a7eb70db3824cbdcea370b", 9784))
    assert same.problems(arm) == []


@pytest.mark.docker
def test_model_that_is_not_there(engine: ContainerEngine, tmp_path: Path) -> None:
    with pytest.raises(ArmError, match="model_missing"):
        engine.start(make_arm(), tmp_path / "none.gguf", tmp_path / "log")


def test_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(ArmError, match=r"engine_unavailable: expected a running Docker engine at .*none\.sock"):
        connect(5)
    problems = ContainerEngine("any").problems(make_arm())
    assert len(problems) == 1 and "DOCKER_HOST" in problems[0] and "\n" not in problems[0]


@pytest.mark.parametrize(
    ("url", "here"),
    [
        (None, True),
        ("unix:///var/run/docker.sock", True),
        ("unix:///run/user/1000/docker.sock", True),
        ("tcp://127.0.0.1:2375", True),
        ("tcp://localhost:2376", True),
        ("tcp://[::1]:2375", True),
        ("tcp://10.0.0.7:2376", False),
        ("ssh://gpu-box", False),
        ("ssh://me@localhost", False),
        ("https://docker.example.org:2376", False),
    ],
)
def test_which_engines_are_here(url: str | None, here: bool) -> None:
    reason = why_not_here(DockerHost(url, "DOCKER_HOST"))
    assert (reason is None) == here
    assert reason is None or "cannot be mounted" in reason


def test_remote_engine_is_refused_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2376")
    started = time.monotonic()
    (problem,) = ContainerEngine("any").problems(make_arm())
    assert "runs on another machine" in problem
    assert time.monotonic() - started < 5


def test_docker_context_is_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    for name, host in (("box", "ssh://gpu-box"), ("near", f"unix://{tmp_path}/engine.sock")):
        meta = tmp_path / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
        meta.mkdir(parents=True)
        endpoint = {"docker": {"Host": host, "SkipTLSVerify": False}}
        (meta / "meta.json").write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": endpoint}))
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": "box"}))
    found = docker_host()
    assert found == DockerHost("ssh://gpu-box", "the docker context `box`")
    assert not found.local
    monkeypatch.setenv("DOCKER_CONTEXT", "near")
    assert docker_host().local
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    with pytest.raises(ArmError, match="found none named `nowhere`"):
        docker_host()
    monkeypatch.setenv("DOCKER_HOST", "unix:///elsewhere.sock")
    assert docker_host().url == "unix:///elsewhere.sock", "DOCKER_HOST wins, as for docker itself"


# --- the engine's words -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "reason", "says"),
    [
        (DOCKER_ERROR, "gpu_unavailable", "Container Toolkit"),
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', "gpu_unavailable", "Container Toolkit"),
        (
            "failed to create task: OCI runtime create failed: nvidia-container-cli: device error: 3: unknown device",
            "gpu_unavailable",
            "nvidia-smi -L",
        ),
        (
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared "
            "object file",
            "gpu_unavailable",
            "nvidia-smi",
        ),
        (
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver",
            "gpu_unavailable",
            "cuda>=12.8",
        ),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=7", "gpu_unavailable", "nvidia-smi -L"),
        ("Bind for 127.0.0.1:7111 failed: port is already allocated", "port_in_use", "port = 0"),
        ("listen tcp4 127.0.0.1:7111: bind: address already in use", "port_in_use", "port = 0"),
        (
            "invalid mount config for type bind: bind source path does not exist: /m/x.gguf",
            "model_missing",
            "/m/x.gguf",
        ),
        ("Mounts denied: the path /m is not shared from the host", "model_missing", "File sharing"),
        ("write /var/lib/docker/x: no space left on device", "engine_unavailable", "docker system df"),
        ('exec: "/app/llama-server": executable file not found in $PATH', "image_mismatch", "build-llama"),
        ("exec /app/llama-server: exec format error", "image_mismatch", "processor"),
        ("something that nobody foresaw", "engine_unavailable", "something that nobody foresaw"),
    ],
)
def test_refusals(text: str, reason: str, says: str) -> None:
    error = as_arm_error(APIError("500 Server Error", explanation=text), "some:image")
    assert error.reason == reason
    assert says in str(error)
    assert error.log_line and "\n" not in str(error)


def test_image_lost_between_look_and_start() -> None:
    assert as_arm_error(ImageNotFound("no such image"), "some:image").reason == "image_missing"


# --- plans ------------------------------------------------------------------------------------------------------------
def test_user_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_file(tmp_path)
    assert some_plan(make_arm(), [model], rootless=True).user == "0:0"
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setattr(os, "getgid", lambda: 99)
    assert some_plan(make_arm(), [model]).user == "1234:99"
    monkeypatch.setattr(os, "getuid", lambda: 0)
    model.chmod(0o644)
    assert some_plan(make_arm(), [model]).user is None, "the image's own user can read it"
    if Path("/proc/self").stat().st_uid == 0:
        os.chown(model, 1001, 1002)
        model.chmod(0o600)
        assert some_plan(make_arm(), [model]).user == "1001:1002"
    assert 0 < memory_limit() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert "mem_limit" not in some_plan(make_arm(), [model], memory_bytes=0).create_arguments()


def test_image_settings_are_taken_away_and_the_presets_win(tmp_path: Path) -> None:
    arm = make_arm(env={"LLAMA_ARG_X": "mine", "HOME": "/models"})
    env = some_plan(arm, [model_file(tmp_path)], image=image_identity(scrub=("LLAMA_ARG_HOST", "LLAMA_ARG_X"))).env
    assert "LLAMA_ARG_HOST" in env, "a name without a value takes the variable away"
    assert "LLAMA_ARG_X=mine" in env and "LLAMA_ARG_X" not in env
    assert "HOME=/models" in env and "HOME=/tmp" not in env


@given(st.text(min_size=1, max_size=200))
def test_container_names_are_dockers(arm_id: str) -> None:
    import re

    assert re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", container_name(arm_id, "0a1b"))


def test_later_part_of_a_split_model(tmp_path: Path) -> None:
    with pytest.raises(ArmError, match="model_missing"):
        model_files(tmp_path / "m-00002-of-00003.gguf")
