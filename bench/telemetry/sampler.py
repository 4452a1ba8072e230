"""Samples of GPU and host beside a run."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from bench.telemetry.host_use import HostReader
from bench.telemetry.nvml import THROTTLING, Gpu, GpuInfo, GpuProcess, GpuSample, GpuUnavailable, gpu_info

__all__ = ["GpuInfo", "GpuProcess", "Phase", "Sampler", "TelemetrySummary", "gpu_info"]

Phase = Literal["baseline", "load", "idle", "probe", "generate", "stop"]

_FLUSH_S = 5.0
_JOIN_S = 10.0
_GAP_S = 2.0
"""Longest time between two samples over which power is integrated, seconds."""


@dataclass(frozen=True)
class TelemetrySummary:
    """What an arm used. None: not measured; `vram_reason` says why for VRAM."""

    vram_baseline_bytes: int | None
    """Median before the load."""
    vram_idle_bytes: int | None
    """Median after the load, before the first question."""
    vram_peak_bytes: int | None
    """Highest while generating."""
    vram_process_peak_bytes: int | None
    """Highest of the server's processes while generating."""
    rss_idle_bytes: int | None
    rss_peak_bytes: int | None
    energy_j: float | None
    """While generating: power integrated by the trapezoid rule. None when samples are missing for over 5 % of it."""
    generate_s: float
    """Seconds of the generate phase that were sampled."""
    throttled_s: float | None
    """Seconds of it in which the clocks were held down."""
    other_cpu_pct: float | None
    """Mean use of the host by others while generating, share of all cores."""
    vram_reason: str | None
    n_samples: int
    lost_rows: int = 0
    """Rows that the sink did not take."""
    sink_error: str | None = None


class Sampler:
    """A thread that samples beside a run and hands rows of the table `telemetry` to a sink about every 5 s.

    `gpu_index` is an index, a UUID, or None for the only GPU. `pids` gives the server's processes; an empty answer
    between load and stop means that they cannot be seen from here. `bench_pids` gives further processes of the bench's
    own, such as a container of the grader. A change of `phase` takes a sample at once, so that the time between two
    samples belongs to the phase of the first. The sink runs in a thread of its own: a slow one delays no sample.
    """

    def __init__(
        self,
        run_id: str,
        arm_id: str,
        sink: Callable[[list[dict[str, Any]]], object],
        gpu_index: int | str | None,
        pids: Callable[[], Sequence[int]],
        interval_s: float = 0.1,
        bench_pids: Callable[[], Sequence[int]] = lambda: (),
    ) -> None:
        self._ids = {"run_id": run_id, "arm_id": arm_id}
        self._sink, self._pids, self._bench_pids = sink, pids, bench_pids
        self._gpu_index, self._interval = gpu_index, interval_s
        self._phase: Phase = "baseline"
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._rows: deque[dict[str, Any]] = deque()
        self._totals = _Totals()
        self._lost = 0
        self._sink_error: str | None = None
        # Daemons: a driver that hangs in a call must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._writer = threading.Thread(target=self._write, name="telemetry-rows", daemon=True)

    @property
    def phase(self) -> Phase:
        return self._phase

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self._phase = phase
        self._wake.set()

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()
        self._writer.start()

    def stop(self) -> None:
        """Take a last sample, hand over what is left, end. Waits 10 s at most for each of the two threads."""
        self._stopping.set()
        self._wake.set()
        for thread in (self._thread, self._writer):
            if thread.is_alive():
                thread.join(_JOIN_S)

    def summary(self) -> TelemetrySummary:
        """What was measured so far."""
        return self._totals.summary(self._lost, self._sink_error)

    def _run(self) -> None:
        gpu: Gpu | None = None
        missing: str | None = None
        try:
            gpu = Gpu(self._gpu_index)
        except GpuUnavailable as error:
            missing = str(error)
        host = HostReader()
        next_at = time.monotonic()
        while True:
            last = self._stopping.is_set()
            self._wake.clear()
            self._sample(gpu, missing, host)
            if last:
                break
            next_at += self._interval
            now = time.monotonic()
            if next_at <= now:
                next_at = now + self._interval  # late: what was missed stays missed
            if self._wake.wait(next_at - now):
                next_at = time.monotonic()
        if gpu is not None:
            gpu.close()

    def _sample(self, gpu: Gpu | None, missing: str | None, host: HostReader) -> None:
        phase = self._phase
        servers = tuple(self._pids())
        seen = bool(servers) or phase in ("baseline", "stop")
        at = time.monotonic()
        sampled_at = datetime.now(UTC)
        figures = GpuSample(reason=missing) if gpu is None else gpu.sample(host.tree(servers))
        use = asdict(host.sample(servers, tuple(self._bench_pids()), others_known=seen))
        others = use.pop("other_s"), use.pop("total_s")
        row = {**self._ids, "sampled_at": sampled_at, "phase": phase, **asdict(figures), **use}
        self._rows.append(row)
        self._totals.add(at, phase, row, others)

    def _write(self) -> None:
        while not self._stopping.wait(_FLUSH_S):
            self._flush()
        self._thread.join(_JOIN_S)
        self._flush()

    def _flush(self) -> None:
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        if not rows:
            return
        try:
            self._sink(rows)
        except Exception as error:  # the sink is not ours, and the run goes on without its telemetry
            self._lost += len(rows)
            self._sink_error = f"{type(error).__name__}: {error}"


