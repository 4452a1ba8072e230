"""How many solutions a second the sandbox grades, beside one `python -m pytest` process per solution.

    python -m benchmarks.grading [--n 100] [--provider bubblewrap] [--json FILE]

Everything runs on the same solutions, one path after the other, on one worker and on two, in one run: other load on the
machine hits all paths, so take the ratios. Verdicts are checked on the way. Required: at least 5.5 times the baseline
for hidden tests that need pytest, at least 15 times for plain `test_*` functions. Where EvalPlus is installed, its
checker runs beside them for orientation.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.grading import GradeJob, open_grader

HIDDEN = """from solution import add, mean, reverse


def test_add():
    assert add(1, 2) == 3
    assert add(-1, 1) == 0


def test_mean():
    assert mean([1, 2, 3]) == 2
    assert abs(mean([0.1, 0.2]) - 0.15) < 1e-9


def test_reverse():
    assert reverse("abc") == "cba"
    assert reverse("") == ""
"""
IDS = ("test_add", "test_mean", "test_reverse")
REQUIRED = {"pytest": 5.5, "plain": 15.0}


def solutions(n: int) -> list[tuple[str, bool]]:
    """(source, whether it is right): every fifth is wrong, all differ."""
    out = []
    for i in range(n):
        wrong = i % 5 == 4
        out.append(
            (
                f'"""Solution {i}."""\n\n\ndef add(a, b):\n    return a + b{" + 1" if wrong else ""}\n\n\n'
                f"def mean(xs):\n    total = 0\n    for x in xs:\n        total += x\n    return total / len(xs)\n\n\n"
                f"def reverse(s):\n    return s[::-1]\n\n\nNUMBER = {i}\n",
                not wrong,
            )
        )
    return out


def baseline(items: Sequence[tuple[str, bool]], workers: int) -> list[bool]:
    """One `python -m pytest` process per solution, in a folder of its own; its exit code is the verdict.

    Plugins that happen to be installed are not loaded: they made a process five times as slow here, and a slow baseline
    would flatter us.
    """
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def one(item: tuple[str, bool]) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "solution.py").write_text(item[0])
            (Path(folder) / "test_hidden.py").write_text(HIDDEN)
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_hidden.py"]
            return subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False).returncode == 0

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, items))


def sandboxed(items: Sequence[tuple[str, bool]], workers: int, provider: str, hidden: str) -> tuple[list[bool], float]:
    """Verdicts, and the seconds they took once the sandboxes are up and warm."""
    jobs = [GradeJob(code, hidden, IDS) for code, _ in items]
    with open_grader(provider, workers) as grader:
        grader.grade_many(jobs[:workers])
        began = time.monotonic()
        verdicts = grader.grade_many(jobs)
        return [v.passed for v in verdicts], time.monotonic() - began


def evalplus_rate(items: Sequence[tuple[str, bool]]) -> float | None:
    """Solutions per second of EvalPlus's own checker, one after the other; None when it is not installed.

    It is given one function of the three with two of its inputs: it forks a process for each solution, from an
    interpreter that has everything imported, and has no sandbox but limits and removed functions.
    """
    if importlib.util.find_spec("evalplus") is None:
        return None
    script = (
        "import json, sys, time\nfrom evalplus.eval import untrusted_check, PASS\n"
        "codes = json.load(sys.stdin)\nfound = []\nbegan = time.monotonic()\n"
        "for c in codes:\n"
        "    stat, _ = untrusted_check('humaneval', c, [[1, 2], [-1, 1]], 'add', [3, 0], 0, [0.1, 0.1])\n"
        "    found.append(stat == PASS)\n"
        "print(json.dumps([time.monotonic() - began, found]))\n"
    )
    sent = json.dumps([code for code, _ in items])
    done = subprocess.run([sys.executable, "-c", script], input=sent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"EvalPlus is installed and failed: {done.stderr.strip().splitlines()[-1:]}")
    seconds, verdicts = json.loads(done.stdout)
    if verdicts != [right for _, right in items]:
        raise SystemExit("the verdicts of EvalPlus are wrong")
    return len(items) / float(seconds)


def measure(n: int, provider: str) -> list[dict[str, float | int | str]]:
    """Rows: path, workers, solutions per second, times the baseline, what is required."""
    items = solutions(n)
    want = [right for _, right in items]
    rows: list[dict[str, float | int | str]] = []
    paths: dict[str, Callable[[int], tuple[list[bool], float]]] = {
        "pytest": lambda workers: sandboxed(items, workers, provider, "import pytest\n" + HIDDEN),
        "plain": lambda workers: sandboxed(items, workers, provider, HIDDEN),
    }
    for workers in (1, 2):
        began = time.monotonic()
        if baseline(items, workers) != want:
            raise SystemExit("the baseline's verdicts are wrong")
        base = n / (time.monotonic() - began)
        rows.append(
            {"path": "one pytest process each", "workers": workers, "per_s": base, "times": 1.0, "required": ""}
        )
        for name, path in paths.items():
            verdicts, seconds = path(workers)
            if verdicts != want:
                raise SystemExit(f"the sandbox's verdicts are wrong ({name})")
            rate = n / seconds
            row = {"path": f"{provider}, {name}", "workers": workers, "per_s": rate, "times": rate / base}
            rows.append({**row, "required": REQUIRED[name]})
    orientation = evalplus_rate(items)
    if orientation is not None:
        row = {"path": "EvalPlus's checker, one function", "workers": 1, "per_s": orientation, "times": ""}
        rows.append({**row, "required": ""})
    return rows


def main() -> int:
    """Print the table; exit code 1 when a requirement is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100, help="number of solutions (default 100)")
    parser.add_argument("--provider", default="bubblewrap", help="bubblewrap, container or unsafe")
    parser.add_argument("--json", type=Path, help="write the rows here too")
    options = parser.parse_args()
    rows = measure(options.n, options.provider)
    missed = False
    print(f"{'path':28} {'workers':>7} {'per second':>10} {'times':>6} {'required':>8}")
    for row in rows:
        times = f"{row['times']:.1f}" if isinstance(row["times"], float) else ""
        print(f"{row['path']:28} {row['workers']:>7} {row['per_s']:>10.1f} {times:>6} {row['required']:>8}")
        required = row["required"]
        missed = missed or (isinstance(required, float) and float(row["times"]) < required)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
