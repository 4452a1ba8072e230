"""Makes a copy in the reference project's layout: answers of the kinds that its run had, and its published verdicts.

The published verdicts are those of a harness that searches the reasoning for a code block when the answer has no fence.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.paths import ROOT
from bench.suites.load import load_suite

SUITE = load_suite("coding-v2", ROOT / "suites")
LEVELS = {level.level_id: level for level in SUITE.levels}
STARTED = datetime(2026, 6, 25, 0, 12, 34, tzinfo=UTC)
F = "`" * 3

KINDS: dict[str, tuple[bool, str]] = {
    "fenced": (True, "passed"),
    "fenced_thinking": (True, "passed"),
    "unfenced": (False, "passed"),
    "draft_stub": (False, "passed"),
    "empty": (False, "no_answer"),
    "wrong_name": (False, "interface"),
    "broken": (False, "syntax"),
    "request_failed": (False, "not_measured"),
}
"""Kind of an answer -> (what the source published, our verdict)."""


@dataclass(frozen=True)
class Made:
    """A copy of the layout, and the kind of each answer."""

    folder: Path
    kinds: Mapping[tuple[str, int, str], str]
    """By arm, iteration and level."""


def thoughts(rng: random.Random, size: int) -> str:
    """Reasoning of about so many characters."""
    said = [
        "The job has to stay in order, so a deque or a list will do.",
        "Wait, what does get_result return for a job that is not there?",
        "Let me think about the name of the method again.",
        "Priorities: 2 is the most urgent, so the heap needs the negative.",
        "A lock around the pop, and another one around the result.",
    ]
    out, length = [], 0
    while length < size:
        line = rng.choice(said)
        out.append(line)
        length += len(line) + 1
    return "\n".join(out)


def padded(code: str, rng: random.Random, size: int) -> str:
    """A right solution made longer by what models add: a docstring, comments, and helpers nobody calls."""
    out, n = [f'"""{thoughts(rng, 200)}"""\n\n{code}'], 0
    while sum(map(len, out)) < size:
        n += 1
        note = thoughts(rng, 120).replace("\n", "\n    # ")
        out.append(
            f"\n\ndef _helper_{n}(value, default=None):\n    # {note}\n    return default if value is None else value\n"
        )
    return "".join(out)


def answer(kind: str, level_id: str, rng: random.Random, thinking: int = 1200, size: int = 0) -> tuple[str, str | None]:
    """(content, reasoning) of an answer of a kind."""
    right = LEVELS[level_id].reference
    code = padded(right, rng, size) if size else right
    names = ", ".join(LEVELS[level_id].entry)
    usage = f"{F}python\nq = JobQueue()\nq.add_job('a', 1)\nprint(q)\n{F}"
    stub = f"{F}python\nclass JobQueue:\n    def add_job(self, job_id, data):\n        pass  # TODO\n{F}"
    thought = thoughts(rng, thinking)
    if kind == "fenced":
        return f"Here is the code for {names}:\n\n{F}python\n{code}{F}\n\nIt uses the standard library only.", None
    if kind == "fenced_thinking":
        return f"{F}python\n{code}{F}", f"{thought}\n{stub}\n{thought}"
    if kind == "unfenced":
        shown = "\n\n# Example:\n# q = JobQueue()\n# q.add_job('a', 1)\n"
        return f"{code}{shown}", f"Usage would be:\n{usage}\n{thought}\nA draft:\n{stub}\n{thought}"
    if kind == "draft_stub":
        return code, f"{thought}\n{stub}\nNow the whole of it."
    if kind == "empty":
        return "", f"{thought}\n{F}python\n{code}{F}\n{thoughts(rng, max(thinking, 3000))}\nLet me check once more"
    if kind == "wrong_name":
        assert level_id == "L1"
        return f"{F}python\n{right.replace('set_result', 'complete_job')}{F}", None
    if kind == "broken":
        return f"{F}python\nclass JobQueue:\n    def add_job(self, job_id, data:\n        return job_id\n{F}", None
    assert kind == "request_failed"
    return "ERROR: Server disconnected without sending a response.", None


def response(content: str, reasoning: str | None) -> str:
    """A response file's text."""
    if not reasoning:
        return content
    return f"<reasoning_content>\n{reasoning}\n</reasoning_content>\n\n<content>\n{content}\n</content>"


