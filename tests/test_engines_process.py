"""The process engine against a scripted server in a real process: cases 17 and 18, stops, and killed parents.

Times are the cases' scaled down; bounds are loose, because a machine can be busy.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from engine_helpers import gone, make_arm, model_file, running, script, stub_executable, wait_for

from bench.engines import health, ports, process
from bench.engines.process import ProcessEngine, ProcessServer
from bench.errors import ArmError
from bench.presets.load import Arm

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ProcessEngine]:
    yield ProcessEngine(stub_executable(tmp_path))
    left = running(str(tmp_path))
    assert left == [], "a server outlived its test"


def start(engine: ProcessEngine, tmp_path: Path, arm: Arm) -> ProcessServer:
    return engine.start(arm, model_file(tmp_path), tmp_path / "logs" / "server.log")


def failure(engine: ProcessEngine, tmp_path: Path, arm: Arm) -> ArmError:
    with pytest.raises(ArmError) as error:
        start(engine, tmp_path, arm)
    assert running(str(tmp_path)) == []
    return error.value


# Case 17: refused, 503 while loading, then ready, or then dead.
def test_healthy_but_slow(engine: ProcessEngine, tmp_path: Path) -> None:
    questions = tmp_path / "questions"
    steps = {"0": {"refused": True}, "0.3": {"health": 503, "refused": False}, "2": {"health": 200}}
    server = start(engine, tmp_path, make_arm(env=script(steps, questions=str(questions))))
    try:
        assert server.alive()
        assert server.death() is None
        assert 1900 < server.load_ms < 20_000
        assert not questions.exists()
        assert httpx.post(f"{server.base_url}/v1/chat/completions", json={}, trust_env=False).status_code == 200
        assert questions.read_text() == "/v1/chat/completions\n"
    finally:
        server.stop()


def test_death_by_cuda_memory_is_known_at_once(engine: ProcessEngine, tmp_path: Path) -> None:
    lines = [f"line {i}" for i in range(60)]
    log = "\n".join([*lines, "cudaMalloc failed: out of memory"])
    begun = time.monotonic()
    error = failure(
        engine,
        tmp_path,
        make_arm(env=script({"0": {"health": 503}, "0.5": {"log": log, "exit": 1}}), startup_limit_s=120),
    )
    assert time.monotonic() - begun < 60  # far from the limit
    assert error.reason == "cuda_oom"
    assert error.log_line == "cudaMalloc failed: out of memory"
    assert error.advice
    from bench.engines.logs import last_lines

    kept = last_lines(tmp_path / "logs" / "server.log", 50)
    assert kept == [*lines[-49:], "cudaMalloc failed: out of memory"]


def test_out_of_memory_but_alive(engine: ProcessEngine, tmp_path: Path) -> None:
    steps = {"0": {"health": 503}, "0.3": {"log": "cudaMalloc failed: out of memory"}}
    error = failure(engine, tmp_path, make_arm(env=script(steps), startup_limit_s=3))
    assert error.reason == "cuda_oom"


@pytest.mark.parametrize("end", [{"exit": 137}, {"signal": 9}])
def test_death_by_host_memory(engine: ProcessEngine, tmp_path: Path, end: dict[str, int]) -> None:
    error = failure(engine, tmp_path, make_arm(env=script({"0": {"health": 503}, "0.3": end})))
    assert error.reason == "oom_killed"


def test_a_model_list_before_health_is_not_ready(engine: ProcessEngine, tmp_path: Path) -> None:
    steps = {"0": {"health": 503, "models": 200, "props": 200}, "1.5": {"health": 200}}
    server = start(engine, tmp_path, make_arm(env=script(steps)))
    server.stop()
    assert server.load_ms > 1400


def test_never_ready(engine: ProcessEngine, tmp_path: Path) -> None:
    port = ports.free_port()
    arm = make_arm(env=script({"0": {"health": 503}}, ignore_term=False), startup_limit_s=2, port=port)
    error = failure(engine, tmp_path, arm)
    assert error.reason == "load_timeout"
    assert "2 s" in error.detail
    assert not ports.in_use(port)


def test_a_server_that_never_binds_times_out_too(engine: ProcessEngine, tmp_path: Path) -> None:
    error = failure(engine, tmp_path, make_arm(env=script({"0": {"refused": True}}), startup_limit_s=2))
    assert error.reason == "load_timeout"


def test_a_failed_arm_does_not_hinder_the_next(engine: ProcessEngine, tmp_path: Path) -> None:
    port = ports.free_port()
    for _ in range(2):
        steps = {"0": {"health": 503}, "0.2": {"exit": 1}}
        assert failure(engine, tmp_path, make_arm(env=script(steps), port=port)).reason == "load_failed"
        server = start(engine, tmp_path, make_arm(env=script(), port=port))
        server.stop()
        assert not ports.in_use(port)


# Case 18: another server answers on our port.
class Foreign(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body: Any = {
            "/health": {"status": "ok"},
            "/v1/models": {"data": [{"id": "other-model", "owned_by": "somebody"}]},
        }.get(self.path)
        data = json.dumps(body or {"detail": "Not Found"}).encode()
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        raise AssertionError("a question was sent to a foreign server")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def foreign_port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_a_fixed_port_in_use_starts_nothing(engine: ProcessEngine, tmp_path: Path, foreign_port: int) -> None:
    starts = tmp_path / "starts"
    arm = make_arm(port=foreign_port, env=script(starts=str(starts)))
    error = failure(engine, tmp_path, arm)
    assert error.reason == "port_in_use"
    assert str(foreign_port) in error.detail
    assert not starts.exists()
    assert any(str(foreign_port) in problem for problem in engine.problems(arm))


def test_port_zero_finds_another(engine: ProcessEngine, tmp_path: Path, foreign_port: int) -> None:
    server = start(engine, tmp_path, make_arm(env=script()))
    server.stop()
    assert server.port != foreign_port


def test_a_foreign_server_on_our_port_is_not_ours(
    engine: ProcessEngine, tmp_path: Path, foreign_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "free_port", lambda: foreign_port)  # lost between the choice and the start
    monkeypatch.setattr(health, "FOREIGN_GRACE_S", 1.0)
    error = failure(engine, tmp_path, make_arm(env=script({"0": {"refused": True}})))
    assert error.reason == "wrong_server"
    assert "other-model" in error.detail


def test_our_server_under_another_name_is_not_ours(
    engine: ProcessEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "FOREIGN_GRACE_S", 1.0)
    error = failure(engine, tmp_path, make_arm(env=script(alias="qwen-test-q4")))
    assert error.reason == "wrong_server"
    assert "qwen-test-q4" in error.detail


def test_a_port_lost_before_the_start_is_replaced_once(
    engine: ProcessEngine, tmp_path: Path, foreign_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = tmp_path / "starts"
    free = ports.free_port()
    choices = iter([foreign_port, free])
    monkeypatch.setattr(ports, "free_port", lambda: next(choices))
    server = start(engine, tmp_path, make_arm(env=script(starts=str(starts))))
    server.stop()
    assert server.port == free
    assert starts.read_text().split() == [str(foreign_port), str(free)]
    assert "couldn't bind" in (tmp_path / "logs" / "server.log").read_text()  # the first start's log is kept
    assert not any("couldn't bind" in line for line in server.last_lines())


def test_a_port_lost_twice_is_reported(
    engine: ProcessEngine, tmp_path: Path, foreign_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = tmp_path / "starts"
    monkeypatch.setattr(ports, "free_port", lambda: foreign_port)
    error = failure(engine, tmp_path, make_arm(env=script(starts=str(starts))))
    assert error.reason == "port_in_use"
    assert str(foreign_port) in error.detail
    assert len(starts.read_text().split()) == 2


def test_the_bind_line_of_a_fixed_port_is_not_retried(engine: ProcessEngine, tmp_path: Path) -> None:
    starts, port = tmp_path / "starts", ports.free_port()
    bind_log = f"couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}"
    steps = {"0": {"refused": True, "log": bind_log}, "0.2": {"exit": 1}}
    error = failure(engine, tmp_path, make_arm(port=port, env=script(steps, starts=str(starts))))
    assert error.reason == "port_in_use"
    assert len(starts.read_text().split()) == 1


# Identity and settings.
def test_identity_says_what_was_proved(engine: ProcessEngine, tmp_path: Path) -> None:
    server = start(engine, tmp_path, make_arm(arm_id="smöl arm", env=script()))
    server.stop()
    identity = server.identity
    assert (identity.engine, identity.build, identity.commit) == ("process", 9784, "8be759e6f")
    assert identity.fingerprint == "b9784-8be759e6f"
    assert identity.model_path == str(tmp_path / "model.gguf")
    assert (identity.n_ctx, identity.slots, identity.device) == (1024, 1, "cpu")
    assert identity.sampler["repeat_penalty"] == 1.05
    assert identity.kv_k is None  # the stub's log does not say
    assert identity.binary_sha256 is not None
    assert len(identity.binary_sha256) == 64
    assert identity.chat_template_sha256 is not None
    assert server.threads >= 1
    assert server.flags[server.flags.index("--threads") + 1] == str(server.threads)
    assert server.flags[server.flags.index("--host") + 1] == "127.0.0.1"


@pytest.mark.parametrize(
    ("changed", "reason", "words"),
    [
        ({"params": {"repeat_penalty": 1.0}}, "settings_differ", "repeat_penalty: expected 1.05, found 1.0"),
        ({"total_slots": 4}, "settings_differ", "expected 1, found 4"),
        ({"model_path": "/other.gguf"}, "wrong_server", "/other.gguf"),
        ({"model_path": None}, "wrong_server", "found none"),
        ({"build_info": "b9785-00000000"}, "wrong_server", "b9785-00000000"),
    ],
)
def test_what_differs_stops_the_arm(
    engine: ProcessEngine, tmp_path: Path, changed: dict[str, Any], reason: str, words: str
) -> None:
    error = failure(engine, tmp_path, make_arm(env=script(props=changed)))
    assert error.reason == reason
    assert words in error.detail


def test_settings_in_the_log_are_compared(engine: ProcessEngine, tmp_path: Path) -> None:
    line = "llama_kv_cache: size = 34.45 MiB ( 2048 cells, 30 layers, 1/1 seqs), K (f16): 11.95 MiB, V (f16): 22.5 MiB"
    steps = {"0": {"health": 200, "log": line}}
    assert start_and_stop(engine, tmp_path, make_arm(env=script(steps))).identity.kv_k == "f16"
    error = failure(engine, tmp_path, make_arm(env=script(steps), kv_k="q8_0"))
    assert error.reason == "settings_differ"
    assert "kv_k: expected q8_0, found f16" in error.detail


def start_and_stop(engine: ProcessEngine, tmp_path: Path, arm: Arm) -> ProcessServer:
    server = start(engine, tmp_path, arm)
    server.stop()
    return server


def test_a_gpu_arm_that_runs_on_the_cpu_is_refused(engine: ProcessEngine, tmp_path: Path) -> None:
    log = "load_tensors: offloaded 33/33 layers to GPU\nload_tensors: CPU_Mapped model buffer size = 4168.09 MiB"
    arm = make_arm(device="gpu", gpu_layers="all", env=script({"0": {"health": 200, "log": log}}))
    assert failure(engine, tmp_path, arm).reason == "cpu_fallback"


def test_vram_from_the_caller_is_proof(tmp_path: Path) -> None:
    used = iter([100, 100 + 2000])
    engine = ProcessEngine(stub_executable(tmp_path), vram_used=lambda: next(used))
    log = "load_tensors: offloaded 20/33 layers to GPU"
    arm = make_arm(device="gpu", gpu_layers="all", env=script({"0": {"health": 200, "log": log}}))
    server = start_and_stop(engine, tmp_path, arm)
    assert (server.identity.device, server.identity.layers_on_gpu, server.identity.layers_total) == ("gpu", 20, 33)


# The environment.
def test_the_servers_environment(engine: ProcessEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "17")
    monkeypatch.setenv("LLAMA_TRACE", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")  # would catch loopback requests, and refuse them
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server = start(engine, tmp_path, make_arm(env={**script(), "GGML_CUDA_NO_PINNED": "1"}))
    try:
        env = httpx.get(f"{server.base_url}/env", trust_env=False).json()
    finally:
        server.stop()
    assert not [name for name in env if name.startswith("LLAMA_")]
    assert env["GGML_CUDA_NO_PINNED"] == "1"
    assert env["CUDA_VISIBLE_DEVICES"] == "3"


# Stops.
def test_stop_is_idempotent_and_no_failure(engine: ProcessEngine, tmp_path: Path) -> None:
    server = start(engine, tmp_path, make_arm(env=script()))
    pid = server.pids[0]
    assert psutil.Process(pid).is_running()
    server.stop()
    server.stop()
    assert gone(pid)
    assert not server.alive()
    assert server.death() is None
    assert not ports.in_use(server.port)


def test_a_server_that_ignores_sigterm_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.engines import lifetime

    monkeypatch.setattr(lifetime.Lifetime.stop, "__defaults__", (0.5,))
    engine = ProcessEngine(stub_executable(tmp_path, through_shell=True))
    server = start(engine, tmp_path, make_arm(env=script(ignore_term=True, child=True)))
    assert wait_for(lambda: len(server._life.pids()) >= 3)  # the shell, the server, its child
    pids = server._life.pids()
    server.stop()
    assert all(gone(pid) for pid in pids)
    assert server.death() is None
    assert not ports.in_use(server.port)


def test_death_while_serving(engine: ProcessEngine, tmp_path: Path) -> None:
    steps = {"0": {"health": 200}, "1.5": {"log": "ggml.c:1: GGML_ASSERT(x) failed", "signal": int(signal.SIGABRT)}}
    server = start(engine, tmp_path, make_arm(env=script(steps)))
    assert wait_for(lambda: not server.alive())
    reason, detail = server.death() or ("", "")
    assert reason == "server_died"
    assert "SIGABRT" in detail
    server.stop()
    assert server.death() == (reason, detail)


def test_a_death_is_waited_for_and_a_life_is_not(engine: ProcessEngine, tmp_path: Path) -> None:
    # It refuses connections for longer than it takes to see that it is gone, as a killed one does.
    steps = {"0": {"health": 200}, "2": {"refused": True}, "3": {"exit": 1}}
    dying = start(engine, tmp_path, make_arm(env=script(steps)))
    assert wait_for(lambda: not ports.accepts(dying.port))
    assert dying.alive()
    assert health.await_death(dying, threading.Event())
    assert dying.death() is not None
    dying.stop()
    living = start(engine, tmp_path, make_arm(env=script({"0": {"health": 200}, "2": {"health": 503}})))

    def healthy() -> bool:
        return httpx.get(f"{living.base_url}/health").status_code == 200

    try:
        for wanted in (True, False):  # a server that says that it is not ready lives too
            assert wait_for(lambda wanted=wanted: healthy() == wanted)
            before = time.monotonic()
            assert not health.await_death(living, threading.Event(), limit_s=60.0)
            assert time.monotonic() - before < 30
    finally:
        living.stop()


def test_a_server_that_is_killed_leaves_no_child(engine: ProcessEngine, tmp_path: Path) -> None:
    server = start(engine, tmp_path, make_arm(env=script(child=True)))
    pids = server._life.pids()
    os.kill(server.pids[0], signal.SIGKILL)  # the server dies by itself: its child must not stay
    assert wait_for(lambda: all(gone(pid) for pid in pids) and not server.alive())
    assert (server.death() or ("",))[0] == "oom_killed"
    server.stop()


def test_the_thread_that_started_a_server_may_end(engine: ProcessEngine, tmp_path: Path) -> None:
    servers: list[ProcessServer] = []
    arm = make_arm(env=script())
    worker = threading.Thread(target=lambda: servers.append(start(engine, tmp_path, arm)))
    worker.start()
    worker.join()
    time.sleep(1.0)  # the kernel's signal for the ended thread would have come by now
    assert servers[0].alive()
    servers[0].stop()


PARENT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from engine_helpers import make_arm, script
from bench.engines.process import ProcessEngine
engine = ProcessEngine({server})
try:
    server = engine.start({arm}, Path({model!r}), Path({log!r}))
    print(*server.pids, flush=True)
    if "thread" in sys.argv:
        raise SystemExit(0)  # leaves without a stop
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    time.sleep(600)
"""


