"""Kill the bench at random moments of smoke runs, resume each, and compare the end with a run that nobody disturbed.

    python -m benchmarks.kill [--kills 50] [--seed 1]

SIGKILL hits the bench process alone, as the kernel's out-of-memory killer would. What must hold: every process that it
had started is gone soon; the same command carries the run on; at the end every planned question has one answer and one
grade, the texts are those of the undisturbed run, and nothing is missing.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.runner.events import read
from bench.store.database import connect

ROOT = Path(__file__).resolve().parent.parent

ARM = "smollm2-135m-q4-kv-f16"
RUN_SEED = 7
GONE_S = 20.0
"""Longest time that a process may stay after the bench was killed."""


@dataclass(frozen=True)
class Moment:
    """When to kill: so many seconds after a session's start, or after so many of its events of a kind."""

    events: int
    """Events of `kind` to wait for; 0 counts the seconds from the start."""
    kind: str
    delay_s: float


@dataclass
class Tally:
    """What happened."""

    kills: int = 0
    runs: int = 0
    resumed: int = 0
    errors: list[str] = field(default_factory=list)


def command(results: Path, iterations: int, suite: str) -> list[str]:
    """The bench as a person types it; the same words start a run and carry it on."""
    return [
        str(ROOT / "invoke"), "bench", "--arm", ARM, "--suite", suite, "--iterations", str(iterations),
        "--seed", str(RUN_SEED), "--results", str(results),
    ]  # fmt: skip


def draw(rng: random.Random) -> Moment:
    """A random moment: while it starts, while it answers, or right where something is stored."""
    kind = rng.random()
    if kind < 0.2:
        return Moment(0, "", rng.uniform(0.0, 12.0))
    if kind < 0.6:
        return Moment(rng.randint(1, 2), "question", rng.uniform(0.0, 6.0))
    if kind < 0.8:
        return Moment(rng.randint(1, 2), "graded", rng.uniform(0.0, 0.05))
    return Moment(1, rng.choice(("run", "loading", "arm")), rng.uniform(0.0, 0.5))


def session(results: Path, iterations: int, moment: Moment | None, log: Path, suite: str = "smoke") -> int | None:
    """Run the command; kill it at the moment, if it lives until then. Returns its exit code, None when it was killed.

    Raises AssertionError when something it had started outlives it.
    """
    before = _events(results)
    with log.open("a") as out:
        process = subprocess.Popen(
            command(results, iterations, suite),
            # A lock folder of its own: another bench on this machine disturbs the timing, not what is shown here.
            env={**os.environ, "GGUF_BENCH_LOCKS": str(log.parent)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        if moment is not None:
            seen = sum(e == moment.kind for e in before)
            while process.poll() is None and sum(e == moment.kind for e in _events(results)) < seen + moment.events:
                time.sleep(0.02)
            end = time.monotonic() + moment.delay_s
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            if process.poll() is None:
                below = _below(process.pid)
                process.kill()
                process.wait()
                _, alive = psutil.wait_procs(below, timeout=GONE_S)
                assert not alive, f"left running after the kill: {[_line(p) for p in alive]}"
                return None
        return process.wait(900)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _events(results: Path) -> list[str]:
    logs = results / "logs"
    folders = sorted(logs.iterdir()) if logs.is_dir() else []
    return [str(e["event"]) for folder in folders for e in read(folder)]


def _below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:200]
    except psutil.Error:
        return "(gone meanwhile)"


def verdicts(results: Path) -> dict[tuple[str, int], tuple[str, str, str, float]]:
    """Text, finish reason, outcome and points of each question. Raises AssertionError where one is not there once."""
    connection, _ = connect(results)
    rows = connection.execute(
        "select p.level_id, p.iteration, count(distinct g.generation_id), count(h.grade_id), any_value(g.content), "
        "any_value(g.finish_reason), any_value(h.outcome), any_value(h.points) from plan_latest p "
        "left join generations g using (run_id, arm_id, level_id, iteration) "
        "left join (from grades where grade_kind = 'headline') h using (generation_id) group by all"
    ).fetchall()
    wrong = [(level, i, answers, grades) for level, i, answers, grades, *_ in rows if (answers, grades) != (1, 1)]
    assert rows, "no plan is stored"
    assert not wrong, f"(level, iteration, answers, grades) that are not one each: {wrong}"
    return {(level, i): tuple(rest) for level, i, _, _, *rest in rows}


def check(results: Path, calm: Path) -> None:
    """A run that was killed and carried on against one that was not. Raises AssertionError."""
    connection, bad = connect(results)
    assert not bad, f"torn files: {bad}"
    runs = connection.execute("select status from runs_latest").fetchall()
    assert runs == [("finished",)], f"runs: {runs}"
    gaps = connection.execute("select * from missing").fetchall()
    assert not gaps, f"missing: {gaps}"
    lost = connection.execute(
        "select count(*) from (select h.grade_id, any_value(h.tests_expected) e, count(t.test_id) n from grades h "
        "left join tests t using (grade_id) where h.tests_passed is not null group by 1) where e <> n"
    ).fetchone()
    assert lost == (0,), f"grades without all their tests: {lost}"
    ours, theirs = verdicts(results), verdicts(calm)
    other = [key for key in theirs if ours.get(key) != theirs[key]]
    assert not other, f"not as in the undisturbed run: {other}"
    left = list(results.rglob("*.tmp"))
    assert not left, f"left behind: {left}"


def campaign(folder: Path, moments: list[Moment], iterations: int, suite: str = "smoke") -> Tally:
    """Kill at each of the moments, over as many runs as it takes. Raises AssertionError at the first fault."""
    tally = Tally()
    calm = folder / "calm"
    assert session(calm, iterations, None, folder / "calm.log", suite) == 0, (folder / "calm.log").read_text()
    todo = list(moments)
    while todo or tally.runs == 0:
        tally.runs += 1
        results, log = folder / f"killed-{tally.runs}", folder / f"killed-{tally.runs}.log"
        while True:
            code = session(results, iterations, todo.pop(0) if todo else None, log, suite)
            if code is None:
                tally.kills += 1
                continue
            assert code == 0, f"exit code {code}\n{log.read_text()}"
            break
        assert "Traceback" not in log.read_text(), log.read_text()
        tally.resumed += log.read_text().count("continuing run")
        check(results, calm)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=2)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        tally = campaign(Path(folder), [draw(rng) for _ in range(options.kills)], options.iterations)
    print(f"{tally.kills} kills of {options.kills} moments (the others came after the end), {tally.runs} runs,")
    print(f"{tally.resumed} sessions carried a run on; every answer and grade there once, texts equal, nothing left")


if __name__ == "__main__":
    main()
