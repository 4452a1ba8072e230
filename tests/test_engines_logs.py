"""A server's log: what it proves about device and settings, and why a server failed (cases 17, 18, 22, 24)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from engine_helpers import make_arm
from hypothesis import given
from hypothesis import strategies as st

from bench.engines import logs
from bench.engines.facts import device_facts, proven_device
from bench.errors import ArmError

CUDA_OOM = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 20180.55 MiB on device 0: cudaMalloc failed: out of memory"
)
PASSED_ON = [
    "0.00.044.309 E llama_model_load_from_file_impl: failed to load model",
    "0.00.044.315 E cmn  common_init_: failed to load model '/models/m.gguf'",
    "0.00.044.799 E srv          init: exiting due to model loading error",
]

# Case 24: the checksum is fine, and the server says.
LOAD_LOGS = {
    "missing_tensor": "llama_model_load: error loading model: missing tensor 'blk.32.attn_norm.weight'",
    "wrong_count": "llama_model_load: error loading model: done_getting_tensors: wrong number of tensors;"
    " expected 291, got 290",
    "out_of_bounds": "llama_model_load: error loading model: tensor 'blk.3.ffn_up.weight' data is not within the file"
    " bounds, model is corrupted or incomplete",
    "unknown_arch": "llama_model_load: error loading model: unknown model architecture: 'newarch'",
}


@pytest.mark.parametrize(
    ("name", "reason", "words"),
    [
        ("missing_tensor", "model_incompatible", ["blk.32.attn_norm.weight", "8be759e6f"]),
        ("wrong_count", "model_incompatible", ["expected 291, got 290", "8be759e6f"]),
        ("unknown_arch", "model_incompatible", ["newarch", "8be759e6f"]),
        ("out_of_bounds", "model_corrupt", ["blk.3.ffn_up.weight"]),
    ],
)
def test_load_failures_are_typed_and_name_what_is_wrong(name: str, reason: str, words: list[str]) -> None:
    found = logs.diagnose([LOAD_LOGS[name], *PASSED_ON], 1, commit="8be759e6f")
    assert found is not None
    assert found.reason == reason
    assert found.log_line == LOAD_LOGS[name]
    for word in words:
        assert word in found.detail
    assert found.advice
    if name == "out_of_bounds":
        assert "manifest or the disk" in found.advice


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (CUDA_OOM, "cuda_oom"),
        ("0.01 E alloc_tensor_range: failed to allocate CUDA0 buffer of size 123", "cuda_oom"),
        ("CUDA error: out of memory", "cuda_oom"),
        ("ggml_vulkan: Device memory allocation of size 1 failed. ErrorOutOfDeviceMemory", "cuda_oom"),
        ("0.01 E alloc_tensor_range: failed to allocate CPU buffer of size 123", "no_memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "no_memory"),
        ("srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 7111", "port_in_use"),
        ("error: invalid argument: --spec-typo", "flag_unsupported"),
        ('error while handling argument "--cache-type-k": Unsupported cache type: q9', "flag_unsupported"),
        ("error: unsupported flag --override-kv: no parameter for it", "flag_unsupported"),
        ("llama_init_from_model: V cache quantization requires flash_attn", "flag_unsupported"),
        ("E quantized V cache was requested, but this requires Flash Attention", "flag_unsupported"),
        ("E llama_init_from_model: quantized V cache requires flash_attn to be enabled", "flag_unsupported"),
        ("K cache type q8_0 with block size 32 does not divide n_embd_head_k=80", "flag_unsupported"),
        ("srv init: chat template parsing error: unexpected token", "template_error"),
        ("gguf_init_from_file: failed to open GGUF file 'x' (No such file or directory)", "model_missing"),
        ("gguf_init_from_reader: invalid magic characters: '<!do', expected 'GGUF'", "model_corrupt"),
        ("gguf_init_from_reader: failed to read magic", "model_corrupt"),
        ("E llama_model_load: error loading model: check_tensor_dims: tensor 'a.w' not found", "model_incompatible"),
        ("gguf_init: tensor 'a' has invalid ggml type 41. should be in [0, 39)", "model_incompatible"),
        ("error loading model vocabulary: unknown pre-tokenizer type: 'new'", "model_incompatible"),
        ("error loading model hyperparameters: key not found in model: x.block_count", "model_incompatible"),
        ("llama-server: error while loading shared libraries: libggml.so: cannot open", "engine_unavailable"),
        ("ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected", "gpu_unavailable"),
        ("warming up the model", "load_failed"),
    ],
)
def test_the_decisive_line_gives_the_reason(line: str, reason: str) -> None:
    found = logs.diagnose(["loading model", line, *PASSED_ON], 1)
    assert found is not None
    assert found.reason == reason
    if reason != "load_failed":
        assert found.log_line == line
        assert found.advice or reason in ("model_missing",)


def test_pinned_host_memory_is_not_the_gpus_memory() -> None:
    line = "ggml_cuda_host_malloc: failed to allocate 100.00 MiB of pinned memory: out of memory"
    assert logs.decisive([line]) is None
    assert logs.decisive([line, CUDA_OOM]) is not None


@pytest.mark.parametrize("code", [-9, 137])
def test_a_kill_that_is_not_ours_is_oom(code: int) -> None:
    found = logs.diagnose([], code)
    assert found is not None
    assert found.reason == "oom_killed"
    assert logs.diagnose([], code, stopped_by_us=True) is None
    docker_says_no = logs.diagnose([], code, oom_killed=False)
    assert docker_says_no is not None
    assert docker_says_no.reason == "load_failed"
    assert "SIGKILL" in docker_says_no.detail


def test_the_container_engines_word_on_memory_counts() -> None:
    found = logs.diagnose(["all fine"], 1, oom_killed=True)
    assert found is not None
    assert found.reason == "oom_killed"


@pytest.mark.parametrize(("code", "name"), [(-signal.SIGILL, "SIGILL"), (139, "SIGSEGV"), (-6, "SIGABRT")])
def test_a_crash_names_its_signal(code: int, name: str) -> None:
    found = logs.diagnose(["x"], code)
    assert found is not None
    assert found.reason == "load_failed"
    assert name in found.detail
    assert ("GGML_NATIVE" in found.advice) == (name == "SIGILL")


def test_death_while_serving_is_not_blamed_on_a_refused_request() -> None:
    found = logs.diagnose(["chat template parsing error: bad", "ggml.c:1: GGML_ASSERT(x) failed"], -6, phase="serving")
    assert found is not None
    assert found.reason == "server_died"
    assert found.log_line == "ggml.c:1: GGML_ASSERT(x) failed"
    memory = logs.diagnose([CUDA_OOM], 1, phase="serving")
    assert memory is not None
    assert memory.reason == "cuda_oom"


def test_an_old_allocation_failure_does_not_explain_a_late_death() -> None:
    found = logs.diagnose([CUDA_OOM, *["slot update"] * 200], 1, phase="serving")
    assert found is not None
    assert found.reason == "server_died"


def test_a_living_server_has_no_diagnosis_without_a_sign() -> None:
    assert logs.diagnose(["loading"], None) is None
    assert logs.timed_out(["loading"], 5).reason == "load_timeout"
    assert logs.timed_out([CUDA_OOM], 5).reason == "cuda_oom"


@given(st.lists(st.text(max_size=80), max_size=8), st.integers(-64, 255))
def test_every_end_gets_a_reason(lines: list[str], code: int) -> None:
    found = logs.diagnose(lines, code)
    assert found is not None
    assert found.detail
    assert "\n" not in found.detail


def test_lines_are_read_from_a_start_and_cut_at_newlines_only(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("old\nü\u2028x\r\n\x1b[31mred\x1b[0m\n".encode() + b"\xff bad\nlast")
    assert logs.read_lines(path, 4) == ["ü\u2028x", "red", "\ufffd bad", "last"]
    assert logs.last_lines(path, 2) == ["\ufffd bad", "last"]
    assert logs.last_lines(path, 0) == []
    assert logs.read_lines(tmp_path / "none") == []


def test_a_huge_log_is_read_from_its_end_in_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {i}\n" for i in range(100_000)))
    assert logs.last_lines(path, 50) == [f"line {i}" for i in range(99_950, 100_000)]
    assert logs.read_lines(path, 0, limit=1000)[0].startswith("line ")


# Case 22.
GPU_LOGS = {
    "no_gpu_build": [
        "warning: no usable GPU found, --gpu-layers option will be ignored",
        "load_tensors: CPU_Mapped model buffer size = 4168.09 MiB",
    ],
    "init_failed": [
        "ggml_cuda_init: failed to initialize CUDA: unknown error",
        "load_tensors: offloaded 33/33 layers to GPU",
        "load_tensors: CPU_Mapped model buffer size = 4168.09 MiB",
    ],
    "partial": [
        "load_tensors: offloaded 20/33 layers to GPU",
        "load_tensors: CUDA0 model buffer size = 2500.00 MiB",
    ],
    "full": [
        "load_tensors: offloaded 33/33 layers to GPU",
        "load_tensors: CUDA0 model buffer size = 4168.09 MiB",
    ],
}
MIB = 1024 * 1024
VRAM = {"no_gpu_build": (310, 312), "init_failed": (310, 310), "partial": (310, 3300), "full": (310, 5200)}
GPU_ARM = make_arm(device="gpu", gpu_layers=99)


@pytest.mark.parametrize("name", ["no_gpu_build", "init_failed"])
def test_a_silent_cpu_run_is_refused_for_a_gpu_arm_and_labelled_for_a_cpu_arm(name: str) -> None:
    facts = device_facts(GPU_LOGS[name])
    before, after = VRAM[name]
    for known in (False, True):
        with pytest.raises(ArmError) as error:
            proven_device(
                GPU_ARM,
                facts,
                vram_before=before * MIB if known else None,
                vram_after=after * MIB if known else None,
                model_bytes=4168 * MIB,
            )
        assert error.value.reason == "cpu_fallback"
        assert error.value.log_line == GPU_LOGS[name][0]
    assert proven_device(make_arm(device="cpu", gpu_layers=99), facts) == "cpu"


@pytest.mark.parametrize(("name", "layers"), [("partial", 20), ("full", 33)])
def test_a_gpu_run_is_proved_by_its_buffer(name: str, layers: int) -> None:
    facts = device_facts(GPU_LOGS[name])
    assert proven_device(GPU_ARM, facts) == "gpu"
    assert (facts.layers_on_gpu, facts.layers_total) == (layers, 33)


def test_grown_vram_is_proof_where_the_log_is_terse() -> None:
    terse = device_facts(["load_tensors: offloaded 33/33 layers to GPU"])
    assert proven_device(GPU_ARM, terse, vram_before=0, vram_after=3000 * MIB, model_bytes=4168 * MIB) == "gpu"
    with pytest.raises(ArmError, match="cpu_fallback"):
        proven_device(GPU_ARM, terse, vram_before=0, vram_after=2000 * MIB, model_bytes=4168 * MIB)
    with pytest.raises(ArmError, match="cpu_fallback"):
        proven_device(GPU_ARM, terse)


@pytest.mark.parametrize("name", ["CUDA_Host", "CPU_REPACK", "CPU", "CPU_Mapped", "Vulkan_Host"])
def test_host_memory_is_no_gpu_buffer(name: str) -> None:
    facts = device_facts([f"load_tensors:   {name} model buffer size =   100.00 MiB"])
    assert facts.device == "cpu"


@pytest.mark.parametrize("name", ["CUDA0", "CUDA1", "ROCm0", "Vulkan0", "SYCL0", "MTL0_Mapped"])
def test_gpu_buffers_of_every_backend(name: str) -> None:
    facts = device_facts([f"0.05 I load_tensors:        {name} model buffer size =   100.00 MiB"])
    assert (facts.device, facts.gpu_names) == ("gpu", (name,))


def test_an_empty_gpu_buffer_is_no_proof() -> None:
    facts = device_facts(
        ["load_tensors: CUDA0 model buffer size = 0.00 MiB", "load_tensors: CPU model buffer size = 9.0 MiB"]
    )
    with pytest.raises(ArmError, match="cpu_fallback"):
        proven_device(GPU_ARM, facts)


def test_weights_on_a_gpu_under_a_cpu_name_are_refused() -> None:
    with pytest.raises(ArmError, match="settings_differ"):
        proven_device(make_arm(), device_facts(GPU_LOGS["full"]))


def test_settings_in_the_log_the_first_context_counts() -> None:
    facts = device_facts(
        [
            "0.00.207.728 I llama_context: flash_attn            = enabled",
            "0.00.230.971 I llama_kv_cache: size =   34.45 MiB (  2048 cells,  30 layers,  1/1 seqs), K (q8_0):   11.95"
            " MiB, V (f16):   22.50 MiB",
            "validate_override: Using metadata override (  int) 'qwen35moe.block_count' = 40",
            "spec common_specu: adding speculative implementation 'draft-mtp'",
            "0.00.330.971 I llama_kv_cache: size =    1.00 MiB (  2048 cells,   1 layers,  1/1 seqs), K (f16):    0.50"
            " MiB, V (f16):    0.50 MiB",
        ]
    )
    assert (facts.kv_k, facts.kv_v, facts.flash_attention) == ("q8_0", "f16", True)
    assert facts.overrides == (("qwen35moe.block_count", "40"),)
    assert facts.spec_types == ("draft-mtp",)
    assert facts.verbose
