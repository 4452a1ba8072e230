"""What serves an arm. One interface for every engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.presets.load import Arm


@dataclass(frozen=True)
class Identity:
    """What proves which server answered, and with which settings. NULL (None) is "could not be proved"."""

    engine: str
    """`process`, `embedded` or `container`."""
    build: int | None = None
    """llama.cpp build number."""
    commit: str | None = None
    """llama.cpp commit as the server says it."""
    fingerprint: str | None = None
    """`system_fingerprint` that every answer must carry."""
    wheel: str | None = None
    """Version of the wheel, for the embedded engine."""
    binary_sha256: str | None = None
    """sha256 of the server's executable, or of the embedded engine's shared library."""
    image_digest: str | None = None
    model_path: str | None = None
    n_ctx: int | None = None
    slots: int | None = None
    layers_on_gpu: int | None = None
    layers_total: int | None = None
    device: str | None = None
    """`cpu` or `gpu` as the log proves it; never as the preset wishes it."""
    kv_k: str | None = None
    kv_v: str | None = None
    sampler: dict[str, float | int] = field(default_factory=dict)
    """The server's sampler defaults, under the request's field names."""
    chat_template_sha256: str | None = None


class Server(Protocol):
    """A server that is loaded, healthy and proved to be the one that was asked for."""

    base_url: str
    identity: Identity
    log_path: Path
    pids: tuple[int, ...]
    """Processes on this host whose memory is the server's; empty where they cannot be seen."""
    flags: tuple[str, ...]
    """The server's arguments as it got them, model, alias, host and port included."""

    @property
    def load_ms(self) -> float | None:
        """From the start of the process to healthy; None for a server that ran already."""

    @property
    def threads(self) -> int | None:
        """Threads the server was given."""

    def alive(self) -> bool:
        """Whether our own process (or container) still runs."""

    def last_lines(self, n: int = 50) -> list[str]:
        """The last lines of the server's log."""

    def death(self) -> tuple[str, str] | None:
        """(reason, detail) once the server has died without being asked to, else None."""

    def stop(self) -> None:
        """Stop, then kill; return when the process is gone and its port refuses connections. Never raises."""


class Engine(Protocol):
    """Starts servers."""

    name: str

    def problems(self, arm: Arm) -> list[str]:
        """What keeps this arm from running here, as far as can be seen without starting anything."""

    def start(self, arm: Arm, model: Path, log_path: Path) -> Server:
        """Start the server for an arm, wait for it and prove it. Raises ArmError; leaves nothing behind then."""
