"""What the speed probe asks of a server, and how it picks sizes that fit its time.

One request measures both rates: its prompt is read at a length, and its answer is written at that depth. A first small
request says how fast the server is, and from it sizes and repetitions follow: a slow server gets few and small ones.
Prompts are words drawn at random, no two of which begin alike; the prompt cache is off, and answers are greedy and as
long as they are told to be.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bench.client.request import Reply, Request, ask, count_tokens

SIZES = (32, 128, 512, 2048, 8192, 32768)
"""Prompt lengths, in tokens, that are tried from the first on until time or context end. A chat template's own tokens
count too; where it has more than a size, the prompt is longer. The server's `prompt_n` says how long it was."""
REPETITIONS = 3
"""Measurements of each size that a size must have time for; more are made while there is time."""
MAX_REPETITIONS = 6
SHORT_SIZES = 2
"""Sizes that the short probe repeats."""
SEED = 20_001

# Greedy, and cheap to sample: with top_k 1 no sampler sorts a vocabulary of 250,000 tokens.
_SAMPLER: Mapping[str, float | int] = {
    "temperature": 0.0,
    "top_k": 1,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repeat_penalty": 1.0,
}
_CALIBRATION_WORDS = 4
_CALIBRATION_TOKENS = 4
_OVERHEAD_S = 0.02
_SPARE_TOKENS = 16
_WORDS: tuple[str, ...] = (
    "stone", "river", "lamp", "window", "garden", "silver", "engine", "paper", "bridge", "winter", "signal",
    "market", "forest", "copper", "letter", "harbour", "pencil", "mountain", "kitchen", "violin", "desert",
    "candle", "thunder", "basket", "island", "mirror", "station", "feather", "blanket", "compass", "orange",
    "tunnel", "saddle", "meadow", "ladder", "pepper", "anchor", "button", "canvas", "dragon", "eagle", "fabric",
    "glacier", "hammer", "insect", "jungle", "kettle", "lemon", "magnet", "needle", "ocean", "parcel", "quarry",
    "ribbon", "shadow", "temple", "umbrella", "valley", "whistle", "yellow", "zebra", "cotton", "battle",
    "circle", "doctor", "farmer", "guitar", "helmet", "ticket", "jacket", "knight", "lawyer", "museum",
    "number", "office", "planet", "rabbit", "school", "table", "uncle", "village", "wagon", "summer", "bottle",
    "carpet", "driver", "family", "golden", "happy", "little", "monkey", "nature", "purple", "simple", "travel",
    "useful", "warm", "young", "cold", "early", "heavy", "narrow", "quiet", "rapid", "steady", "tender",
    "under", "wide", "away", "below", "carry", "dance", "enter", "follow", "gather", "hurry", "invite", "jump",
    "kneel", "listen", "move", "notice", "open", "push", "reach", "sing", "turn", "visit", "wait", "write",
)  # fmt: skip


@dataclass(frozen=True)
class Budget:
    """Time for a probe, seconds."""

    plan_s: float
    """What sizes and repetitions are chosen to fill."""
    limit_s: float
    """When whatever is under way is broken off."""


@dataclass(frozen=True)
class Shot:
    """One request of the probe, and what it was for."""

    size: int
    repetition: int
    """From 1; 0 is a warm-up."""
    reply: Reply | None
    """None: not asked; `outcome` and `detail` say why."""
    outcome: str
    detail: str | None
    measured_at: datetime

    def figures(self) -> dict[str, Any]:
        """The raw figures; none of a request that failed."""
        if self.reply is None or self.outcome != "ok":
            return {}
        timings = self.reply.timings
        counts = ("prompt_n", "predicted_n", "cache_n", "draft_n", "draft_n_accepted")
        return {
            **{name: int(timings[name]) for name in counts if name in timings},
            "prompt_ms": timings.get("prompt_ms"),
            "predicted_ms": timings.get("predicted_ms"),
            "ttft_ms": self.reply.first_token_ms,
            "total_ms": self.reply.total_ms,
        }


@dataclass(frozen=True)
class Known:
    """What an earlier probe of the arm measured: the short one does the same again."""

    sizes: tuple[int, ...]
    n_predict: int


def what_was_measured(shots: Sequence[Shot]) -> Known | None:
    """Sizes and answer length of a probe that measured something, the smallest size first."""
    good = [shot for shot in shots if shot.outcome == "ok" and shot.repetition > 0]
    if not good:
        return None
    return Known(tuple(sorted({shot.size for shot in good})), max(8, max(s.figures()["predicted_n"] for s in good)))


