"""Cuts a chain of cells into global batches: a table as long as there are cells, the same in every epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.plan.capacity import Capacity
from headrace.plan.cells import Cells

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of batches of one size. Run i cuts `batches[i]` batches of `sizes[i]` slots, from slot `starts[i]` on, none
    beyond `stops[i]`: a last batch has fewer samples than its size."""

    starts: Ints
    batches: Ints
    sizes: Ints
    stops: Ints

    @property
    def missing(self) -> Ints:
        """Slots by which each run's last batch is smaller than its size."""
        return self.starts + self.batches * self.sizes - self.stops

    def whole(self) -> Runs:
        """Without the batches that are not full."""
        full = self.missing == 0
        return Runs(self.starts[full], self.batches[full], self.sizes[full], self.stops[full])


def cut(cells: Cells, capacity: Capacity, *, joined: bool) -> Runs:
    """Full batches of each cell; what is left of one joins the next, at the lower capacity of both together.

    `joined`: over all buckets, so that one batch in all is not full, unless two cells have no room in one batch; else
    within each bucket, where each has such a last batch.
    """
    ends = np.flatnonzero(np.diff(cells.buckets, append=-1)) + 1
    groups = [(0, len(cells))] if joined else list(zip(np.concatenate([[0], ends[:-1]]), ends, strict=True))
    cutting = _Cutting(cells, capacity)
    for first, last in groups:
        cutting.cut_group(int(first), int(last))
    return Runs(*(np.array(column, np.int64) for column in zip(*cutting.rows, strict=True)))


@dataclass
class _Cutting:
    cells: Cells
    capacity: Capacity
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    start: int = 0
    """The first slot that is in no batch yet."""
    size: int = 0
    """The capacity of the cells from that slot's on."""

    def cut_group(self, first: int, last: int) -> None:
        for cell in range(first, last):
            if self.start < self.cells.offsets[cell]:
                self._cut_rest(cell)
            if self.start >= self.cells.offsets[cell]:
                self.size = self._room(cell, cell)
                self._emit((int(self.cells.offsets[cell + 1]) - self.start) // self.size, self.size)
        self._end(int(self.cells.offsets[last]))

    def _cut_rest(self, cell: int) -> None:
        """Batches that begin before this cell, as far as its end bears them."""
        begin, end = (int(offset) for offset in self.cells.offsets[cell : cell + 2])
        size = min(self.size, self._room(self.cells.at(self.start), cell))
        if size == 0:
            return self._end(begin)
        self.size = size
        self._emit(min(-(-(begin - self.start) // size), (end - self.start) // size), size)
        return None

    def _room(self, first: int, last: int) -> int:
        part = slice(first, last + 1)
        return self.capacity.of(self.cells.buckets[part], self.cells.scales[part])

    def _emit(self, batches: int, size: int) -> None:
        if batches:
            stop = self.start + batches * size
            self.rows.append((self.start, batches, size, stop))
            self.start = stop

    def _end(self, stop: int) -> None:
        """What is left before `stop` is a batch that is not full."""
        self._emit((stop - self.start) // self.size, self.size)
        if self.start < stop:
            self.rows.append((self.start, 1, self.size, stop))
            self.start = stop
