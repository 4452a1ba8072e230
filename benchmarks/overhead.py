"""What the bench costs beside the model: wall time over the server's own prompt and decode time.

    python -m benchmarks.overhead [--results DIR]

Runs one iteration of the smoke lineup (or reads a run that was made before). From the first question to the last grade:
at most 1.10 times the server's own time, and at most 1.02 times with the grades' own wall time left out.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from bench.store.database import connect

ROOT = Path(__file__).resolve().parents[1]
WHOLE, WITHOUT_GRADING = 1.10, 1.02

QUERY = """
with done as (
    select g.*, h.graded_at, h.wall_ms as grade_ms
    from generations g left join (from grades where grade_kind = 'headline') h using (generation_id)
    where g.outcome = 'ok' and h.grade_kind = 'headline'
)
select arm_id, count(*) as n,
    epoch(max(graded_at)) - epoch(min(started_at)) as wall_s,
    sum(prompt_ms + predicted_ms) / 1000 as server_s,
    sum(coalesce(grade_ms, 0)) / 1000 as grading_s
from done group by arm_id order by arm_id
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, help="results folder of a smoke run; without it one is made")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = options.results or Path(folder) / "results"
        if options.results is None:
            command = [str(ROOT / "invoke"), "bench", "--iterations", "1", "--results", str(results)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = connect(results)[0].execute(QUERY).fetchall()
    fine = True
    for arm_id, n, wall, server, grading in rows:
        whole, without = wall / server, (wall - grading) / server
        print(
            f"{arm_id}: {n} answers, {wall:.2f} s from the first question to the last grade, server {server:.2f} s, "
            f"grading {grading:.2f} s: {whole:.3f} (bound 1.10), without grading {without:.3f} (bound 1.02)"
        )
        fine = fine and whole <= WHOLE and without <= WITHOUT_GRADING
    return 0 if fine and rows else 1


if __name__ == "__main__":
    raise SystemExit(main())
