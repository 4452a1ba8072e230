"""`check-suites`: prove that suites measure what they say."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from bench.grading import open_grader
from bench.options import names
from bench.paths import ROOT
from bench.reporter import Reporter
from bench.suite_check import check_suite
from bench.suites import load_suite

MIN_MUTANTS = 5


def check_suites(wanted: Sequence[str], out: Reporter) -> int:
    """References pass, mutants fail, ambiguities are listed. 1 when a suite is not proved."""
    chosen = names(wanted) or sorted(p.parent.name for p in (ROOT / "suites").glob("*/suite.toml"))
    bad = 0
    with contextlib.closing(open_grader("auto")) as grader:
        for name in chosen:
            suite = load_suite(name, ROOT / "suites")
            report = check_suite(suite, grader)
            rows = []
            for level in report.levels:
                caught = sum(not m.verdict.passed for m in level.mutants)
                rows.append(
                    [
                        level.level_id,
                        level.reference.outcome,
                        f"{caught}/{len(level.mutants)}",
                        ", ".join(level.ambiguities) or "none",
                    ]
                )
                if not level.reference.passed:
                    out.warn(f"{name} {level.level_id}: the reference fails: {level.reference.detail}")
                for mutant in level.mutants:
                    if mutant.verdict.passed:
                        out.warn(f"{name} {level.level_id}: the mutant '{mutant.name}' passes")
                bad += not level.ok
            out.table(name, ["level", "reference", "mutants caught", "names the prompt lacks"], rows)
    out.line("not proved" if bad else "proved: every reference passes, every mutant fails")
    return 1 if bad else 0
