"""`check-suites`: prove that suites measure what they say."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from bench.grading import open_grader
from bench.options import names
from bench.paths import ROOT
from bench.reporter import Reporter
from bench.suites.check import check_suite
from bench.suites.load import load_suite


def check_suites(wanted: Sequence[str], out: Reporter) -> int:
    """References pass, mutants fail, ambiguities are listed. 1 when a suite is not proved."""
    chosen = names(wanted) or sorted(p.parent.name for p in (ROOT / "suites").glob("*/suite.toml"))
    proved, bare = True, []
    with contextlib.closing(open_grader("auto")) as grader:
        for name in chosen:
            report = check_suite(load_suite(name, ROOT / "suites"), grader)
            rows = [
                [
                    level.level_id,
                    str(level.n_tests),
                    level.reference.outcome,
                    f"{level.n_caught}/{len(level.mutants)}",
                    ", ".join(level.ambiguities) or "none",
                    "; ".join(n for n in level.notes if not n.startswith("used by the hidden tests")),
                ]
                for level in report.levels
            ]
            header = ["level", "tests", "reference", "mutants caught", "names the prompt lacks", "notes"]
            out.table(f"{report.suite_id}: {report.title} (graded in {report.provider})", header, rows)
            for problem in report.problems:
                out.warn(f"{report.suite_id}/{problem}")
            proved = proved and report.ok
            bare += [f"{report.suite_id}/{level.level_id}" for level in report.levels if not level.mutants]
    if not proved:
        out.line("not proved; the warnings say why")
        return 1
    if bare:
        out.line(f"every reference passes; nothing shows that the tests of {', '.join(bare)} can fail: add mutants")
    else:
        out.line("proved: every reference passes, every mutant fails")
    return 0
