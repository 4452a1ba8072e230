"""Arms, samplers and lineups as written in presets/: read, check, and nothing else."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from bench.errors import UsageError
from bench.models.pins import Pin, lock_path, read_pins, sha256_of
from bench.models.sources import HfSource, parse_source, split_parts
from bench.presets import keys, settings
from bench.strict_toml import Table, nearest, read_toml, shown

Device = Literal["cpu", "gpu"]

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""Types of the K and V cache that llama-server takes (`--cache-type-k`)."""


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
    """`pypi:PACKAGE==VERSION/PATH`, `hf:REPO@REVISION/FILE` or `file:PATH`. `@REVISION` may be left out: then it is
    `main`, unlocked."""
    bytes: int | None = None
    """Size in bytes that the file must have."""
    sha256: str | None = None
    """Checksum that the file must have; for a split model `bench.models.combined_sha256` over its parts."""
    revision: str | None = None
    """Commit that the lock file fixed for an `hf:` source; it wins over the source's own `@REVISION`."""
    folder: Path | None = None
    """Folder of the preset; a relative `file:` path is looked for there first, then in the current folder."""


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
    flash_attention: bool | Literal["auto"] = False
    """`auto`: the server decides when it loads, as it does when nothing is said."""
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
    endpoint_model: str | None = None
    """For a server that already runs: the model's name there."""
    allow_small_context: bool = False
    """Consent to a context that cannot hold prompt plus `max_tokens`; the report then carries a caveat."""
    end_loops: bool = False
    """End an answer that is caught in a repetition loop (`bench.client.loops.Watch`); it changes what is measured."""

    @property
    def preset_hash(self) -> str:
        """sha256 over what changes answers: model, flags, sampler, context; not port, title or time limits."""
        what: dict[str, Any] = {
            "model": self.model.sha256 or self.model.source,
            "flags": self.flags(threads=0),
            "threads": self.threads,
            "sampler": self.sampler.request_fields(),
            "env": dict(sorted(self.env.items())),
            "device": self.device,
        }
        if self.end_loops:  # left out where it is off: an arm that never heard of it keeps its hash
            what["end_loops"] = True
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()

    def request_extra(self) -> dict[str, Any]:
        """Request fields beside messages, sampler and seed."""
        out: dict[str, Any] = {}
        if self.chat_template_kwargs:
            out["chat_template_kwargs"] = dict(self.chat_template_kwargs)
        if self.endpoint_model is not None:
            out["model"] = self.endpoint_model
        return out

    def flags(self, *, threads: int) -> list[str]:
        """llama-server's arguments but for model, host and port. Every flag that matters is explicit."""
        s = self.sampler
        layers = "999" if self.gpu_layers == "all" else str(self.gpu_layers)
        out = ["--ctx-size", str(self.context), "--n-gpu-layers", layers]
        out += ["--cache-type-k", self.kv_k, "--cache-type-v", self.kv_v]
        flash = "auto" if self.flash_attention == "auto" else "on" if self.flash_attention else "off"
        out += ["--flash-attn", flash]
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
    question: str = ""
    """What the lineup is meant to decide."""
    margin: float | None = None
    """Points of the mean score that a decider is willing to lose; None where nobody said."""
    expected_minutes: float | None = None
    """How long the whole lineup took where it was measured."""
    expected_on: str = ""
    """What it was measured on."""


def sampler_from(table: Table, sampler_id: str) -> Sampler:
    """Read one sampler's table. Raises UsageError."""
    table.only(keys.SAMPLER_KEYS, aliases=keys.SAMPLER_ALIASES, notes=keys.SAMPLER_NOTES)
    return Sampler(
        sampler_id,
        temperature=table.number("temperature", 0, 10),
        top_p=table.number("top_p", 0, 1),
        top_k=table.integer("top_k", 0, 1_000_000),
        min_p=table.number("min_p", 0, 1),
        presence_penalty=table.number("presence_penalty", -2, 2, 0.0),
        frequency_penalty=table.number("frequency_penalty", -2, 2, 0.0),
        repeat_penalty=table.number("repeat_penalty", 0.1, 10, 1.0),
    )


def load_samplers(root: Path) -> dict[str, Sampler]:
    """All samplers of presets/samplers.toml below `root`, by id. Raises UsageError."""
    top = read_toml(root / "presets" / "samplers.toml", root)
    out = {}
    for sampler_id in top.values:
        if not _is_id(sampler_id):
            raise UsageError(f"{top.at(sampler_id)}: expected an id of a-z, 0-9, `.`, `_` and `-`")
        out[sampler_id] = sampler_from(top.table(sampler_id), sampler_id)
    return out


