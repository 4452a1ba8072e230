"""The reference project's layout: `result_ARM.json` beside `artifacts/ARM/iter_NN/L{n}_response.txt`.

Answers become generations, what the source says of them becomes grades of kind `published` and rows of `published`.
The source says how many iterations and levels there were, so the plan is stored too: an answer that is not there is
missing, and not a smaller run.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.ids import new_id
from bench.importing import Found, ImportedRun, Load, Rows, Skipped
from bench.importing.files import (
    Unusable,
    decode,
    digest,
    folder,
    import_id,
    json_object,
    modified,
    read_bytes,
    safe_id,
    text,
    whole,
)
from bench.importing.published import grade_row, published_rows
from bench.importing.reference_json import PublishedIteration, ResultFile, iteration, result_file
from bench.importing.response import Response, split_response
from bench.suites.load import Suite

DEFAULT_SUITE = "coding-v2"
"""The suite that the layout's levels are; the files do not name one."""
ORIGIN = "result_ARM.json layout"
_RESULT = re.compile(r"^result_(.+)\.json$")
_ITERATION = re.compile(r"^iter(?:ation)?[_-]?(\d{1,6})$")
_RESPONSE = re.compile(r"^L(\d{1,4})_response\.txt$")
_BESIDE = re.compile(r"^(?:L\d{1,4}_code\.py|summary\.json)$")
_KNOWN = ("artifacts", "summary.json", "results_combined.json")


@dataclass
class _Arm:
    """What was found of an arm."""

    arm_id: str
    result: ResultFile | None = None
    iterations: dict[int, PublishedIteration] = field(default_factory=dict)
    answers: dict[tuple[int, str], Response] = field(default_factory=dict)
    codes: dict[tuple[int, str], str] = field(default_factory=dict)
    newest: datetime | None = None
    """When the newest of its files was written; used where the files themselves name no time."""


def is_layout(path: Path) -> bool:
    """Whether a folder is of this layout."""
    return any(_RESULT.match(p.name) for p in folder(path)) or any(
        _ITERATION.match(p.name) for arm in folder(path / "artifacts") for p in folder(arm)
    )


def is_result(path: Path) -> bool:
    """Whether a file is named as an arm's results are."""
    return _RESULT.match(path.name) is not None


def read(path: Path, suite_name: str | None, load: Load, only: Path | None = None) -> Found:
    """All arms of a folder as one run, or one arm. Raises UsageError where not a single answer could be read."""
    name = suite_name or DEFAULT_SUITE
    suite = load(name)
    suite_id = suite.suite_id if suite else safe_id(name)
    used: list[tuple[str, bytes]] = [("suite", suite_id.encode())]
    skipped: list[Skipped] = []
    arms: dict[str, _Arm] = {}
    for file in [only] if only else folder(path):
        if m := _RESULT.match(file.name):
            _read_result(file, path, m[1], arms, used, skipped)
        elif file.name not in _KNOWN:
            skipped.append(Skipped(file.name, "not part of the layout"))
    for place in folder(path / "artifacts"):
        if only is None or place.name in arms:
            _read_artifacts(place, path, arms, used, skipped)
    if not any(arm.answers for arm in arms.values()):
        why = f" ({'; '.join(map(str, skipped[:3]))})" if skipped else ""
        raise UsageError(f"{path}: expected answers in artifacts/ARM/iter_NN/L1_response.txt, found none{why}")
    found = digest(used)
    return Found((_run(path.resolve().name, arms, suite_id, suite, found),), tuple(skipped))


def _read_result(
    file: Path, top: Path, name: str, arms: dict[str, _Arm], used: list[tuple[str, bytes]], skipped: list[Skipped]
) -> None:
    where = str(file.relative_to(top))
    try:
        data, raw = json_object(file)
        result = result_file(data)
        arm_id = _arm_id(name)
    except Unusable as e:
        skipped.append(Skipped(where, str(e)))
        return
    skipped += [Skipped(where, problem) for problem in result.problems]
    used.append((where, raw))
    arms[name] = _Arm(arm_id, result, dict(result.iterations), newest=modified(file))


def _arm_id(name: str) -> str:
    arm_id = safe_id(name)
    if not arm_id:
        raise Unusable(f"'{name}' cannot name an arm")
    return arm_id


