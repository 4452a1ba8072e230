"""How long `./invoke --list` takes, against Invoke itself on an empty tasks.py (bound: twice as long).

python -m benchmarks.startup [--times 15]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EMPTY = "from invoke import task\n\n\n@task\ndef nothing(c):\n    pass\n"
BOUND = 2.0


def seconds(command: Sequence[str], folder: Path) -> float:
    """Wall time of a command, seconds."""
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15)
    times = parser.parse_args().times
    plain = [sys.executable, str(Path(sys.executable).with_name("invoke")), "--list"]
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tasks.py").write_text(EMPTY)
        for turn in range(times + 1):  # in turns, so that a busy machine hits both; the first fills caches
            a, b = seconds([str(ROOT / "invoke"), "--list"], ROOT), seconds(plain, Path(folder))
            if turn:
                ours.append(a)
                theirs.append(b)
    # The smallest of many is what the work takes; the rest is what else the machine did.
    factor = min(ours) / min(theirs)
    print(f"./invoke --list: {1000 * min(ours):.0f} ms (median {1000 * statistics.median(ours):.0f})")
    print(f"Invoke on an empty tasks.py: {1000 * min(theirs):.0f} ms (median {1000 * statistics.median(theirs):.0f})")
    print(f"factor {factor:.2f} (bound {BOUND:g})")
    return 0 if factor <= BOUND else 1


if __name__ == "__main__":
    raise SystemExit(main())