class _Totals:
    """Running figures of an arm. Only the sampling thread adds."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], deque[int]] = {}
        self.peaks: dict[str, int] = {}
        self.n = 0
        self.vram_seen = False
        self.reason: str | None = None
        self.generate_s = self.powered_s = self.energy = self.throttled_s = self.clocked_s = 0.0
        self.other_s = self.other_total_s = 0.0
        self.before: tuple[float, str, float | None, int | None] | None = None

    def add(self, at: float, phase: str, row: dict[str, Any], others: tuple[float, float]) -> None:
        self.n += 1
        self.vram_seen = self.vram_seen or row["vram_used_bytes"] is not None
        self.reason = row["reason"] or self.reason
        for name in ("vram_used_bytes", "vram_process_bytes", "rss_bytes"):
            value = row[name]
            if value is None:
                continue
            if phase in ("baseline", "idle"):
                self.values.setdefault((phase, name), deque(maxlen=6000)).append(value)
            elif phase == "generate":
                self.peaks[name] = max(value, self.peaks.get(name, value))
        if self.before is not None and self.before[1] == "generate":
            self.other_s += others[0]
            self.other_total_s += others[1]
        power, throttle = row["power_w"], row["throttle_reasons"]
        if self.before is not None and self.before[1] == "generate":
            self._integrate(at, power)
        self.before = (at, phase, power, throttle)

    def _integrate(self, at: float, power: float | None) -> None:
        assert self.before is not None
        since, _, power_before, throttle = self.before
        took = at - since
        self.generate_s += took
        if took > _GAP_S:
            return
        if power is not None and power_before is not None:
            self.powered_s += took
            self.energy += took * (power + power_before) / 2
        if throttle is not None:
            self.clocked_s += took
            self.throttled_s += took if throttle & THROTTLING else 0.0

    def summary(self, lost: int, sink_error: str | None) -> TelemetrySummary:
        vram, own, rss = "vram_used_bytes", "vram_process_bytes", "rss_bytes"
        reason = None if self.vram_seen else self.reason or "no sample was taken"
        enough = 0.95 * self.generate_s
        return TelemetrySummary(
            vram_baseline_bytes=self._median("baseline", vram),
            vram_idle_bytes=self._median("idle", vram),
            vram_peak_bytes=self.peaks.get(vram),
            vram_process_peak_bytes=self.peaks.get(own),
            rss_idle_bytes=self._median("idle", rss),
            rss_peak_bytes=self.peaks.get(rss),
            energy_j=self.energy if self.powered_s and self.powered_s >= enough else None,
            generate_s=self.generate_s,
            throttled_s=self.throttled_s if self.clocked_s and self.clocked_s >= enough else None,
            other_cpu_pct=max(0.0, 100 * self.other_s / self.other_total_s) if self.other_total_s else None,
            vram_reason=reason,
            n_samples=self.n,
            lost_rows=lost,
            sink_error=sink_error,
        )

    def _median(self, phase: str, name: str) -> int | None:
        values = self.values.get((phase, name))
        return int(statistics.median_low(list(values))) if values else None