class Measurement:
    """One probe under way: what is known of the server's speed and tokenizer, and the time that is left."""

    def __init__(
        self,
        base_url: str,
        context: int,
        budget: Budget,
        *,
        extra: Mapping[str, Any] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._url, self._context, self._budget = base_url, context, budget
        self._extra = {**(extra or {}), "ignore_eos": True}
        self._stop = stop or threading.Event()
        self._began = time.monotonic()
        self._shots: list[Shot] = []
        self._random = random.Random(SEED)
        self._first_words = random.Random(SEED).sample(_WORDS, len(_WORDS))
        self._prompt_tps = self._decode_tps = 0.0
        self._template_tokens = 0.0
        self._tokens_per_word = 1.2
        self._n_predict = _CALIBRATION_TOKENS

    def run(self, known: Known | None = None) -> list[Shot]:
        """Measure; `known` fixes sizes and answer length. Ends early at the first request that fails."""
        if not self._calibrate():
            return self._shots
        self._n_predict = known.n_predict if known else min(128, max(8, round(self._decode_tps * 0.5)))
        room = self._context - self._n_predict - _SPARE_TOKENS
        fits = tuple(size for size in SIZES if self._tokens(size) * 1.1 <= room)
        sizes = known.sizes[:SHORT_SIZES] if known else fits or SIZES[:1]
        chosen = self._fitting(sizes) if known else self._warm_up(sizes)
        for repetition in range(1, MAX_REPETITIONS + 1):
            # All sizes in turn: a machine that drifts does so for all of them.
            for size in chosen:
                first = repetition == 1 and size == chosen[0]
                if self._stop.is_set() or not (self._has_time(size, 1) or first):
                    return self._shots
                if first and self._seconds(size) > self._budget.limit_s - self._used():
                    self._skip(size)
                    return self._shots
                if not self._shoot(size, repetition, self._text(size)):
                    return self._shots
        return self._shots

    def _warm_up(self, sizes: Sequence[int]) -> list[int]:
        """The sizes there is time for; each was asked once already, for a size's first request is not like the next.

        What one size says of the speed decides on the next. The smallest is measured in any case; where there is no
        time for more, the calibration was its warm-up.
        """
        chosen: list[int] = []
        for size in sizes:
            whole = sum(self._seconds(s) for s in chosen) * REPETITIONS + self._seconds(size) * (REPETITIONS + 1)
            fits = whole <= self._budget.plan_s - self._used()
            if not fits or self._stop.is_set():
                return chosen or [size]
            if not self._shoot(size, 0, self._text(size)):
                # A prompt that the context does not hold says nothing against the shorter ones.
                return chosen if self._shots[-1].outcome == "context_overflow" else []
            chosen.append(size)
        return chosen

    def _fitting(self, sizes: Sequence[int]) -> list[int]:
        """The sizes there is time to measure once, the first in any case; they were warmed up at the arm's start."""
        left = self._budget.plan_s - self._used()
        costs = [sum(self._seconds(size) for size in sizes[:n]) for n in range(1, len(sizes) + 1)]
        return [size for size, cost in zip(sizes, costs, strict=True) if size == sizes[0] or cost <= left]

    def _calibrate(self) -> bool:
        text = self._words(_CALIBRATION_WORDS)
        if not self._shoot(SIZES[0], 0, text):
            return False
        tokens = count_tokens(self._url, text, limit_s=2.0)
        if tokens:
            self._tokens_per_word = max(0.5, tokens / _CALIBRATION_WORDS)
        prompt_n = self._shots[-1].figures()["prompt_n"]
        self._template_tokens = max(0.0, prompt_n - self._tokens_per_word * _CALIBRATION_WORDS)
        return True

    def _shoot(self, size: int, repetition: int, text: str) -> bool:
        """Ask once and note what came; whether to go on."""
        left = max(0.5, self._budget.limit_s - self._used())
        at = datetime.now(UTC)
        reply = ask(
            self._url,
            Request(
                messages=({"role": "user", "content": text},),
                max_tokens=self._n_predict,
                seed=SEED,
                sampler=_SAMPLER,
                extra=self._extra,
                time_limit_s=left,
                idle_limit_s=left,
                first_token_limit_s=left,
            ),
            cancel=self._stop,
        )
        if reply.outcome == "cancelled":
            return False
        outcome, detail = str(reply.outcome), reply.detail
        if reply.outcome == "ok" and (what := _lacking(reply.timings)):
            outcome, detail = "no_timings", f"the answer's timings have no {what}"
        shot = Shot(size, repetition, reply, outcome, detail, at)
        self._shots.append(shot)
        if outcome != "ok":
            return False
        self._learn(shot.figures(), len(text.split()))
        return True

    def _learn(self, got: Mapping[str, Any], words: int) -> None:
        """Keep what a reply says of speed and tokens."""
        self._prompt_tps = max(got["prompt_n"], 1) / max(got["prompt_ms"], 1e-3) * 1000
        if got["predicted_n"] >= 2:
            self._decode_tps = (got["predicted_n"] - 1) / max(got["predicted_ms"], 1e-3) * 1000
        if words > _CALIBRATION_WORDS and got["prompt_n"] > self._template_tokens:
            self._tokens_per_word = max(0.5, (got["prompt_n"] - self._template_tokens) / words)

    def _skip(self, size: int) -> None:
        left = max(0.0, self._budget.limit_s - self._used())
        detail = f"a measurement would take about {self._seconds(size):.1f} s, and the probe has {left:.1f} s left"
        self._shots.append(Shot(size, 1, None, "out_of_time", detail, datetime.now(UTC)))

    def _used(self) -> float:
        return time.monotonic() - self._began

    def _seconds(self, size: int) -> float:
        """What a request of this size should take."""
        decode = self._n_predict / self._decode_tps if self._decode_tps > 0 else 0.0
        return self._tokens(size) / self._prompt_tps + decode + _OVERHEAD_S

    def _tokens(self, size: int) -> float:
        """How long a prompt of this size will be; never shorter than what the template adds to a few words."""
        return max(float(size), self._template_tokens + _CALIBRATION_WORDS * self._tokens_per_word)

    def _has_time(self, size: int, times: int) -> bool:
        return self._used() + self._seconds(size) * times <= self._budget.plan_s

    def _text(self, size: int) -> str:
        return self._words(max(_CALIBRATION_WORDS, round((size - self._template_tokens) / self._tokens_per_word)))

    def _words(self, count: int) -> str:
        """Words at random; the first is another one each time, so that no two prompts share their beginning."""
        first = self._first_words[len(self._shots) % len(self._first_words)]
        return " ".join([first, *self._random.choices(_WORDS, k=count - 1)])


def _lacking(timings: Mapping[str, float]) -> str | None:
    names = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms")
    return next((name for name in names if name not in timings), None)
