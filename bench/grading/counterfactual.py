"""How much of a failure is naming: grade again with the missing name bound to what the solution offers in its place."""

from __future__ import annotations

from dataclasses import replace

from bench.grading import GradeJob, Grader, Verdict

MOST_BINDINGS = 8
"""A solution can lack several names; each is found only when the one before it is there."""


def counterfactual(grader: Grader, job: GradeJob, verdict: Verdict) -> Verdict | None:
    """Grade an `interface` failure with each missing name bound to its closest candidate of compatible signature.

    None when the verdict is no `interface` failure or nothing that the solution offers could stand for the name. The
    result is a grade kind of its own (`counterfactual`); its detail lists the bindings. It never touches the headline.
    """
    bindings = job.bindings
    last: Verdict | None = None
    current = verdict
    while current.outcome == "interface" and current.missing_name and len(bindings) < MOST_BINDINGS:
        used = {(owner, candidate) for owner, _, candidate in bindings}
        free = [c for c in current.candidates if (current.owner, c) not in used]
        if not free:
            break
        binding = (current.owner, current.missing_name, free[0])
        if any(b[:2] == binding[:2] for b in bindings):
            break
        bindings = (*bindings, binding)
        current = last = grader.grade(replace(job, bindings=bindings))
    if last is None:
        return None
    names = ", ".join(
        f"{owner + '.' if owner else ''}{missing} = {candidate}" for owner, missing, candidate in bindings
    )
    return replace(last, detail=f"with {names}" + (f": {last.detail}" if last.detail else ""))
