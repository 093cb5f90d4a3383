"""Batches of the observed steps that are kept for replay: few, and in the proportions of all that were seen."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from ..training.cached_batches import Uncopyable, copied

MOST = 16
"""More of them tell no more of a step's length, and each costs the observed run a copy."""


class _Kept(NamedTuple):
    batch: Any
    bytes: int
    shape: int


class Kept:
    """The batches of one DataLoader. One of each shape is kept as it is first seen, and one every so often, as long as
    there is room; then each stands for as many as came with its shape, or were nearest to it in size."""

    def __init__(self, every: int, room_bytes: int, most: int = MOST) -> None:
        self._every = max(every, 1)
        self._room_bytes = room_bytes
        self._most = most
        self._kept: list[_Kept] = []
        self._seen: Counter[int] = Counter()
        self._bytes: dict[int, int] = {}
        self._credit: list[float] = []
        self._weights: list[float] = []
        self.seen = 0
        self.why_not = ""
        """Why none of these batches can be replayed; empty while nothing speaks against it."""

    def offer(self, batch: Any, size: int | None, shape: int | None) -> None:
        """The training thread has received this one."""
        if self.why_not:
            return
        if size is None or shape is None:
            self.why_not = "its batches hold no tensors, or more shapes than can be told apart"
            return
        is_new = shape not in self._seen
        self._seen[shape] += 1
        self._bytes[shape] = size
        if (is_new or self.seen % self._every == 0) and len(self._kept) < self._most:
            self._keep(batch, size, shape)
        self.seen += 1

    def _keep(self, batch: Any, size: int, shape: int) -> None:
        if size > self._room_bytes:
            if not self._kept:
                self.why_not = f"there is no room in memory to keep a batch of {size} bytes"
            return
        try:
            self._kept.append(_Kept(copied(batch), size, shape))
        except Uncopyable as error:
            self.why_not = f"its batches cannot be copied ({error})"
            self._kept.clear()
            return
        self._room_bytes -= size

    def next(self) -> Any:
        """A copy of the batch whose turn it is: in the long run each comes as often as it stands for batches."""
        if not self._weights:
            self._weights = self._shares()
            self._credit = [0.0] * len(self._kept)
        for turn, weight in enumerate(self._weights):
            self._credit[turn] += weight
        turn = max(range(len(self._kept)), key=self._credit.__getitem__)
        self._credit[turn] -= 1.0
        return copied(self._kept[turn].batch)

    def _shares(self) -> list[float]:
        shares = [0.0] * len(self._kept)
        for shape, count in self._seen.items():
            exact = [turn for turn, one in enumerate(self._kept) if one.shape == shape]
            nearest = exact or self._nearest(self._bytes[shape])
            for turn in nearest:
                shares[turn] += count / len(nearest) / self.seen
        return shares

    def _nearest(self, size: int) -> list[int]:
        return [min(range(len(self._kept)), key=lambda turn: abs(self._kept[turn].bytes - size))]
