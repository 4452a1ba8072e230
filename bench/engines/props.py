"""The settings in force, read back from the server and compared with the preset."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.engines.facts import LogFacts
from bench.engines.health import client
from bench.errors import ArmError
from bench.presets.load import Arm

_CONTEXT_STEP = 256  # llama.cpp rounds a context up to a multiple of this


@dataclass(frozen=True)
class Props:
    """What `/props` says. None is "it does not say"."""

    model_path: str | None = None
    total_slots: int | None = None
    n_ctx: int | None = None
    """Context of one slot, tokens."""
    build_info: str | None = None
    """Also the `system_fingerprint` of every answer."""
    sampler: dict[str, float | int] = field(default_factory=dict)
    """Sampler defaults in force, under the request's field names."""
    chat_template_sha256: str | None = None


@dataclass(frozen=True)
class Difference:
    """One setting that is not what the preset says."""

    name: str
    expected: object
    found: object

    def __str__(self) -> str:
        found = "nothing" if self.found is None else self.found
        return f"{self.name}: expected {self.expected}, found {found}"


def read_props(base_url: str, timeout_s: float = 10.0) -> Props:
    """Ask a ready server for its settings. Raises ArmError `wrong_server` when it has no usable answer."""
    try:
        with client(timeout_s) as http:
            reply = http.get(f"{base_url}/props")
        reply.raise_for_status()
        data = reply.json()
    except (httpx.HTTPError, ValueError) as error:
        raise _no_props(base_url, str(error)) from error
    if not isinstance(data, dict):
        raise _no_props(base_url, "not an object")
    return parse_props(data)


def _no_props(base_url: str, why: str) -> ArmError:
    return ArmError(
        "wrong_server",
        f"{base_url}/props: expected the server's settings, found {why}",
        advice="the server must be llama.cpp's, recent enough to have /props",
    )


def parse_props(data: Mapping[str, Any]) -> Props:
    """Read the answer of `/props`; what is absent or of another type becomes None."""
    settings = _mapping(data.get("default_generation_settings"))
    params = _mapping(settings.get("params"))
    template = data.get("chat_template")
    return Props(
        model_path=_text(data.get("model_path")),
        total_slots=_whole(data.get("total_slots")),
        n_ctx=_whole(settings.get("n_ctx")),
        build_info=_text(data.get("build_info")),
        sampler={
            name: _rounded(value)
            for name in _SAMPLER_FIELDS
            if isinstance(value := params.get(name), int | float) and not isinstance(value, bool)
        },
        chat_template_sha256=(
            hashlib.sha256(template.encode("utf-8", errors="surrogatepass")).hexdigest()
            if isinstance(template, str)
            else None
        ),
    )


_SAMPLER_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
)


def build_and_commit(build_info: str | None) -> tuple[int | None, str | None]:
    """`b9785-8be759e6f` as (9785, "8be759e6f"); a build that does not know itself (`b0-unknown`) gives None."""
    match = re.fullmatch(r"b(\d+)-(\w+)", build_info or "")
    if match is None:
        return None, None
    commit = None if match[2] == "unknown" else match[2]
    return int(match[1]) or None, commit


def slot_context(context: int, slots: int) -> int:
    """Tokens that one slot gets of `--ctx-size`, with llama.cpp's rounding up to multiples of 256."""

    def up(n: float) -> int:
        return math.ceil(n / _CONTEXT_STEP) * _CONTEXT_STEP

    return up(up(context) // slots) if slots > 1 else up(context)


def same_number(expected: float, found: object) -> bool:
    """Equal but for the server's single precision."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return False
    return math.isclose(expected, found, rel_tol=1e-6, abs_tol=1e-7)


def differences(arm: Arm, props: Props, facts: LogFacts) -> list[Difference]:
    """Settings in force that are not the preset's: slots, context, sampler, KV types, flash attention, overrides,
    speculative decoding. What only the log can tell counts when the log tells it, or is detailed and does not."""
    out: list[Difference] = []
    if props.total_slots != arm.parallel:
        out.append(Difference("parallel (total_slots)", arm.parallel, props.total_slots))
    context = slot_context(arm.context, arm.parallel)
    if props.n_ctx not in (context, arm.context):
        out.append(Difference("context (n_ctx)", context, props.n_ctx))
    for name, expected in arm.sampler.request_fields().items():
        found = props.sampler.get(name)
        if not same_number(expected, found):
            out.append(Difference(name, expected, found))
    for name, wish, seen in (("kv_k", arm.kv_k, facts.kv_k), ("kv_v", arm.kv_v, facts.kv_v)):
        if seen is not None and seen.lower() != wish.lower():
            out.append(Difference(name, wish, seen))
    if (
        arm.flash_attention != "auto"
        and facts.flash_attention is not None
        and facts.flash_attention != arm.flash_attention
    ):
        out.append(Difference("flash_attention", arm.flash_attention, facts.flash_attention))
    if facts.verbose:
        out += _override_differences(arm, facts)
        wanted = () if arm.spec_type in (None, "none") else tuple(str(arm.spec_type).split(","))
        if set(wanted) != set(facts.spec_types):
            out.append(Difference("spec_type", ",".join(wanted) or "none", ",".join(facts.spec_types) or "none"))
    return out


def require_settings(arm: Arm, props: Props, facts: LogFacts) -> None:
    """Raise ArmError `settings_differ`, naming each setting with what was expected and found."""
    found = differences(arm, props, facts)
    if found:
        raise ArmError(
            "settings_differ",
            "; ".join(str(one) for one in found),
            advice="the server did not take what the preset says; its log tells more",
        )


def _override_differences(arm: Arm, facts: LogFacts) -> list[Difference]:
    applied = dict(facts.overrides)
    out: list[Difference] = []
    for text in arm.override_kv:
        key, _, typed = text.partition("=")
        kind, _, value = typed.partition(":")
        found = applied.get(key)
        if found is None or not _same_value(kind, value, found):
            out.append(Difference(f"override_kv {key}", value, found))
    return out


def _same_value(kind: str, expected: str, found: str) -> bool:
    try:
        if kind == "int":
            return int(expected) == int(found)
        if kind == "float":
            return math.isclose(float(expected), float(found), rel_tol=1e-5, abs_tol=1e-6)
    except ValueError:
        return False
    return expected == found


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _rounded(value: float | int) -> float | int:
    """0.6 for the 0.6000000238418579 that single precision makes of it."""
    return value if isinstance(value, int) else float(f"{value:.7g}")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
