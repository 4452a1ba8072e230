"""A look into a GGUF before a server loads it: by its headers alone, local or over the network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bench.errors import ArmError, ArmReason
from bench.gguf.facts import GgufFacts, facts_of, split_override
from bench.gguf.header import ReadRange, read_header
from bench.models import hub
from bench.models.checksums import read_head
from bench.models.sources import HfSource, parse_source, split_parts
from bench.presets.load import Arm, ModelRef
from bench.strict_toml import nearest

__all__ = ["GgufFacts", "Problem", "check", "first_error", "look", "look_remote"]


@dataclass(frozen=True)
class Problem:
    """Something about a model file and an arm that a person should know."""

    severity: Literal["error", "caveat"]
    """An error keeps the arm from loading, or from being what the preset says; a caveat does not."""
    reason: ArmReason
    text: str
    advice: str = ""

    def error(self) -> ArmError:
        """The same as the error that stops an arm."""
        return ArmError(self.reason, self.text, advice=self.advice)


def look(path: Path) -> GgufFacts:
    """Facts from the headers of a model and of its further parts beside it.

    A file that is too short for its tensors is told in `shortfalls` and not raised. Raises ArmError model_missing, or
    model_corrupt where a header cannot be read, and UsageError for a part that is not the first.
    """
    paths = [path.with_name(name) for name in split_parts(path.name)]
    headers, sizes = [], []
    for part in paths:
        read_head(part, 1)
        size = part.stat().st_size
        headers.append(read_header(_file_range(part), size, part.name))
        sizes.append(size)
    return _whole(facts_of(headers, sizes, [part.name for part in paths]), len(paths), path.name)


def look_remote(ref: ModelRef | str) -> GgufFacts:
    """The same for an `hf:` source, by range requests on the headers (some MB) without downloading the file.

    Raises ArmError model_missing when the hub has no such file or cannot be reached, and UsageError for another source.
    """
    text = ref if isinstance(ref, str) else ref.source
    source = parse_source(text)
    if not isinstance(source, HfSource):
        raise ArmError("internal", f"only `hf:` sources can be looked into from afar, not {text}")
    revision = (None if isinstance(ref, str) else ref.revision) or source.revision
    names = split_parts(source.file)
    headers, sizes = [], []
    for name in names:
        found = hub.describe(source, revision, name)
        headers.append(read_header(hub.read_range(found), found.size, name))
        sizes.append(found.size)
    return _whole(facts_of(headers, sizes, names), len(names), source.file)


def _file_range(path: Path) -> ReadRange:
    def read(start: int, stop: int) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(start)
                return file.read(stop - start)
        except OSError as error:
            raise ArmError("model_corrupt", f"{path}: cannot be read at byte {start}: {error.strerror}") from None

    return read


def _whole(facts: GgufFacts, parts: int, name: str) -> GgufFacts:
    if not facts.architecture:
        raise ArmError("model_corrupt", f"{name}: the key general.architecture is missing")
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", facts.architecture):
        raise ArmError("model_corrupt", f"{name}: general.architecture is {facts.architecture[:80]!r}, not a name")
    if facts.split_count != parts:
        detail = f"{name}: the file is one of {facts.split_count} parts, but its name tells of {parts}"
        raise ArmError("model_missing", detail, advice="parts must lie side by side as NAME-00001-of-0000N.gguf")
    expected = facts.metadata.get("split.tensors.count")
    if parts > 1 and isinstance(expected, int) and expected != len(facts.tensors):
        detail = f"{name}: expected {expected} tensors in {parts} parts, found {len(facts.tensors)}"
        raise ArmError("model_corrupt", detail, advice="the parts belong to different models: download them again")
    return facts


def check(facts: GgufFacts, arm: Arm) -> list[Problem]:
    """What would go wrong, or differ from the preset, if a server loaded this file with this arm's settings."""
    out = [Problem("error", "model_corrupt", text, "download the file again") for text in facts.shortfalls]
    if facts.kind != "model" or facts.architecture == "clip":
        text = f"the file is of type {facts.kind} ({facts.architecture}), expected a model that answers"
        out.append(Problem("error", "model_incompatible", text, "name the model's own file"))
    if not facts.tensors:
        text = "the file holds no tensors (a vocabulary alone)"
        out.append(Problem("error", "model_incompatible", text, "name the model's own file"))
    out += _override_problems(facts, arm.override_kv)
    effective = facts.overridden(arm.override_kv)
    out += _block_problems(effective, arm.override_kv)
    out += _other_problems(effective, arm)
    return out


def first_error(problems: list[Problem]) -> ArmError | None:
    """The error that stops an arm, if there is one."""
    return next((problem.error() for problem in problems if problem.severity == "error"), None)


