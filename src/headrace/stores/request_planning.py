"""Requests for the byte ranges of the next steps: neighbours share a request, large ranges take several. Pure.

A store responds after a latency, independent of size, and then sends at a bandwidth. Reading the gap between two ranges
is cheaper than a second request while its bytes cost less link and CPU time than a request.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError

Ints = NDArray[np.int64]

_OBJECT_BITS = 45
"""Bits of the byte offset in a sortable (object, byte) number; objects are smaller than 32 TiB."""
_REQUEST_CPU_S = 400e-6
"""CPU time of a request in the client, even of the smallest."""
_BYTE_CPU_S = 2e-9
"""CPU time per byte of a gap in the client, for the kernel and fresh memory. Both values agree with runs at two
latencies and gaps of 32, 64, 128 and 200 KiB."""
_STREAM_GAIN = 2.0
"""Bytes in flight, as a multiple of latency x bandwidth. BBR's window has the same gain."""
_LARGEST_GAP_BYTES = 4 << 20
LARGEST_REQUEST_BYTES = 16 << 20
_PART_BYTES = 1 << 20, LARGEST_REQUEST_BYTES
"""Smallest and largest request."""
_FAST_PART_BYTES, _PART_S = 4 << 20, 0.04
"""A request has at least the bytes that the whole link sends in `_PART_S`, up to this size: it costs the CPU time of
0.5 MB."""


@dataclass(frozen=True)
class LinkModel:
    """Measured link to a store."""

    latency_s: float
    """Median time to the first byte of a response."""
    bandwidth: float
    """Bytes per second of all streams together."""
    streams: int
    """Requests in flight."""

    def __post_init__(self) -> None:
        if not (self.latency_s >= 0 and self.bandwidth > 0 and self.streams >= 1):
            raise UsageError(f"expected a latency of at least 0, a bandwidth above 0 and a stream or more, got {self}")

    @property
    def gap_bytes(self) -> int:
        """Largest gap that is read rather than skipped with a second request."""
        request_s = max(self.latency_s / self.streams, _REQUEST_CPU_S)
        return min(int(request_s / (1 / self.bandwidth + _BYTE_CPU_S)), _LARGEST_GAP_BYTES)

    @property
    def request_bytes(self) -> int:
        """Size above which a range is split; a stream then sends for four times as long as it waits."""
        least, most = _PART_BYTES
        least = max(least, min(_FAST_PART_BYTES, int(_PART_S * self.bandwidth)))
        return min(max(int(4 * self.bandwidth / self.streams * self.latency_s), least), most)

    def streams_for(self, request_bytes: float) -> int:
        """Return how many requests of that size may be in flight: twice latency x bandwidth.

        A bandwidth that the streams limit grows with them; a bandwidth that the link or the demand limits does not.
        """
        return max(1, math.ceil(_STREAM_GAIN * self.latency_s * self.bandwidth / max(1.0, request_bytes)))