def _read_artifacts(
    place: Path, top: Path, arms: dict[str, _Arm], used: list[tuple[str, bytes]], skipped: list[Skipped]
) -> None:
    """The answers of an arm; `place` is named as the arm is."""
    if place.is_symlink() or not place.is_dir():
        skipped.append(Skipped(f"artifacts/{place.name}", "not a folder of an arm"))
        return
    try:
        arm = arms.setdefault(place.name, _Arm(_arm_id(place.name)))
    except Unusable as e:
        skipped.append(Skipped(f"artifacts/{place.name}", str(e)))
        return
    seen: dict[int, str] = {}
    for pass_ in folder(place):
        where = str(pass_.relative_to(top))
        m = _ITERATION.match(pass_.name)
        if m is None or pass_.is_symlink() or not pass_.is_dir():
            skipped.append(Skipped(where, "not a folder of an iteration (iter_NN)"))
        elif int(m[1]) < 1 or int(m[1]) in seen:
            skipped.append(Skipped(where, f"iteration {int(m[1])} is also in {seen.get(int(m[1]), 'no other folder')}"))
        else:
            seen[int(m[1])] = pass_.name
            _read_iteration(pass_, int(m[1]), top, arm, used, skipped)


def _read_iteration(
    pass_: Path, n: int, top: Path, arm: _Arm, used: list[tuple[str, bytes]], skipped: list[Skipped]
) -> None:
    for file in folder(pass_):
        where = str(file.relative_to(top))
        m = _RESPONSE.match(file.name)
        try:
            if m:
                raw = read_bytes(file)
                arm.answers[n, f"L{int(m[1])}"] = split_response(decode(raw))
                used.append((where, raw))
                arm.newest = max(filter(None, (arm.newest, modified(file))))
            elif not _BESIDE.match(file.name):
                raise Unusable("not part of the layout")
            elif file.suffix == ".py":
                arm.codes[n, file.name.removesuffix("_code.py")] = decode(read_bytes(file))
            elif n not in arm.iterations:
                # The result file counts; an iteration that it lacks may still have a summary of its own.
                data, raw = json_object(file)
                arm.iterations[n] = iteration({**data, "iteration": n}, n)
                used.append((where, raw))
        except Unusable as e:
            skipped.append(Skipped(where, str(e)))


def _run(name: str, arms: Mapping[str, _Arm], suite_id: str, suite: Suite | None, found: str) -> ImportedRun:
    listed = sorted(arms.values(), key=lambda arm: (_started(arm), arm.arm_id))
    started = min(_started(arm) for arm in listed)
    ended = max(_ended(arm) for arm in listed)
    run_id = import_id(started, found)
    tables: dict[str, Rows] = {t: [] for t in ("runs", "plan", "arms", "generations", "grades", "published")}
    limits = [arm.result.max_tokens for arm in listed if arm.result and arm.result.max_tokens]
    run = {
        "run_id": run_id,
        "origin": f"{name} ({ORIGIN})",
        "lineup_id": safe_id(name) or None,
        "suite_id": suite_id,
        "suite_title": suite.title if suite else None,
        "iterations": max(max(_iterations(arm), default=0) for arm in listed),
        "max_tokens": max(limits) if limits else None,
        "arm_order": [arm.arm_id for arm in listed],
        "settings": json.dumps({"imported": {"layout": ORIGIN, "name": name, "digest": found}}, sort_keys=True),
    }
    tables["runs"] = [
        {**run, "event_at": started, "status": "running"},
        {**run, "event_at": ended, "status": "finished"},
    ]
    for position, arm in enumerate(listed, 1):
        tables["arms"].append(_arm_row(run_id, arm, position))
        tables["plan"] += _plan(run_id, suite_id, suite, arm)
        for key, response in sorted(arm.answers.items()):
            _answer(run_id, suite_id, arm, key, response, tables)
        source = f"result_{arm.arm_id}.json" if arm.result else "summary.json"
        tables["published"] += published_rows(
            {"run_id": run_id, "arm_id": arm.arm_id, "suite_id": suite_id, "source": f"{name}/{source}"},
            arm.iterations,
            arm.result.summary_tps if arm.result else None,
        )
    n = len(tables["generations"])
    return ImportedRun(run_id, found, f"{name}: {len(listed)} arms, {n} answers, suite {suite_id}", tables)