def _override_problems(facts: GgufFacts, overrides: tuple[str, ...]) -> list[Problem]:
    """llama-server takes an override that it never uses in silence; here that is an error."""
    out = []
    own = [key for key in facts.metadata if key.startswith(f"{facts.architecture}.")]
    for text in overrides:
        key, kind, _ = split_override(text)
        prefix = key.split(".", 1)[0]
        problem = None
        if key not in facts.metadata:
            hint = nearest(key, own if prefix != "tokenizer" else facts.metadata)
            if len(hint) > 200:
                hint = f"look at the {len(own)} keys of `{facts.architecture}.` with `invoke inspect`"
            if prefix not in (facts.architecture, "general", "tokenizer"):
                what = f"the file's architecture is `{facts.architecture}`, so the server ignores it"
            else:
                what = "the file has no such key, so the server ignores it"
            problem = (what, hint)
        elif prefix not in (facts.architecture, "tokenizer"):
            problem = (f"keys of `{prefix}.` do not change how `{facts.architecture}` loads", "leave it out")
        elif facts.kinds[key] == "array":
            problem = ("the file has a list there, which an override does not replace", "leave it out")
        elif facts.kinds[key] != kind:
            problem = (f"the file has a value of type {facts.kinds[key]} there", f"write `{facts.kinds[key]}:`")
        if problem is not None:
            out.append(Problem("error", "model_incompatible", f"override `{text}`: {problem[0]}", problem[1]))
    return out


def _block_problems(facts: GgufFacts, overrides: tuple[str, ...]) -> list[Problem]:
    """Blocks announced against tensors present: what a server meets as "missing tensor" minutes into a load."""
    if facts.blocks_present == 0:
        return []
    if facts.missing_blocks:
        listed = ", ".join(f"blk.{n}" for n in facts.missing_blocks[:5])
        advice = "the conversion lost tensors; no override repairs that"
        return [Problem("error", "model_incompatible", f"the file has no tensor of {listed}", advice)]
    arch, count, present = facts.architecture, facts.block_count, facts.blocks_present
    if count is None:
        text = f"the key {arch}.block_count is missing (tensors end at blk.{present - 1})"
        return [Problem("error", "model_incompatible", text, "convert the model again")]
    phantom = facts.nextn_layers > 0 and facts.nextn_tensors == 0
    wanted: list[str] = []
    found: list[str] = []
    if count != present:
        wanted.append(f"{arch}.block_count=int:{present}")
        found.append(f"block_count is {count}, but the tensors end at blk.{present - 1}, so {present} blocks are there")
    lowered = any(split_override(text)[0] == f"{arch}.block_count" for text in overrides)
    if phantom and (count != present or arch.startswith("qwen35") or lowered):
        wanted.append(f"{arch}.nextn_predict_layers=int:0")
        layers = facts.nextn_layers
        found.append(f"nextn_predict_layers counts {layers}, but the file holds no tensor of such a layer")
    if wanted:
        advice = "repair it with " + " ".join(f"--override-kv {flag}" for flag in wanted)
        return [Problem("error", "model_incompatible", "; ".join(found), advice)]
    if phantom:
        text = f"nextn_predict_layers counts {facts.nextn_layers}, but the file holds no tensor of such a layer"
        advice = f"if it does not load: --override-kv {arch}.nextn_predict_layers=int:0"
        return [Problem("caveat", "model_incompatible", text, advice)]
    return []


def _other_problems(facts: GgufFacts, arm: Arm) -> list[Problem]:
    out = []
    if arm.spec_type == "draft-mtp" and facts.nextn_tensors == 0:
        text = "spec_type is draft-mtp, but the file holds no layer for multi-token prediction"
        out.append(
            Problem("error", "model_incompatible", text, "leave spec_type out, or take the file with MTP layers")
        )
    each = arm.context // arm.parallel
    if facts.context_length is not None and each > facts.context_length:
        text = f"a context of {each} tokens a slot, but the model was trained for {facts.context_length}"
        out.append(Problem("caveat", "context_too_small", text, "answers beyond that length are not to be trusted"))
    if facts.tokenizer is None:
        out.append(Problem("error", "model_incompatible", "the file holds no tokenizer", "convert the model again"))
    if facts.chat_template is None:
        text = "the file holds no chat template, so the server falls back on a general one"
        out.append(Problem("caveat", "template_error", text, "answers may suffer; take a file that has its template"))
    unknown = sorted({tensor.type for tensor in facts.tensors if tensor.bytes is None})
    if unknown:
        text = f"tensors of {', '.join(unknown)} are newer than this program, so sizes are not checked"
        out.append(Problem("caveat", "model_incompatible", text))
    return out
