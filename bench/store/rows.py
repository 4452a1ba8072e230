"""Rows of the store from what the runner holds. One function a table; no decisions here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bench.client import loops
from bench.client.request import Reply
from bench.engines import Identity
from bench.ids import new_id
from bench.models.obtain import ModelFile
from bench.presets.load import Arm
from bench.suites.load import Level, Suite


def plan_rows(
    run_id: str, arms: tuple[Arm, ...], suite: Suite, iterations: int, seeds: Mapping[tuple[str, int], int]
) -> list[dict[str, Any]]:
    """What the run intends: one row for each arm, iteration and level."""
    return [
        {
            "run_id": run_id,
            "arm_id": arm.arm_id,
            "suite_id": suite.suite_id,
            "level_id": level.level_id,
            "iteration": iteration,
            "level_index": index,
            "level_title": level.title,
            "points": level.points,
            "request_seed": seeds[level.level_id, iteration],
            "preset_hash": arm.preset_hash,
            "prompt_hash": level.prompt_hash(suite),
            "grading_hash": level.grading_hash(),
        }
        for arm in arms
        for iteration in range(1, iterations + 1)
        for index, level in enumerate(suite.levels, 1)
    ]


def arm_row(run_id: str, arm: Arm, position: int) -> dict[str, Any]:
    """An arm before anything is known of it but its preset."""
    return {
        "run_id": run_id,
        "arm_id": arm.arm_id,
        "position": position,
        "title": arm.title,
        "model_source": arm.model.source,
        "preset_hash": arm.preset_hash,
        "sampler_id": arm.sampler.sampler_id,
        "sampler_asked": json.dumps(arm.sampler.request_fields(), sort_keys=True),
    }


def model_columns(model: ModelFile) -> dict[str, Any]:
    """What the model file is."""
    return {
        "model_repo": model.repo,
        "model_revision": model.revision,
        "model_file": model.file,
        "model_bytes": model.bytes,
        "model_sha256": model.sha256,
        "model_locked": model.locked,
    }


def identity_columns(identity: Identity) -> dict[str, Any]:
    """What the server proved to be."""
    return {
        "sampler_in_force": json.dumps(identity.sampler, sort_keys=True) if identity.sampler else None,
        "context": identity.n_ctx,
        "slots": identity.slots,
        "kv_k": identity.kv_k,
        "kv_v": identity.kv_v,
        "device": identity.device,
        "layers_on_gpu": identity.layers_on_gpu,
        "layers_total": identity.layers_total,
        "engine": identity.engine,
        "build": identity.build,
        "commit": identity.commit,
        "fingerprint": identity.fingerprint,
        "wheel": identity.wheel,
        "binary_sha256": identity.binary_sha256,
        "image_digest": identity.image_digest,
        "chat_template_sha256": identity.chat_template_sha256,
    }


def generation_row(
    arm_row: Mapping[str, Any],
    gpu: Mapping[str, Any],
    suite: Suite,
    level: Level,
    iteration: int,
    attempt: int,
    seed: int,
    reply: Reply,
    reasoning_tokens: int | None,
) -> dict[str, Any]:
    """A request and everything that came back. `arm_row` is the arm's newest state, `gpu` the run's GPU columns."""
    timings = reply.timings
    same = (
        "run_id",
        "arm_id",
        "preset_hash",
        "model_sha256",
        "engine",
        "build",
        "commit",
        "image_digest",
        "binary_sha256",
    )

    def count(name: str) -> int | None:
        return int(timings[name]) if name in timings else None

    answer = None
    if reply.completion_tokens is not None and reasoning_tokens is not None:
        answer = max(0, reply.completion_tokens - reasoning_tokens)
    return {
        "generation_id": new_id(),
        **{name: arm_row.get(name) for name in same},
        "suite_id": suite.suite_id,
        "level_id": level.level_id,
        "iteration": iteration,
        "attempt": attempt,
        "request_seed": seed,
        "prompt_hash": level.prompt_hash(suite),
        "gpu_name": gpu.get("gpu_name"),
        "gpu_driver": gpu.get("gpu_driver"),
        "outcome": reply.outcome,
        "detail": reply.detail,
        "status_code": reply.status_code,
        "finish_reason": reply.finish_reason,
        "content": reply.content,
        "reasoning": reply.reasoning,
        "loop": _loop(reply),
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "reasoning_tokens": reasoning_tokens,
        "answer_tokens": answer,
        "prompt_n": count("prompt_n"),
        "prompt_ms": timings.get("prompt_ms"),
        "predicted_n": count("predicted_n"),
        "predicted_ms": timings.get("predicted_ms"),
        "cache_n": count("cache_n"),
        # llama-server leaves both out when nothing was drafted; that is NULL, not 0: the arm may not draft at all.
        "draft_n": count("draft_n"),
        "draft_n_accepted": count("draft_n_accepted"),
        "started_at": datetime.fromtimestamp(reply.started_at, UTC),
        "first_token_ms": reply.first_token_ms,
        "first_answer_ms": reply.first_answer_ms,
        "last_token_ms": reply.last_token_ms,
        "total_ms": reply.total_ms,
        "n_chunks": reply.n_chunks,
        "fingerprint": reply.system_fingerprint,
    }


def _loop(reply: Reply) -> str | None:
    """The loop that what came ends in: an answer that was cut while it still reasoned loops in the reasoning."""
    found = loops.find(reply.content or reply.reasoning)
    return None if found is None else str(found)
