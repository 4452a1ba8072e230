"""`bench --dry-run`: everything that would run, and every problem that can be seen from here; nothing is started."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from bench.commands.own import facts_of
from bench.engines import Engine
from bench.engines.container import ContainerEngine
from bench.engines.preflight import threads_for
from bench.errors import ArmError, UsageError
from bench.gguf.look import check
from bench.gguf.memory import estimate
from bench.models.lock import unlocked
from bench.models.obtain import cached_parts
from bench.presets.load import Arm
from bench.reporter import Reporter
from bench.runner.planning import Choice, size_text


def dry_run(
    choice: Choice, engines: Mapping[str, Engine], problems: Mapping[str, list[str]], cache: Path, out: Reporter
) -> int:
    """Print what each arm would be. 1 when something keeps an arm from running."""
    found = 0
    for arm in choice.arms:
        out.line()
        out.line(f"{arm.arm_id}: {arm.title}")
        parts = cached_parts(arm.model, cache)
        model = parts[0] if parts else cache / "NOT-DOWNLOADED" / arm.model.source.rsplit("/", 1)[-1]
        engine = engines[arm.arm_id]
        if isinstance(engine, ContainerEngine):
            plan = engine.docker_arguments(arm, model)
            out.line(f"  image     {engine.image}")
            out.line(f"  docker    {shlex.join(plan.command_line())}")
        else:
            flags = arm.flags(threads=threads_for(arm))
            out.line(f"  engine    {engine.name}")
            out.line(f"  server    {shlex.join(['--model', str(model), *flags])}")
        out.line(f"  sampler   {arm.sampler.sampler_id}: {arm.sampler.request_fields()}")
        out.line(f"  limits    start-up {arm.startup_limit_s:g} s, a request {choice.suite.request_limit_s:g} s")
        texts = [*problems.get(arm.arm_id, []), *_memory(arm, out)]
        if arm.arm_id in unlocked([arm]):
            out.line("  caveat    the model is not locked: ./invoke lock-models writes its checksum")
        for text in texts:
            out.line(f"  problem   {text}")
        found += bool(texts)
    out.line()
    out.line(f"dry run: nothing was started; {found} of {len(choice.arms)} arms could not run as things are")
    return 1 if found else 0


def _memory(arm: Arm, out: Reporter) -> list[str]:
    """Print the memory plan; return the problems of the file."""
    try:
        facts = facts_of(arm.model)
    except (ArmError, UsageError) as e:
        known = f"; the file has {size_text(arm.model.bytes)}" if arm.model.bytes else ""
        out.line(f"  memory    not known, the model's header cannot be read from here ({e}){known}")
        return []
    need = estimate(facts, arm)
    parts = {"weights": need.weights, "KV cache": need.kv_cache, "state": need.recurrent_state, "compute": need.compute}
    text = ", ".join(f"{name} {size_text(size)}" for name, size in parts.items())
    out.line(f"  memory    VRAM {size_text(need.vram)}, RAM {size_text(need.ram)} ({text})")
    problems = check(facts, arm)
    for problem in problems:
        if problem.severity == "caveat":
            out.line(f"  caveat    {problem.text}")
    return [problem.text for problem in problems if problem.severity == "error"]
