"""Cuts a chain of cells into global batches: a table as long as there are cells, the same in every epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headrace.plan.capacity import Capacity
from headrace.plan.cells import Cells, Ints


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

    def whole(self, multiple: int) -> Runs:
        """Without the samples that are left beyond a multiple of `multiple` in batches that are not full."""
        sizes = np.where(self.missing > 0, (self.stops - self.starts) // multiple * multiple, self.sizes)
        some = sizes > 0
        stops = self.starts + self.batches * sizes
        return Runs(self.starts[some], self.batches[some], sizes[some], stops[some])


def cut(cells: Cells, capacity: Capacity, *, joined: bool) -> Runs:
    """Full batches of each cell; what is left of one joins the next, if both together bear more. A rest that is larger
    than that is a batch itself, but for what is beyond a multiple of the capacity's.

    `joined`: over all buckets, so that one batch in all is not a multiple, unless two cells have no room in one batch;
    else within each bucket, where each has such a last batch.
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

    def cut_group(self, first: int, last: int) -> None:
        for cell in range(first, last):
            begin, end = (int(offset) for offset in self.cells.offsets[cell : cell + 2])
            if self.start < begin:
                self._cut_rest(begin, end, cell)
            if begin <= self.start < end:
                room = self._room(cell)
                self._emit((end - self.start) // room, room)
        self._end(int(self.cells.offsets[last]))

    def _cut_rest(self, begin: int, end: int, cell: int) -> None:
        """What was left before this cell, together with the cell's first samples if these are enough."""
        room, rest, multiple = self._room(cell), begin - self.start, self.capacity.multiple
        if room == 0:
            return self._end(begin)
        if rest >= room:
            self._emit(1, rest // multiple * multiple)
            room = self._room(cell)
        if self.start < begin and end - self.start >= room:
            self._emit(1, room)
        return None

    def _room(self, last: int) -> int:
        """Of a batch from the next slot's cell to this one."""
        part = slice(self.cells.at(self.start), last + 1)
        return self.capacity.of(self.cells.buckets[part], self.cells.scales[part])

    def _emit(self, batches: int, size: int) -> None:
        if batches:
            stop = self.start + batches * size
            self.rows.append((self.start, batches, size, stop))
            self.start = stop

    def _end(self, stop: int) -> None:
        """What is left before `stop` is a batch that need not be full."""
        rest, multiple = stop - self.start, self.capacity.multiple
        if rest:
            self.rows.append((self.start, 1, -(-rest // multiple) * multiple, stop))
            self.start = stop
