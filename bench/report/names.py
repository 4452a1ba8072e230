"""What an arm is called in a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Key = tuple[str, str | None]


def arm_names(summary: Sequence[Row]) -> dict[Key, str]:
    """What an arm is called: its id, and its identity too where several servers answered for it."""
    count: dict[str, int] = defaultdict(int)
    for row in summary:
        count[row["arm_id"]] += 1
    return {
        (r["arm_id"], r["identity"]): r["arm_id"]
        + (f" ({r['identity'] or 'no answer'})" if count[r["arm_id"]] > 1 else "")
        for r in summary
    }


def arm_name(row: Row, names: Mapping[Key, str]) -> str:
    return names.get((row["arm_id"], row["identity"]), row["arm_id"])
