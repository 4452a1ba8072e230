"""A server that already runs: any OpenAI-compatible one. Nothing about it is proved; what is not known stays NULL."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from bench.engines import Identity, ports
from bench.errors import ArmError, UsageError
from bench.presets.load import Arm, ModelRef, Sampler

SOURCE = "endpoint:"
"""How the model source of such an arm begins."""


def served_models(url: str) -> list[str]:
    """Ids of the models that the server lists. Raises ArmError `engine_unavailable`."""
    try:
        with httpx.Client(trust_env=False, timeout=10) as client:
            got = client.get(f"{url}/v1/models", headers={"Connection": "close"})
            got.raise_for_status()
            return [str(model["id"]) for model in got.json()["data"]]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as e:
        advice = "it must be OpenAI-compatible, and the address must come without /v1"
        raise ArmError("engine_unavailable", f"{url}/v1/models cannot be read: {e}", advice=advice) from e


def endpoint_arm(url: str, model: str | None, context: int, sampler: Sampler) -> Arm:
    """An arm for a model of a running server. Raises UsageError where the server or the model is not clear."""
    url = url.rstrip("/").removesuffix("/v1")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise UsageError(f"--endpoint takes an address such as http://127.0.0.1:8080, not '{url}'")
    try:
        known = served_models(url)
    except ArmError as e:
        raise UsageError(f"--endpoint: {e.detail}; {e.advice}") from e
    if model is None and len(known) == 1:
        model = known[0]
    if model is None or model not in known:
        listed = ", ".join(known[:20]) or "none"
        raise UsageError(f"--endpoint-model: expected one of the models of {url} ({listed}), found {model or 'none'}")
    slug = "".join(c if c.isalnum() else "-" for c in model.lower()).strip("-")[:60]
    mark = hashlib.sha256(url.encode()).hexdigest()[:4]
    return Arm(
        f"endpoint-{slug}-{mark}",
        f"{model} at {url}",
        ModelRef(f"{SOURCE}{url}#{model}"),
        sampler,
        context,
        endpoint_model=model,
        allow_small_context=True,
    )


class EndpointServer:
    """A server of somebody else's (bench.engines.Server)."""

    flags: tuple[str, ...] = ()
    threads: int | None = None
    pids: tuple[int, ...] = ()
    load_ms: float | None = None

    def __init__(self, url: str, log_path: Path) -> None:
        self.base_url = url
        self.log_path = log_path
        self.identity = Identity("endpoint")

    def alive(self) -> bool:
        """Whether it takes connections."""
        port = urlsplit(self.base_url).port or (443 if self.base_url.startswith("https") else 80)
        host = urlsplit(self.base_url).hostname
        return host not in ("127.0.0.1", "localhost") or ports.accepts(port)

    def last_lines(self, n: int = 50) -> list[str]:  # noqa: ARG002
        """None: its log is not ours."""
        return []

    def death(self) -> tuple[str, str] | None:
        """(reason, detail) when it takes no connections any more."""
        return None if self.alive() else ("server_died", f"{self.base_url} takes no connections any more")

    def stop(self) -> None:
        """Nothing: it is not ours to stop."""


class EndpointEngine:
    """Uses a server that already runs (bench.engines.Engine)."""

    name = "endpoint"

    def problems(self, arm: Arm) -> list[str]:
        """Whether it can be reached and has the model."""
        url, _, model = arm.model.source.removeprefix(SOURCE).partition("#")
        try:
            found = served_models(url)
        except ArmError as e:
            return [f"{e.detail}; {e.advice}"]
        return [] if model in found else [f"{url} has no model '{model}' any more"]

    def start(self, arm: Arm, model: Path, log_path: Path) -> EndpointServer:  # noqa: ARG002
        """Nothing is started; raises ArmError where it cannot be reached."""
        url = arm.model.source.removeprefix(SOURCE).partition("#")[0]
        served_models(url)
        log_path.write_text(f"the server at {url} is not ours; it has no log here\n", encoding="utf-8")
        return EndpointServer(url, log_path)
