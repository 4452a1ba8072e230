"""Write what the models of some arms are right now to presets/models.lock.toml, from the hub's metadata alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import ArmError, UsageError
from bench.models import hub
from bench.models.checksums import combined_sha256
from bench.models.pins import Pin, lock_path, read_pins, write_pins
from bench.models.sources import HfSource, parse_source, split_parts
from bench.presets.load import Arm, ModelRef, load_arm
from bench.strict_toml import shown


@dataclass(frozen=True)
class Locked:
    """What became of one model."""

    source: str
    arms: tuple[str, ...]
    pin: Pin | None
    """None where there is nothing to lock, or where it failed."""
    state: str
    """`new`, `changed`, `unchanged`, `fixed already` (a wheel or a local file) or `failed`."""
    detail: str = ""


def lock_models(arm_ids: Sequence[str], root: Path) -> list[Locked]:
    """Ask the hub for commit, size and checksum of every `hf:` model of these arms and write the lock file.

    Pins of other models stay. A model that cannot be locked is told as `failed` and keeps the pin it had; nothing is
    downloaded. Raises UsageError for presets that cannot be read.
    """
    by_source: dict[str, list[Arm]] = {}
    for arm_id in arm_ids:
        arm = load_arm(arm_id, root, pinned=False)
        by_source.setdefault(arm.model.source, []).append(arm)
    pins = _readable_pins(root)
    out = []
    for source, arms in by_source.items():
        names = tuple(arm.arm_id for arm in arms)
        if not isinstance(parse_source(source), HfSource):
            out.append(Locked(source, names, None, "fixed already"))
            continue
        try:
            pin = _pin(arms[0].model)
            _agree(pin, arms)
        except ArmError as error:
            out.append(Locked(source, names, None, "failed", str(error)))
            continue
        old = pins.get(source)
        pins[source] = pin
        out.append(Locked(source, names, pin, "new" if old is None else "unchanged" if old == pin else "changed"))
    if any(locked.state in ("new", "changed") for locked in out):
        write_pins(root, pins)
    return out


def unlocked(arms: Sequence[Arm]) -> list[str]:
    """Ids of arms whose model's content is not fixed by a checksum; each is a caveat of a run."""
    return [arm.arm_id for arm in arms if arm.model.sha256 is None]


def _readable_pins(root: Path) -> dict[str, Pin]:
    try:
        return read_pins(root)
    except UsageError as error:
        advice = f"delete {shown(lock_path(root), root)} to lock all models anew"
        raise UsageError(f"{error}; {advice}") from None


def _pin(ref: ModelRef) -> Pin:
    source = parse_source(ref.source)
    assert isinstance(source, HfSource)
    first = hub.describe(source, source.revision, source.file)
    # All parts of a split model are taken at the one commit that the first was found at.
    names = split_parts(source.file)
    files = [first, *(hub.describe(source, first.commit, name) for name in names[1:])]
    size, sums = 0, []
    for name, file in zip(names, files, strict=True):
        if file.size is None or file.sha256 is None:
            raise ArmError("model_missing", f"{source.repo}/{name}: the hub tells no size or checksum of it")
        size += file.size
        sums.append(file.sha256)
    return Pin(first.commit, size, combined_sha256(sums))


def _agree(pin: Pin, arms: Sequence[Arm]) -> None:
    """Refuse to lock a file that is another than a preset expects."""
    for arm in arms:
        for key, ours, theirs in (("bytes", arm.model.bytes, pin.bytes), ("sha256", arm.model.sha256, pin.sha256)):
            if ours is not None and ours != theirs:
                detail = f"{arm.model.source}: model.{key} of arm {arm.arm_id} is {ours}, the hub has {theirs}"
                raise ArmError("model_corrupt", detail, advice="name the revision that is meant, or correct the preset")