def graded_code(content: str, reasoning: str | None) -> str:
    """What the source took for the code: the first block of the answer if it has a fence, else of the reasoning."""
    source = content if F in content or not reasoning else f"{reasoning}\n\n{content}"
    return source.split(F + "python\n", 1)[1].split(F, 1)[0].rstrip() if F in source else source


def make(
    folder: Path,
    arms: Mapping[str, Sequence[Mapping[str, str]]],
    *,
    seed: int = 1,
    thinking: int = 1200,
    size: int = 0,
    codes: bool = True,
) -> Made:
    """Write a copy. `arms`: for each arm and iteration the kind of each level's answer."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    kinds: dict[tuple[str, int, str], str] = {}
    now = STARTED
    for arm_id, iterations in arms.items():
        listed: list[dict[str, Any]] = []
        for n, wanted in enumerate(iterations, 1):
            place = folder / "artifacts" / arm_id / f"iter_{n:02d}"
            place.mkdir(parents=True)
            levels = []
            for level_id, kind in wanted.items():
                kinds[arm_id, n, level_id] = kind
                content, reasoning = answer(kind, level_id, rng, thinking, size)
                (place / f"{level_id}_response.txt").write_text(response(content, reasoning), "utf-8")
                if codes:
                    (place / f"{level_id}_code.py").write_text(graded_code(content, reasoning), "utf-8")
                levels.append(published(level_id, KINDS[kind][0], now))
                now += timedelta(seconds=21.5)
            score = sum(level["points_earned"] for level in levels)
            one = {
                "iteration": n,
                "total_score": score,
                "levels_passed": sum(level["validation"]["passed"] for level in levels),
                "metrics": {
                    "mean_tps": 188.0 + n / 4,
                    "mean_ttft_ms": 84.0 + n,
                    "mean_total_ms": 21500.0,
                    "vram_idle_mb": 21387,
                },
                "timestamp": now.isoformat(),
                "levels": levels,
            }
            listed.append(one)
            (place / "summary.json").write_text(json.dumps(one, indent=2), "utf-8")
        result = {
            "model": {
                "id": arm_id,
                "name": f"Model of {arm_id}",
                "architecture": "qwen35moe",
                "repo": f"someone/{arm_id}-GGUF",
                "quant": "Q4_K_M",
                "file": f"{arm_id}.gguf",
                "port": 7111,
            },
            "config": {
                "iterations": len(iterations),
                "sampler": {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.0},
                "levels": [1, 2, 3, 4, 5],
            },
            "iterations": listed,
            "summary": {"tps": {"mean": 188.9, "values": []}, "vram_peak_mb": None},
            "started_at": STARTED.isoformat(),
            "completed_at": now.isoformat(),
        }
        (folder / f"result_{arm_id}.json").write_text(json.dumps(result, indent=2), "utf-8")
    return Made(folder, kinds)


def published(level_id: str, passed: bool, at: datetime) -> dict[str, Any]:
    """A level's entry of the result file."""
    level = LEVELS[level_id]
    return {
        "level": int(level_id[1:]),
        "name": level.title,
        "points_possible": level.points,
        "points_earned": level.points if passed else 0,
        "validation": {
            "passed": passed,
            "pass_rate": 1.0 if passed else 0.0,
            "tests_passed": 3 if passed else 0,
            "tests_total": 3,
            "error": None if passed else "Some tests failed",
        },
        "duration_seconds": 21.25,
        "timestamp": at.isoformat(),
    }


def mixed(n_iterations: int, first: str = "unfenced") -> list[dict[str, str]]:
    """Iterations of an arm whose answers are of every kind, one after the other."""
    kinds = [first, "fenced", "draft_stub", "fenced_thinking", "empty"]
    return [
        {f"L{n}": kinds[(n + i - 1) % len(kinds)] for n in range(1, 6)} for i in range(n_iterations)
    ]  # fmt: skip
