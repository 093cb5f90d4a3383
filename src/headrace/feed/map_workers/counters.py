"""Numbers that the parent and its workers count together, in a block of the shared file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace import _core

_APART = 8
"""Each number has a cache line of its own: 64 bytes."""
NOTHING = -1


@dataclass(frozen=True)
class CountersPlace:
    """Where they lie, as a worker is told."""

    offset: int
    batches: int
    workers: int

    @property
    def nbytes(self) -> int:
        return (self.batches + self.workers) * _APART * 8


class Counters:
    """For each batch under way the rows taken so far, and for each worker the row that it is at."""

    def __init__(self, place: CountersPlace, memory: NDArray[np.uint8]) -> None:
        self._batches = place.batches
        self._numbers = memory[: place.nbytes].view(np.int64)

    def reset(self) -> None:
        self._numbers[:] = NOTHING

    def begin_batch(self, number: int) -> None:
        """Before any worker hears of it; at most so many batches may be under way as there are counters."""
        self._numbers[self._batch(number)] = 0

    def take_row(self, number: int) -> int:
        """The next row that nobody else has taken."""
        return _core.fetch_add(self._numbers, self._batch(number), 1)

    def take_all(self, number: int, count: int) -> None:
        """Leaves no row for anybody."""
        _core.fetch_add(self._numbers, self._batch(number), count)

    def set_at(self, worker: int, number: int, row: int) -> None:
        self._numbers[self._worker(worker)] = number << 32 | row

    def set_idle(self, worker: int) -> None:
        self._numbers[self._worker(worker)] = NOTHING

    def at(self, worker: int) -> tuple[int, int] | None:
        """Batch and row that a worker is at, or was when it was killed."""
        at = int(self._numbers[self._worker(worker)])
        return None if at == NOTHING else (at >> 32, at & 0xFFFF_FFFF)

    def _batch(self, number: int) -> int:
        return number % self._batches * _APART

    def _worker(self, worker: int) -> int:
        return (self._batches + worker) * _APART
