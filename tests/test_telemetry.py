"""Telemetry: a scripted NVML, real processes, and rows that the store's schema takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.store.schema import schema
from bench.telemetry.host_use import HostReader
from bench.telemetry.sampler import Sampler, gpu_info

STUB = Path(__file__).with_name("nvml_stub") / "nvml_stub.c"
GIB = 1 << 30
NONE = (1 << 64) - 1  # NVML's "not available"

Nvml = Callable[..., Any]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = {}
    for name, flags in (
        ("new", []),
        ("old", ["-DWITHOUT_NEW"]),
        ("oldest", ["-DWITHOUT_NEW", "-DWITHOUT_PROCESSES"]),
    ):
        folder = tmp_path_factory.mktemp(name)
        command = ["cc", "-shared", "-fPIC", "-Wall", "-o", str(folder / "libnvidia-ml.so.1"), *flags, str(STUB)]
        subprocess.run(command, check=True)
        out[name] = folder
    return out


@pytest.fixture
def nvml(libraries: dict[str, Path], tmp_path: Path) -> Nvml:
    """Runs code in a process that loads the stub with a script; what it leaves in `out` comes back."""

    def run(script: str, code: str, *, library: str = "new", **env: str) -> Any:
        path = tmp_path / "script"
        path.write_text(script)
        kept = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        full = {**kept, "NVML_STUB": str(path), "LD_LIBRARY_PATH": str(libraries[library]), **env}
        program = f"import json, os, time\n{code}\nprint(json.dumps(out))"
        root = Path(__file__).resolve().parents[1]
        done = subprocess.run([sys.executable, "-c", program], env=full, cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


INFO = "from bench.telemetry.sampler import gpu_info\nfrom dataclasses import asdict\nout = asdict(gpu_info(%s))"
SAMPLE = (
    "from dataclasses import asdict\nfrom bench.telemetry.nvml import Gpu, GpuUnavailable\n"
    "gpu = Gpu()\nout = asdict(gpu.sample([os.getpid(), 77]))"
)
FIELDS = {
    "nvmlDeviceGetMemoryInfo": ("vram_used_bytes", "VRAM"),
    "nvmlDeviceGetComputeRunningProcesses": ("vram_process_bytes", "VRAM per process"),
    "nvmlDeviceGetPowerUsage": ("power_w", "power"),
    "nvmlDeviceGetUtilizationRates": ("gpu_util_pct", "utilisation"),
    "nvmlDeviceGetTemperature": ("gpu_temp_c", "temperature"),
    "smClock": ("sm_clock_mhz", "SM clock"),
    "memClock": ("mem_clock_mhz", "memory clock"),
    "clocksEventReasons": ("throttle_reasons", "throttle reasons"),
}
PROCESSES = f"nvmlDeviceGetComputeRunningProcesses 77 {3 * GIB} 99 {GIB}\n"


def test_all_figures(nvml: Nvml) -> None:
    script = PROCESSES + f"nvmlDeviceGetMemoryInfo {24 * GIB} 0 {5 * GIB}\nclocksEventReasons 32\n"
    assert nvml(script, SAMPLE) == {
        "vram_used_bytes": 5 * GIB,
        "vram_process_bytes": 3 * GIB,
        "power_w": 200.0,
        "gpu_util_pct": 50.0,
        "gpu_temp_c": 60.0,
        "sm_clock_mhz": 2500.0,
        "mem_clock_mhz": 10500.0,
        "throttle_reasons": 32,
        "reason": None,
    }


@pytest.mark.parametrize(
    ("code", "said"), [(3, "not supported"), (4, "no permission"), (15, "GPU is lost"), (999, "unknown")]
)
@pytest.mark.parametrize("function", FIELDS)
def test_every_call_can_fail_by_itself(nvml: Nvml, function: str, code: int, said: str) -> None:
    out = nvml(f"{PROCESSES}{function} !{code}\n", SAMPLE)
    name, label = FIELDS[function]
    assert [k for k, v in out.items() if v is None] == [name]
    assert out["reason"].startswith(f"{label}: {said}")


def test_all_calls_fail_and_are_said_once(nvml: Nvml) -> None:
    out = nvml("".join(f"{f} !15\n" for f in FIELDS), SAMPLE)
    assert {v for k, v in out.items() if k != "reason"} == {None}
    assert out["reason"].count("GPU is lost") == 1


def test_a_call_that_fails_for_a_while_comes_back(nvml: Nvml) -> None:
    code = (
        "from bench.telemetry.nvml import Gpu\ngpu = Gpu()\nout = [gpu.sample([]).power_w]\n"
        "open(os.environ['NVML_STUB'], 'w').write('')\nout.append(gpu.sample([]).power_w)"
    )
    assert nvml("nvmlDeviceGetPowerUsage !15\n", code) == [None, 200.0]


def test_an_older_driver(nvml: Nvml) -> None:
    out = nvml(PROCESSES + "clocksThrottleReasons 8\n", SAMPLE, library="old")
    assert (out["throttle_reasons"], out["vram_process_bytes"], out["reason"]) == (8, 3 * GIB, None)
    oldest = nvml("", SAMPLE, library="oldest")
    assert oldest["vram_used_bytes"] == GIB
    assert oldest["reason"] == "VRAM per process: not in this driver"


@pytest.mark.parametrize(
    ("processes", "reason"),
    [
        (f"77 {NONE}", "not reported on this system"),
        (f"5 {GIB}", "the server is not in NVML's list"),
    ],
)
def test_memory_per_process_is_null_and_not_zero(nvml: Nvml, processes: str, reason: str) -> None:
    out = nvml(f"nvmlDeviceGetComputeRunningProcesses {processes}\n", SAMPLE)
    assert out["vram_process_bytes"] is None
    assert out["reason"] == f"VRAM per process: {reason}"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("nvmlInit !9\n", "driver is not loaded"),
        ("nvmlInit !18\n", "differ in version"),
        ("nvmlInit !4\n", "no permission"),
        ("nvmlInit !555\n", "error 555"),
        ("nvmlDeviceGetCount 0\n", "sees no GPU"),
        ("nvmlDeviceGetCount !999\n", "999"),
        ("nvmlDeviceGetHandleByIndex !15\n", "15"),
        ("nvmlDeviceGetCount 3\n", "3 GPUs and none is named"),
    ],
)
def test_no_gpu_to_read(nvml: Nvml, script: str, reason: str) -> None:
    out = nvml(script, INFO % "")
    assert reason in out["reason"]
    assert (out["name"], out["vram_bytes"], out["processes"]) == (None, None, [])


def test_which_of_several(nvml: Nvml) -> None:
    two = "nvmlDeviceGetCount 2\nnvmlDeviceGetUUID#0 GPU-aaaa-1\nnvmlDeviceGetUUID#1 GPU-bbbb-2\n"
    assert nvml(two, INFO % "1")["uuid"] == "GPU-bbbb-2"
    assert nvml(two, INFO % "'GPU-bbbb-2'")["uuid"] == "GPU-bbbb-2"
    assert nvml(two, INFO % "'GPU-bb'")["uuid"] == "GPU-bbbb-2"
    assert nvml(two, INFO % "", CUDA_VISIBLE_DEVICES="1")["uuid"] == "GPU-bbbb-2"
    assert nvml(two, INFO % "", CUDA_VISIBLE_DEVICES="GPU-aaaa-1")["uuid"] == "GPU-aaaa-1"
    assert "none is named" in nvml(two, INFO % "", CUDA_VISIBLE_DEVICES="0,1")["reason"]
    assert nvml(two, INFO % "2")["reason"] == "no such GPU (2): this machine has 2"
    assert nvml(two, INFO % "'GPU-cc'")["reason"] == "no such GPU (GPU-cc)"


def test_info(nvml: Nvml) -> None:
    out = nvml(PROCESSES, INFO % "")
    assert (out["name"], out["driver"], out["vram_bytes"], out["count"]) == ("Stub GPU", "555.42", 24 * GIB, 1)
    assert out["processes"] == [
        {"pid": 77, "name": "llama-server", "used_bytes": 3 * GIB},
        {"pid": 99, "name": "llama-server", "used_bytes": GIB},
    ]
    assert (out["reason"], out["processes_known"], out["mig"]) == (None, True, False)
    split = nvml("nvmlDeviceGetMigMode 1 1\nnvmlDeviceGetMemoryInfo !4\nnvmlDeviceGetUtilizationRates !3\n", INFO % "")
    assert (split["mig"], split["vram_bytes"], split["reason"]) == (True, None, "VRAM: no permission")


def test_without_a_driver(tmp_path: Path) -> None:
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not a library")
    code = "from bench.telemetry.sampler import gpu_info; print(gpu_info().reason)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "no NVIDIA driver on this machine"


RUN = """
from dataclasses import asdict
from bench.telemetry.sampler import Sampler
rows = []
def script(text):
    open(os.environ['NVML_STUB'] + '.new', 'w').write(text)
    os.replace(os.environ['NVML_STUB'] + '.new', os.environ['NVML_STUB'])
