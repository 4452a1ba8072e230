"""Errors that a person can act on. Each is one line, never a traceback."""

from __future__ import annotations

from typing import Literal

ArmReason = Literal[
    "image_missing",
    "image_mismatch",
    "engine_unavailable",
    "gpu_unavailable",
    "gpu_busy",
    "cpu_fallback",
    "no_memory",
    "model_missing",
    "model_corrupt",
    "model_incompatible",
    "flag_unsupported",
    "settings_differ",
    "template_error",
    "port_in_use",
    "wrong_server",
    "load_failed",
    "load_timeout",
    "cuda_oom",
    "oom_killed",
    "server_died",
    "no_answers",
    "context_too_small",
    "internal",
]
"""Why an arm could not run, or could not go on."""


class BenchError(Exception):
    """The work cannot go on; the message says what was expected, what was found and what to do."""

    exit_code = 1


class UsageError(BenchError):
    """What the user typed, or a file the user wrote, is not what is expected."""

    exit_code = 2


class ArmError(BenchError):
    """One arm cannot run. It is recorded with its reason, and the other arms go on."""

    def __init__(self, reason: ArmReason, detail: str, *, advice: str = "", log_line: str | None = None) -> None:
        super().__init__(f"{reason}: {detail}" + (f" ({advice})" if advice else ""))
        self.reason: ArmReason = reason
        self.detail = detail
        self.advice = advice
        self.log_line = log_line
