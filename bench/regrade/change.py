"""Why two verdicts on one answer are not the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    """An answer whose verdict is another one now."""

    arm_id: str
    level_id: str
    iteration: int
    against: str
    """What it was compared with: `headline` or `published`."""
    before: str
    after: str
    cause: str
    """extractor, tests, sandbox, grader, or not_repeatable; for `published` the causes of the view `disagreements`."""
    why: str


def verdict_name(grade: Mapping[str, Any]) -> str:
    """The verdict in a word, with its mark."""
    return str(grade["outcome"]) + (" (suspect)" if grade["suspect"] else "")


def change(old: Mapping[str, Any], new: Mapping[str, Any]) -> Change | None:
    """What changed between two grades of one answer, and the first thing that differs between them; None for nothing.

    Both need the columns outcome, passed, suspect, code, code_rule, grading_hash, provider, grader_version,
    first_failed_test and detail.
    """
    if (old["outcome"], old["passed"], bool(old["suspect"])) == (new["outcome"], new["passed"], bool(new["suspect"])):
        return None
    cause, why = _cause(old, new)
    key = (new["arm_id"], new["level_id"], new["iteration"])
    return Change(*key, "headline", verdict_name(old), verdict_name(new), cause, why)


def _cause(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, str]:
    if "not_measured" in (old["outcome"], new["outcome"]):
        which = old if old["outcome"] == "not_measured" else new
        return "not_measured", f"{'before' if which is old else 'now'} it could not be graded: {which['detail']}"
    if old["code"] != new["code"]:
        return "extractor", f"{_code(old)} before, {_code(new)} now{_test(old, new)}"
    if old["grading_hash"] != new["grading_hash"]:
        return "tests", f"the same code under other tests or limits{_test(old, new)}"
    if old["provider"] != new["provider"]:
        return "sandbox", f"the same code in {new['provider']} instead of {old['provider']}{_test(old, new)}"
    if old["grader_version"] != new["grader_version"]:
        return (
            "grader",
            f"the same code by grader {new['grader_version']}, before {old['grader_version']}{_test(old, new)}",
        )
    return "not_repeatable", f"same code, tests, sandbox and grader{_test(old, new)}"


def _code(grade: Mapping[str, Any]) -> str:
    if grade["code"] is None:
        return f"no code (rule {grade['code_rule']})"
    return f"{len(grade['code'].splitlines())} lines of code (rule {grade['code_rule']})"


def _test(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The test that tells them apart: the first one that fails now, or that failed before."""
    failing, when = (new, "now") if not new["passed"] else (old, "before")
    text = "; ".join(str(failing[name]) for name in ("first_failed_test", "detail") if failing[name])
    if new["suspect"] and not old["suspect"]:
        text = "; ".join([text, *(new["suspect_reasons"] or ())]).lstrip("; ")
    return f"; {when} {text}" if text else ""
