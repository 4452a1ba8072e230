"""`./invoke bench --engine container`: the smoke arms, each alone in a container of the real CPU image."""

from __future__ import annotations

from pathlib import Path

import pytest
from container_helpers import cpu_image, docker_client, ours

from tests.cli import children_of, invoke, small_suite, sql

pytestmark = [pytest.mark.docker, pytest.mark.model, pytest.mark.slow]


def test_both_arms_run_in_containers_prove_their_build_and_leave_nothing(tmp_path: Path) -> None:
    client = docker_client()
    image = cpu_image(client)
    before = ours(client)
    suite = small_suite(tmp_path)
    done = invoke("bench", "--engine", "container", "--image", image, "--suite", suite, "--iterations", "1",
                  "--results", str(tmp_path))  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    arms = sql(tmp_path, "select arm_id, status, engine, build, fingerprint, image_digest, device from arms_latest")
    assert len(arms) == 2
    for arm in arms:
        assert (arm["status"], arm["engine"], arm["build"], arm["device"]) == ("finished", "container", 9785, "cpu")
        assert arm["image_digest"].startswith("sha256:")
    answers = sql(tmp_path, "select fingerprint, build, image_digest from generations")
    assert len(answers) == 6
    assert {a["fingerprint"] for a in answers} == {arms[0]["fingerprint"]}
    assert all(a["fingerprint"].startswith("b9785-") and a["build"] == 9785 for a in answers)
    assert {a["image_digest"] for a in answers} == {arms[0]["image_digest"]}
    report = next((tmp_path / "reports").rglob("report.md")).read_text()
    assert all(arm["arm_id"] in report for arm in arms)
    assert ours(client) == before
    assert children_of(str(tmp_path)) == []


def test_a_gpu_arm_without_a_gpu_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    done = invoke("bench", "--arm", "all", "--results", str(tmp_path / "r"))
    assert done.returncode == 2
    line = done.stderr.strip()
    assert len(line.splitlines()) == 1
    assert "needs a GPU, and none is visible" in line
    assert "./invoke bench" in line
    assert not (tmp_path / "r").exists()


def test_a_dry_run_of_the_reference_lineup_says_everything_and_starts_nothing(tmp_path: Path) -> None:
    before = ours(docker_client())
    done = invoke("bench", "--arm", "all", "--dry-run", "--results", str(tmp_path / "r"))
    assert done.returncode == 1
    text = done.stdout
    for arm in ("agentworld-35b-a3b-q4", "qwen36-35b-a3b-q4", "qwen36-35b-a3b-mtp-iq4xs", "gemma4-26b-a4b-qat-q4"):
        assert f"\n{arm}: " in text
    assert text.count("docker run ") == 4
    assert text.count("--gpus '\"device=0\"'") == 4
    assert "--override-kv qwen35moe.block_count=int:40" in text
    assert "--spec-type draft-mtp --spec-draft-n-max 2" in text
    assert text.count("GGML_CUDA_NO_PINNED=1") == 4
    assert text.count("  memory    ") == 4
    assert "about 2.6 hours" in text
    assert ours(docker_client()) == before
    assert not (tmp_path / "r").exists()
