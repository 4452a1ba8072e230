"""The environment that a server gets: ours, without what changes results behind the preset's back."""

from __future__ import annotations

import os
from collections.abc import Mapping

SCRUBBED_PREFIXES = (
    "LLAMA_",  # LLAMA_ARG_* set flags; LLAMA_TRACE, LLAMA_GRAPH_REUSE_DISABLE and others change speed or output
    "GGML_",  # GGML_CUDA_*, GGML_SCHED_*, GGML_BACKEND_PATH and others change kernels and memory
    "LLGUIDANCE_",
    "AIP_",  # a hosted platform's mode of llama-server: moves its port and its routes
    "OMP_",  # thread pools of the CPU backend: their waiting policy and limits change speed
    "GOMP_",
    "KMP_",
)
"""Variables of these prefixes are removed; a preset's own `env` is added afterwards and may set them."""


def scrubbed(env: Mapping[str, str]) -> list[str]:
    """Names in `env` that a server must not inherit, sorted."""
    return sorted(name for name in env if name.upper().startswith(SCRUBBED_PREFIXES))


def server_env(extra: Mapping[str, str], base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a server: `base` (this process's own by default) without the scrubbed names, plus `extra`."""
    source = dict(os.environ if base is None else base)
    for name in scrubbed(source):
        del source[name]
    return {**source, **extra}
