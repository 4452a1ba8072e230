"""What the views cost over a store of a million grades.

    .venv/bin/python benchmarks/million.py [--grades 10000,100000,1000000] [--keep FOLDER] [--only VIEW,...]

Makes stores through the real schema in two shapes: a collection of runs (4 to 6 arms, 5 levels, 15 iterations, power
samples), of which one is asked for, and a single run that holds every grade. Then it puts questions about one run, each
in a process of its own on two threads, and prints seconds (opening included) and the process's peak RSS: every summary
view as `report` and `sql` ask it, with the run fixed first (bench.store.database.snapshot); `report_data`; "direct",
views with a filter on the run as a person asks results.duckdb; and "all", views of every run at once. Exit code 1 when
a figure at the largest size is above 5 s or 1 GB, or when the seconds grew faster than the grades.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.report.data import report_data
from bench.store.database import connect, snapshot
from bench.store.schema import TABLES, schema

LEVELS, POINTS, ITERATIONS = 5, (25, 25, 25, 15, 10), 15
LIMIT_S, LIMIT_MB = 5.0, 1000.0
VIEWS = (
    "arm_summary", "level_pass_rates", "iteration_scores", "arm_intervals", "pairwise", "verdicts", "caveats",
    "failures", "missing", "comparability", "naming_and_ability", "pareto", "rank_stability", "saturation_summary",
    "pass_at_k", "energy", "recommendations",
)  # fmt: skip
DIRECT = ("arm_summary", "level_pass_rates", "arm_intervals", "missing", "energy", "run_to_run")
ALL = ("arm_summary", "run_to_run", "energy")
QUESTIONS = (*VIEWS, "report_data", *(f"direct {view}" for view in DIRECT), *(f"all {view}" for view in ALL))
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEXT = "".join(hashlib.sha256(str(n).encode()).hexdigest() + "\n" for n in range(2000))
"""Where answers of about 1 kB are cut from."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """A run: its number, its arms (numbers of models), its iterations."""

    number: int
    arms: tuple[int, ...]
    iterations: int

    @property
    def run_id(self) -> str:
        return f"{NOON + timedelta(minutes=self.number):%Y%m%d-%H%M%S}-{self.number:04x}"


def collection(grades: int) -> Iterator[Shape]:
    """Runs of 4 to 6 of 30 models until there are so many grades."""
    number = 0
    while grades > 0:
        n_arms = 4 + number % 3
        yield Shape(number, tuple((number * 7 + a * 5) % 30 for a in range(n_arms)), ITERATIONS)
        grades -= n_arms * LEVELS * ITERATIONS
        number += 1


def single(grades: int) -> Iterator[Shape]:
    """One run of five arms with all grades."""
    yield Shape(0, (0, 5, 10, 15, 20), grades // (5 * LEVELS))


def write(results: Path, shapes: Iterator[Shape], rows_a_file: int = 100_000) -> str:
    """A store with these runs, in files of about so many grades; the id of the run in its middle."""
    waiting: dict[str, list[pa.Table]] = {table: [] for table in TABLES}
    runs: list[str] = []

    def flush() -> None:
        for table, parts in waiting.items():
            if not parts:
                continue
            folder = results / table / f"{runs[-1]}"
            folder.mkdir(parents=True, exist_ok=True)
            # Runs are merged one by one, so their rows lie together.
            pq.write_table(pa.concat_tables(parts), folder / "many.parquet", compression="zstd", row_group_size=10_000)
            parts.clear()

    for shape in shapes:
        runs.append(shape.run_id)
        for table, columns in _tables(shape).items():
            waiting[table].append(_as_table(table, columns))
        if sum(len(part) for part in waiting["grades"]) >= rows_a_file:
            flush()
    flush()
    return runs[len(runs) // 2]


def _as_table(table: str, columns: dict[str, Any]) -> pa.Table:
    n = max(len(v) for v in columns.values() if isinstance(v, list | np.ndarray))
    arrays = []
    for field in schema(table):
        value = columns.get(field.name)
        if isinstance(value, list | np.ndarray):
            arrays.append(pa.array(value, type=field.type))
        elif value is None:
            arrays.append(pa.nulls(n, field.type))
        else:
            arrays.append(pa.array([value] * n, type=field.type))
    return pa.Table.from_arrays(arrays, schema=schema(table))


def _tables(shape: Shape) -> dict[str, dict[str, Any]]:
    """The columns of each table; a value that is no list is the same in every row."""
    rng = np.random.default_rng(shape.number)
    n_arms, n = len(shape.arms), len(shape.arms) * LEVELS * shape.iterations
    at = NOON + timedelta(minutes=shape.number)
    arms = [f"arm-{a:02d}" for a in shape.arms]
    arm = np.repeat(np.arange(n_arms), LEVELS * shape.iterations)
    iteration = np.tile(np.repeat(np.arange(1, shape.iterations + 1), LEVELS), n_arms)
    level = np.tile(np.arange(LEVELS), n_arms * shape.iterations)
    model = np.array(shape.arms)[arm]
    passed = rng.random(n) < np.clip(0.55 + 0.012 * model + 0.08 * level, 0, 0.995)
    seconds = rng.normal(1.5, 0.1, n)
    # Every arm has the machine for itself, one after another.
    started = [at + timedelta(seconds=2.0 * i) for i in range(n)]
    ids = [f"{shape.number:08x}{i:024x}" for i in range(n)]
    texts = [TEXT[start : start + 1000] for start in rng.integers(0, len(TEXT) - 1000, n)]
    build = 9000 + shape.number // 100
    server = {"engine": "process", "build": build, "commit": f"c{build}", "gpu_name": "GPU", "gpu_driver": "570.1"}
    model_of = {"model_sha256": [f"m{m}" for m in model], "preset_hash": [f"p{m}" for m in model]}
    key = {
        "run_id": shape.run_id, "arm_id": [arms[a] for a in arm], "suite_id": "s",
        "level_id": [f"L{x + 1}" for x in level], "iteration": iteration,
    }  # fmt: skip
    hashes = {"prompt_hash": [f"q{x}" for x in level], "grading_hash": [f"g{x}" for x in level]}
    points = np.array(POINTS)[level]
    seeds = {"request_seed": shape.number * 100_003 + iteration * 10 + level}
    samples = n_arms * LEVELS * shape.iterations * 4
    return {
        "runs": {
            "run_id": [shape.run_id], "event_at": at, "status": "finished", "origin": "bench", "suite_id": "s",
            "iterations": shape.iterations, "max_tokens": 4096, "seed": shape.number, "grading_provider": "container",
            "gpu_name": "GPU", "gpu_driver": "570.1", "settings": "{}",
        },
        "arms": {
            "run_id": shape.run_id, "arm_id": arms, "event_at": at, "status": "finished", "title": arms,
            "device": "gpu", "position": list(range(1, n_arms + 1)), "context": 16_384, "model_locked": True,
            "load_ms": 900.0,
            "sampler_id": "greedy", "sampler_asked": "{}", "vram_idle_bytes": 9 << 30,
            "vram_peak_bytes": [(4 + m) << 30 for m in shape.arms], "rss_idle_bytes": 1 << 28,
            "rss_peak_bytes": 1 << 29,
        },
        "plan": key | seeds | hashes | {
            "level_index": level + 1, "level_title": key["level_id"], "points": points,
            "preset_hash": model_of["preset_hash"],
        },
        "generations": key | seeds | server | model_of | {
            "prompt_hash": hashes["prompt_hash"], "generation_id": ids, "attempt": 1, "outcome": "ok",
            "finish_reason": "stop", "content": texts, "reasoning": texts[::-1], "prompt_tokens": 200,
            "completion_tokens": rng.integers(100, 400, n), "reasoning_tokens": 50, "answer_tokens": 150,
            "prompt_n": 200, "prompt_ms": 100.0, "predicted_n": 200, "predicted_ms": 1000 * seconds, "cache_n": 0,
            "started_at": started, "first_token_ms": 110.0, "first_answer_ms": 300.0, "last_token_ms": 1000 * seconds,
            "total_ms": 1000 * seconds,
        },
        "grades": key | {
            "grading_hash": hashes["grading_hash"], "grade_id": [f"a{i}" for i in ids], "generation_id": ids,
            "attempt": 1, "grade_kind": "headline", "graded_at": started, "provider": "container", "code": texts,
            "code_rule": "last_block_defining_entry", "truncated": False, "passed": passed,
            "outcome": np.where(passed, "passed", "assertion"), "points": points * passed, "max_points": points,
            "tests_passed": 5, "tests_expected": 5, "suspect": False,
        },
        "telemetry": {
            "run_id": shape.run_id, "arm_id": [arms[a] for a in np.repeat(arm, 4)], "phase": "generate",
            "sampled_at": [at + timedelta(seconds=0.5 * i) for i in range(samples)], "throttle_reasons": 0,
            "power_w": rng.normal(300, 10, samples), "rss_bytes": 1 << 29,
        },
    }  # fmt: skip


def measure(results: Path, what: str, run_id: str) -> Row:
    """Seconds and peak RSS (MB) of one question, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--ask", what, "--results", str(results), "--run", run_id],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return {"s": float("inf"), "mb": float("inf"), "rows": 0, "error": done.stderr.strip().splitlines()[-1:]}
    found: Row = json.loads(done.stdout)
    return found


