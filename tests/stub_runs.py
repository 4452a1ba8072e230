"""Runs of the real runner on the llama-server stand-in: real processes, real store, real grader."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from bench.engines import Engine
from bench.engines.process import ProcessEngine
from bench.grading import Grader
from bench.paths import default_cache
from bench.presets.load import Arm, load_arm
from bench.reporter import PlainReporter
from bench.runner.events import read
from bench.runner.run import RunEnd, RunSpec, run
from bench.store.database import connect
from bench.store.write import Store
from bench.suites.load import Suite, load_suite
from tests.engine_helpers import script, stub_executable

ROOT = Path(__file__).resolve().parent.parent
RUN = "20261130-120000-test"


@dataclass
class StubRuns:
    """A results folder, a stand-in, and arms of the smoke lineup with a script each."""

    folder: Path
    grader: Grader

    def __post_init__(self) -> None:
        self.results = self.folder / "results"
        # A bench holds its devices against every other one; these measure nothing, and need not wait for each other.
        os.environ["GGUF_BENCH_LOCKS"] = str(self.folder)
        self.engine = ProcessEngine(stub_executable(self.folder))
        suite = load_suite("smoke", ROOT / "suites")
        self.suite: Suite = replace(suite, levels=suite.levels[:3])
        self.said = ""

    def arm(self, arm_id: str = "a", steps: Mapping[str, Any] | None = None, **options: Any) -> Arm:
        """An arm whose server follows a script; the script is no part of what it is."""
        arm = load_arm("smollm2-135m-q4-kv-f16", ROOT)
        # None: the count starts anew with the server, as it must in a container.
        told = {"answers": [], "counter": str(self.folder / f"{arm_id}.count"), **options}
        if told["counter"] is None:
            del told["counter"]
        return ScriptedArm.of(replace(arm, arm_id=arm_id, startup_limit_s=30), script(steps, **told))

    def go(self, *arms: Arm, iterations: int = 1, engine: Engine | None = None, **more: Any) -> RunEnd:
        """Run them, in this order, on processes or on another engine."""
        spec = RunSpec(
            run_id=RUN, lineup_id="custom", arms=arms, suite=self.suite, iterations=iterations, seed=7,
            engines=dict.fromkeys((a.arm_id for a in arms), engine or self.engine), model_cache=default_cache(),
            **{"probe": False, "idle_limit_s": 1.0, "first_token_limit_s": 2.0, **more},
        )  # fmt: skip
        stream = io.StringIO()
        try:
            return run(spec, Store(self.results), self.grader, PlainReporter(stream))
        finally:
            self.said += stream.getvalue()

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        connection, bad = connect(self.results)
        assert not bad
        return connection.execute(query).fetchall()

    def events(self, event: str) -> list[dict[str, Any]]:
        return [e for e in read(self.results / "logs" / RUN) if e["event"] == event]

    def faults(self) -> list[str]:
        return [e["fault"] for e in self.events("fault")]

    def starts(self) -> int:
        return len(self.events("loading"))

    def servers(self) -> list[int]:
        """Stand-ins of this folder that still run."""
        mark = str(self.results)
        found = []
        for process in psutil.process_iter(["pid", "cmdline", "status", "environ"]):
            line = " ".join(process.info["cmdline"] or [])
            env = process.info["environ"] or {}
            mine = str(self.folder) in env.get("STUB_SCRIPT", "") or mark in line
            if "server_stub.py" in line and mine and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.info["pid"])
        return found


@dataclass(frozen=True)
class ScriptedArm(Arm):
    """An arm with an environment for the stand-in that is no part of its identity."""

    @classmethod
    def of(cls, arm: Arm, env: Mapping[str, str]) -> ScriptedArm:
        values = {name: getattr(arm, name) for name in arm.__dataclass_fields__}
        return cls(**{**values, "env": env})

    @property
    def preset_hash(self) -> str:
        return replace(Arm(**{n: getattr(self, n) for n in Arm.__dataclass_fields__}), env={}).preset_hash


def one_each(rows: Sequence[tuple[Any, ...]]) -> bool:
    """Whether every row's last column is 1."""
    return all(row[-1] == 1 for row in rows)
