"""The process engine: a `llama-server` on this machine, or the embedded one, as a child that never outlives us."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.engines import Identity, facts, health, logs, ports, props, wheel
from bench.engines.environment import server_env
from bench.engines.lifetime import Lifetime
from bench.engines.preflight import host_refusals, model_files, one_line, threads_for
from bench.engines.served import Served
from bench.errors import ArmError
from bench.presets.load import Arm

_VERSION_LIMIT_S = 20.0


@dataclass(frozen=True)
class Version:
    """What `llama-server --version` says."""

    build: int | None
    commit: str | None


class ProcessServer(Served):
    """A loaded and proved server in a process of its own (bench.engines.Server)."""


class ProcessEngine:
    """Runs the llama-server at `server`, or the embedded engine when there is none (bench.engines.Engine).

    `vram_used` reads the GPU memory in use, bytes, or None where it cannot be measured; it backs the proof that a
    GPU arm is on the GPU.
    """

    def __init__(self, server: Path | None = None, *, vram_used: Callable[[], int | None] | None = None) -> None:
        self.server = server
        self.name = "embedded" if server is None else "process"
        self._vram_used = vram_used or (lambda: None)

    def problems(self, arm: Arm) -> list[str]:
        """What keeps this arm from running here, as far as can be seen without starting anything."""
        found = self._refusals(arm, arm.model.bytes)
        return [one_line(error) for error in found]

    def identity_now(self, arm: Arm) -> Identity | None:  # noqa: ARG002 - other engines may differ by arm
        """What would answer if it were started now, as far as its file tells; None where that is not enough."""
        try:
            if self.server is None:
                package = wheel.describe()
                build, commit = props.build_and_commit(package.build_info)
                said, binary = Version(build, commit), package.library
            else:
                binary = _executable(self.server)
                said = version_of(binary)
        except (ArmError, OSError):
            return None
        if self.server is not None and (said.build is None or said.commit is None):
            return None  # it may say more once it runs; the embedded engine never does
        return Identity(self.name, said.build, said.commit, binary_sha256=wheel.file_sha256(binary))

    def start(self, arm: Arm, model: Path, log_path: Path) -> ProcessServer:
        """Start the server for an arm, wait for it and prove it. Raises ArmError; leaves nothing behind then.

        A port that we chose and lost before the server had it is replaced once.
        """
        size = sum(file.stat().st_size for file in model_files(model))
        for refusal in self._refusals(arm, size):
            raise refusal
        # Not resolve(): the parts of a split model are found beside the name, and a cache may link to blobs.
        try:
            return self._start_once(arm, model.absolute(), log_path)
        except ArmError as error:
            if error.reason != "port_in_use" or arm.port != 0:
                raise
        return self._start_once(arm, model.absolute(), log_path)

    def _start_once(self, arm: Arm, model: Path, log_path: Path) -> ProcessServer:
        port = arm.port or ports.free_port()
        alias = f"{re.sub(r'[^A-Za-z0-9._-]', '-', arm.arm_id)}-{secrets.token_hex(6)}"
        threads = threads_for(arm)
        flags = ["--model", str(model), "--alias", alias, "--host", ports.LOOPBACK, "--port", str(port)]
        flags += arm.flags(threads=threads)
        env = server_env(arm.env)
        said = Version(None, None)
        if self.server is None:
            command, env = wheel.command(), wheel.module_env(env)
        else:
            command = [str(_executable(self.server))]
            said = version_of(_executable(self.server))
        vram_before = self._vram_used()
        started = time.monotonic()
        life = Lifetime.start([*command, *flags], env, log_path)
        try:
            load_ms = health.wait_until_ready(
                f"http://{ports.LOOPBACK}:{port}",
                alias,
                life,
                started=started,
                limit_s=arm.startup_limit_s,
                commit=said.commit,
            )
            try:
                identity = self._prove(arm, model, port, life, said, vram_before)
            except ArmError as error:
                gone = life.exited()
                if gone is None:
                    raise
                raise health.load_error(life, gone, said.commit) from error  # it died while it was asked
        except BaseException as error:
            life.stop()
            if not (isinstance(error, ArmError) and error.reason in ("port_in_use", "wrong_server")):
                ports.wait_refused(port)  # with these two it is another program's port, and will not be refused
            raise
        return ProcessServer(life, port, tuple(flags), threads, load_ms, identity)

    def _prove(
        self, arm: Arm, model: Path, port: int, life: Lifetime, said: Version, vram_before: int | None
    ) -> Identity:
        """Compare what answers with what was asked for; raises ArmError, or says what was proved."""
        found = props.read_props(f"http://{ports.LOOPBACK}:{port}")
        if not _same_file(found.model_path, model):
            raise ArmError("wrong_server", f"model: expected {model}, found {found.model_path or 'none'} in /props")
        build, commit = props.build_and_commit(found.build_info)
        if said.build is not None and build is not None and (said.build, said.commit) != (build, commit):
            raise ArmError(
                "wrong_server",
                f"build: expected {said.build} ({said.commit}) as --version says, found {found.build_info} in /props",
            )
        seen = facts.device_facts(life.lines())
        device = facts.proven_device(
            arm,
            seen,
            vram_before=vram_before,
            vram_after=self._vram_used(),
            model_bytes=sum(file.stat().st_size for file in model_files(model)),
        )
        props.require_settings(arm, found, seen)
        package = wheel.describe() if self.server is None else None
        binary = package.library if package else _executable(self.server or Path())
        return Identity(
            engine=self.name,
            build=build,
            commit=commit,
            fingerprint=found.build_info,
            wheel=f"{wheel.PACKAGE} {package.version}" if package else None,
            binary_sha256=wheel.file_sha256(binary),
            model_path=str(model),
            n_ctx=found.n_ctx,
            slots=found.total_slots,
            layers_on_gpu=seen.layers_on_gpu if device == "gpu" else 0,
            layers_total=seen.layers_total,
            device=device,
            kv_k=seen.kv_k,
            kv_v=seen.kv_v,
            sampler=dict(found.sampler),
            chat_template_sha256=found.chat_template_sha256,
        )

    def _refusals(self, arm: Arm, model_bytes: int | None) -> list[ArmError]:
        out: list[ArmError] = []
        try:
            if self.server is None:
                out += _wheel_refusals(arm, wheel.describe())
            else:
                _executable(self.server)
        except ArmError as error:
            out.append(error)
        out += host_refusals(arm, model_bytes)
        return out


def version_of(server: Path) -> Version:
    """Build and commit as `SERVER --version` says; None for what it does not say. Asked once per file and its time.

    Raises ArmError `engine_unavailable` when it cannot be run.
    """
    return _version_of(server, server.stat().st_mtime_ns)


@functools.cache
def _version_of(server: Path, mtime_ns: int) -> Version:  # noqa: ARG001 - it is part of the cache's key
    try:
        asked = subprocess.Popen(
            [str(server), "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=server_env({}),
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ArmError("engine_unavailable", f"{server} cannot be run: {error.strerror}") from error
    try:
        said, _ = asked.communicate(timeout=_VERSION_LIMIT_S)
    except subprocess.TimeoutExpired:
        return Version(None, None)
    finally:
        # The whole group: a script that does not know the flag may have started a server, which holds the pipe.
        with contextlib.suppress(OSError):
            os.killpg(asked.pid, signal.SIGKILL)
        asked.wait()
    match = re.search(r"^version: (\d+) \((\w+)\)", said, re.MULTILINE)
    if match is None:
        found = logs.decisive(logs.clean(said))
        if asked.returncode != 0 and found is not None and found.reason == "engine_unavailable":
            raise found.error()
        return Version(None, None)
    return Version(int(match[1]) or None, None if match[2] == "unknown" else match[2])


def _executable(server: Path) -> Path:
    """The server's file; a bare name is looked up on PATH. Raises ArmError `engine_unavailable`."""
    found = shutil.which(server)
    if found is not None:
        return Path(found).absolute()
    what = "no such file" if not server.exists() else "a file that cannot be executed"
    raise ArmError(
        "engine_unavailable",
        f"expected a llama-server at {server}, found {what}",
        advice="give its path with --server or $LLAMA_SERVER, or leave both out for the embedded engine",
    )