def memory(gib):
    return 'nvmlDeviceGetMemoryInfo %d 0 %d\\n' % (24 << 30, gib << 30)
sampler = Sampler('r', 'a', rows.extend, None, lambda: (os.getpid(),), 0.02)
sampler.start()
time.sleep(0.3)
script(memory(4)); sampler.phase = 'load'; time.sleep(0.2)
sampler.phase = 'idle'; time.sleep(0.3)
script(memory(6) + 'nvmlDeviceGetPowerUsage 100000\\nclocksEventReasons 4\\n')
sampler.phase = 'generate'; time.sleep(1.0)
sampler.phase = 'stop'; time.sleep(0.1); script(memory(9)); time.sleep(0.2)
sampler.stop()
out = {'summary': asdict(sampler.summary()), 'phases': [r['phase'] for r in rows]}
"""


def test_summary_of_a_scripted_run(nvml: Nvml) -> None:
    out = nvml("", RUN)
    got = out["summary"]
    assert (got["vram_baseline_bytes"], got["vram_idle_bytes"], got["vram_peak_bytes"]) == (GIB, 4 * GIB, 6 * GIB)
    assert 0.9 < got["generate_s"] < 3
    assert got["energy_j"] == pytest.approx(100 * got["generate_s"], rel=0.15)
    assert got["throttled_s"] == pytest.approx(got["generate_s"], rel=0.15)
    assert got["vram_reason"] is None
    assert got["rss_idle_bytes"] > 1 << 20
    assert list(dict.fromkeys(out["phases"])) == ["baseline", "load", "idle", "generate", "stop"]
    assert out["phases"].count("generate") >= 10
    assert got["n_samples"] == len(out["phases"])


def test_energy_is_null_when_power_is_not_told(nvml: Nvml) -> None:
    changed = RUN.replace("nvmlDeviceGetPowerUsage 100000", "nvmlDeviceGetPowerUsage !3")
    got = nvml("", changed)["summary"]
    assert got["energy_j"] is None
    assert got["vram_peak_bytes"] == 6 * GIB


# On this host, whatever it has.


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose child works and holds 64 MiB."""
    child = "x = bytearray(64 << 20)\nwhile True: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    time.sleep(1.0)
    yield process
    os.killpg(process.pid, 9)
    process.wait()


