"""Statistics of a pass's remote reads, and the clock of the waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.stores import RequestCounts


@dataclass(frozen=True)
class FetchStats:
    """Remote reads of a pass."""

    counts: RequestCounts
    latency_s: Mapping[float, float | None]
    """Quantiles 0.5, 0.95 and 0.99 of the time to the first byte; None before an answer."""
    held_bytes: int
    """Bytes in memory or on their way, now."""
    wanted_bytes: int
    """Bytes of the samples themselves. Fetched bytes beyond them are gaps between samples."""
    wait_s: float
    """Time in which no batch could begin because its bytes were missing. High: decoding idles, though the consumer may
    have ready batches."""
    stall_s: float
    """Part of `wait_s` in which the consumer waited for a batch, too. High: the store limits the run."""

    def totals(self) -> dict[str, float]:
        """Return the totals that grow over a pass, by name."""
        counts = self.counts
        return {
            "fetch_requests": counts.requests,
            "fetch_bytes": counts.bytes,
            "fetch_retries": counts.retries,
            "fetch_throttled": counts.throttled,
            "fetch_hedges": counts.hedges,
            "fetch_wait_seconds": self.wait_s,
            "fetch_stall_seconds": self.stall_s,
        }

    def __str__(self) -> str:
        counts = self.counts
        beyond = counts.bytes / self.wanted_bytes - 1 if self.wanted_bytes else 0.0
        words = [f"{counts.requests:,} requests", f"{counts.bytes / 1e6:,.1f} MB"]
        if beyond > 0.005:
            words.append(f"{beyond:.0%} of it between samples")
        if counts.retries:
            words.append(f"{counts.retries:,} retries ({counts.throttled:,} as the store asked for fewer)")
        if counts.hedges:
            words.append(f"{counts.hedges:,} sent twice, {counts.hedges_won:,} of them answered first")
        quantiles = [f"{each * 1e3:,.0f}" for each in self.latency_s.values() if each is not None]
        if quantiles:
            words.append(f"latency {' / '.join(quantiles)} ms (50, 95, 99 %)")
        waited = f"decoding waited {self.wait_s:.2f} s for it, the consumer {self.stall_s:.2f} s"
        return f"store: {', '.join(words)}; {waited}"


class WaitClock:
    """Clock that runs while a batch waits for its bytes. Any thread reads it.

    `stall_s` is the time it advances while the consumer waits. The total of the consumer's waits would include
    decoding, and the total of the waits for bytes would include waits that prefetched batches hide.
    """

    def __init__(self, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._before_s = 0.0
        self._since: list[float] = []
        """Start times of the current waits: the first one counts."""
        self.stall_s = 0.0

    @property
    def wait_s(self) -> float:
        with self._lock:
            return self._elapsed_s()

    def _elapsed_s(self) -> float:
        return self._before_s + (self._now_s() - self._since[0] if self._since else 0.0)

    @contextmanager
    def batch_waits(self) -> Iterator[None]:
        """Run the clock inside the block."""
        with self._lock:
            now_s = self._now_s()
            self._since.append(self._since[0] if self._since else now_s)
        try:
            yield
        finally:
            with self._lock:
                if len(self._since) == 1:
                    self._before_s = self._elapsed_s()
                self._since.pop()

    @contextmanager
    def consumer_waits(self) -> Iterator[None]:
        """Count the clock's advance inside the block, in which the consumer waits for a batch."""
        before_s = self.wait_s
        try:
            yield
        finally:
            self.stall_s += self.wait_s - before_s