def _started(arm: _Arm) -> datetime:
    times = [level.at for i in arm.iterations.values() for level in i.levels.values() if level.at]
    times += [i.at for i in arm.iterations.values() if i.at]
    if arm.result and arm.result.started:
        times.append(arm.result.started)
    return min(times) if times else arm.newest or datetime.fromtimestamp(0, UTC)


def _ended(arm: _Arm) -> datetime:
    if arm.result and arm.result.ended:
        return arm.result.ended
    return max((i.at for i in arm.iterations.values() if i.at), default=_started(arm))


def _iterations(arm: _Arm) -> range:
    """The passes that were planned: as the source says, else as many as there are traces of."""
    if arm.result and arm.result.n_iterations:
        return range(1, arm.result.n_iterations + 1)
    return range(1, max([*arm.iterations, *(n for n, _ in arm.answers)], default=0) + 1)


def _plan(run_id: str, suite_id: str, suite: Suite | None, arm: _Arm) -> Rows:
    said = [level for i in arm.iterations.values() for level in i.levels.values()]
    names = set(arm.result.level_ids if arm.result else ()) | {v.level_id for v in said} | {v for _, v in arm.answers}
    known = {level.level_id: level for level in suite.levels} if suite else {}
    rows = []
    for index, name in enumerate(sorted(names, key=lambda v: int(v[1:])), 1):
        points = next((whole(v.points) for v in said if v.level_id == name and v.points is not None), None)
        title = next((v.title for v in said if v.level_id == name and v.title), None)
        level = known.get(name)
        rows.append(
            {
                "run_id": run_id,
                "arm_id": arm.arm_id,
                "suite_id": suite_id,
                "level_id": name,
                "level_index": index,
                "level_title": title or (level.title if level else None),
                "points": points if points is not None else level.points if level else None,
            }
        )
    return [{**row, "iteration": n} for n in _iterations(arm) for row in rows]


def _arm_row(run_id: str, arm: _Arm, position: int) -> dict[str, Any]:
    model = arm.result.model if arm.result else {}
    sampler = arm.result.sampler if arm.result else None
    idle = [i.metrics["vram_idle_mb"] for i in arm.iterations.values() if "vram_idle_mb" in i.metrics]
    peak = [i.metrics["vram_peak_mb"] for i in arm.iterations.values() if "vram_peak_mb" in i.metrics]
    if arm.result and arm.result.vram_peak_mb is not None:
        peak.append(arm.result.vram_peak_mb)
    return {
        "run_id": run_id,
        "arm_id": arm.arm_id,
        "event_at": _ended(arm),
        "position": position,
        "status": "finished",
        "title": text(model.get("name")) or arm.arm_id,
        "model_repo": text(model.get("repo")),
        "model_file": text(model.get("file")),
        "quant": text(model.get("quant")),
        "architecture": text(model.get("architecture")),
        "sampler_asked": json.dumps(sampler, sort_keys=True) if sampler else None,
        "device": "gpu" if idle else None,
        "vram_idle_bytes": int(statistics.median(idle)) << 20 if idle else None,
        "vram_peak_bytes": int(max(peak)) << 20 if peak else None,
        "vram_reason": None if idle and peak else f"the source has {'only idle' if idle else 'no'} values",
    }


def _answer(
    run_id: str, suite_id: str, arm: _Arm, key: tuple[int, str], response: Response, tables: dict[str, Rows]
) -> None:
    n, level_id = key
    said = arm.iterations.get(n)
    level = said.levels.get(level_id) if said else None
    at = (level.at if level else None) or (said.at if said else None) or _started(arm)
    generation = {
        "generation_id": new_id(),
        "run_id": run_id,
        "arm_id": arm.arm_id,
        "suite_id": suite_id,
        "level_id": level_id,
        "iteration": n,
        "attempt": 1,
        "outcome": response.outcome,
        "detail": response.detail,
        "content": response.content,
        "reasoning": response.reasoning,
        "started_at": at,
        "total_ms": level.duration_s * 1000 if level and level.duration_s is not None else None,
    }
    tables["generations"].append(generation)
    if level is not None and level.passed is not None:
        tables["grades"].append(grade_row(generation, level, at, arm.codes.get(key), f"{level_id}_code.py"))
