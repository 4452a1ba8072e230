"""The tables of a report that say what was run: setup, models, samplers, servers, method, levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.report import figures as f
from bench.report.content import Cell, Table, table

Row = Mapping[str, Any]
Data = Mapping[str, Any]


def setup(run: Row) -> Table:
    ram = run.get("ram_bytes")
    vram = run.get("gpu_vram_bytes")
    gpu = run.get("gpu_name")
    memory = f", {vram / 2**20:.0f} MiB" if vram else ""
    rows: list[tuple[str, Any]] = [
        ("GPU", f"{gpu}{memory}" if gpu else f"none: {run.get('gpu_reason') or 'not recorded'}"),
        ("Driver", run.get("gpu_driver") or f.NA),
        ("CPU", f"{run.get('cpu_model') or f.NA}, {run.get('cpu_cores') or f.NA} cores"),
        ("Host RAM", f"{ram / 2**30:.1f} GiB" if ram else f.NA),
        ("Host", f"{run.get('host') or f.NA}, {run.get('os') or f.NA}"),
        ("Python", run.get("python") or f.NA),
        ("Bench", f"{run.get('bench_version') or f.NA}, commit {run.get('bench_commit') or f.NA}"),
        ("Seed", f.NA if run.get("seed") is None else run["seed"]),
        ("Order of arms", ", ".join(run.get("arm_order") or []) or f.NA),
        ("Origin", run.get("origin") or f.NA),
    ]  # fmt: skip
    return table(["Component", "Specification"], rows)


def models(arms: Sequence[Row]) -> Table:
    return table(
        ["Arm", "Source", "File", "sha256", "Architecture", "Quant", "Size", "Context", "KV cache", "Device",
         "Layers on GPU"],
        [
            [
                a["arm_id"],
                (a["model_repo"] or a["model_source"] or f.NA)
                + (f" ({a['model_revision']})" if a["model_revision"] else ""),
                a["model_file"] or f.NA,
                (a["model_sha256"] or f.NA)[:12],
                a["architecture"] or f.NA,
                a["quant"] or f.NA,
                Cell(f.file_size(a["model_bytes"]), a["model_bytes"]),
                a["context"] or f.NA,
                f"{a['kv_k']}/{a['kv_v']}" if a["kv_k"] else f.NA,
                a["device"] or "not proved",
                f"{a['layers_on_gpu']} of {a['layers_total'] or f.NA}" if a["layers_on_gpu"] is not None else f.NA,
            ]
            for a in arms
        ],
    )  # fmt: skip


def samplers(arms: Sequence[Row]) -> Table:
    return table(
        ["Arm", "Sampler", "Asked for", "In force at the server"],
        [
            [a["arm_id"], a["sampler_id"] or f.NA, f.sampler(a["sampler_asked"]), f.sampler(a["sampler_in_force"])]
            for a in arms
        ],
    )


def servers(arms: Sequence[Row]) -> Table:
    return table(
        ["Arm", "Engine", "llama.cpp", "Image or wheel", "Binary sha256", "Slots", "Threads"],
        [
            [
                a["arm_id"],
                a["engine"] or f.NA,
                _build(a),
                a["image_digest"] or a["wheel"] or f.NA,
                (a["binary_sha256"] or f.NA)[:12],
                f.NA if a["slots"] is None else a["slots"],
                f.NA if a["threads"] is None else a["threads"],
            ]
            for a in arms
        ],
    )


def _build(arm: Row) -> str:
    """The build of llama.cpp, as the server says it; `b0-unknown` is what one says that was built without knowing."""
    if (arm["fingerprint"] or "").startswith("b0-"):
        return "not recorded in this build"
    return arm["fingerprint"] or (f"b{arm['build']} {arm['commit'] or ''}".strip() if arm["build"] else f.NA)


def methodology(run: Row, data: Data) -> str:
    parts = [
        f"Suite {run.get('suite_id') or f.NA}: {len(data['levels'])} levels,",
        f"{run.get('iterations') or f.NA} iterations an arm.",
        f"At most {run['max_tokens']} tokens an answer, reasoning included." if run.get("max_tokens") else "",
        f"Time limit of a request {run['request_limit_s']:g} s." if run.get("request_limit_s") else "",
        "Only the final answer is graded; reasoning is stored and never graded.",
        "A level passes when every expected hidden test ran and passed.",
        f"Graded by {run['grading_provider']}." if run.get("grading_provider") else "",
    ]
    return " ".join(p for p in parts if p)


def levels(levels: Sequence[Row]) -> Table:
    return table(
        ["Level", "Task", "Points"],
        [[r["level_id"], r["title"] or f.NA, f.NA if r["points"] is None else f"{r['points']:g}"] for r in levels],
        right=[2],
    )