def load_sampler(sampler_id: str, root: Path) -> Sampler:
    """One sampler by id. Raises UsageError that names the nearest id."""
    samplers = load_samplers(root)
    if sampler_id not in samplers:
        raise UsageError(f"no sampler `{sampler_id}` in presets/samplers.toml; {nearest(sampler_id, samplers)}")
    return samplers[sampler_id]


def arm_ids(root: Path) -> list[str]:
    """Ids of all arms below `root`, sorted."""
    return _ids(root, "arms")


def lineup_ids(root: Path) -> list[str]:
    """Ids of all lineups below `root`, sorted."""
    return _ids(root, "lineups")


def load_arm(arm_id: str, root: Path, *, pinned: bool = True) -> Arm:
    """One arm by id, with what the lock file says of its model unless `pinned` is false. Raises UsageError that names
    file and key path."""
    _known(arm_id, "arm", arm_ids(root))
    path = root / "presets" / "arms" / f"{arm_id}.toml"
    pins = read_pins(root) if pinned else {}
    return _arm(read_toml(path, root), arm_id, path.parent, load_samplers(root), pins, root)


def load_arms(root: Path) -> dict[str, Arm]:
    """All arms below `root`, by id, sorted. Raises UsageError at the first file that is not right."""
    return {arm_id: load_arm(arm_id, root) for arm_id in arm_ids(root)}


def load_lineup(lineup_id: str, root: Path) -> Lineup:
    """One lineup by id; its arms and its suite must exist. Raises UsageError that names file and key path."""
    _known(lineup_id, "lineup", lineup_ids(root))
    table = read_toml(root / "presets" / "lineups" / f"{lineup_id}.toml", root)
    table.only(keys.LINEUP_KEYS, aliases=keys.LINEUP_ALIASES)
    arms = table.texts("arms")
    known = arm_ids(root)
    if not arms:
        raise UsageError(f"{table.at('arms')}: expected at least one arm id, found an empty list")
    for i, arm_id in enumerate(arms):
        if arm_id not in known:
            raise UsageError(f"{table.at('arms')}[{i}]: no arm `{arm_id}` in presets/arms; {nearest(arm_id, known)}")
        if arm_id in arms[:i]:
            raise UsageError(f"{table.at('arms')}[{i}]: the arm `{arm_id}` stands there twice")
    suite = table.text("suite")
    suites = _suite_ids(root)
    if suite not in suites and not (root / suite / "suite.toml").is_file():
        raise UsageError(f"{table.at('suite')}: no suite `{suite}` in suites/; {nearest(suite, suites)}")
    return Lineup(
        lineup_id,
        title=table.text("title"),
        arms=arms,
        suite=suite,
        iterations=table.integer("iterations", 1, 100_000),
        question=table.text("question", "", empty=True),
        margin=table.number("margin", 0, 1000, None),
        expected_minutes=table.number("expected_minutes", 0.1, 1_000_000, None),
        expected_on=table.text("expected_on", "", empty=True),
    )


def load_lineups(root: Path) -> dict[str, Lineup]:
    """All lineups below `root`, by id, sorted. Raises UsageError at the first file that is not right."""
    return {lineup_id: load_lineup(lineup_id, root) for lineup_id in lineup_ids(root)}


def _is_id(text: str) -> bool:
    return re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,99}", text) is not None


def _ids(root: Path, kind: str) -> list[str]:
    out = []
    for path in sorted((root / "presets" / kind).glob("*.toml")):
        if not _is_id(path.stem) or path.stem == "all":
            raise UsageError(f"{shown(path, root)}: expected a file name of a-z, 0-9, `.`, `_` and `-`, and not `all`")
        out.append(path.stem)
    return out


def _known(name: str, what: str, known: list[str]) -> None:
    if name not in known:
        raise UsageError(f"no {what} `{name}` in presets/{what}s; {nearest(name, known)}")


def _suite_ids(root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / "suites").glob("*/suite.toml"))


