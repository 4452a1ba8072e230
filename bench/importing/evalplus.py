"""EvalPlus samples: JSON lines with `task_id` and `solution`; a task that was asked several times has several lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.importing.files import Unusable, safe_id
from bench.importing.sample import Sample

ORIGIN = "EvalPlus samples"


def is_row(row: Mapping[str, Any]) -> bool:
    """Whether a line is of this format."""
    return "task_id" in row and ("solution" in row or "completion" in row) and "doc" not in row


def sample(row: Mapping[str, Any], line: int) -> Sample:  # noqa: ARG001
    """A line as a sample. Raises Unusable.

    A `completion` is what follows a prompt that the file does not hold: it is no answer by itself, and is refused.
    """
    task = row.get("task_id")
    name = safe_id(task) if isinstance(task, str) else ""
    if not name:
        raise Unusable(f"expected a name as task_id, found {task!r:.60}")
    solution = row.get("solution")
    if not isinstance(solution, str):
        what = "only a completion, whose prompt is not here" if "completion" in row else f"{type(solution).__name__}"
        raise Unusable(f"{task}: expected text as solution, found {what}")
    return Sample(name, (solution,))


def task_set(rows: list[Sample], file: Path) -> str:  # noqa: ARG001
    """`humaneval` or `mbpp` by the names of the tasks, else `evalplus`."""
    heads = {row.level_id.partition("_")[0].lower() for row in rows}
    return heads.pop() if len(heads) == 1 and heads <= {"humaneval", "mbpp"} else "evalplus"


def arm_name(file: Path) -> str:
    """The file's name says which model it was, and with which settings."""
    return file.stem
