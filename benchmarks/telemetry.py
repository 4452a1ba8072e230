"""What sampling costs: CPU of the telemetry threads at 10 Hz beside a server with many threads.

    python -m benchmarks.telemetry [--seconds 20]

Exit code 1 when it is over 1 % of one core.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Any

from bench.telemetry.sampler import Sampler

_SERVER = """
import threading, time
for _ in range(16):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
time.sleep(3600)
"""


def main() -> int:
    """Run it; 0 when the bound holds."""
    parser = argparse.ArgumentParser(description="CPU cost of telemetry.")
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    process = subprocess.Popen([sys.executable, "-c", _SERVER])
    rows: list[dict[str, Any]] = []
    try:
        time.sleep(0.5)
        sampler = Sampler("run", "arm", rows.extend, None, lambda: (process.pid,))
        sampler.phase = "generate"
        cpu, start = time.process_time(), time.monotonic()
        sampler.start()
        time.sleep(seconds)
        sampler.stop()
        took = time.monotonic() - start
        share = (time.process_time() - cpu) / took * 100
    finally:
        process.kill()
        process.wait()
    print(f"{len(rows)} samples in {took:.1f} s ({len(rows) / took:.2f} Hz), GPU: {rows[0]['reason'] or 'sampled'}")
    print(f"CPU {share:.2f} % of one core (bound 1 %), {share / 100 * took / len(rows) * 1e6:.0f} us a sample")
    return 0 if share < 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
