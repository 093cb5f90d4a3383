"""Nested and overlapping spans of one thread, resolved so that each moment belongs to one of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Span(NamedTuple):
    """Microseconds on any one clock; one that ends before it starts is empty."""

    name: str
    start: float
    end: float


class Segment(NamedTuple):
    """A stretch of time and the span that it belongs to, None where it belongs to none."""

    name: str | None
    start: float
    end: float


def segments(start: float, end: float, spans: Iterable[Span]) -> Iterator[Segment]:
    """Cuts [start, end] into stretches that leave nothing out and overlap nowhere: each is charged to the innermost
    span, which is the one that started last, and of several the one that ends first."""
    coming = sorted((span for span in spans if span.end > max(start, span.start)), key=lambda span: -span.start)
    running: list[tuple[float, float, str]] = []
    now = start
    while now < end:
        while coming and coming[-1].start <= now:
            span = coming.pop()
            heapq.heappush(running, (-span.start, span.end, span.name))
        while running and running[0][1] <= now:
            heapq.heappop(running)
        until = min(end, running[0][1] if running else end, coming[-1].start if coming else end)
        yield Segment(running[0][2] if running else None, now, until)
        now = until