def _wheel_refusals(arm: Arm, package: wheel.Wheel) -> list[ArmError]:
    out: list[ArmError] = []
    elsewhere = "use the container engine, or a llama-server (--server PATH)"
    if (arm.device == "gpu" or arm.gpu_layers != 0) and not package.gpus:
        out.append(
            ArmError(
                "gpu_unavailable",
                f"needs a GPU; the embedded engine ({wheel.PACKAGE} {package.version}) runs on the CPU only",
                advice=elsewhere,
            )
        )
    if arm.override_kv and "--override-kv" in package.unsupported:
        out.append(_flag_refusal("--override-kv", "the embedded engine has no metadata overrides", elsewhere))
    types = () if arm.spec_type is None else arm.spec_type.split(",")
    for name in types:
        if name not in package.spec_types:
            out.append(_flag_refusal("--spec-type", f"the embedded engine does not know {name!r}", elsewhere))
    for flag, kv_type in (("--cache-type-k", arm.kv_k), ("--cache-type-v", arm.kv_v)):
        if kv_type not in package.kv_types:
            out.append(_flag_refusal(flag, f"the embedded engine does not know {kv_type!r}", elsewhere))
    return out


def _flag_refusal(flag: str, why: str, advice: str) -> ArmError:
    return ArmError("flag_unsupported", f"{flag} is not supported: {why}", advice=advice)


def _same_file(said: str | None, model: Path) -> bool:
    if said is None:
        return False
    return said == str(model) or (Path(said).exists() and Path(said).samefile(model))
