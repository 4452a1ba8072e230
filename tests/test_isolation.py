"""One bench per device, an idle GPU, room for the arm, and VRAM back where it was: locks by real processes, NVML by a
compiled stand-in for its library."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.errors import ArmError, BenchError
from bench.runner.isolation import GpuProcess, Settled, device_lock, require_room, wait_until_settled

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20


def python(code: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )


HOLD = """
    import sys, time
    from pathlib import Path
    from bench.runner.isolation import device_lock
    with device_lock({device!r}, Path({folder!r})):
        print("held", flush=True)
        {then}
        sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = python(HOLD.format(device="GPU-1", folder=str(tmp_path), then="pass"))
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_second_bench_is_told_who_has_the_device(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    with (
        pytest.raises(ArmError, match=rf"gpu_busy: another bench runs on GPU-1: pid {holder.pid}, since 2"),
        device_lock("GPU-1", tmp_path),
    ):
        pass
    with device_lock("GPU-2", tmp_path), device_lock("cpu", tmp_path):
        pass


def test_lock_dies_with_its_process(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with device_lock("GPU-1", tmp_path):
        pass
    with device_lock("GPU-1", tmp_path):
        pass


@pytest.mark.parametrize(
    "then",
    [
        "import subprocess; subprocess.Popen(['sleep', '30'])",
        "import os; os.fork() or time.sleep(30)",
    ],
)
def test_children_do_not_keep_it(tmp_path: Path, then: str) -> None:
    process = python(HOLD.format(device="cpu", folder=str(tmp_path), then=then))
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    time.sleep(0.3)
    process.kill()
    process.wait()
    with device_lock("cpu", tmp_path):
        pass


def test_same_process_and_names_that_are_paths(tmp_path: Path) -> None:
    with device_lock("../../evil/GPU", tmp_path):
        assert [p.name for p in tmp_path.iterdir()] == ["gguf-bench-..-..-evil-GPU.lock"]
        with pytest.raises(ArmError, match="this process already runs"), device_lock("../../evil/GPU", tmp_path):
            pass
    with device_lock("../../evil/GPU", tmp_path):
        pass


def test_links_and_folders_in_place_of_the_lock(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / "gguf-bench-cpu.lock").symlink_to(tmp_path / "target")
    with pytest.raises(BenchError, match="cannot open the lock"), device_lock("cpu", tmp_path):
        pass
    assert (tmp_path / "target").read_text() == "precious"
    (tmp_path / "gguf-bench-gpu.lock").mkdir()
    with pytest.raises(BenchError), device_lock("gpu", tmp_path):
        pass


def test_another_users_lock(tmp_path: Path) -> None:
    if os.getuid() != 0:
        path = tmp_path / "gguf-bench-cpu.lock"
        path.write_text("")
        path.chmod(0o444)
        with device_lock("cpu", tmp_path):
            pass
        return
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.is_relative_to("/tmp") and parent != Path("/tmp"):
            parent.chmod(0o755)
    with device_lock("cpu", shared):
        pass
    code = f"""
        import os
        from pathlib import Path
        from bench.runner.isolation import device_lock
        os.setgid(65534); os.setuid(65534)
        with device_lock("cpu", Path({str(shared)!r})):
            print("got it")
    """
    out, err = python(code).communicate()
    assert out == "got it\n", err


# --- room -------------------------------------------------------------------------------------------------------------
def test_room() -> None:
    require_room("VRAM", 10, 10)
    require_room("VRAM", None, 10)
    require_room("VRAM", 10, None)
    with pytest.raises(ArmError, match=r"no_memory: the arm needs about 24\.0 GB of VRAM, and 20\.0 GB are free"):
        require_room("VRAM", 24_000_000_000, 20_000_000_000)


# --- back at the baseline ---------------------------------------------------------------------------------------------
def readings(*values: int | None) -> list[int | None]:
    return list(values)


def feed(values: list[int | None]) -> int | None:
    return values.pop(0) if len(values) > 1 else values[0]


def test_waits_until_memory_is_back() -> None:
    values = readings(5000 * MIB, 3000 * MIB, 400 * MIB)
    found = wait_until_settled(lambda: feed(values), 310 * MIB, poll_s=0.01)
    assert found.settled and found.left_bytes == 90 * MIB
    assert values == [400 * MIB]


def test_gives_up_at_the_limit_and_says_what_is_left() -> None:
    found = wait_until_settled(lambda: 5000 * MIB, 310 * MIB, limit_s=0.2, poll_s=0.01)
    assert not found.settled and found.left_bytes == 4690 * MIB
    assert found.waited_s >= 0.2


def test_waits_at_least_so_long_and_not_for_what_cannot_be_measured() -> None:
    assert wait_until_settled(lambda: 0, 310 * MIB, at_least_s=0.2, poll_s=0.01).waited_s >= 0.2
    for used, baseline in ((lambda: None, 310 * MIB), (lambda: 1, None)):
        found = wait_until_settled(used, baseline, at_least_s=0.05, limit_s=5, poll_s=0.01)
        assert found == Settled(found.waited_s, None, True)
        assert found.waited_s < 4
    assert wait_until_settled(lambda: 9 * MIB, 0, at_least_s=60, stop=lambda: True).waited_s < 30


# --- who computes on the GPU ------------------------------------------------------------------------------------------
NVML = r"""
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } info;
int nvmlInitWithFlags(unsigned f) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int e) { return "Uninitialized"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *) 1; return i ? 2 : 0; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) {
    const char *c = getenv("STUB_CC"); *major = c ? atoi(c) / 10 : 8; *minor = c ? atoi(c) % 10 : 9; return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *n, info *out) {
    const char *p = getenv("STUB_PIDS"); unsigned have = 0, room = *n; char copy[256];
    strncpy(copy, p ? p : "", 255); copy[255] = 0;
    for (char *t = strtok(copy, ","); t; t = strtok(0, ",")) {
        if (have < room) {
            memset(&out[have], 0, sizeof *out);
            out[have].pid = atoi(t);
            out[have].used = getenv("STUB_WSL") ? ~0ULL : (have + 1) * 1024ULL * 1024 * 1024;
        }
        have++;
    }
    *n = have;
    return have > room ? 7 : 0;
}
"""


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        if os.environ.get("CI"):
            pytest.fail("a C compiler is missing")
        pytest.skip("a C compiler is missing")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(NVML)
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(folder / "nvml.c")], check=True)
    return folder


