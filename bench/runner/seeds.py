"""Seeds: a run draws one, stores it, and derives everything else from it."""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Sequence

MAX_SEED = 2**31 - 1
"""llama-server takes 32 bits, and reads 4294967295 as "draw one yourself"; 31 bits stay clear of that."""


def draw() -> int:
    """A seed for a run, 1 to MAX_SEED."""
    return secrets.randbelow(MAX_SEED) + 1


def request_seed(run_seed: int, level_id: str, iteration: int) -> int:
    """The seed of one request, 1 to MAX_SEED.

    It does not depend on the arm: arms that differ in one setting meet the same draws, which can only narrow the
    difference between them, never favour one.
    """
    digest = hashlib.sha256(f"{run_seed}/{level_id}/{iteration}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % MAX_SEED + 1


def order(run_seed: int, arm_ids: Sequence[str]) -> list[str]:
    """The arms in the order in which they run: heat and drift must not always hit the last one named."""
    shuffled = sorted(arm_ids)
    random.Random(run_seed).shuffle(shuffled)
    return shuffled