def sampled(pids: Callable[[], tuple[int, ...]], seconds: float, **more: Any) -> tuple[Any, list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    sampler = Sampler("run", "arm", rows.extend, None, pids, 0.05, **more)
    sampler.phase = "generate"
    sampler.start()
    time.sleep(seconds)
    sampler.stop()
    return sampler.summary(), rows


def test_rows_fit_the_schema(busy: subprocess.Popen[bytes]) -> None:
    summary, rows = sampled(lambda: (busy.pid,), 1.5)
    table = pa.Table.from_pylist(rows, schema=schema("telemetry"))
    assert table.num_rows == len(rows) == summary.n_samples
    assert set(rows[0]) == set(schema("telemetry").names)
    assert rows == sorted(rows, key=lambda r: r["sampled_at"])
    if gpu_info().name is None:
        assert summary.vram_reason
        assert summary.vram_peak_bytes is None
        assert {r["reason"] for r in rows} == {summary.vram_reason}
        assert summary.energy_j is None


def test_memory_and_share_of_a_servers_child(busy: subprocess.Popen[bytes]) -> None:
    summary, rows = sampled(lambda: (busy.pid,), 2.0)
    assert summary.rss_peak_bytes > 64 << 20
    assert all(r["rss_bytes"] > 64 << 20 for r in rows)
    host = [r["host_cpu_pct"] for r in rows if r["host_cpu_pct"] is not None]
    assert host
    assert all(0 <= h <= 100 for h in host)
    reader = HostReader()
    reader.sample([busy.pid])
    unknown = HostReader()
    unknown.sample([])
    time.sleep(1.0)
    ours, others = reader.sample([busy.pid]), unknown.sample([])
    # The busy process is a child of this one: ours in both cases.
    assert ours.other_cpu_pct is not None
    assert others.other_cpu_pct is not None
    assert ours.host_cpu_pct - ours.other_cpu_pct > 5


def test_others_use_is_told_from_ours() -> None:
    """A worker that belongs to nobody of ours (its parent ended) is others' use."""
    code = (
        "import os, sys, time\n"
        "if os.fork(): sys.exit()\n"
        "os.setsid(); print(os.getpid(), flush=True)\n"
        "end = time.time() + 20\n"
        "while time.time() < end: pass"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.wait()
    try:
        reader, told = HostReader(), HostReader()
        reader.sample([])
        told.sample([], [pid])
        time.sleep(1.5)
        plain, with_it = reader.sample([]), told.sample([], [pid])
        assert plain.other_s > with_it.other_s + 0.2
    finally:
        os.kill(pid, 9)


def test_unseen_server_leaves_others_unknown() -> None:
    summary, rows = sampled(lambda: (), 0.5)
    assert {r["other_cpu_pct"] for r in rows} == {None}
    assert {r["rss_bytes"] for r in rows} == {None}
    assert summary.other_cpu_pct is None


def test_a_server_that_ends_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.7)"])
    threading.Thread(target=process.wait, daemon=True).start()
    _, rows = sampled(lambda: (process.pid,), 1.8)
    assert rows[2]["rss_bytes"]
    assert rows[-1]["rss_bytes"] is None


def test_a_failing_and_a_slow_sink_delay_nothing() -> None:
    def fail(_rows: object) -> None:
        raise OSError("disk full")

    sampler = Sampler("r", "a", fail, None, lambda: (), 0.02)
    sampler.start()
    time.sleep(0.5)
    sampler.stop()
    summary = sampler.summary()
    assert summary.sink_error == "OSError: disk full"
    assert summary.lost_rows == summary.n_samples > 5


def test_summary_without_a_sample() -> None:
    sampler = Sampler("r", "a", lambda _rows: None, None, lambda: ())
    sampler.stop()
    assert sampler.summary().vram_reason == "no sample was taken"