@dataclass(frozen=True, eq=False)
class WantedRanges:
    """Ranges [start, stop) of numbered objects, as parallel arrays."""

    object: Ints
    start: Ints
    stop: Ints
    need: Ints
    """Step that needs the range; the lowest comes first."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def bytes(self) -> int:
        """Total bytes of the ranges; a repeated range, such as a page with several samples, counts once."""
        order = np.lexsort((self.stop, self.start, self.object))
        known = np.stack([self.object, self.start, self.stop])[:, order]
        new = np.concatenate([[True], (known[:, 1:] != known[:, :-1]).any(axis=0)])[: len(order)]
        return int((known[2] - known[1])[new].sum())

    def only(self, rows: Ints) -> WantedRanges:
        return WantedRanges(self.object[rows], self.start[rows], self.stop[rows], self.need[rows])

    @classmethod
    def joined(cls, parts: list[WantedRanges]) -> WantedRanges:
        names = ("object", "start", "stop", "need")
        return cls(*(np.concatenate([getattr(part, name) for part in parts] or [_NONE]) for name in names))


_NONE: Ints = np.empty(0, np.int64)


class Request(NamedTuple):
    """One read of an object."""

    object: Any
    """Object as a `RangeReader` knows it."""
    start: int
    stop: int
    need: int
    """Step that needs the bytes; the lowest comes first."""
    may_end: bool = False
    """True if the object may end before `stop`, since its size is unknown."""
    with_rest: bool = False
    """True to read an object that goes on after `stop` to its end, by further requests."""

    @property
    def bytes(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, eq=False)
class RequestPlan:
    """Parts of objects to fetch. A part contains wanted ranges completely, so that each is contiguous in memory."""

    object: Ints
    start: Ints
    stop: Ints
    need: Ints
    """Lowest need of the part's ranges."""
    part_of: Ints
    """Part of each wanted range, in the given order."""
    request_bytes: int
    """Maximum size of a request: a larger part takes several."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def bytes(self) -> int:
        return int((self.stop - self.start).sum())

    @property
    def request_count(self) -> int:
        return int(np.maximum(1, -(-(self.stop - self.start) // self.request_bytes)).sum())

    def by_need(self) -> list[int]:
        """Return the parts' numbers in order of need."""
        order: list[int] = np.lexsort((self.start, self.object, self.need)).tolist()
        return order

    def requests(self, part: int, object: Any) -> Iterator[Request]:
        """Yield the requests of one part to its object, of equal size, since the part waits for the last to arrive."""
        start, stop, need = int(self.start[part]), int(self.stop[part]), int(self.need[part])
        count = max(1, -(-(stop - start) // self.request_bytes))
        edges = [start + (stop - start) * i // count for i in range(count + 1)]
        for first, last in pairwise(edges):
            yield Request(object, first, last, need)


def plan_requests(wanted: WantedRanges, link: LinkModel, *, gap_bytes: int | None = None) -> RequestPlan:
    """Return the parts to fetch for these ranges; each range is in exactly one part.

    Ranges of one object share a part if the gap between them is at most `gap_bytes`, up to `link.request_bytes` in
    total. The default gap is the largest that is cheaper to read over this link. A larger range is its own part, in
    several requests.
    """
    order, first = _runs(wanted, link.gap_bytes if gap_bytes is None else gap_bytes)
    start, stop = wanted.start[order], wanted.stop[order]
    if len(first):
        size = np.maximum.reduceat(stop, first) - start[first]
        too_large = np.flatnonzero(size > link.request_bytes)
        if len(too_large):
            ends = np.append(first[1:], len(order))
            cuts = [_cut(start, stop, int(first[run]), int(ends[run]), link.request_bytes) for run in too_large]
            first = np.unique(np.concatenate([first, *cuts]))
    part = np.zeros(len(order), np.int64)
    part[first[1:]] = 1
    part_of = np.empty(len(order), np.int64)
    part_of[order] = np.cumsum(part)
    if not len(first):
        return RequestPlan(_NONE, _NONE, _NONE, _NONE, part_of, link.request_bytes)
    return RequestPlan(
        wanted.object[order][first],
        start[first],
        np.maximum.reduceat(stop, first),
        np.minimum.reduceat(wanted.need[order], first),
        part_of,
        link.request_bytes,
    )


def _runs(wanted: WantedRanges, gap_bytes: int) -> tuple[Ints, Ints]:
    """Return the ranges' order by position, and the start of each run without a larger gap in that order."""
    order = np.lexsort((wanted.stop, wanted.start, wanted.object))
    if not len(order):
        return order, _NONE
    number = np.unique(wanted.object[order], return_inverse=True)[1].astype(np.int64)
    if int(wanted.stop.max()) >= 1 << (_OBJECT_BITS - 1) or int(number[-1]) >= 1 << (62 - _OBJECT_BITS):
        raise UsageError("expected ranges of at most 131,072 objects at once, of less than 16 TiB each")
    reach = np.maximum.accumulate((number << _OBJECT_BITS) + wanted.stop[order])
    begins = (number[1:] << _OBJECT_BITS) + wanted.start[order][1:]
    apart = (begins > reach[:-1] + gap_bytes) | (number[1:] != number[:-1])
    return order, np.concatenate([[0], 1 + np.flatnonzero(apart)]).astype(np.int64)


def _cut(start: Ints, stop: Ints, first: int, end: int, most: int) -> Ints:
    """Return the starts of parts in a run [first, end) of ranges, each part as large as `most` allows."""
    cuts = [first]
    reach = begin = int(start[first])
    for at, (low, high) in enumerate(zip(start[first:end].tolist(), stop[first:end].tolist(), strict=True), first):
        if at > cuts[-1] and max(reach, high) - begin > most and low >= reach:
            cuts.append(at)
            begin = low
        reach = max(reach, high)
    return np.array(cuts, np.int64)
