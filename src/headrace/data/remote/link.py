"""What a link to a store is like, measured by the requests that went over it. Pure: times come from the caller.

An answer takes a latency and then its bytes at a stream's pace. Both vary: the latency is a median and quantiles of the
last answers, the pace is of the largest of them, and the bandwidth of all streams is what arrived in busy time.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass

import numpy as np

from headrace.data.remote.requests import LinkModel

STREAMS = 32
"""Requests under way at once at least, and before the link is measured. Fewer wait longer, for the same CPU time."""
MOST_STREAMS = 128
"""Requests under way at once where latency is long and requests are small. Each is a connection of its own."""
_KEPT = 256
"""Answers that a quantile is taken of: the last ones, since links change."""
_ENOUGH = 16
"""Answers from which on the link counts as measured."""
_ENOUGH_TO_HEDGE = 8
"""Answers from which on one may lag: fewer, since the first request of a run may be the one."""
_ASSUMED_LATENCY_S = 0.05
_ASSUMED_STREAM = 25e6
"""Bytes a second of one stream, before any is measured."""
_HEDGE_QUANTILE = 0.95
_HEDGE_FACTOR = 1.5
_LEAST_HEDGE_S = 0.05
_HEDGES_A_REQUEST = 0.05
_FREE_HEDGES = 2
_OVERTAKEN = 8
"""Later requests that overtake one whose answer hangs. On a busy link all wait, and those that are hardly overtaken."""
_DEADLINE_FACTOR = 20.0
_LEAST_DEADLINE_S = 10.0
_MOST_DEADLINE_S = 60.0


class LinkMeter:
    """Latency and bandwidth of a link, by its answers. One thread uses it."""

    def __init__(self) -> None:
        self._answers: deque[tuple[int, float]] = deque(maxlen=_KEPT)
        self._begun: deque[float] = deque(maxlen=_KEPT)
        """Times to the first byte."""
        self._busy_since: float | None = None
        self._busy_s = 0.0
        self._busy_bytes = 0
        self._latency_s = _ASSUMED_LATENCY_S
        self._stream = _ASSUMED_STREAM
        self._usual_s = self._usual_first_s = math.inf
        self._mean_bytes = 0.0
        self._shortest_s = 0.0
        """Shortest latency of late: what is longer waits in a queue, which more streams make longer."""
        self._fresh = 0

    def begin(self, now_s: float) -> None:
        """Note that at least one request is under way."""
        if self._busy_since is None:
            self._busy_since = now_s

    def idle(self, now_s: float) -> None:
        """Note that none is."""
        if self._busy_since is not None:
            self._busy_s += now_s - self._busy_since
            self._busy_since = None

    def began(self, after_s: float) -> None:
        """Take in the time after which an answer began."""
        self._begun.append(after_s)

    def answered(self, size: int, took_s: float) -> None:
        """Take in a whole answer of `size` bytes, which took that long."""
        self._answers.append((size, took_s))
        self._busy_bytes += size
        self._fresh += 1
        if len(self._answers) <= _ENOUGH or self._fresh >= _ENOUGH:
            self._fresh = 0
            self._fit()

    def bandwidth(self, now_s: float) -> float:
        """Return the bytes a second of all streams together, in the time in which any was under way."""
        busy_s = self._busy_s + (0.0 if self._busy_since is None else now_s - self._busy_since)
        if len(self._answers) < _ENOUGH or busy_s <= 0:
            return self._stream
        return self._busy_bytes / busy_s

    def model(self, streams: int, now_s: float) -> LinkModel:
        """Return what requests are planned by, at so many streams."""
        # What arrived may be all that was asked for: the streams' own pace is the other bound.
        bandwidth = max(self.bandwidth(now_s), min(streams, 4) * self._stream)
        return LinkModel(self._latency_s, bandwidth, streams)

    def streams(self, least: int, most: int, now_s: float) -> int:
        """Return how many requests like the last ones the rate so far takes, within bounds."""
        if len(self._answers) < _ENOUGH:
            return least
        link = LinkModel(self._shortest_s, self.bandwidth(now_s), least)
        return min(max(link.streams_for(self._mean_bytes), least), most)

    def latency_s(self, quantile: float) -> float | None:
        """Return a quantile of the time to the first byte; None before an answer began."""
        return float(np.quantile(self._begun, quantile)) if self._begun else None

    def expected_s(self, size: int) -> float:
        """Return how long an answer of that size takes in the median."""
        return self._latency_s + size / self._stream

    def hedge_after_s(self, size: int, *, has_begun: bool) -> float:
        """Return after how long a second request for the same bytes is worth it; inf before enough is known.

        An answer that has not begun is late sooner: of a large one, the whole would be when most of the delay is over.
        """
        whole_s = max(_LEAST_HEDGE_S, _HEDGE_FACTOR * (self._usual_s + size / self._stream))
        return whole_s if has_begun else min(whole_s, max(_LEAST_HEDGE_S, _HEDGE_FACTOR * self._usual_first_s))

    def deadline_s(self, size: int, attempt: int = 1) -> float:
        """Return how long one answer may take before it counts as lost: twice as long at each further attempt.

        A link that is slower than assumed is measured by no answer until one comes in time.
        """
        usual_s = max(_LEAST_DEADLINE_S, _DEADLINE_FACTOR * self.expected_s(size))
        return min(_MOST_DEADLINE_S, math.ldexp(usual_s, min(attempt - 1, 8)))

    def _fit(self) -> None:
        """Fit latency and a stream's pace to the answers: by their medians above and below the median size."""
        sizes, took_s = (np.array(column, float) for column in zip(*self._answers, strict=True))
        large = sizes > np.median(sizes)
        if large.any() and not large.all():
            (low, low_s), (high, high_s) = (
                (float(np.median(sizes[part])), float(np.median(took_s[part]))) for part in (~large, large)
            )
            if high > 2 * low and high_s > low_s:
                self._stream = (high - low) / (high_s - low_s)
        elif len(sizes) >= _ENOUGH and np.median(took_s) > 0:
            # Of one size: no slower than if all of the time were the bytes'.
            self._stream = max(self._stream, float(np.median(sizes) / np.median(took_s)))
        self._mean_bytes = float(sizes.mean())
        self._shortest_s = min(self._begun, default=0.0)
        waits_s = np.maximum(0.0, took_s - sizes / self._stream)
        self._latency_s = float(np.median(waits_s))
        if len(sizes) >= _ENOUGH_TO_HEDGE:  # here and not at each request, which it would cost 100 µs
            self._usual_s = float(np.quantile(waits_s, _HEDGE_QUANTILE))
            if len(self._begun) >= _ENOUGH_TO_HEDGE:
                self._usual_first_s = float(np.quantile(self._begun, _HEDGE_QUANTILE))