def parent(tmp_path: Path, *, server: str, arm: str, model: Path) -> subprocess.Popen[str]:
    """A program of its own that starts a server and then sleeps."""
    code = PARENT.format(
        tests=str(ROOT / "tests"), server=server, arm=arm, model=str(model), log=str(tmp_path / "parent.log")
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    )


def first_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


@pytest.mark.parametrize("through_shell", [False, True])
@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_parent_takes_its_server_along(tmp_path: Path, sig: signal.Signals, through_shell: bool) -> None:
    path = stub_executable(tmp_path, through_shell=through_shell)
    options = "ignore_term=True, child=True"
    program = parent(
        tmp_path, server=f"Path({str(path)!r})", arm=f"make_arm(env=script({options}))", model=model_file(tmp_path)
    )
    pids = [int(word) for word in first_line(program).split()]
    keeper = psutil.Process(pids[0]).ppid() if not through_shell else None
    assert len(pids) >= (2 if through_shell else 1)
    os.kill(program.pid, sig)
    program.wait()
    assert wait_for(lambda: all(gone(pid) for pid in pids), 5.0)
    assert wait_for(lambda: running(str(tmp_path)) == [], 5.0)
    assert keeper is None or wait_for(lambda: gone(keeper), 5.0)


def test_a_parent_killed_during_the_load_takes_its_server_along(tmp_path: Path) -> None:
    path = stub_executable(tmp_path)
    arm = "make_arm(env=script({'0': {'health': 503}}), startup_limit_s=600)"
    program = parent(tmp_path, server=f"Path({str(path)!r})", arm=arm, model=model_file(tmp_path))
    stub = ("server_stub.py", str(tmp_path / "model.gguf"))
    assert wait_for(lambda: running(*stub) != [])
    program.kill()
    program.wait()
    assert wait_for(lambda: running(str(tmp_path)) == [], 5.0)


