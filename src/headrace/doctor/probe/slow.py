"""The slowest samples of this process, with what each spent its time in."""

from __future__ import annotations

import heapq
import reprlib
from dataclasses import dataclass
from typing import Any

from .evidence_file import Record
from .stages import Totals

KEPT = 8
"""Samples. Many workers' are joined, of which a report shows the worst few."""
LONGEST_KEY = 200

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = LONGEST_KEY


@dataclass(frozen=True)
class SlowSample:
    epoch: int
    index: int
    key: str
    wall_ns: int
    totals: Totals

    def record(self) -> Record:
        stages = [(stage, wall // 1000) for stage, (_, wall, _) in self.totals.items()]
        return ("slow", self.epoch, self.index, self.key, self.wall_ns // 1000, stages)


class SlowSamples:
    """The worst so far. In a run of n samples about KEPT × log n of them are worst at some time; those that no longer
    are when they would be written are left out."""

    def __init__(self) -> None:
        self.least_ns = -1
        """What a sample must take more than, to be one of them."""
        self._worst: list[tuple[int, int, SlowSample]] = []
        self._offered = 0
        self._unwritten: set[int] = set()

    def offer(self, epoch: int, index: int, key: Any, wall_ns: int, totals: Totals) -> None:
        """Takes it in. Not to be called for one that took no more than `least_ns`."""
        self._offered += 1
        entry = (wall_ns, self._offered, SlowSample(epoch, index, text_of(key), wall_ns, totals))
        self._unwritten.add(self._offered)
        if len(self._worst) < KEPT:
            heapq.heappush(self._worst, entry)
        else:
            self._unwritten.discard(heapq.heappushpop(self._worst, entry)[1])
        if len(self._worst) == KEPT:
            self.least_ns = self._worst[0][0]

    def records(self) -> list[Record]:
        """Of those that are new since the last call."""
        new = [sample.record() for _, number, sample in sorted(self._worst) if number in self._unwritten]
        self._unwritten.clear()
        return new


def text_of(key: Any) -> str:
    """A key as text, short. It is the user's object: its repr may be long, or raise."""
    if type(key) is int:
        return str(key)
    try:
        return _repr.repr(key)[:LONGEST_KEY]
    except Exception:
        return f"<{type(key).__qualname__}>"
