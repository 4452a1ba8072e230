"""Ids that sort by time and never collide."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime


def new_id() -> str:
    """26 hex digits: milliseconds since the epoch, then 56 random bits. Sorts by time across processes."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(7)}"


def new_run_id() -> str:
    """`20261130-183022-5f1c`: UTC to the second and four random hex digits; a unique prefix is enough to name a run."""
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)