def _arm(
    top: Table, arm_id: str, folder: Path, samplers: Mapping[str, Sampler], pins: Mapping[str, Pin], root: Path
) -> Arm:
    top.only(keys.ARM_KEYS, aliases=keys.arm_aliases(), notes=keys.arm_notes())
    sampler = top.text("sampler")
    if sampler not in samplers:
        hint = nearest(sampler, samplers)
        raise UsageError(f"{top.at('sampler')}: no sampler `{sampler}` in presets/samplers.toml; {hint}")
    server, limits = top.table("server"), top.table("limits", {})
    server.only(keys.SERVER_KEYS, aliases=keys.SERVER_ALIASES, notes=keys.arm_notes())
    limits.only(keys.LIMITS_KEYS, aliases=keys.LIMITS_ALIASES, notes=keys.LIMITS_NOTES)
    device: Device = top.choice("device", ("cpu", "gpu"), "cpu")
    port = server.integer_or("port", "auto", 0, 65535, 0)
    arm = Arm(
        arm_id,
        title=top.text("title"),
        model=_pinned(_model(top.table("model"), folder), pins, top, root),
        sampler=samplers[sampler],
        device=device,
        context=server.integer("context", 16, 1 << 30),
        gpu_layers=server.integer_or("gpu_layers", "all", 0, 9999, "all" if device == "gpu" else 0),
        kv_k=server.choice("kv_k", KV_TYPES, "f16"),
        kv_v=server.choice("kv_v", KV_TYPES, "f16"),
        flash_attention=settings.flash_attention(server),
        threads=server.integer_or("threads", "cores", 1, 1024, "cores"),
        parallel=server.integer("parallel", 1, 256, 1),
        override_kv=settings.overrides(server),
        spec_type=settings.spec_type(server),
        spec_draft_n_max=server.integer("spec_draft_n_max", 1, 1024, None),
        chat_template_kwargs=server.json_table("chat_template_kwargs"),
        env=settings.env(server),
        port=0 if port == "auto" else port,
        startup_limit_s=limits.number("startup_s", 1, 86_400, 120.0),
        quiesce_s=limits.number("quiesce_s", 0, 3600, 0.0),
        end_loops=limits.boolean("end_loops", False),
        allow_small_context=top.boolean("allow_small_context", False),
    )
    _check_together(arm, server)
    return arm


def _check_together(arm: Arm, server: Table) -> None:
    """Settings that are right each by itself, and that llama-server refuses together."""
    if arm.device == "cpu" and arm.gpu_layers != 0:
        raise UsageError(f'{server.at("gpu_layers")}: expected 0 on device = "cpu", found {arm.gpu_layers}')
    if arm.device == "gpu" and arm.gpu_layers == 0:
        raise UsageError(f'{server.at("gpu_layers")}: expected "all" or at least 1 on device = "gpu", found 0')
    if arm.kv_v not in ("f32", "f16", "bf16") and arm.flash_attention is False:
        raise UsageError(f"{server.at('kv_v')}: a V cache of type {arm.kv_v} needs flash_attention = true")
    if arm.spec_draft_n_max is not None and arm.spec_type is None:
        raise UsageError(f"{server.at('spec_draft_n_max')}: expected a spec_type beside it, found none")
    if arm.context < arm.parallel * 16:
        raise UsageError(f"{server.at('context')}: expected at least 16 tokens for each of {arm.parallel} slots")


def _model(table: Table, folder: Path) -> ModelRef:
    table.only(keys.MODEL_KEYS, aliases=keys.MODEL_ALIASES)
    source = table.text("source")
    try:
        parsed = parse_source(source)
        split_parts(
            parsed.member if hasattr(parsed, "member") else parsed.file if isinstance(parsed, HfSource) else source
        )
    except UsageError as error:
        raise UsageError(f"{table.at('source')}: {error}") from None
    size = table.integer("bytes", 1, 1 << 50, None)
    sha256 = table.text("sha256", None)
    sha256 = sha256 and sha256_of(sha256, table.at("sha256"))
    return ModelRef(source, size, sha256, folder=folder.resolve())


def _pinned(model: ModelRef, pins: Mapping[str, Pin], top: Table, root: Path) -> ModelRef:
    """The model with what the lock file fixes. Raises UsageError where preset and lock file contradict each other."""
    pin = pins.get(model.source)
    if pin is None:
        return model
    for key, ours, locked in (("bytes", model.bytes, pin.bytes), ("sha256", model.sha256, pin.sha256)):
        if ours is not None and ours != locked:
            where = shown(lock_path(root), root)
            raise UsageError(f"{top.file}: model.{key} is {ours}, but {where} says {locked}; run `invoke lock-models`")
    return replace(model, bytes=pin.bytes, sha256=pin.sha256, revision=pin.revision)
