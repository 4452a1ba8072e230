"""A Docker engine that is stopped, killed and started again under a run: a second one, of this test alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import psutil
import pytest
from container_helpers import docker_client, missing, ours, stub_image
from engine_helpers import running

from bench.engines import container_life, container_return
from bench.engines.container import ContainerEngine
from bench.grading import Grader, open_grader
from bench.runner import arm_run
from tests.stub_runs import StubRuns

pytestmark = [pytest.mark.docker, pytest.mark.slow]

WORDS = " ".join(f"w{n}" for n in range(8))


class Bridge:
    """A network bridge of our own: two engines must not share one. By system calls, for `ip` is not everywhere."""

    _ADD, _DELETE, _ADDRESS, _MASK, _FLAGS = 0x89A0, 0x89A1, 0x8916, 0x891C, 0x8914

    def __init__(self) -> None:
        self.name = f"gb{os.getpid()}"
        third, fourth = divmod(os.getpid() % 4096, 16)
        self._call(self._ADD, self.name.encode())
        self._request(self._ADDRESS, self._ipv4(f"10.213.{third}.{16 * fourth + 1}"))
        self._request(self._MASK, self._ipv4("255.255.255.240"))
        self._request(self._FLAGS, struct.pack("=H14x", 1))

    def close(self) -> None:
        self._request(self._FLAGS, struct.pack("=H14x", 0))
        self._call(self._DELETE, self.name.encode())

    def _request(self, number: int, value: bytes) -> None:
        self._call(number, struct.pack("16s24s", self.name.encode(), value))

    def _ipv4(self, text: str) -> bytes:
        return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))

    def _call(self, number: int, value: bytes) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock, number, value.ljust(40, b"\0"))


class Daemon:
    """A Docker engine with folders, a socket, a bridge and a containerd of its own, and no rule in the firewall."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/docker.sock"
        self._bridge = Bridge()
        # In memory: to write the image to a disk, and to remove it there, takes longer than the tests.
        (folder / "data").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", str(folder / "data")], check=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        folder = self.folder
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "dockerd", "--host", self.url, "--data-root", str(folder / "data"),
                    "--exec-root", str(folder / "exec"), "--pidfile", str(folder / "pid"), "--bridge",
                    self._bridge.name, "--iptables=false", "--ip6tables=false", "--ip-masq=false",
                    "--containerd-namespace", self._bridge.name, "--containerd-plugins-namespace",
                    f"{self._bridge.name}-plugins",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 20
        while not self.answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail("the second Docker engine does not start: " + (folder / "log").read_text()[-2000:])
            time.sleep(0.05)

    def answers(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(self.folder / "docker.sock"))
                sock.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b"200" in sock.recv(64)
        except OSError:
            return False

    def end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(timeout=30)
        if number == signal.SIGKILL:
            # Its containerd dies with it; where nobody reaps that, the next engine would take it for alive.
            (self.folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)

    def client(self) -> docker.DockerClient:
        return docker.DockerClient(base_url=self.url)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            for container in self.client().containers.list(all=True):
                container.remove(force=True)
            self.end(signal.SIGTERM)
        # What a killed engine leaves: the processes of its containers, and its folders mounted.
        for pid in running(str(self.folder)):
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
                    with contextlib.suppress(psutil.NoSuchProcess):  # some end with those that were killed before them
                        process.kill()
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in reversed([m for m in mounts if m.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
        self._bridge.close()


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    first = docker_client()
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        missing("a second Docker engine", "it needs dockerd and root")
    name = stub_image(first)
    # A short path: a socket's is limited to 107 characters.
    with tempfile.TemporaryDirectory(prefix="gb-") as folder:
        one = Daemon(Path(folder))
        try:
            one.start()
            one.client().images.load(first.images.get(name).save(named=True))
            yield one
        finally:
            one.close()


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    one = open_grader("auto")
    yield one
    one.close()


@pytest.fixture
def stub(tmp_path: Path, grader: Grader, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubRuns]:
    monkeypatch.setattr(arm_run, "PAUSES_S", (0.0, 0.0))  # none that hides a death which is seen late
    monkeypatch.setattr(arm_run, "IDLE_S", 0.05)
    # So short that the engine is still away when the removal is given up.
    monkeypatch.setattr(container_life, "REMOVE_PAUSE_S", 0.05)
    monkeypatch.setenv("DOCKER_HOST", daemon.url)
    if not daemon.answers():
        daemon.start()
    yield StubRuns(tmp_path, grader)
    assert ours(daemon.client()) == set(), "a container outlived its test"


@pytest.fixture
def engine() -> ContainerEngine:
    return ContainerEngine("gguf-bench/test-stub:latest", run_id="restart", memory_bytes=1 << 30)


def while_it_runs(stub: StubRuns, event: str, count: int, then: Callable[[], None]) -> threading.Thread:
    """Do something 0.3 s after the run's log has so many of an event."""

    def work() -> None:
        deadline = time.monotonic() + 30
        while len(stub.events(event)) < count and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.3)
        then()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_an_engine_that_is_restarted_in_an_answer_costs_that_answer(
    stub: StubRuns, daemon: Daemon, engine: ContainerEngine, how: signal.Signals
) -> None:
    def restart() -> None:
        daemon.end(how)
        time.sleep(0.5)
        daemon.start()

    thread = while_it_runs(stub, "question", 2, restart)
    end = stub.go(stub.arm(content=WORDS, always="slow", counter=None), engine=engine, idle_limit_s=20.0)
    thread.join()
    assert end.status == "finished", stub.said
    lost, why = stub.faults()
    assert lost in ("stream_error", "transport_error")
    # An engine that is stopped may still say that the server ended, before it ends itself.
    assert why in ({"engine_unavailable"} if how == signal.SIGKILL else {"engine_unavailable", "server_died"})
    assert stub.starts() == 2
    assert stub.sql("select count(*) filter (where outcome = 'ok'), count(*) from generations") == [(3, 4)]
    assert stub.sql("select count(*), count(distinct level_id) from grades where grade_kind = 'headline'") == [(3, 3)]
    assert stub.sql("from missing") == []


def test_an_engine_that_stays_away_ends_the_arm_with_a_reason_and_the_next_command_asks_the_rest(
    stub: StubRuns, daemon: Daemon, engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_return, "RETURN_LIMIT_S", 1.0)
    arms = [stub.arm(arm_id, content=WORDS, always="slow", counter=None) for arm_id in ("a", "b")]
    thread = while_it_runs(stub, "question", 2, lambda: daemon.end(signal.SIGTERM))
    end = stub.go(*arms, engine=engine, idle_limit_s=20.0)
    thread.join()
    assert [arm for arm, _ in end.failed] == ["a", "b"]
    reasons = stub.sql("select reason, detail from arms_latest order by arm_id")
    assert [reason for reason, _ in reasons] == ["engine_unavailable"] * 2
    assert "went away and did not answer again within 1 s" in reasons[0][1]
    assert "found none" in reasons[1][1]
    assert "Traceback" not in stub.said
    daemon.start()
    arms = [stub.arm(arm_id, counter=None) for arm_id in ("a", "b")]
    assert stub.go(*arms, engine=engine, carried_on=True).status == "finished", stub.said
    assert stub.sql("select count(*), count(distinct (arm_id, level_id)) from cells where passed is not null") == [
        (6, 6)
    ]
    assert stub.sql("from missing") == []


@pytest.mark.parametrize("returns", [1, 0])
def test_an_engine_that_is_restarted_while_a_model_loads_is_asked_again_a_limited_number_of_times(
    stub: StubRuns, daemon: Daemon, engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch, returns: int
) -> None:
    monkeypatch.setattr(container_return, "RETURNS", returns)
    engine.image_identity()

    def restart() -> None:
        daemon.end(signal.SIGKILL)
        daemon.start()

    thread = while_it_runs(stub, "loading", 1, restart)
    end = stub.go(stub.arm(steps={"0": {"health": 503}, "2": {"health": 200}}, counter=None), engine=engine)
    thread.join()
    assert (end.status, stub.starts()) == ("finished" if returns else "failed", 1), stub.said
    reason = None if returns else "engine_unavailable"
    assert stub.sql("select reason from arms_latest") == [(reason,)]
    # What the dead engine kept is removed by the next start of a server; a bench that is over leaves that to the next.
    engine._client_again()
