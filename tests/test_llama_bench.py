"""llama-bench as a cross-check: what it prints is read exactly, and whatever it does, the run goes on."""

from __future__ import annotations

import json
import stat
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import gone, make_arm, wait_for
from hypothesis import given
from hypothesis import strategies as st

from bench.engines.container_plan import ContainerPlan
from bench.engines.process import ProcessEngine
from bench.probe.llama_bench import Command, arguments, command_for, in_container, llama_bench, measurements

# As build 9785 printed it, on one thread of a busy machine; the settings that are not read are left out.
PRINTED = """[
  {
    "build_commit": "src_fd8b3bea2",
    "build_number": 9785,
    "cpu_info": "AMD EPYC",
    "gpu_info": "",
    "backends": "CPU",
    "model_type": "llama 256M Q4_1",
    "n_threads": 1,
    "type_k": "f16",
    "type_v": "f16",
    "n_gpu_layers": 0,
    "flash_attn": -1,
    "n_prompt": 64,
    "n_gen": 0,
    "n_depth": 0,
    "test_time": "2026-11-30T19:47:13Z",
    "avg_ns": 3730435529,
    "stddev_ns": 58355274,
    "avg_ts": 17.158273,
    "stddev_ts": 0.268407,
    "samples_ns": [ 3689172119, 3771698939 ],
    "samples_ts": [ 17.3481, 16.9685 ]
  },
  {
    "build_commit": "src_fd8b3bea2",
    "build_number": 9785,
    "backends": "CPU",
    "n_threads": 1,
    "type_k": "f16",
    "type_v": "f16",
    "n_gpu_layers": 0,
    "flash_attn": -1,
    "n_prompt": 64,
    "n_gen": 0,
    "n_depth": 64,
    "test_time": "2026-11-30T19:47:26Z",
    "samples_ns": [ 3088525245, 3431258179 ],
    "samples_ts": [ 20.7219, 18.6521 ]
  },
  {
    "build_commit": "src_fd8b3bea2",
    "build_number": 9785,
    "backends": "CPU",
    "n_threads": 1,
    "type_k": "f16",
    "type_v": "f16",
    "n_gpu_layers": 0,
    "flash_attn": -1,
    "n_prompt": 0,
    "n_gen": 8,
    "n_depth": 64,
    "test_time": "2026-11-30T19:47:39Z",
    "samples_ns": [ 836308411, 764567765 ],
    "samples_ts": [ 9.56585, 10.4634 ]
  }
]
"""


def test_real_output_becomes_a_row_for_each_repetition() -> None:
    found = measurements(PRINTED)
    assert [(r["kind"], r["size"], r["repetition"]) for r in found] == [
        ("llama-bench-prompt", 64, 1),
        ("llama-bench-prompt", 64, 2),
        ("llama-bench-decode", 64, 1),
        ("llama-bench-decode", 64, 2),
    ]
    # Its own rates come out of the stored counts and times: n / ms, for it times all n steps.
    rates = [r["prompt_n"] / r["prompt_ms"] * 1000 for r in found[:2]]
    rates += [r["predicted_n"] / r["predicted_ms"] * 1000 for r in found[2:]]
    assert rates == pytest.approx([17.3481, 16.9685, 9.56585, 10.4634], rel=1e-5)
    assert found[0]["measured_at"] == datetime(2026, 11, 30, 19, 47, 13, tzinfo=UTC)
    assert all(r["outcome"] == "ok" and "b9785-src_fd8b3bea2" in r["detail"] for r in found)
    assert all(r["stage"] == "apart" and r["warmup"] is False for r in found)
    assert "predicted_n" not in found[0]


def test_a_prompt_and_an_answer_in_one_time_are_left_out_and_an_old_build_has_no_depth() -> None:
    test = {"n_prompt": 8, "n_gen": 4, "samples_ns": [1e6], "test_time": "2025-01-01T00:00:00Z"}
    assert measurements(json.dumps([test])) == []
    assert measurements(json.dumps([{**test, "n_prompt": 0}]))[0]["size"] == 0
    assert measurements("[]") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "error: unknown model",
        PRINTED[:-40],
        "{}",
        "[1]",
        '[{"n_prompt": 1}]',
        PRINTED.replace("[ 836308411, 764567765 ]", '"none"'),
        PRINTED.replace("2026-11-30T19:47:39Z", "yesterday"),
        "[" * 100_000,
    ],
)
def test_what_is_not_its_output_is_an_error_in_a_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|lacks") as found:
        measurements(text)
    assert len(str(found.value).splitlines()) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["n_prompt", "n_gen", "n_depth", "samples_ns", "test_time"]), json_values))
def test_no_json_breaks_the_reading(test: dict[str, Any]) -> None:
    try:
        found = measurements(json.dumps([test]))
    except ValueError:
        return
    assert isinstance(found, list)


def program(folder: Path, body: str) -> Path:
    """A llama-bench that notes its arguments and does what the test says."""
    path = folder / "llama-bench"
    log = folder / "arguments"
    note = f"open({str(log)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')"
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{note}\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def run(command: Sequence[str], **more: Any) -> list[dict[str, Any]]:
    return llama_bench(command, "/m.gguf", ["-t", "2"], sizes=(32, 128), n_predict=40, **more)


