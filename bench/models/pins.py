"""What model files must be: revision, size and checksum, written once to presets/models.lock.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UsageError
from bench.models.sources import is_commit
from bench.strict_toml import found, read_toml


@dataclass(frozen=True)
class Pin:
    """What one model source stood for when it was locked."""

    revision: str
    """Full commit of the repository."""
    bytes: int
    """Size of the file, of all parts together for a split model."""
    sha256: str
    """Checksum of the file; for a split model see `bench.models.combined_sha256`."""


def lock_path(root: Path) -> Path:
    """The lock file beside the presets."""
    return root / "presets" / "models.lock.toml"


def read_pins(root: Path) -> dict[str, Pin]:
    """Pins by source as the presets write it; empty when nothing has been locked yet. Raises UsageError."""
    path = lock_path(root)
    if not path.exists():
        return {}
    top = read_toml(path, root)
    pins = {}
    for source in top.values:
        table = top.table(source)
        table.only(("revision", "bytes", "sha256"))
        revision = table.text("revision")
        if not is_commit(revision):
            raise table.error("revision", "a full commit of 40 hex digits")
        pins[source] = Pin(
            revision, table.integer("bytes", 1, 1 << 50), sha256_of(table.text("sha256"), table.at("sha256"))
        )
    return pins


def sha256_of(text: str, where: str) -> str:
    """A sha256 in lower case. Raises UsageError naming `where` it stands."""
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise UsageError(f"{where}: expected a sha256 of 64 hex digits, found {found(text)}")
    return text.lower()


def write_pins(root: Path, pins: Mapping[str, Pin]) -> Path:
    """Write the lock file whole (temporary name, then rename), sorted by source."""
    lines = ["# Written by `invoke lock-models`; do not edit. `bench` refuses a model file that differs.", ""]
    for source in sorted(pins):
        pin = pins[source]
        lines += [
            f'["{source}"]',
            f'revision = "{pin.revision}"',
            f"bytes = {pin.bytes}",
            f'sha256 = "{pin.sha256}"',
            "",
        ]
    path = lock_path(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    temporary.write_text("\n".join(lines), encoding="utf-8")
    temporary.replace(path)
    return path
