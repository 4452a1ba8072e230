"""How long the speed probe takes, and how well its figures repeat.

    python -m benchmarks.probe [--rounds 3] [--url http://127.0.0.1:8080] [--context 4096] [--device cpu]
    python -m benchmarks.probe --llama-bench "PROGRAM ..." --model MODEL

Starts the embedded engine on the smoke model (or uses `--url`), probes it several times as an arm's start does, and
prints seconds, sizes, rates and their spread from round to round. With `--llama-bench` its figures for the same sizes
stand in a table of their own. Exit code 1 when a probe took longer than its limit, and a second for breaking off.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import statistics
import sys
import time
from collections import defaultdict

from bench.client.request import decode_rate
from bench.probe.llama_bench import llama_bench
from bench.probe.requests import Measurement, Shot, what_was_measured
from bench.probe.run import BUDGETS
from benchmarks.client import smoke_server


def means(shots: list[Shot]) -> dict[tuple[str, int], float]:
    """Mean rate by kind and size, tokens per second, without warm-ups."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for shot in shots:
        got = shot.figures()
        if not got or shot.repetition == 0:
            continue
        found["prompt", shot.size].append(got["prompt_n"] / got["prompt_ms"] * 1000)
        rate = decode_rate(got["predicted_n"], got["predicted_ms"])
        if rate is not None:
            found["decode", shot.size].append(rate)
    return {key: statistics.fmean(values) for key, values in found.items()}


def measure(url: str, args: argparse.Namespace) -> bool:
    """Print the table; whether every probe kept its limit."""
    budget = BUDGETS[args.device, "start"]
    rounds: dict[tuple[str, int], list[float]] = defaultdict(list)
    took: list[float] = []
    known = None
    for number in range(1, args.rounds + 1):
        began = time.monotonic()
        shots = Measurement(url, args.context, budget).run()
        took.append(time.monotonic() - began)
        known = what_was_measured(shots) or known
        failed = [f"{s.outcome}: {s.detail}" for s in shots if s.outcome != "ok"]
        print(f"round {number}: {len(shots)} requests in {took[-1]:.1f} s {'; '.join(failed)}")
        for key, rate in means(shots).items():
            rounds[key].append(rate)
    print(f"{'kind':8} {'size':>6} {'tokens/s':>10} {'spread':>8}")
    for (kind, size), values in sorted(rounds.items(), reverse=True):
        mean = statistics.fmean(values)
        spread = f"{100 * statistics.stdev(values) / mean:.1f} %" if len(values) > 1 else "-"
        print(f"{kind:8} {size:>6} {mean:>10.1f} {spread:>8}")
    if args.llama_bench and known is not None:
        settings = shlex.split(args.settings)
        found = llama_bench(
            shlex.split(args.llama_bench), args.model, settings, sizes=known.sizes, n_predict=known.n_predict
        )
        print("llama-bench, for comparison: no server, no template")
        for row in found:
            n, ms = row.get("predicted_n") or row.get("prompt_n"), row.get("predicted_ms") or row.get("prompt_ms")
            said = f"{n / ms * 1000:.1f}" if n and ms else str(row["detail"])
            print(f"{row['kind']:20} {row['size'] or 0:>6} {said:>10}")
    return max(took) <= budget.limit_s + 1


def main() -> int:
    """Run it; 0 when the probe keeps its time."""
    parser = argparse.ArgumentParser(description="Time and repeatability of the speed probe.")
    parser.add_argument("--url", help="a running llama-server; without it the embedded engine is started")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--context", type=int, default=4096, help="tokens of context of the server")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--llama-bench", help="a llama-bench, or a command that runs one")
    parser.add_argument("--model", default="", help="path of the model for llama-bench")
    parser.add_argument("--settings", default="", help="further arguments for llama-bench")
    args = parser.parse_args()
    with contextlib.nullcontext(args.url) if args.url else smoke_server() as url:
        return 0 if measure(url, args) else 1


if __name__ == "__main__":
    sys.exit(main())
