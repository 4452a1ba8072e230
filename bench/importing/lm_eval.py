"""lm-evaluation-harness samples: JSON lines with `doc`, `resps` and `filtered_resps`.

The raw response is the answer; a filter's result is what the harness made of it. A task with two filters has each
response twice, which is one answer with two published verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.importing.files import Unusable, number, safe_id
from bench.importing.sample import Sample

ORIGIN = "lm-evaluation-harness samples"
_FILE = re.compile(r"^samples_(.+?)(?:_\d{4}-\d{2}-\d{2}T[\d.:-]+)?$")
_METRICS = ("pass@1", "pass_at_1", "exact_match", "acc")
_NAMES = ("task_id", "question_id", "id", "name")


def is_row(row: Mapping[str, Any]) -> bool:
    """Whether a line is of this format."""
    return "doc" in row and ("resps" in row or "filtered_resps" in row)


def sample(row: Mapping[str, Any], line: int) -> Sample:
    """A line as a sample. Raises Unusable: likelihoods of given answers, for one, are no answers."""
    doc = row.get("doc")
    if not isinstance(doc, dict):
        raise Unusable(f"expected an object as doc, found {type(doc).__name__}")
    number_ = row.get("doc_id", line)
    name = next((safe_id(str(doc[n])) for n in _NAMES if isinstance(doc.get(n), str | int)), "")
    name = name or f"doc_{safe_id(str(number_))}"
    answers = _texts(row["resps"]) if row.get("resps") else _texts(row.get("filtered_resps"))
    named = row.get("filter")
    chosen = f" ({named})" if isinstance(named, str) else ""
    listed = row.get("metrics")
    metrics = [m for m in listed if isinstance(m, str)] if isinstance(listed, list) else list(_METRICS)
    verdicts = []
    if len(answers) == 1:
        for metric in metrics:
            value = number(row.get(metric))
            if value in (0.0, 1.0):
                verdicts.append((f"{metric}{chosen}", value == 1.0))
    return Sample(name, answers, tuple(verdicts), same_as=f"{number_}")


def _texts(found: Any) -> tuple[str, ...]:
    """The answers of a task: `[["text", ...]]`, or `["text", ...]`."""
    if isinstance(found, list) and found and all(isinstance(v, str) for v in found):
        return tuple(found)
    if isinstance(found, list) and len(found) > 1 and all(isinstance(v, list) for v in found):
        raise Unusable("several requests for one task, as for likelihoods: there is no answer to grade")
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], list):
        inner = found[0]
        if inner and all(isinstance(v, str) for v in inner):
            return tuple(inner)
        if any(isinstance(v, list) for v in inner):
            raise Unusable("likelihoods, not answers: there is nothing to grade")
    raise Unusable("expected texts in resps, found none")


def task_set(rows: list[Sample], file: Path) -> str:  # noqa: ARG001
    """The task, as the file's name has it: `samples_TASK_TIME.jsonl`."""
    m = _FILE.match(file.stem)
    return (safe_id(m[1]) if m else "") or "lm-eval"


def arm_name(file: Path) -> str:
    """The harness puts samples into a folder named after the model."""
    return file.resolve().parent.name