def with_nvml(nvml: Path, code: str, **env: str) -> str:
    out, err = python(code, LD_LIBRARY_PATH=str(nvml), **env).communicate()
    assert err == ""
    return out.strip()


IDLE = """
    from bench.errors import ArmError
    from bench.runner.isolation import require_idle
    try:
        print(require_idle({arguments}))
    except ArmError as e:
        print(e)
"""


def test_idle_and_busy_gpu(nvml: Path) -> None:
    me = str(os.getpid())
    assert with_nvml(nvml, IDLE.format(arguments="0")) == "None"
    busy = with_nvml(nvml, IDLE.format(arguments="0"), STUB_PIDS=f"{me},4194300")
    assert busy.startswith("gpu_busy: other processes compute on GPU 0: unknown (pid 4194300, 2048 MiB)")
    assert f"(pid {me}, 1024 MiB)" in busy and "--allow-busy" in busy
    allowed = with_nvml(nvml, IDLE.format(arguments="0, allow_busy=True"), STUB_PIDS=me)
    assert allowed.startswith("other processes computed on the GPU: ") and me in allowed
    assert with_nvml(nvml, IDLE.format(arguments=f"0, ours=({me},)"), STUB_PIDS=me) == "None"
    assert "gpu_unavailable" in with_nvml(nvml, IDLE.format(arguments="3"))


def test_processes_without_a_memory_figure(nvml: Path) -> None:
    said = with_nvml(nvml, IDLE.format(arguments="0"), STUB_PIDS="4194300", STUB_WSL="1")
    assert "unknown (pid 4194300)" in said
    assert str(GpuProcess(7, "x", None)) == "x (pid 7)"


@pytest.mark.parametrize(("capability", "architecture"), [("89", "89-real"), ("86", "86-real"), ("120", "120a-real")])
def test_architecture_of_the_gpu_that_is_there(nvml: Path, capability: str, architecture: str) -> None:
    code = "from bench.image.build import present_architectures; print(present_architectures())"
    assert with_nvml(nvml, code, STUB_CC=capability) == architecture
