"""Settings of [server] in an arm's file whose form needs more than a type and a range."""

from __future__ import annotations

import re
from typing import Literal

from bench.errors import UsageError
from bench.strict_toml import Table


def flash_attention(server: Table) -> bool | Literal["auto"]:
    """true, false or `auto`."""
    value = server.values.get("flash_attention", False)
    if value == "auto":
        return "auto"
    if not isinstance(value, bool):
        raise server.error("flash_attention", 'true, false or "auto"')
    return value


def spec_type(server: Table) -> str | None:
    """The word after `--spec-type`. Only its form is checked: builds differ in what they know."""
    value: str | None = server.text("spec_type", None)
    if value is not None and not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", value):
        raise server.error("spec_type", 'a word such as "draft-mtp" or "ngram-simple"')
    return value


_OVERRIDE_VALUES = {
    "int": r"[+-]?\d{1,19}",
    "float": r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?",
    "bool": r"true|false",
    "str": r".{1,127}",
}


def overrides(server: Table) -> tuple[str, ...]:
    """Checked as llama-server reads them: keys and texts of at most 127 characters, four types."""
    overrides: tuple[str, ...] = server.texts("override_kv", ())
    seen: set[str] = set()
    for i, text in enumerate(overrides):
        where = f"{server.at('override_kv')}[{i}]"
        match = re.fullmatch(r"([A-Za-z0-9_.-]{1,127})=([a-z]+):(.*)", text)
        if not match:
            raise UsageError(
                f"{where}: expected `KEY=TYPE:VALUE` such as `qwen35moe.block_count=int:40`, found `{text}`"
            )
        key, kind, value = match[1], match[2], match[3]
        if kind not in _OVERRIDE_VALUES:
            raise UsageError(f"{where}: expected the type int, float, bool or str, found `{kind}`")
        if not re.fullmatch(_OVERRIDE_VALUES[kind], value):
            raise UsageError(f"{where}: expected a value of type {kind}, found `{value}`")
        if key in seen:
            raise UsageError(f"{where}: the key `{key}` is overridden twice")
        seen.add(key)
    return overrides


def env(server: Table) -> dict[str, str]:
    """Environment variables; none of them one of llama-server's own settings."""
    table = server.table("env", {})
    for name in table.values:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(f"{table.at(name)}: expected the name of an environment variable")
        if name.startswith("LLAMA_ARG_"):
            raise UsageError(
                f"{table.at(name)}: server settings are not taken from the environment; use a key of [server]"
            )
        table.text(name, empty=True)
    return dict(table.values)
