"""`inspect`, `lock-models`, `new-arm`: model files and presets of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.errors import ArmError, BenchError, UsageError
from bench.gguf.look import GgufFacts, check, look, look_remote
from bench.gguf.memory import estimate
from bench.models.lock import lock_models
from bench.models.obtain import cached_parts
from bench.options import names
from bench.paths import ROOT, default_cache
from bench.presets.load import Arm, ModelRef, arm_ids, load_arm, load_lineup
from bench.presets.new_arm import new_arm as new_arm_text
from bench.reporter import Reporter
from bench.runner.planning import BIG_LINEUP, OWN_SUITE, context_needed, size_text
from bench.suites.load import load_suite
from bench.telemetry.sampler import gpu_info


def facts_of(model: ModelRef) -> GgufFacts:
    """What the headers say: of the cached file, else of the hub's by range requests, else of the local file."""
    parts = cached_parts(model, default_cache())
    if parts:
        return look(parts[0])
    if model.source.startswith("hf:"):
        return look_remote(model)
    if model.source.startswith("file:"):
        return look((model.folder or Path.cwd()) / Path(model.source[5:]).expanduser())
    raise ArmError("model_missing", f"{model.source} is not downloaded yet", advice="a first bench fetches it")


def inspect(target: str, out: Reporter) -> int:
    """Look inside a model file, or an arm's. 1 when something is wrong with it."""
    try:
        if target in arm_ids(ROOT):
            arm: Arm | None = load_arm(target, ROOT)
            assert arm is not None
            facts = facts_of(arm.model)
        else:
            arm = None
            facts = look_remote(target) if target.startswith("hf:") else look(_existing(target))
    except ArmError as e:
        raise BenchError(str(e)) from e
    judged = arm or _bare(target, facts)
    memory = estimate(facts, judged)
    rows = [
        ("name", facts.name or "not said"),
        ("architecture", facts.architecture),
        ("parameters", f"{facts.parameters / 1e9:.2f} billion" if facts.parameters else "not known"),
        ("quant", facts.quant),
        ("tensors", ", ".join(f"{n} x {kind}" for kind, n in facts.tensor_types.items())),
        ("blocks", f"{facts.block_count} said, {facts.blocks_present} there"),
        ("context", str(facts.context_length or "not said")),
        ("tokenizer", facts.tokenizer or "not said"),
        ("chat template", "yes" if facts.chat_template_sha256 else "none"),
        ("memory at", f"context {judged.context}, KV {judged.kv_k}/{judged.kv_v}, device {judged.device}"),
        ("  weights", size_text(memory.weights)),
        ("  KV cache", f"{size_text(memory.kv_cache)} ({memory.attention_blocks} blocks)"),
        ("  state", size_text(memory.recurrent_state)),
        ("  compute", f"about {size_text(memory.compute)}"),
        ("  VRAM / RAM", f"{size_text(memory.vram)} / {size_text(memory.ram)}"),
    ]
    out.table(target, ["what", "found"], [list(row) for row in rows])
    for note in memory.notes:
        out.line(f"note: {note}")
    problems = check(facts, judged)
    for problem in problems:
        out.warn(f"{problem.severity}: {problem.text}" + (f"; {problem.advice}" if problem.advice else ""))
    return 1 if any(problem.severity == "error" for problem in problems) else 0


def _existing(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        raise UsageError(f"expected a GGUF file, hf:OWNER/NAME/FILE or an arm (./invoke arms), found none at '{text}'")
    return path


def _bare(target: str, facts: GgufFacts) -> Arm:
    """An arm for a file without one: a CPU arm with up to 8192 tokens of context."""
    arm = load_arm("smollm2-135m-q4-kv-f16", ROOT)
    context = min(facts.context_length or 8192, 8192)
    return replace(arm, arm_id="file", title=target, model=ModelRef(target), context=context)


def lock(lineup: str | None, arms: Sequence[str], out: Reporter) -> int:
    """Write revision, size and checksum of the hub's models into the lock file. 1 when one could not be locked."""
    wanted = names(arms) or list(load_lineup(lineup or BIG_LINEUP, ROOT).arms)
    failed = 0
    for locked in lock_models(wanted, ROOT):
        pin = locked.pin
        what = f"{size_text(pin.bytes)}, sha256 {pin.sha256[:12]}, commit {pin.revision[:12]}" if pin else ""
        failed += locked.state == "failed"
        out.line(f"{locked.state}: {locked.source}  {what or locked.detail}".rstrip())
    return 1 if failed else 0


def new_arm(target: str, arm_id: str | None, show: bool, out: Reporter) -> int:
    """Write a preset for a model file from its own metadata, and say what was guessed."""
    gpu = gpu_info()
    free = None
    if gpu.vram_bytes is not None:
        free = gpu.vram_bytes - (gpu.vram_used_bytes or 0)
    try:
        made = new_arm_text(target, ROOT, vram_bytes=free, arm_id=arm_id)
    except ArmError as e:
        raise BenchError(str(e)) from e
    if show:
        out.data(made.text.rstrip("\n"))
        return 0
    path = ROOT / "presets" / "arms" / f"{made.arm_id}.toml"
    try:
        with open(path, "x", encoding="utf-8") as f:
            f.write(made.text)
    except OSError as e:
        raise BenchError(f"cannot write {path}: {e.strerror}; --show prints the preset instead") from e
    out.line(f"wrote {path}")
    for guess in made.guesses:
        out.line(f"  guessed: {guess}")
    suite = load_suite(OWN_SUITE, ROOT / "suites")
    arm, need = load_arm(made.arm_id, ROOT), context_needed(suite)
    if arm.context // arm.parallel >= need:
        out.line(f"next: ./invoke bench --arm {made.arm_id} --suite {suite.suite_id}")
    else:
        out.line(f"next: ./invoke bench --arm {made.arm_id} --suite smoke")
        out.line(
            f"note: suite {suite.suite_id} may need {need} tokens of context and the preset has {arm.context}; raise "
            "context in it, or set allow_small_context = true there and have long answers cut"
        )
    return 0