class StoreLink:
    """Link to a store, measured by the blocking reads of all threads.

    No thread waits for another one here: an answer that comes while another is taken in is left out. So a process that
    was forked meanwhile finds a lock that is held, and goes on with what was measured before.
    """

    def __init__(self) -> None:
        self._meter = LinkMeter()
        self._lock = threading.Lock()

    def answered(self, size: int, took_s: float) -> None:
        """Take in a whole answer of `size` bytes, which took that long."""
        if self._lock.acquire(blocking=False):
            try:
                self._meter.answered(size, took_s)
            finally:
                self._lock.release()

    def model(self, streams: int) -> LinkModel:
        """Return what requests are planned by, at so many streams."""
        return self._meter.model(streams, 0.0)


@dataclass
class HedgeBudget:
    """Second requests that may be sent: a share of the first ones, so that a slow store is not asked twice as much."""

    requests: int = 0
    hedges: int = 0

    def take(self) -> bool:
        """Take one, if there is one left."""
        if self.hedges >= _FREE_HEDGES + _HEDGES_A_REQUEST * self.requests:
            return False
        self.hedges += 1
        return True


class Overtaking:
    """Requests under way that reach a stage of their answers, and how many later ones were there first."""

    def __init__(self) -> None:
        self._turn = 0
        self._overtaken: dict[int, int] = {}

    def begin(self) -> int:
        """Take in a request, and return its number."""
        self._turn += 1
        self._overtaken[self._turn] = 0
        return self._turn

    def reached(self, number: int) -> None:
        """Note that a request is there, or given up. Again is no error."""
        if self._overtaken.pop(number, None) is not None:
            for other in self._overtaken:
                if other > number:  # numbers rise
                    break
                self._overtaken[other] += 1

    def is_behind(self, number: int) -> bool:
        """Tell whether many later ones overtook a request, or none that is later is still on its way."""
        overtaken = self._overtaken.get(number, 0)
        return overtaken >= _OVERTAKEN or next(reversed(self._overtaken), number) <= number


class StreamLimit:
    """How many requests may be under way: half as many after a store says that it is too many, then more again."""

    def __init__(self, most: int) -> None:
        self.most = most
        """How many the link can use; it changes as the link is measured."""
        self._now = float(most)
        self._was_throttled = False

    @property
    def now(self) -> int:
        return max(1, int(self._now))

    def throttled(self) -> None:
        self._was_throttled = True
        self._now = max(1.0, self._now / 2)

    def answered(self) -> None:
        """Take in an answer: one more stream, or, once the store refused some, one for as many answers as there are."""
        self._now = min(float(self.most), self._now + (1 / self._now if self._was_throttled else 1))
