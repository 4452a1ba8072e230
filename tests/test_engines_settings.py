"""Settings in force: what `/props` and the log say against the preset; ports; the environment; the machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil
import pytest
from engine_helpers import make_arm
from hypothesis import given
from hypothesis import strategies as st

from bench import host
from bench.engines import ports, props
from bench.engines.environment import scrubbed, server_env
from bench.engines.facts import LogFacts
from bench.errors import ArmError

ARM = make_arm(context=2048)


def found(**changes: object) -> props.Props:
    values: dict[str, object] = {
        "model_path": "/m.gguf",
        "total_slots": 1,
        "n_ctx": 2048,
        "build_info": "b9784-8be759e6f",
        "sampler": {name: float(f"{value:.5g}") for name, value in ARM.sampler.request_fields().items()},
    }
    return props.Props(**{**values, **changes})  # type: ignore[arg-type]


def test_equal_settings_pass_in_single_precision() -> None:
    sampler = {**ARM.sampler.request_fields(), "temperature": 0.6000000238418579, "repeat_penalty": 1.0499999523162842}
    assert props.differences(ARM, found(sampler=sampler), LogFacts()) == []


def test_every_difference_is_named_with_expected_and_found() -> None:
    sampler = {**ARM.sampler.request_fields(), "repeat_penalty": 1.0}
    del sampler["min_p"]
    bad = found(total_slots=4, n_ctx=512, sampler=sampler)
    facts = LogFacts(kv_k="q8_0", kv_v="f16", flash_attention=True, verbose=True, spec_types=("ngram-mod",))
    with pytest.raises(ArmError) as error:
        props.require_settings(ARM, bad, facts)
    assert error.value.reason == "settings_differ"
    for text in (
        "total_slots): expected 1, found 4",
        "n_ctx): expected 2048, found 512",
        "repeat_penalty: expected 1.05, found 1.0",
        "min_p: expected 0.05, found nothing",
        "kv_k: expected f16, found q8_0",
        "flash_attention: expected False, found True",
        "spec_type: expected none, found ngram-mod",
    ):
        assert text in error.value.detail
    assert "kv_v" not in error.value.detail


def test_flash_attention_left_to_the_server_is_no_difference() -> None:
    arm = make_arm(context=2048, flash_attention="auto")
    for seen in (True, False, None):
        assert props.differences(arm, found(), LogFacts(flash_attention=seen)) == []


@pytest.mark.parametrize(
    ("override", "applied", "same"),
    [
        ("a.block_count=int:40", {"a.block_count": "40"}, True),
        ("a.block_count=int:+40", {"a.block_count": "40"}, True),
        ("a.block_count=int:40", {"a.block_count": "41"}, False),
        ("a.block_cuont=int:40", {}, False),
        ("a.scale=float:0.5", {"a.scale": "0.500000"}, True),
        ("a.flag=bool:true", {"a.flag": "true"}, True),
        ("a.name=str:x=y:z", {"a.name": "x=y:z"}, True),
    ],
)
def test_overrides_must_be_seen_applied(override: str, applied: dict[str, str], same: bool) -> None:
    arm = make_arm(context=2048, override_kv=(override,))
    facts = LogFacts(overrides=tuple(applied.items()), verbose=True)
    assert (props.differences(arm, found(), facts) == []) is same


@pytest.mark.parametrize(
    ("context", "slots", "expected"), [(2048, 1, 2048), (2000, 1, 2048), (8192, 4, 2048), (1000, 4, 256), (257, 1, 512)]
)
def test_context_of_a_slot(context: int, slots: int, expected: int) -> None:
    assert props.slot_context(context, slots) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b9784-8be759e6f", (9784, "8be759e6f")),
        ("b0-unknown", (None, None)),
        ("b9785-unknown", (9785, None)),
        ("9784", (None, None)),
        (None, (None, None)),
    ],
)
def test_build_info(text: str | None, expected: tuple[int | None, str | None]) -> None:
    assert props.build_and_commit(text) == expected


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["params", "n_ctx"]), inner),
        max_leaves=8,
    )
)
def test_any_answer_of_props_is_read(value: object) -> None:
    read = props.parse_props({"default_generation_settings": value, "total_slots": value, "chat_template": value})
    assert read.n_ctx is None or isinstance(read.n_ctx, int)


def test_ports() -> None:
    port = ports.free_port()
    assert not ports.in_use(port)
    assert ports.wait_refused(port, 0.1)
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as llama-server does
            sock.bind((address, port))
            sock.listen()
            assert ports.in_use(port)
            assert not ports.wait_refused(port, 0.1)
            # A connection that the server closes first leaves the port in TIME_WAIT, which is not "in use".
            with socket.create_connection(("127.0.0.1", port)):
                sock.accept()[0].close()
    assert not ports.in_use(port)


def test_the_environment_is_scrubbed_and_the_presets_own_added() -> None:
    base = {
        "LLAMA_ARG_N_PARALLEL": "4",
        "LLAMA_ARG_CTX_SIZE": "99",
        "llama_arg_temp": "0",
        "LLAMA_TRACE": "1",
        "GGML_CUDA_ENABLE_UNIFIED_MEMORY": "1",
        "OMP_NUM_THREADS": "1",
        "AIP_MODE": "PREDICTION",
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "LD_LIBRARY_PATH": "/lib",
    }
    env = server_env({"GGML_CUDA_NO_PINNED": "1"}, base)
    assert env == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "LD_LIBRARY_PATH": "/lib",
        "GGML_CUDA_NO_PINNED": "1",
    }
    assert "LLAMA_ARG_N_PARALLEL" in scrubbed(base)


def test_cores_are_never_more_than_what_is_open_to_us() -> None:
    mine = os.sched_getaffinity(0)
    assert 1 <= host.cores() <= len(mine)
    one = {min(mine)}
    os.sched_setaffinity(0, one)
    try:
        assert host.cores() == 1
    finally:
        os.sched_setaffinity(0, mine)


def test_cgroup_limits_are_read_up_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/job\n3:cpu,cpuacct:/job\n0::/slice/job\n")
    monkeypatch.setattr(host, "_CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(host, "_OWN_CGROUP", own)
    v2, v1_cpu, v1_memory = tmp_path / "slice" / "job", tmp_path / "cpu" / "job", tmp_path / "memory"
    for folder in (v2, v1_cpu, v1_memory):
        folder.mkdir(parents=True)
    total = psutil.virtual_memory().total
    before = host.cores()
    assert host.ram_bytes() == total

    (v2 / "cpu.max").write_text("max 100000\n")
    (v2 / "memory.max").write_text("max\n")
    (v1_memory / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    (v1_cpu / "cpu.cfs_quota_us").write_text("-1\n")
    (v1_cpu / "cpu.cfs_period_us").write_text("100000\n")
    assert (host.cores(), host.ram_bytes()) == (before, total)

    (v2 / "memory.max").write_text("2000000\n")
    (v1_memory / "memory.limit_in_bytes").write_text("1000000\n")
    assert host.ram_bytes() == 1_000_000
    assert host.ram_available_bytes() <= 1_000_000
    (v2.parent / "cpu.max").write_text("150000 100000\n")
    assert host.cores() == 1  # 1.5 CPUs carry one spinning thread
    (v2.parent / "cpu.max").write_text("50000 100000\n")
    assert host.cores() == 1  # never none


def test_the_host_describes_itself() -> None:
    here = host.describe()
    assert here.name
    assert "Linux" in here.os
    assert here.cpu_model
    assert 0 < host.ram_available_bytes() <= here.ram_bytes
    assert host.busy_with(0.1, allowed_cores=10_000) is None
