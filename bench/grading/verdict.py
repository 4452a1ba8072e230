"""The verdict on a grade: exit code, messages and expected ids must agree."""

from __future__ import annotations

import base64
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from bench.grading import GradeJob, Outcome, TestOutcome, TestResult, Verdict

_KEY_BYTES = 16
_KINDS = frozenset({"syntax", "import", "interface", "assertion", "exception", "resources", "exited", "timeout"})
_EXIT_DONE = 0


class Forged(Exception):
    """Something on the result pipe does not carry the key of the grade."""


@dataclass(frozen=True)
class Why:
    """One explanation of a failure as the worker sends it."""

    kind: str
    message: str
    line: int | None
    missing: str
    owner: str
    offered: tuple[str, ...]
    near: tuple[str, ...]

    @classmethod
    def read(cls, parts: Sequence[str]) -> Why:
        kind, message, line, missing, owner, offered, near = parts
        return cls(
            kind if kind in _KINDS else "exception",
            message,
            int(line) if line.isdigit() else None,
            missing,
            owner,
            tuple(n for n in offered.split("\x1f") if n),
            tuple(n for n in near.split("\x1f") if n),
        )


def messages(raw: bytes, key: bytes) -> list[list[str]]:
    """The messages of a grade. Raises Forged for any that lacks the key; a torn last one is left out."""
    out: list[list[str]] = []
    at = 0
    while len(raw) - at >= 4:
        size = int.from_bytes(raw[at : at + 4], "big")
        body = raw[at + 4 : at + 4 + size]
        if size < _KEY_BYTES + 2:
            raise Forged("a message on the result pipe is too short to carry the key of the grade")
        if body[:_KEY_BYTES] != key[: len(body[:_KEY_BYTES])]:
            raise Forged("a message on the result pipe does not carry the key of the grade")
        if len(body) < size:
            break
        at += 4 + size
        n, i, parts = int.from_bytes(body[16:18], "big"), 18, []
        for _ in range(n):
            length = int.from_bytes(body[i : i + 4], "big")
            parts.append(body[i + 4 : i + 4 + length].decode("utf-8", "replace"))
            i += 4 + length
        out.append(parts)
    return out


def judge(job: GradeJob, reply: dict[str, Any], key: bytes) -> Verdict:
    """Decide. `reply` is what the parent in the sandbox saw; nothing in it is taken as a pass by itself."""
    wall_ms, cpu_ms = float(reply["wall_ms"]), float(reply["cpu_ms"])
    try:
        said = messages(base64.b64decode(reply["raw"]), key)
    except Forged as error:
        tests = tuple(TestResult(t, "missing") for t in job.expected)
        return Verdict("tampering", str(error), tests, suspect=("forged_message",), wall_ms=wall_ms, cpu_ms=cpu_ms)
    marks = list(dict.fromkeys(m[1] for m in said if m[0] == "mark"))
    if reply["left"]:
        marks.append("left_process")
    seen: dict[str, tuple[TestOutcome, Why]] = {}
    twice = False
    for m in said:
        if m[0] == "test" and len(m) == 10:
            twice = twice or m[1] in seen
            seen[m[1]] = (cast(TestOutcome, m[2]), Why.read(m[3:]))
    tests = tuple(_result(t, seen) for t in job.expected)
    first = next((seen[t][1] for t in job.expected if t in seen and seen[t][0] != "passed"), None)
    outcome, detail, why = _decide(job, reply, said, seen, twice, first)
    interface = why if outcome == "interface" and why is not None else None
    return Verdict(
        outcome,
        detail,
        tests,
        missing_name=(interface.missing or None) if interface else None,
        offered=interface.offered if interface else (),
        suspect=tuple(marks),
        wall_ms=wall_ms,
        cpu_ms=cpu_ms,
        owner=interface.owner if interface else "",
        candidates=interface.near if interface else (),
        left_behind=bool(reply["left"]),
    )


def _result(test_id: str, seen: dict[str, tuple[TestOutcome, Why]]) -> TestResult:
    if test_id not in seen:
        return TestResult(test_id, "missing")
    outcome, why = seen[test_id]
    return TestResult(test_id, outcome, why.message or None, why.line)


def _decide(
    job: GradeJob,
    reply: dict[str, Any],
    said: list[list[str]],
    seen: dict[str, tuple[TestOutcome, Why]],
    twice: bool,
    first: Why | None,
) -> tuple[Outcome, str, Why | None]:
    kinds = [m[0] for m in said]
    flags = reply["flags"]
    lost = next((m[1] for m in said if m[0] == "lost"), "")
    tampering = next((m[1] for m in said if m[0] == "tampering"), None)
    if tampering is not None:
        return (
            "tampering",
            f"the solution's own {tampering} took part in a comparison" if "." in tampering else tampering,
            None,
        )
    if twice or "result_flood" in flags:
        return "tampering", "a test was reported twice" if twice else "the result pipe was flooded", None
    if "ready" not in kinds and not flags:
        words = lost or reply["output_head"].strip()[:200] or "no reason was given"
        return "not_measured", f"the sandbox could not start the grade: {words}", None
    if "host_gone" in flags:
        return "not_measured", "the bench ended meanwhile", None
    limits = job.limits
    if "wall" in flags:
        return "timeout", f"did not end within {limits.wall_s:g} s", None
    for flag, text in (
        ("memory", f"used more than {limits.memory_bytes >> 20} MiB of memory"),
        ("processes", f"started more than {limits.processes} processes"),
        ("output", f"printed more than {limits.output_bytes} bytes"),
    ):
        if flag in flags:
            return "resources", text, None
    load = next((Why.read(m[1:]) for m in said if m[0] == "load"), None)
    status = reply["status"]
    if status is None or status & 0x7F:
        number = 0 if status is None else status & 0x7F
        name = signal.Signals(number).name if number in signal.Signals.__members__.values() else str(number)
        over_cpu = float(reply["cpu_ms"]) >= limits.cpu_s * 1000 * 0.98
        if name == "SIGXCPU" or (name == "SIGKILL" and over_cpu):
            return "timeout", f"used more than {limits.cpu_s:g} s of CPU time", None
        return "exited", f"crashed:{name}", None
    if load is not None:
        return cast(Outcome, load.kind), _detail(load), load
    code = status >> 8
    if code != _EXIT_DONE or "end" not in kinds:
        return (
            "exited",
            f"the process ended with exit code {code} before the last test was reported; {lost}".rstrip("; "),
            None,
        )
    if set(seen) - set(job.expected):
        return "tampering", "a test was reported that the suite does not have", None
    if first is not None:
        return cast(Outcome, first.kind), _detail(first), first
    missing = [t for t in job.expected if t not in seen]
    if missing or not job.expected:
        return "exited", f"expected tests did not run: {', '.join(missing) or 'none is expected'}", None
    return "passed", "", None


def _detail(why: Why) -> str:
    if why.kind == "import" and why.missing:
        return f"import_error:{why.missing}: {why.message}"
    if why.kind == "interface" and why.missing:
        return f"needs {why.owner + '.' if why.owner else ''}{why.missing}: {why.message}"
    return why.message
