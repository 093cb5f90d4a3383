"""Latency and bandwidth of a link to a store, measured by its requests. Pure: times come from the caller.

A response takes a latency, and then its bytes at a stream's rate. Latency is a median and quantiles of the latest
responses; a stream's rate comes from the largest of them. The bandwidth of all streams is bytes over busy time.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from headrace.stores.request_planning import LinkModel

STREAMS = 32
"""Minimum of requests in flight, also before the link is measured. With fewer, reads wait longer at equal CPU time."""
MOST_STREAMS = 128
"""Maximum of requests in flight, for long latency and small requests. Each has its own connection."""
_NODE_STREAMS = 64, 256
"""Minimum and maximum of requests in flight of all ranks of a node, which share its link: as many as two ranks had."""
_KEPT = 256
"""Latest responses that quantiles cover, since links change."""
_ENOUGH = 16
"""Responses after which the link counts as measured."""
_ENOUGH_TO_HEDGE = 8
"""Responses after which requests may be hedged; few, since the first request of a run may be the slow one."""
_ASSUMED_LATENCY_S = 0.05
_ASSUMED_STREAM = 25e6
"""Assumed bytes per second of one stream, before any measurement."""
_HEDGE_QUANTILE = 0.95
_HEDGE_FACTOR = 1.5
_LEAST_HEDGE_S = 0.05
_HEDGES_A_REQUEST = 0.05
_FREE_HEDGES = 2
_OVERTAKEN = 8
"""Later requests that must overtake a hanging one. On a busy link all requests wait, but few are overtaken."""
_STEP = 2.0
"""Streams that each round trip adds after a store has throttled."""
_DEADLINE_FACTOR = 20.0
_LEAST_DEADLINE_S = 10.0
_MOST_DEADLINE_S = 60.0


def streams_of_rank(ranks: int) -> tuple[int, int]:
    """Return the minimum and maximum of requests in flight for one of a node's ranks."""
    fewest, most = (max(1, each // ranks) for each in _NODE_STREAMS)
    return min(STREAMS, fewest), min(MOST_STREAMS, most)


class LinkMeter:
    """Latency and bandwidth of a link, measured by its responses. Not thread-safe."""

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
        """Shortest recent latency: longer ones include time in a queue, which more streams make longer."""
        self._fresh = 0

    def begin(self, now_s: float) -> None:
        """Record that at least one request is in flight."""
        if self._busy_since is None:
            self._busy_since = now_s

    def idle(self, now_s: float) -> None:
        """Record that no request is in flight."""
        if self._busy_since is not None:
            self._busy_s += now_s - self._busy_since
            self._busy_since = None

    def began(self, after_s: float) -> None:
        """Record the time to a response's first byte."""
        self._begun.append(after_s)

    def answered(self, size: int, took_s: float) -> None:
        """Record a complete response of `size` bytes and its duration."""
        self._answers.append((size, took_s))
        self._busy_bytes += size
        self._fresh += 1
        if len(self._answers) <= _ENOUGH or self._fresh >= _ENOUGH:
            self._fresh = 0
            self._fit()

    def bandwidth(self, now_s: float) -> float:
        """Return the bytes per second of all streams together, over the time with requests in flight."""
        busy_s = self._busy_s + (0.0 if self._busy_since is None else now_s - self._busy_since)
        if len(self._answers) < _ENOUGH or busy_s <= 0:
            return self._stream
        return self._busy_bytes / busy_s

    def model(self, streams: int, now_s: float) -> LinkModel:
        """Return the link model for planning requests, with `streams` streams."""
        # Demand may have limited the bandwidth, so the streams' own rate is the other bound.
        bandwidth = max(self.bandwidth(now_s), min(streams, 4) * self._stream)
        return LinkModel(self._latency_s, bandwidth, streams)

    def streams(self, least: int, most: int, now_s: float) -> int:
        """Return how many requests like the latest ones the measured bandwidth can use, within bounds."""
        if len(self._answers) < _ENOUGH:
            return least
        link = LinkModel(self._shortest_s, self.bandwidth(now_s), least)
        return min(max(link.streams_for(self._mean_bytes), least), most)

    def latency_s(self, quantile: float) -> float | None:
        """Return a quantile of the time to the first byte; None before the first response."""
        return float(np.quantile(self._begun, quantile)) if self._begun else None

    def expected_s(self, size: int) -> float:
        """Return the median duration of a response of that size."""
        return self._latency_s + size / self._stream

    def hedge_after_s(self, size: int, *, has_begun: bool) -> float:
        """Return after how long a second request for the same bytes pays off; inf before enough is known.

        The limit is shorter for a response that has not begun: a delay must show before most of it is over.
        """
        whole_s = max(_LEAST_HEDGE_S, _HEDGE_FACTOR * (self._usual_s + size / self._stream))
        return whole_s if has_begun else min(whole_s, max(_LEAST_HEDGE_S, _HEDGE_FACTOR * self._usual_first_s))

    def deadline_s(self, size: int, attempt: int = 1) -> float:
        """Return the deadline of one response in seconds, doubled at each further attempt.

        Without the doubling, a link slower than assumed would never deliver a response to measure.
        """
        usual_s = max(_LEAST_DEADLINE_S, _DEADLINE_FACTOR * self.expected_s(size))
        return min(_MOST_DEADLINE_S, math.ldexp(usual_s, min(attempt - 1, 8)))

    def _fit(self) -> None:
        """Fit the latency and a stream's rate to the responses, by their medians above and below the median size."""
        sizes, took_s = (np.array(column, float) for column in zip(*self._answers, strict=True))
        large = sizes > np.median(sizes)
        if large.any() and not large.all():
            (low, low_s), (high, high_s) = (
                (float(np.median(sizes[part])), float(np.median(took_s[part]))) for part in (~large, large)
            )
            if high > 2 * low and high_s > low_s:
                self._stream = (high - low) / (high_s - low_s)
        elif len(sizes) >= _ENOUGH and np.median(took_s) > 0:
            # Equal sizes: at least the rate if the bytes took all of the time.
            self._stream = max(self._stream, float(np.median(sizes) / np.median(took_s)))
        self._mean_bytes = float(sizes.mean())
        self._shortest_s = min(self._begun, default=0.0)
        waits_s = np.maximum(0.0, took_s - sizes / self._stream)
        self._latency_s = float(np.median(waits_s))
        if len(sizes) >= _ENOUGH_TO_HEDGE:  # not at each request, since it costs 100 µs
            self._usual_s = float(np.quantile(waits_s, _HEDGE_QUANTILE))
            if len(self._begun) >= _ENOUGH_TO_HEDGE:
                self._usual_first_s = float(np.quantile(self._begun, _HEDGE_QUANTILE))


@dataclass
class HedgeBudget:
    """Budget of second requests: a share of the first ones, so that a slow store does not get twice the load."""

    requests: int = 0
    hedges: int = 0

    def take(self) -> bool:
        """Take a second request from the budget; return False if it is used up."""
        if self.hedges >= _FREE_HEDGES + _HEDGES_A_REQUEST * self.requests:
            return False
        self.hedges += 1
        return True


class Overtaking:
    """Requests on their way to a stage of their responses, with the number of later requests that reached it first."""

    def __init__(self) -> None:
        self._turn = 0
        self._overtaken: dict[int, int] = {}

    def begin(self) -> int:
        """Add a request, and return its number."""
        self._turn += 1
        self._overtaken[self._turn] = 0
        return self._turn

    def reached(self, number: int) -> None:
        """Record that a request reached the stage, or was given up. Repeated calls have no effect."""
        if self._overtaken.pop(number, None) is not None:
            for other in self._overtaken:
                if other > number:  # numbers ascend
                    break
                self._overtaken[other] += 1

    def is_behind(self, number: int) -> bool:
        """Return True if many later requests overtook this one, or no later request is in flight."""
        overtaken = self._overtaken.get(number, 0)
        return overtaken >= _OVERTAKEN or next(reversed(self._overtaken), number) <= number


class StreamLimit:
    """Limit on requests in flight: lowered by the share of them that a store throttles, then raised again.

    As the window of DCTCP (RFC 8257): the decrease is half of the throttled share, once per round trip. Halving by each
    throttled answer leaves one stream where a store throttles at random: 27 times as slow at 30 %.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        """Requests that the link can use; changes as the link is measured."""
        self._now = float(most)
        self._was_throttled = False
        self._answers = self._throttled = 0
        """Answers of this round trip, and how many of them are throttled."""

    @property
    def now(self) -> int:
        return max(1, int(self._now))

    def throttled(self) -> None:
        self._was_throttled = True
        self._throttled += 1
        self._count()

    def answered(self) -> None:
        """Raise the limit after a response: by one, or once throttled, by two per round trip."""
        self._now = min(float(self.most), self._now + (_STEP / self._now if self._was_throttled else 1))
        self._count()

    def _count(self) -> None:
        self._answers += 1
        if self._answers >= self.now:
            self._now = max(1.0, self._now * (1 - self._throttled / self._answers / 2))
            self._answers = self._throttled = 0
