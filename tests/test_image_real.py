"""The real CPU image: two arms in containers, the same text as from a process of the same build, and no trace left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest
from container_helpers import copy_out, cpu_image, docker_client, ours

from bench.engines import Server, health, ports
from bench.engines.container import ContainerEngine
from bench.engines.process import ProcessEngine
from bench.image.check import prove_decodes
from bench.image.identity import ImageIdentity, identify
from bench.models import obtain as models
from bench.paths import ROOT, default_cache
from bench.presets import load as presets

pytestmark = [pytest.mark.docker, pytest.mark.model, pytest.mark.slow]

QUESTIONS = ("Name three colours.", "Write a Python function that adds two numbers.", "Was ist ein Leuchtturm? 🙂")


@pytest.fixture(scope="module")
def client() -> docker.DockerClient:
    return docker_client()


@pytest.fixture(scope="module")
def ref(client: docker.DockerClient) -> str:
    return cpu_image(client)


@pytest.fixture(scope="module")
def identity(client: docker.DockerClient, ref: str) -> ImageIdentity:
    return identify(client, ref)


@pytest.fixture(scope="module")
def arms() -> list[presets.Arm]:
    return [presets.load_arm(arm_id, ROOT) for arm_id in presets.load_lineup("smoke", ROOT).arms]


@pytest.fixture(scope="module")
def model(arms: list[presets.Arm]) -> Path:
    return models.obtain(arms[0].model, default_cache()).path


def answer(server: Server, question: str) -> dict[str, Any]:
    body = {
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 48,
        "temperature": 0,
        "seed": 7,
        "cache_prompt": False,
    }
    with health.client(300.0) as http:
        reply = http.post(f"{server.base_url}/v1/chat/completions", json=body)
    reply.raise_for_status()
    out: dict[str, Any] = reply.json()
    return out


def test_the_image_says_what_it_is(client: docker.DockerClient, identity: ImageIdentity, model: Path) -> None:
    assert identity.ours and identity.backend == "cpu" and identity.has_init
    assert identity.build is not None and identity.commit is not None
    assert str(identity.build) == identity.labels["org.gguf-bench.build"]
    assert identity.commit == identity.labels["org.gguf-bench.build-commit"]
    decoded = prove_decodes(client, identity.ref, model)
    assert decoded.tokens > 1 and decoded.fingerprint == identity.fingerprint


def test_two_arms_one_after_the_other(
    client: docker.DockerClient, ref: str, identity: ImageIdentity, arms: list[presets.Arm], model: Path, tmp_path: Path
) -> None:
    before = ours(client)
    assert len(arms) == 2
    engine = ContainerEngine(ref, run_id="two-arms")
    for arm in arms:
        assert engine.problems(arm) == []
        server = engine.start(arm, model, tmp_path / f"{arm.arm_id}.log")
        try:
            found = server.identity
            assert found.fingerprint == identity.fingerprint
            assert found.image_digest == identity.image_id
            assert (found.device, found.slots, found.n_ctx) == ("cpu", 1, arm.context)
            assert (found.kv_k, found.kv_v) == (arm.kv_k, arm.kv_v)
            reply = answer(server, QUESTIONS[0])
            assert reply["system_fingerprint"] == identity.fingerprint
            assert reply["choices"][0]["message"]["content"]
        finally:
            server.stop()
        assert not ports.accepts(server.port)
        assert "load_model" in server.log_path.read_text() or "model" in server.log_path.read_text()
    assert ours(client) == before


def test_same_text_in_a_container_and_in_a_process(
    client: docker.DockerClient, ref: str, arms: list[presets.Arm], model: Path, tmp_path: Path
) -> None:
    arm = replace(arms[0], threads=1)
    said: list[list[str]] = []
    builds = []
    for engine in (ContainerEngine(ref), ProcessEngine(copy_out(client, ref, tmp_path))):
        server = engine.start(arm, model, tmp_path / f"{engine.name}.log")
        try:
            builds.append(server.identity.fingerprint)
            said.append([answer(server, question)["choices"][0]["message"]["content"] for question in QUESTIONS])
        finally:
            server.stop()
    assert builds[0] == builds[1]
    assert said[0] == said[1]
    assert all(len(text) > 10 for text in said[0])


def test_llama_bench_is_in_it(client: docker.DockerClient, ref: str) -> None:
    said = client.containers.run(
        ref, ["--help"], entrypoint=["/opt/llama/llama-bench"], remove=True, network_mode="none"
    )
    assert b"--n-gen" in said
