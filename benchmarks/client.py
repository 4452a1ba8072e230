"""What the client costs and how well it times, against the server's own clock.

    python -m benchmarks.client [--requests 10] [--tokens 128]

Starts the embedded engine on the smoke model (or uses `--url`), asks the same question through `bench.client.request`
and through plain httpx without a stream in turns, and prints CPU seconds per 1,000 tokens and the error of the decode
rate that the client sees, from its first to its last token, against `predicted_n` and `predicted_ms` of the same
requests.
Exit code 1 when the client is over 0.3 CPU seconds per 1,000 tokens or more than 0.1 % off.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from bench.client.request import Reply, Request, ask, decode_rate
from bench.engines.process import ProcessEngine
from bench.models import obtain as models
from bench.paths import default_cache
from bench.presets import load as presets

ROOT = Path(__file__).resolve().parents[1]
QUESTION = "Write a long story about a lighthouse keeper who counts ships."


@contextlib.contextmanager
def smoke_server() -> Iterator[str]:
    """The first arm of the smoke lineup with one thread, served by the process engine."""
    lineup = presets.load_lineup("smoke", ROOT)
    arm = dataclasses.replace(presets.load_arm(lineup.arms[0], ROOT), threads=1)
    model = models.obtain(arm.model, default_cache()).path
    with tempfile.TemporaryDirectory() as folder:
        server = ProcessEngine().start(arm, model, Path(folder) / "server.log")
        try:
            yield server.base_url
        finally:
            server.stop()


def question(tokens: int, seed: int) -> Request:
    """The same for both clients; `ignore_eos` makes every answer as long."""
    return Request(
        messages=({"role": "user", "content": QUESTION},),
        max_tokens=tokens,
        seed=seed,
        sampler={"temperature": 0.0},
        extra={"ignore_eos": True},
    )


def streamed(url: str, request: Request) -> tuple[Reply, float]:
    """The reply, and CPU seconds spent on it here."""
    start = time.process_time()
    reply = ask(url, request)
    return reply, time.process_time() - start


def in_one_piece(client: httpx.Client, url: str, request: Request) -> tuple[int, float]:
    """Tokens and CPU seconds of plain httpx without a stream; the client is made once, outside of the count."""
    body = {
        "messages": [dict(m) for m in request.messages],
        "max_tokens": request.max_tokens,
        "seed": request.seed,
        "cache_prompt": False,
        **request.sampler,
        **request.extra,
    }
    start = time.process_time()
    answer = client.post(url + "/v1/chat/completions", json=body).json()
    return int(answer["usage"]["completion_tokens"]), time.process_time() - start


def measure(url: str, requests: int, tokens: int) -> bool:
    """Print the table; whether the client keeps its bounds."""
    plain = httpx.Client(trust_env=False, timeout=600, headers={"connection": "close"})
    streamed(url, question(8, 0))
    errors: list[float] = []
    above: list[float] = []
    cpu = plain_cpu = 0.0
    count = plain_count = 0
    for seed in range(requests):
        reply, used = streamed(url, question(tokens, seed))
        if reply.outcome != "ok" or reply.first_token_ms is None or reply.last_token_ms is None:
            print(f"request {seed}: {reply.outcome}: {reply.detail}")
            return False
        n = int(reply.timings["predicted_n"])
        cpu += used
        count += n
        seen = decode_rate(n, reply.last_token_ms - reply.first_token_ms)
        servers = decode_rate(n, reply.timings["predicted_ms"])
        assert seen is not None
        assert servers is not None
        errors.append((seen / servers - 1) * 100)
        above.append(reply.first_token_ms - reply.timings["prompt_ms"])
        got, used = in_one_piece(plain, url, question(tokens, seed))
        plain_cpu += used
        plain_count += got
    per_1000 = cpu / count * 1000
    error = statistics.fmean(errors)
    print(f"{'client':34} {'rate error, mean (worst)':>26} {'TTFT above prompt_ms':>21} {'CPU s / 1,000 tokens':>21}")
    worst = max(errors, key=abs)
    ours = f"{error:+.3f} % ({worst:+.3f} %)"
    print(f"{'bench.client.request, streamed':34} {ours:>26} {statistics.median(above):>18.1f} ms {per_1000:>21.3f}")
    print(f"{'httpx, not streamed':34} {'-':>26} {'-':>21} {plain_cpu / plain_count * 1000:>21.3f}")
    return per_1000 <= 0.3 and abs(error) <= 0.1


def main() -> int:
    """Run it; 0 when the bounds hold."""
    parser = argparse.ArgumentParser(description="Cost and accuracy of the client.")
    parser.add_argument("--url", help="a running llama-server; without it the embedded engine is started")
    parser.add_argument("--requests", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=128)
    args = parser.parse_args()
    with contextlib.nullcontext(args.url) if args.url else smoke_server() as url:
        return 0 if measure(url, args.requests, args.tokens) else 1


if __name__ == "__main__":
    sys.exit(main())