def ask(results: Path, what: str, run_id: str) -> Row:
    """The same, in this process."""
    began = time.perf_counter()
    connection, _ = connect(results)
    connection.execute("set threads = 2")
    opened = time.perf_counter() - began
    how, _, view = what.rpartition(" ")
    if how == "" and view != "report_data":
        snapshot(connection, [run_id])
    if view == "report_data":
        rows = len(report_data(connection, run_id)["pairwise"])
    elif how == "all":
        rows = len(connection.execute(f"from {view}").fetchall())
    else:
        rows = len(connection.execute(f"from {view} where run_id = $run", {"run": run_id}).fetchall())
    took = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {"s": took, "opened": opened, "mb": peak, "rows": rows}


def main() -> int:
    """Make the stores, ask, print a line a question."""
    parser = argparse.ArgumentParser(description="What the views cost over many grades.")
    parser.add_argument("--grades", default="10000,100000,1000000")
    parser.add_argument("--keep", type=Path, help="folder for the stores; what is there already is not made again")
    parser.add_argument("--only", default="", help="questions, with commas between them")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        print(json.dumps(ask(options.results, options.ask, options.run)))
        return 0
    sizes = [int(n) for n in options.grades.split(",")]
    questions = [q for q in options.only.split(",") if q] or list(QUESTIONS)
    with tempfile.TemporaryDirectory() as temporary:
        return _compare(options.keep or Path(temporary), sizes, questions)


