"""Arms, samplers and lineups as written in presets/: read, check, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Device = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class Sampler:
    """How the next token is drawn. Field names are llama-server's request field names."""

    sampler_id: str
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_penalty: float = 1.0

    def request_fields(self) -> dict[str, float | int]:
        """The settings as fields of a chat completion request."""
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repeat_penalty": self.repeat_penalty,
        }


@dataclass(frozen=True)
class ModelRef:
    """A model file: where it comes from and, where it is known, what it must be."""

    source: str
    """`pypi:PACKAGE==VERSION/PATH`, `hf:REPO@REVISION/FILE` (`@REVISION` may be left out: then `main`, unlocked) or `file:PATH`."""
    bytes: int | None = None
    """Size in bytes that the file must have."""
    sha256: str | None = None
    """Checksum that the file must have."""


@dataclass(frozen=True)
class Arm:
    """One model file with one set of server flags and one sampler."""

    arm_id: str
    title: str
    model: ModelRef
    sampler: Sampler
    context: int
    """Tokens of context (`--ctx-size`)."""
    device: Device = "cpu"
    gpu_layers: int | Literal["all"] = 0
    kv_k: str = "f16"
    kv_v: str = "f16"
    flash_attention: bool = False
    threads: int | Literal["cores"] = "cores"
    """`cores`: as many as this machine has physical cores open to us, never more."""
    parallel: int = 1
    override_kv: tuple[str, ...] = ()
    spec_type: str | None = None
    spec_draft_n_max: int | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    """Loopback port; 0 takes a free one."""
    startup_limit_s: float = 120.0
    quiesce_s: float = 0.0
    allow_small_context: bool = False
    """Consent to a context that cannot hold prompt plus `max_tokens`; the report then carries a caveat."""

    @property
    def preset_hash(self) -> str:
        """sha256 over what changes answers: model, flags, sampler, context; not port, title or time limits."""
        what = {
            "model": [self.model.source, self.model.sha256],
            "flags": self.flags(threads=0),
            "threads": self.threads,
            "sampler": self.sampler.request_fields(),
            "env": dict(sorted(self.env.items())),
            "device": self.device,
        }
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()

    def flags(self, *, threads: int) -> list[str]:
        """llama-server's arguments but for model, host and port. Every flag that matters is explicit."""
        s = self.sampler
        layers = "999" if self.gpu_layers == "all" else str(self.gpu_layers)
        out = ["--ctx-size", str(self.context), "--n-gpu-layers", layers]
        out += ["--cache-type-k", self.kv_k, "--cache-type-v", self.kv_v]
        out += ["--flash-attn", "on" if self.flash_attention else "off"]
        out += ["--threads", str(threads), "--threads-batch", str(threads), "--parallel", str(self.parallel)]
        out += ["--jinja", "--fit", "off", "--cache-ram", "0", "--verbosity", "4"]
        out += ["--temp", f"{s.temperature:g}", "--top-p", f"{s.top_p:g}", "--top-k", str(s.top_k)]
        out += ["--min-p", f"{s.min_p:g}", "--presence-penalty", f"{s.presence_penalty:g}"]
        out += ["--frequency-penalty", f"{s.frequency_penalty:g}", "--repeat-penalty", f"{s.repeat_penalty:g}"]
        for override in self.override_kv:
            out += ["--override-kv", override]
        if self.spec_type is not None:
            out += ["--spec-type", self.spec_type]
        if self.spec_draft_n_max is not None:
            out += ["--spec-draft-n-max", str(self.spec_draft_n_max)]
        if self.chat_template_kwargs:
            out += ["--chat-template-kwargs", json.dumps(dict(self.chat_template_kwargs), sort_keys=True)]
        return out


@dataclass(frozen=True)
class Lineup:
    """A named list of arms with a suite and a number of iterations."""

    lineup_id: str
    title: str
    arms: tuple[str, ...]
    suite: str
    iterations: int