def test_a_parent_that_ends_without_a_stop_leaves_nothing(tmp_path: Path) -> None:
    path = stub_executable(tmp_path)
    code = PARENT.format(
        tests=str(ROOT / "tests"),
        server=f"Path({str(path)!r})",
        arm="make_arm(env=script(child=True))",
        model=str(model_file(tmp_path)),
        log=str(tmp_path / "parent.log"),
    )
    done = subprocess.run([sys.executable, "-c", code, "thread"], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    pids = [int(word) for word in done.stdout.split()]
    assert pids
    assert wait_for(lambda: all(gone(pid) for pid in pids), 5.0)


def test_ctrl_c_during_the_load_stops_the_server_although_the_program_goes_on(tmp_path: Path) -> None:
    path = stub_executable(tmp_path)
    arm = "make_arm(env=script({'0': {'health': 503}}), startup_limit_s=600)"
    program = parent(tmp_path, server=f"Path({str(path)!r})", arm=arm, model=model_file(tmp_path))
    stub = ("server_stub.py", str(tmp_path / "model.gguf"))
    try:
        assert wait_for(lambda: running(*stub) != [])
        os.killpg(program.pid, signal.SIGINT)  # as a terminal does
        assert first_line(program) == "interrupted"
        assert running(*stub) == []
    finally:
        program.kill()
        program.wait()


# What is visible before a start.
@pytest.mark.parametrize("kind", ["missing", "not_executable", "folder", "garbage"])
def test_a_server_that_cannot_be_run(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "llama-server"
    if kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(b"\x7fELF garbage")
        path.chmod(0o755 if kind == "garbage" else 0o644)
    engine = ProcessEngine(path)
    with pytest.raises(ArmError) as error:
        start(engine, tmp_path, make_arm(env=script()))
    assert error.value.reason == "engine_unavailable"
    assert str(path) in error.value.detail
    if kind != "garbage":
        assert engine.problems(make_arm())


def test_a_missing_model_is_said_before_the_start(engine: ProcessEngine, tmp_path: Path) -> None:
    with pytest.raises(ArmError) as error:
        engine.start(make_arm(), tmp_path / "none.gguf", tmp_path / "log")
    assert error.value.reason == "model_missing"


def test_more_threads_than_cores_and_too_little_memory_are_problems(engine: ProcessEngine) -> None:
    from bench.presets.load import ModelRef

    arm = make_arm(threads=4096, model=ModelRef("file:m.gguf", bytes=1 << 60))
    threads, memory = engine.problems(arm)
    assert "4096" in threads
    assert "GB" in memory
    assert engine.problems(make_arm()) == []


def test_version_of_a_program_that_does_not_know_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_VERSION_LIMIT_S", 1.0)
    path = tmp_path / "endless"
    path.write_text("#!/bin/sh\nsleep 600 &\nsleep 600\n")
    path.chmod(0o755)
    assert process.version_of(path) == process.Version(None, None)
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 'version: 0 (unknown)' >&2\n")
    old.chmod(0o755)
    assert process.version_of(old) == process.Version(None, None)