def _compare(folder: Path, sizes: list[int], questions: list[str]) -> int:
    failed = 0
    for name, runs in (("collection", collection), ("one run", single)):
        stores = {}
        for n in sizes:
            results = folder / f"{name.replace(' ', '-')}-{n}"
            stores[n] = results, _made(results, runs(n))
        heads = "".join(f"{f'{n:,} grades':>26}" for n in sizes)
        print(f"\n{name:20}{heads}", flush=True)
        for question in questions:
            found = [measure(*(stores[n][0], question, stores[n][1])) for n in sizes]
            cells = "".join(f"{f['s']:12.2f} s {f['mb']:8.0f} MB" for f in found)
            verdict = _verdict(sizes, found)
            failed += verdict != ""
            print(f"{question:20}{cells}  {verdict}", flush=True)
    return 1 if failed else 0


def _made(results: Path, shapes: Iterator[Shape]) -> str:
    noted = results / "run.txt"
    if not noted.exists():
        results.mkdir(parents=True, exist_ok=True)
        noted.write_text(write(results, shapes), "ascii")
    return noted.read_text("ascii")


def _verdict(sizes: list[int], found: list[Row]) -> str:
    last = found[-1]
    out = []
    if last["s"] > LIMIT_S:
        out.append(f"above {LIMIT_S:g} s")
    if last["mb"] > LIMIT_MB:
        out.append(f"above {LIMIT_MB:g} MB")
    if len(found) > 1 and last["s"] / found[0]["s"] > sizes[-1] / sizes[0]:
        out.append("faster than linear")
    return ", ".join([*out, *(str(f["error"]) for f in found if "error" in f)])


if __name__ == "__main__":
    sys.exit(main())
