"""How long a report takes, from the command to the last file: views, charts, HTML, Markdown, database.

    python -m benchmarks.report [--results DIR] [--times 5]

Takes the newest run of the results folder (make one with `./invoke bench`). Exit code 1 when the median is over 5 s.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BOUND_S = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    command = [str(ROOT / "invoke"), "report", "--results", str(options.results)]
    took = []
    for _ in range(options.times):
        start = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took.append(time.monotonic() - start)
    median = statistics.median(took)
    print(f"report: median {median:.2f} s of {len(took)} ({min(took):.2f} to {max(took):.2f}); bound {BOUND_S:g} s")
    return int(median > BOUND_S)


if __name__ == "__main__":
    sys.exit(main())
