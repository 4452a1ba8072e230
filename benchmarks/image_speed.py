"""Whether the CPU image decodes as fast as the embedded engine.

    python -m benchmarks.image_speed [--image REF] [--threads N] [--rounds 9] [--tokens 128] [--floor 0.9]

Loads the smoke model in both, asks them in turns (so that what else the machine does hits both alike), and compares
the rates of each pair. An idle server waits without using the CPU, so both can be loaded. Exit code 1 when the median
of the ratios is below the floor. One thread by default: several wait for each other spinning, and on a machine that
does something else too decoding then collapses in one engine or the other by chance.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil

from bench import host
from bench.engines import Server, health
from bench.engines.container import ContainerEngine
from bench.engines.docker_host import connect
from bench.engines.process import ProcessEngine
from bench.image import build as image
from bench.models import obtain as models
from bench.paths import ROOT, default_cache
from bench.presets import load as presets

BODY = {
    "messages": [{"role": "user", "content": "Write a long story about a lighthouse keeper who counts ships."}],
    "temperature": 0,
    "seed": 1,
    "ignore_eos": True,
    "cache_prompt": False,
}


def cpu_seconds(server: Server) -> float:
    """CPU time that the server's processes have used, seconds."""
    times = [psutil.Process(pid).cpu_times() for pid in server.pids]
    return sum(t.user + t.system for t in times)


def rate(server: Server, tokens: int) -> tuple[float, float, float]:
    """(decode rate, prompt rate, CPU milliseconds of a token) of one answer, rates in tokens per second from the
    server's raw timings."""
    before = cpu_seconds(server)
    with health.client(600.0) as http:
        reply = http.post(f"{server.base_url}/v1/chat/completions", json={**BODY, "max_tokens": tokens})
    reply.raise_for_status()
    t = reply.json()["timings"]
    cpu = (cpu_seconds(server) - before) / (t["predicted_n"] + t["prompt_n"]) * 1000
    return (t["predicted_n"] - 1) / t["predicted_ms"] * 1000, t["prompt_n"] / t["prompt_ms"] * 1000, cpu


def main() -> int:
    """Compare and report; 1 below the floor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", help="image to measure (default: the newest CPU image that this project built)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--floor", type=float, default=0.9)
    wishes = parser.parse_args()

    ref = wishes.image or image.find_image(connect(), "cpu")
    if ref is None:
        print("expected a CPU image, found none: make it with `invoke build-llama --backend cpu`")
        return 2
    lineup = presets.load_lineup("smoke", ROOT)
    arm = replace(presets.load_arm(lineup.arms[0], ROOT), threads=wishes.threads, port=0)
    model = models.obtain(arm.model, default_cache()).path
    print(f"{model.name}, {wishes.threads} threads, {host.cpu_model()}")
    busy = host.busy_with()
    if busy:
        print(f"warning: the machine is busy ({busy}); the ratio below is worth less")
    pairs: list[tuple[float, float]] = []
    prompts: list[tuple[float, float]] = []
    cpus: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        embedded = ProcessEngine().start(arm, model, Path(folder) / "embedded.log")
        try:
            contained = ContainerEngine(ref).start(arm, model, Path(folder) / "container.log")
            try:
                print(f"container: {ref}, {contained.identity.fingerprint}; embedded: {embedded.identity.wheel}")
                rate(embedded, 16), rate(contained, 16)
                for i in range(wishes.rounds):
                    # Who goes first alternates: the second may find a warmer or a hotter machine.
                    both: list[Server] = [contained, embedded] if i % 2 else [embedded, contained]
                    seen = {server.base_url: rate(server, wishes.tokens) for server in both}
                    c, e = seen[contained.base_url], seen[embedded.base_url]
                    pairs.append((c[0], e[0]))
                    prompts.append((c[1], e[1]))
                    cpus.append((c[2], e[2]))
                    print(
                        f"  container {c[0]:7.1f}  embedded {e[0]:7.1f} tok/s  ratio {c[0] / e[0]:.3f}   "
                        f"CPU of a token {c[2]:.1f} and {e[2]:.1f} ms"
                    )
            finally:
                contained.stop()
        finally:
            embedded.stop()
    ratios = sorted(c / e for c, e in pairs)
    ratio = statistics.median(ratios)
    load = psutil.getloadavg()[0]
    print(
        f"decode: container {statistics.median(c for c, _ in pairs):.1f}, embedded"
        f" {statistics.median(e for _, e in pairs):.1f} tok/s; ratio {ratio:.3f} (from {ratios[0]:.3f} to"
        f" {ratios[-1]:.3f}, {len(ratios)} pairs); prompt ratio {statistics.median(c / e for c, e in prompts):.3f};"
        f" CPU of a token {statistics.median(c for c, _ in cpus):.1f} and"
        f" {statistics.median(e for _, e in cpus):.1f} ms; load {load:.1f}"
    )
    if ratio < wishes.floor:
        print(f"expected a ratio of at least {wishes.floor}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
