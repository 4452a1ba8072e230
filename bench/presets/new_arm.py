"""An arm from a model file: what the file says, and what had to be guessed, said out loud."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench.errors import UsageError
from bench.gguf.facts import GgufFacts
from bench.gguf.look import check, look, look_remote
from bench.gguf.memory import estimate
from bench.models import hub
from bench.models.checksums import combined_sha256
from bench.models.local import find_models
from bench.models.sources import HfSource, parse_source, split_parts
from bench.presets.load import Arm, ModelRef, Sampler, arm_ids, load_samplers
from bench.visible import visible

CONTEXTS = (131072, 65536, 32768, 16384, 8192, 4096)
"""Contexts that are tried, largest first."""
_FAMILIES = (("qwen3", "thinking-coding"), ("gemma", "gemma-coding"))
"""Start of an architecture's name -> sampler that its makers recommend for code."""
_FALLBACK = "server-default"
_SHARE = 0.92
"""How much of the free VRAM an estimate may take."""


@dataclass(frozen=True)
class NewArm:
    """A preset that has not been written yet."""

    arm_id: str
    text: str
    """Content of presets/arms/ID.toml."""
    guesses: tuple[str, ...]
    """What the file did not say, one sentence each."""


def new_arm(target: str, root: Path, *, vram_bytes: int | None = None, arm_id: str | None = None) -> NewArm:
    """A preset for a model file (`PATH` or `hf:OWNER/NAME/FILE`), from its own metadata.

    `vram_bytes` is the free memory of the GPU; None makes an arm for the CPU. Raises ArmError for a file that cannot be
    read and UsageError for an id that is taken.
    """
    if target.startswith("hf:"):
        facts, model = look_remote(target), _remote_model(target)
    else:
        path = Path(target.removeprefix("file:")).expanduser().absolute()
        facts = look(path)
        model = ModelRef(f"file:{path}", bytes=facts.file_bytes)
    samplers = load_samplers(root)
    arm, guesses = _guess(facts, model, arm_id or slug(Path(target).name), samplers, vram_bytes)
    if arm.arm_id in arm_ids(root):
        raise UsageError(f"presets/arms/{arm.arm_id}.toml is there already; give the new arm another id with --id")
    return NewArm(arm.arm_id, _text(arm, facts, guesses), tuple(guesses))


def arms_from_models(targets: Iterable[str], root: Path, *, vram_bytes: int | None = None) -> list[Arm]:
    """Arms for files, patterns, folders, or `lmstudio` and `ollama`, without writing a preset.

    Raises UsageError when a target holds no model, and ArmError for a file that cannot be read.
    """
    samplers, taken = load_samplers(root), set(arm_ids(root))
    out: list[Arm] = []
    for found in find_models(targets):
        model = ModelRef(f"file:{found.path}", sha256=found.sha256)
        arm, _ = _guess(look(found.path), model, slug(found.name), samplers, vram_bytes)
        name, n = arm.arm_id, 2
        while name in taken:
            name, n = f"{arm.arm_id}-{n}", n + 1
        taken.add(name)
        out.append(replace(arm, arm_id=name))
    return out


def slug(name: str) -> str:
    """An id from a file name: lower case, without the ending and the number of parts."""
    stem = re.sub(r"(-00001-of-\d{5})?\.gguf$", "", name, flags=re.IGNORECASE)
    text = re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._")
    return (text or "model")[:80] if text != "all" else "model-all"


def _remote_model(target: str) -> ModelRef:
    source = parse_source(target)
    assert isinstance(source, HfSource)
    first = hub.describe(source, source.revision, source.file)
    names = split_parts(source.file)
    files = [first, *(hub.describe(source, first.commit, name) for name in names[1:])]
    sizes = [file.size for file in files]
    sums = [file.sha256 for file in files if file.sha256 is not None]
    pinned = f"hf:{source.repo}@{first.commit}/{source.file}"
    size = None if None in sizes else sum(size or 0 for size in sizes)
    return ModelRef(pinned, size, combined_sha256(sums) if len(sums) == len(files) else None)


def _guess(
    facts: GgufFacts, model: ModelRef, arm_id: str, samplers: Mapping[str, Sampler], vram_bytes: int | None
) -> tuple[Arm, list[str]]:
    guesses: list[str] = []
    sampler = _sampler(facts, samplers, guesses)
    on_gpu = vram_bytes is not None
    arm = Arm(
        arm_id,
        title=plain(f"{facts.name or arm_id} {facts.quant}"),
        model=model,
        sampler=sampler,
        context=CONTEXTS[-1],
        device="gpu" if on_gpu else "cpu",
        gpu_layers="all" if on_gpu else 0,
        flash_attention="auto",
        override_kv=_repair(facts, guesses),
    )
    return replace(arm, context=_context(facts, arm, vram_bytes, guesses)), guesses