def test_it_asks_for_lengths_and_depths_apart_and_reads_both(tmp_path: Path) -> None:
    bench = program(tmp_path, f"print({PRINTED!r})\nprint('noise', file=sys.stderr)")
    assert len(run([str(bench)])) == 8
    assert (tmp_path / "arguments").read_text().splitlines() == [
        "-m /m.gguf -t 2 -p 32,128 -n 0 -r 3 -o json",
        "-m /m.gguf -t 2 -p 0 -n 40 -d 32,128 -r 3 -o json",
    ]


def test_variables_that_change_speed_do_not_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGML_CUDA_FORCE_MMQ", "1")
    monkeypatch.setenv("LLAMA_ARG_THREADS", "9")
    body = "print([n for n in os.environ if n.startswith(('GGML', 'LLAMA'))], file=sys.stderr); sys.exit(1)"
    found = run([str(program(tmp_path, body))], env={"GGML_CUDA_NO_PINNED": "1"})
    assert "['GGML_CUDA_NO_PINNED']" in found[0]["detail"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("print('main: error: failed to load model', file=sys.stderr); sys.exit(1)", "failed to load model"),
        ("os.kill(os.getpid(), 4)", "exit code -4"),
        ("print('hello')", "expected JSON"),
        ("pass", "nothing"),
        ("sys.stdout.buffer.write(bytes([255, 254]))", "expected JSON"),
    ],
)
def test_a_failure_is_a_row_with_the_reason_and_without_figures(tmp_path: Path, body: str, says: str) -> None:
    found = run([str(program(tmp_path, body))])
    assert [r["kind"] for r in found] == ["llama-bench-prompt", "llama-bench-decode"]
    assert all(r["outcome"] == "failed" and says in r["detail"] for r in found)
    assert all("prompt_ms" not in r and "predicted_ms" not in r for r in found)


def test_one_that_is_not_there_measures_nothing(tmp_path: Path) -> None:
    assert run([str(tmp_path / "llama-bench")]) == []
    # A container without it: docker and its init say so with exit code 127.
    body = (
        "print('[FATAL tini (7)] exec llama-bench failed: No such file or directory', file=sys.stderr); sys.exit(127)"
    )
    assert run([str(program(tmp_path, body))]) == []


def test_one_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    body = f"pid = os.fork()\nopen({str(child)!r}, 'a').write(str(pid) + '\\n') if pid else None\ntime.sleep(600)"
    began = time.monotonic()
    found = run([str(program(tmp_path, body))], limit_s=1.5)
    assert time.monotonic() - began < 20
    assert [r["outcome"] for r in found] == ["failed", "failed"]
    assert "longer" in found[0]["detail"]
    for pid in map(int, child.read_text().split()):
        assert wait_for(lambda pid=pid: gone(pid))  # type: ignore[misc]


def test_a_stop_breaks_it_off(tmp_path: Path) -> None:
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    began = time.monotonic()
    assert run([str(program(tmp_path, "time.sleep(600)"))], stop=stop) == []
    assert time.monotonic() - began < 20


def test_the_arms_settings_reach_it() -> None:
    arm = make_arm(device="gpu", gpu_layers="all", kv_k="q8_0", kv_v="q4_0", flash_attention=True)
    assert arguments(arm, 16) == ["-t", "16", "-ngl", "999", "-ctk", "q8_0", "-ctv", "q4_0", "-fa", "on"]
    assert arguments(make_arm(flash_attention="auto"), 1)[-1] == "auto"


def test_it_is_taken_from_beside_the_server_that_serves_the_arm(tmp_path: Path) -> None:
    server, model = tmp_path / "llama-server", tmp_path / "model.gguf"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    assert command_for(ProcessEngine(), make_arm(), model) is None  # the embedded engine has none
    assert command_for(ProcessEngine(server), make_arm(), model) is None
    bench = program(tmp_path, "pass")
    assert command_for(ProcessEngine(server), make_arm(), model) == Command((str(bench),), str(model))
    assert command_for(ProcessEngine(tmp_path / "gone"), make_arm(), model) is None


@pytest.mark.parametrize(
    ("entrypoint", "tail"),
    [
        (("/opt/llama/llama-server",), ["--entrypoint", "/opt/llama/llama-bench", "sha256:1"]),
        (
            ("/usr/bin/tini", "-s", "--", "/opt/llama/llama-server"),
            ["--entrypoint", "/usr/bin/tini", "sha256:1", "-s", "--", "/opt/llama/llama-bench"],
        ),
        (("/app/tools.sh", "--server"), ["--entrypoint", "/app/tools.sh", "sha256:1", "--bench"]),
    ],
)
def test_its_container_is_the_arms_with_another_program(entrypoint: tuple[str, ...], tail: list[str]) -> None:
    plan = ContainerPlan(
        image="sha256:1", name="gguf-bench-arm-a-1", entrypoint=entrypoint, command=("--model", "/models/m.gguf"),
        models=((Path("/data/m.gguf"), "/models/m.gguf"),), env=("A=1",), port=7110, gpu="0",
    )  # fmt: skip
    command = in_container(plan)
    line = list(command.prefix)
    assert line[-len(tail) :] == tail
    assert command.model == "/models/m.gguf"
    assert command.container == line[line.index("--name") + 1] != plan.name
    assert "--rm" in line
    assert "--detach" not in line
    assert "--publish" not in line  # it serves nobody
    assert not any("7110" in word for word in line)
    for kept in ("--read-only", "--gpus", "--mount", "A=1"):
        assert kept in line
