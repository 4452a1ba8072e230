"""The container engine: each arm alone in a container of one image, proved like a local server and always removed."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import docker
import pynvml
import requests
from docker.errors import DockerException

from bench.engines import Identity, container_return, facts, health, ports, props
from bench.engines.container_errors import as_arm_error
from bench.engines.container_life import ContainerLife, remove
from bench.engines.container_owner import owner_labels, sweep_leftovers
from bench.engines.container_plan import ContainerPlan, container_name, plan_container
from bench.engines.docker_host import connect, docker_host, why_not_here
from bench.engines.preflight import host_refusals, model_files, one_line, threads_for
from bench.engines.served import Served
from bench.errors import ArmError
from bench.image.identity import ImageIdentity, assumed, identify
from bench.image.source import Pin
from bench.presets.load import Arm

__all__ = ["ContainerEngine", "ContainerServer", "sweep_leftovers"]


class ContainerServer(Served):
    """A loaded and proved server in a container (bench.engines.Server)."""

    def __init__(
        self, life: ContainerLife, port: int, plan: ContainerPlan, threads: int, load_ms: float, identity: Identity
    ) -> None:
        super().__init__(life, port, plan.command, threads, load_ms, identity)
        self._container = life
        self.plan = plan
        self.container_name = life.name

    def death(self) -> tuple[str, str] | None:
        """(reason, detail) once it has ended without being asked to, else None."""
        if self._container.exited() is not None and self._container.lost_engine:
            return "engine_unavailable", "the Docker engine went away while the server ran"
        return super().death()


class ContainerEngine:
    """Runs an arm's server in a container of `image` (bench.engines.Engine).

    `expected` is the llama.cpp that the image must hold, where one was pinned. `gpu` is the index or UUID of the GPU
    for GPU arms. `memory_bytes` limits a container (0: no limit; None: what the machine has less a reserve).
    `vram_used` reads the GPU memory in use, bytes, or None; it backs the proof that a GPU arm is on the GPU.
    """

    name = "container"

    def __init__(
        self,
        image: str,
        *,
        run_id: str = "",
        expected: Pin | None = None,
        gpu: str | None = None,
        memory_bytes: int | None = None,
        vram_used: Callable[[], int | None] | None = None,
        client: docker.DockerClient | None = None,
    ) -> None:
        self.image = image
        self._run_id = run_id
        self._expected = expected
        self._gpu = gpu
        self._memory_bytes = memory_bytes
        self._vram_used = vram_used or (lambda: None)
        self._given_client = client
        self._client: docker.DockerClient | None = None
        self._identity: ImageIdentity | None = None
        self._rootless = False
        self._lives: dict[str, ContainerLife | None] = {}
        """Containers that this engine made; None where it went away before it said that one was made."""

    def problems(self, arm: Arm) -> list[str]:
        """What keeps this arm from running here, as far as can be seen without starting a server."""
        try:
            self.image_identity()
        except ArmError as error:
            return [one_line(error)]
        out = [one_line(error) for error in self._refusals(arm, arm.model.bytes)]
        if arm.device == "gpu" and self._plan(arm, [Path("model.gguf")], "x", "x").gpu is not None:
            out += no_nvidia_gpu()
        return out

    def image_identity(self) -> ImageIdentity:
        """What the image is, read from it once. Raises ArmError: no engine, a remote one, no image, another build."""
        if self._identity is None:
            client = self._connected()
            found = identify(client, self.image)
            self._check_pin(found)
            self._identity = found
        return self._identity

    def identity_now(self, arm: Arm) -> Identity | None:  # noqa: ARG002 - one image serves every arm
        """What would answer if it were started now, as the image tells; None where that is not enough."""
        try:
            image = self.image_identity()
        except ArmError:
            return None
        build, commit = props.build_and_commit(image.fingerprint or "")
        if build is None or commit is None:
            return None
        return Identity(self.name, build, commit, image_digest=image.digest or image.image_id)

    def docker_arguments(self, arm: Arm, model: Path) -> ContainerPlan:
        """The container that `start` would make for this arm, as data; `.command_line()` is its `docker run`.

        The name's last part and the server's alias are drawn anew by every start.
        """
        try:
            self.image_identity()
        except ArmError:
            # Nothing is there to be asked: the plan for an image as our Dockerfile makes it. `start` asks for real.
            if self._identity is None:
                return self._plan(arm, model_files(model, must_exist=False), "NEW", "NEW", assumed(self.image))
        return self._plan(arm, model_files(model, must_exist=False), "NEW", "NEW")

    def start(self, arm: Arm, model: Path, log_path: Path) -> ContainerServer:
        """Start the server for an arm, wait for it and prove it. Raises ArmError; leaves nothing behind then.

        A Docker engine that answered before and is away now is waited for (`container_return`), and a start that it
        went away under begins anew, a bounded number of times.
        """
        files = model_files(model)
        self.image_identity()
        for refusal in self._refusals(arm, sum(file.stat().st_size for file in files)):
            raise refusal
        for _ in range(1 + container_return.RETURNS):
            client = self._client_again()
            token = secrets.token_hex(6)
            alias = f"{re.sub(r'[^A-Za-z0-9._-]', '-', arm.arm_id)}-{token}"
            plan = self._plan(arm, files, token, alias)
            try:
                return self._launch(client, arm, files, plan, alias, log_path)
            except ArmError as error:
                life = self._lives[plan.name]
                # Without a container: the cause is the engine's own refusal, or that it could not be asked.
                lost = isinstance(error.__cause__, requests.ConnectionError) if life is None else life.lost_engine
                if not lost and container_return.answers(client):
                    raise
        raise container_return.gone_again()

    def _launch(
        self,
        client: docker.DockerClient,
        arm: Arm,
        files: Sequence[Path],
        plan: ContainerPlan,
        alias: str,
        log_path: Path,
    ) -> ContainerServer:
        vram_before = self._vram_used()
        started = time.monotonic()
        self._lives[plan.name] = None
        life = self._lives[plan.name] = ContainerLife.start(client, plan, log_path)
        port = 0
        try:
            port = life.port() if life.exited() is None else 0
            if not port:
                raise health.load_error(life, life.exited() or health.Exit(125), self._commit())
            load_ms = health.wait_until_ready(
                f"http://{ports.LOOPBACK}:{port}",
                alias,
                life,
                started=started,
                limit_s=arm.startup_limit_s,
                commit=self._commit(),
            )
            identity = self._prove(arm, files, plan, port, life, vram_before)
        except BaseException:
            life.stop()
            if port:
                ports.wait_refused(port)
            raise
        return ContainerServer(life, port, plan, threads_for(arm), load_ms, identity)

    def _client_again(self) -> docker.DockerClient:
        """The client once the engine answers, and after what could not be removed while it was away is removed."""
        client = self._connected()
        try:
            container_return.wait_for_return(client, container_return.RETURN_LIMIT_S)
        except ArmError:
            self._client = None  # the next arm asks once and does not wait as long again
            raise
        for name, life in list(self._lives.items()):
            left = True if life is None else life.left_behind
            # None: that server still serves.
            if left is not None and (not left or remove(client, name)):
                del self._lives[name]
        return client

    def _connected(self) -> docker.DockerClient:
        if self._client is None:
            reason = why_not_here(docker_host()) if self._given_client is None else None
            if reason:
                raise ArmError("engine_unavailable", reason, advice="or use a local llama-server (--engine process)")
            client = self._given_client or connect()
            try:
                options = client.info().get("SecurityOptions") or []
                sweep_leftovers(client)
            except (DockerException, requests.RequestException) as error:
                raise as_arm_error(error, self.image) from error
            self._rootless = any("rootless" in str(option) for option in options)
            self._client = client
        return self._client

    def _commit(self) -> str | None:
        return self._identity.commit if self._identity else None

    def _check_pin(self, found: ImageIdentity) -> None:
        want = self._expected
        if want is None or (found.build == want.build and found.commit == want.build_commit):
            return
        raise ArmError(
            "image_mismatch",
            f"image `{self.image}`: expected llama.cpp {want.fingerprint}, found {found.fingerprint or 'no build'}",
            advice=f"make it with `./invoke build-llama --rev {want.commit or want.build_commit}`",
        )

    def _plan(
        self, arm: Arm, files: Sequence[Path], token: str, alias: str, image: ImageIdentity | None = None
    ) -> ContainerPlan:
        return plan_container(
            arm,
            files,
            image or self.image_identity(),
            name=container_name(arm.arm_id, token),
            alias=alias,
            threads=threads_for(arm),
            gpu=self._gpu,
            labels=owner_labels(run=self._run_id, arm=arm.arm_id),
            memory_bytes=self._memory_bytes,
            rootless=self._rootless,
        )

    def _refusals(self, arm: Arm, model_bytes: int | None) -> list[ArmError]:
        """What would fail for certain; the engine itself says the rest when it is asked."""
        image = self.image_identity()
        out = host_refusals(arm, model_bytes)
        if arm.device == "gpu" and image.backend == "cpu":
            out.append(
                ArmError(
                    "gpu_unavailable",
                    f"the preset says device = gpu, but the image `{self.image}` is built for the CPU only",
                    advice="make one for the GPU with `./invoke build-llama --backend cuda`",
                )
            )
        return out

    def _prove(
        self,
        arm: Arm,
        files: Sequence[Path],
        plan: ContainerPlan,
        port: int,
        life: ContainerLife,
        vram_before: int | None,
    ) -> Identity:
        """Compare what answers with what was asked for; raises ArmError, or says what was proved."""
        image = self.image_identity()
        found = props.read_props(f"http://{ports.LOOPBACK}:{port}")
        inside = plan.models[0][1]
        if found.model_path != inside:
            raise ArmError("wrong_server", f"model: expected {inside}, found {found.model_path or 'none'} in /props")
        if image.fingerprint is not None and found.build_info != image.fingerprint:
            raise ArmError(
                "wrong_server",
                f"build: expected {image.fingerprint} as the image says, found {found.build_info} in /props",
            )
        seen = facts.device_facts(life.lines())
        device = facts.proven_device(
            arm,
            seen,
            vram_before=vram_before,
            vram_after=self._vram_used(),
            model_bytes=sum(file.stat().st_size for file in files),
        )
        props.require_settings(arm, found, seen)
        build, commit = props.build_and_commit(found.build_info)
        return Identity(
            engine=self.name,
            build=build,
            commit=commit,
            fingerprint=found.build_info,
            image_digest=image.digest or image.image_id,
            model_path=str(files[0]),
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


def no_nvidia_gpu() -> list[str]:
    """One line when NVML shows no GPU on this machine, else nothing."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [f"no NVIDIA GPU is visible on this machine ({error}); check that the driver is loaded (nvidia-smi)"]
    pynvml.nvmlShutdown()
    return []