def _repair(facts: GgufFacts, guesses: list[str]) -> tuple[str, ...]:
    """The overrides that the look-through proposes for a file whose blocks were miscounted."""
    probe = Arm("probe", "probe", ModelRef(""), Sampler("", 0, 1, 0, 0), context=16)
    for problem in check(facts, probe):
        flags = re.findall(r"--override-kv (\S+)", problem.advice)
        if problem.severity == "error" and flags:
            guesses.append(f"override_kv repairs the file: {problem.text}.")
            return tuple(flags)
    return ()


def _context(facts: GgufFacts, arm: Arm, vram_bytes: int | None, guesses: list[str]) -> int:
    trained = facts.context_length or CONTEXTS[-1]
    candidates = [context for context in CONTEXTS if context <= trained] or [max(trained, 16)]
    if vram_bytes is None:
        context = next((context for context in candidates if context <= 8192), candidates[-1])
        guesses.append(f"context {context}: no GPU was looked at; the model was trained for {trained}.")
        return context
    for context in candidates:
        if estimate(facts, replace(arm, context=context)).vram <= vram_bytes * _SHARE:
            guesses.append(f"context {context}: the largest that fits {vram_bytes >> 20} MiB of free VRAM by estimate.")
            return context
    need = estimate(facts, replace(arm, context=candidates[-1])).vram
    guesses.append(
        f"context {candidates[-1]}: about {need >> 20} MiB are needed even so, more than the {vram_bytes >> 20} MiB "
        "that are free; lower gpu_layers, or take a smaller quant."
    )
    return candidates[-1]


def _sampler(facts: GgufFacts, samplers: Mapping[str, Sampler], guesses: list[str]) -> Sampler:
    asked = facts.sampling
    if asked:
        for sampler in samplers.values():
            fields = sampler.request_fields()
            if all(abs(fields[key] - value) < 1e-6 for key, value in asked.items()):
                guesses.append(f"sampler {sampler.sampler_id}: it has the settings that the file recommends.")
                return sampler
        said = ", ".join(f"{key} = {value:g}" for key, value in asked.items())
        guesses.append(f"the file recommends {said}: add such a sampler to presets/samplers.toml and name it here.")
    for start, sampler_id in _FAMILIES:
        if facts.architecture.startswith(start) and sampler_id in samplers:
            guesses.append(f"sampler {sampler_id}: by the family of `{facts.architecture}`.")
            return samplers[sampler_id]
    sampler_id = _FALLBACK if _FALLBACK in samplers else next(iter(samplers), "")
    if not sampler_id:
        raise UsageError("presets/samplers.toml holds no sampler")
    guesses.append(f"sampler {sampler_id}: nothing is known of what `{facts.architecture}` is best asked with.")
    return samplers[sampler_id]


def _text(arm: Arm, facts: GgufFacts, guesses: list[str]) -> str:
    size = f"{facts.parameters / 1e9:.2f} billion weights"
    lines = [f"# From the file: {facts.architecture}, {facts.quant}, {size}, {facts.block_count} blocks."]
    if facts.chat_template is None:
        guesses.append("the file has no chat template; the server will use a general one.")
    if facts.nextn_tensors:
        guesses.append('the file has layers for multi-token prediction: spec_type = "draft-mtp" uses them.')
    lines += [f"# Guessed: {plain(guess)}" for guess in guesses]
    lines += [f"title = {_quoted(arm.title)}", f'device = "{arm.device}"', f'sampler = "{arm.sampler.sampler_id}"', ""]
    lines += ["[model]", f"source = {_quoted(arm.model.source)}"]
    lines += [f"bytes = {arm.model.bytes}"] if arm.model.bytes is not None else []
    lines += [f'sha256 = "{arm.model.sha256}"'] if arm.model.sha256 is not None else []
    lines += ["", "[server]", f"context = {arm.context}"]
    lines += [f"gpu_layers = {json.dumps(arm.gpu_layers)}", f'kv_k = "{arm.kv_k}"', f'kv_v = "{arm.kv_v}"']
    lines += ['flash_attention = "auto"', "parallel = 1", 'port = "auto"']
    lines += [f"override_kv = {json.dumps(list(arm.override_kv))}"] if arm.override_kv else []
    lines += ['env = { GGML_CUDA_NO_PINNED = "1" }'] if arm.device == "gpu" else []
    lines += ["", "[limits]", f"startup_s = {_startup_s(facts)}", f"quiesce_s = {15 if arm.device == 'gpu' else 0}", ""]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Text of a file on one line, control characters as codes: it must not end a comment and begin a key."""
    return visible(" ".join(text.split()))


def _startup_s(facts: GgufFacts) -> int:
    """A minute, and one second for each 100 MB: a slow disk's speed."""
    return 60 + facts.tensor_bytes // 100_000_000


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
