"""`replay`: ask a stored question again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.commands.setup import engines_for
from bench.commands.stored import existing
from bench.errors import UsageError
from bench.models.obtain import obtain
from bench.paths import ROOT, default_cache
from bench.presets.load import load_arm
from bench.reporter import Reporter
from bench.runner import environment
from bench.runner import replay as again
from bench.runner.planning import Wishes
from bench.store.database import connect
from bench.suites.load import load_suite


def replay(
    generation: str, results: str | None, server: str | None, out: Reporter, own_suite: str | None = None
) -> int:
    """0 when the text is the same, 1 when it is not. Nothing is stored: a replay never counts."""
    connection, _ = connect(existing(results).results)
    row = again.find(connection, generation)
    arm = load_arm(row["arm_id"], ROOT)
    suite = load_suite(own_suite or row["suite_id"], ROOT / "suites")
    changed = again.changed(row, arm, suite)
    if changed:
        raise UsageError(f"it cannot be asked as it was: {'; '.join(changed)}")
    engine = engines_for([arm], Wishes(server=server))[arm.arm_id]
    model = obtain(arm.model, default_cache(), progress=out.download)
    facts = environment.facts(None)
    gpu = {name: facts[name] for name in ("gpu_name", "gpu_driver")}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        end = again.replay(row, arm, suite, model.path, model.sha256, engine, log, gpu)
    if end.same:
        out.line(f"the same text, {len(end.now)} characters (seed {row['request_seed']})")
        return 0
    out.line(f"another text from character {end.at} on (seed {row['request_seed']}):")
    assert end.at is not None
    for name, text in (("then", end.before), ("now", end.now)):
        out.line(f"  {name:5s} ...{text[max(0, end.at - 30) : end.at + 60]!r}")
    return 1
