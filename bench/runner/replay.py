"""Ask a stored question again, of the same identity with the same seed, and say whether the text is the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from bench.client.request import Reply, Request, ask
from bench.engines import Engine
from bench.errors import BenchError, UsageError
from bench.presets.load import Arm
from bench.runner.resume import IDENTITY
from bench.store.rows import identity_columns
from bench.suites.load import Suite


@dataclass(frozen=True)
class Replay:
    """What came of it."""

    same: bool
    at: int | None
    """Position of the first character that differs."""
    before: str
    now: str


def find(connection: duckdb.DuckDBPyConnection, text: str) -> dict[str, Any]:
    """The generation that an id or a unique prefix of one means, as a row. Raises UsageError."""
    cursor = connection.execute(
        "select * from generations where starts_with(generation_id, ?) order by generation_id limit 3", [text]
    )
    names = [column[0] for column in cursor.description or ()]
    rows = cursor.fetchall()
    if len(rows) != 1:
        found = "none" if not rows else f"several ({', '.join(row[names.index('generation_id')] for row in rows)}, ...)"
        raise UsageError(f"expected the id of one generation or a unique prefix, found {found} for '{text}'")
    return dict(zip(names, rows[0], strict=True))


def changed(row: Mapping[str, Any], arm: Arm, suite: Suite) -> list[str]:
    """What is not as it was when the question was asked, as far as files tell."""
    out = []
    if row["preset_hash"] != arm.preset_hash:
        out.append(f"the preset of '{arm.arm_id}' has changed")
    level = next((lv for lv in suite.levels if lv.level_id == row["level_id"]), None)
    if level is None:
        out.append(f"the suite has no level '{row['level_id']}' any more")
    elif row["prompt_hash"] != level.prompt_hash(suite):
        out.append(f"the prompt of '{level.level_id}' has changed")
    return out


def replay(
    row: Mapping[str, Any], arm: Arm, suite: Suite, model: Path, model_sha256: str, engine: Engine, log: Path,
    gpu: Mapping[str, Any],
) -> Replay:  # fmt: skip
    """Ask again. Raises UsageError where the identity is another one, BenchError where no answer came."""
    level = next(lv for lv in suite.levels if lv.level_id == row["level_id"])
    server = engine.start(arm, model, log)
    try:
        identity = {
            **identity_columns(server.identity),
            **gpu,
            "model_sha256": model_sha256,
            "preset_hash": arm.preset_hash,
        }
        other = [name for name in IDENTITY if row.get(name) != identity.get(name)]
        if other:
            text = "; ".join(f"{name} was {row.get(name)}, is {identity.get(name)}" for name in other)
            raise UsageError(f"it cannot be asked of the same identity: {text}")
        reply: Reply = ask(
            server.base_url,
            Request(
                level.messages(),
                suite.max_tokens,
                row["request_seed"],
                arm.sampler.request_fields(),
                arm.request_extra(),
                suite.request_limit_s,
                end_loops=arm.end_loops,
            ),
        )
    finally:
        server.stop()
    if reply.outcome not in ("ok", "loop_ended"):
        raise BenchError(f"no whole answer came: {reply.outcome}: {reply.detail}; try again")
    before, now = (row["reasoning"] or "") + (row["content"] or ""), reply.reasoning + reply.content
    at = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now)))
    same = before == now
    return Replay(same, None if same else at, before, now)
