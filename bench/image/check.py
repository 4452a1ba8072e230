"""The last proof of an image: it loads a model and decodes. Only then is it known that no CPU variant in it crashes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import docker
import httpx

from bench.engines import health
from bench.engines.container import ContainerEngine
from bench.errors import ArmError
from bench.presets.load import Arm, Device, ModelRef, Sampler

_GREEDY = Sampler("greedy", temperature=0.0, top_p=1.0, top_k=0, min_p=0.0)
_TOKENS = 32


@dataclass(frozen=True)
class Decoded:
    """What came of the try."""

    text: str
    tokens: int
    fingerprint: str | None
    load_ms: float
    tokens_per_s: float | None
    """Decode rate of this short answer, tokens per second: a sign of life, no measurement."""


def prove_decodes(client: docker.DockerClient, ref: str, model: Path, device: Device = "cpu") -> Decoded:
    """Load the model in a container of the image and let it say a few tokens at temperature 0.

    Raises ArmError with what the server's log says when it dies, `image_mismatch` when no token comes out.
    """
    arm = Arm(
        arm_id="image-check",
        title="image check",
        model=ModelRef(f"file:{model}"),
        sampler=_GREEDY,
        context=512,
        device=device,
        gpu_layers="all" if device == "gpu" else 0,
        startup_limit_s=300.0,
    )
    with tempfile.TemporaryDirectory(prefix="gguf-bench-check-") as folder:
        server = ContainerEngine(ref, client=client).start(arm, model, Path(folder) / "server.log")
        try:
            return _ask(server.base_url, server.load_ms)
        except httpx.HTTPError as error:
            reason, detail = server.death() or ("server_died", str(error))
            last = " | ".join(server.last_lines(3))
            raise ArmError(
                "image_mismatch",
                f"the image's server died when it was asked for a few tokens ({reason}: {detail}): {last[:300]}",
                advice="a CPU variant that this machine only pretends to run can be left out with --leave-out",
            ) from error
        finally:
            server.stop()


def _ask(base_url: str, load_ms: float) -> Decoded:
    body = {
        "messages": [{"role": "user", "content": "Count from one to ten."}],
        "max_tokens": _TOKENS,
        "temperature": 0,
        "seed": 1,
        "cache_prompt": False,
    }
    with health.client(300.0) as http:
        reply = http.post(f"{base_url}/v1/chat/completions", json=body)
        reply.raise_for_status()
        data = reply.json()
    timings = data.get("timings") or {}
    n, ms = timings.get("predicted_n") or 0, timings.get("predicted_ms") or 0.0
    tokens = int((data.get("usage") or {}).get("completion_tokens") or 0)
    if tokens < 1:
        raise ArmError("image_mismatch", "the image's server loaded a model and answered without a token")
    message = data["choices"][0]["message"]
    return Decoded(
        text=str(message.get("content") or ""),
        tokens=tokens,
        fingerprint=data.get("system_fingerprint"),
        load_ms=load_ms,
        # n tokens span n - 1 intervals: the clock starts at the first one.
        tokens_per_s=(n - 1) / ms * 1000.0 if n >= 2 and ms > 0 else None,
    )
