"""Cutting of global batches from buckets and scales: as many samples as a batch size or a budget allows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.plan.step_views import Ints

ANY = -1
"""Scale of the few samples left over when a bucket is divided evenly: every scale is equally likely."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of samples: the samples of one bucket with one scale. Epochs are cut from them, one cell after another.

    Slots 0 to length - 1 are dealt to cells; a bucket's slots are contiguous. Each bucket is divided over the scales in
    equal shares. Every second bucket has its scales in reverse, so that neighbours have a bucket or a scale in common.
    """

    offsets: Ints
    """Slots of the cells: cell c has offsets[c] to offsets[c + 1]; none is empty."""
    buckets: Ints
    scales: Ints
    """Number of the scale, or ANY."""

    @classmethod
    def of(cls, counts: Ints, scales: int) -> Cells:
        """Divide buckets with `counts` samples over the scales. With one scale each bucket is a cell."""
        some = np.flatnonzero(counts)
        if scales == 1:
            return cls(np.concatenate([[0], np.cumsum(counts[some])]), some, np.zeros_like(some))
        dealt: list[tuple[int, int, int]] = []
        for turn, bucket in enumerate(some.tolist()):
            share, rest = divmod(int(counts[bucket]), scales)
            parts = [(bucket, scale, share) for scale in range(scales)] + [(bucket, ANY, rest)]
            dealt += [part for part in parts[:: -1 if turn % 2 else 1] if part[2]]
        table = np.array(dealt, np.int64).reshape(-1, 3)
        return cls(np.concatenate([[0], np.cumsum(table[:, 2])]), table[:, 0], table[:, 1])

    def __len__(self) -> int:
        return len(self.buckets)

    def at(self, slot: int) -> int:
        """Return the cell of a slot."""
        return int(np.searchsorted(self.offsets, slot, side="right")) - 1


@dataclass(frozen=True, eq=False)
class Capacity:
    """Samples of a full global batch: as many as cost at most `total` over all ranks, in a multiple of `multiple`."""

    total: int
    multiple: int
    bounds: tuple[Ints, Ints] | None = None
    """Greatest height and width of a member of each bucket at each scale, [buckets, scales]: a sample costs as much as
    the largest of its cell. None: each sample costs 1."""

    @property
    def alike(self) -> bool:
        """True if every scale has the same capacity."""
        return self.bounds is None or all(bool((bound == bound[:, :1]).all()) for bound in self.bounds)

    def of(self, buckets: Ints, scales: Ints) -> int:
        """Return how many samples of these buckets fit at any one of these scales; 0 if none fits."""
        if self.bounds is None:
            return self.total
        chosen = slice(None) if ANY in scales else np.unique(scales)
        heights, widths = (bound[np.unique(buckets)][:, chosen].max(axis=0) for bound in self.bounds)
        return self.total // int((heights * widths).max()) // self.multiple * self.multiple


@dataclass(frozen=True, eq=False)
class BatchRuns:
    """Runs of batches of one size: a table proportional to the cells, the same in every epoch.

    Run i has `batches[i]` batches of `sizes[i]` slots, from slot `starts[i]` on and none beyond `stops[i]`: a last
    batch has fewer samples than its size.
    """

    starts: Ints
    batches: Ints
    sizes: Ints
    stops: Ints

    @property
    def missing(self) -> Ints:
        """Slots by which each run's last batch is smaller than its size."""
        return self.starts + self.batches * self.sizes - self.stops

    def whole(self, multiple: int) -> BatchRuns:
        """Return the runs without samples beyond a multiple of `multiple` in batches that are not full."""
        sizes = np.where(self.missing > 0, (self.stops - self.starts) // multiple * multiple, self.sizes)
        return BatchRuns(self.starts, self.batches, sizes, self.starts + self.batches * sizes)._only(sizes > 0)

    def _only(self, chosen: NDArray[np.bool_]) -> BatchRuns:
        return BatchRuns(self.starts[chosen], self.batches[chosen], self.sizes[chosen], self.stops[chosen])


def cut_alike(cells: Cells, size: int) -> BatchRuns:
    """Cut each cell into batches of `size`: a run of full batches, and a run of the last batch if it is smaller."""
    begins, ends = cells.offsets[:-1], cells.offsets[1:]
    full = (ends - begins) // size
    between = begins + full * size
    runs = BatchRuns(
        starts=np.stack([begins, between], axis=1).reshape(-1),
        batches=np.stack([full, between < ends], axis=1).reshape(-1).astype(np.int64),
        sizes=np.full(2 * len(cells), size, np.int64),
        stops=np.stack([between, ends], axis=1).reshape(-1),
    )
    return runs._only(runs.batches > 0)


def cut(cells: Cells, capacity: Capacity, *, joined: bool) -> BatchRuns:
    """Cut full batches from each cell; the rest of a cell joins the next one, if both together fit.

    A larger rest is a batch itself, without the samples beyond a multiple of the capacity's `multiple`. `joined`: rests
    join over all buckets. Then only the very last batch is not a multiple, unless two cells do not fit in one batch.
    Else rests join within each bucket, and each bucket has such a last batch.
    """
    ends = np.flatnonzero(np.diff(cells.buckets, append=-1)) + 1
    if not joined and len(ends) == len(cells) and capacity.bounds is None:
        return cut_alike(cells, capacity.total)
    groups = [(0, len(cells))] if joined else list(zip(np.concatenate([[0], ends[:-1]]), ends, strict=True))
    cutting = _Cutting(cells, capacity)
    for first, last in groups:
        cutting.cut_group(int(first), int(last))
    return BatchRuns(*(np.array(column, np.int64) for column in zip(*cutting.rows, strict=True)))


@dataclass
class _Cutting:
    cells: Cells
    capacity: Capacity
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    start: int = 0
    """First slot that is in no batch yet."""

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
        """Cut the rest before this cell, together with the cell's first samples if there are enough."""
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
        """Return the capacity of a batch that extends from the next slot's cell to `last`."""
        part = slice(self.cells.at(self.start), last + 1)
        return self.capacity.of(self.cells.buckets[part], self.cells.scales[part])

    def _emit(self, batches: int, size: int) -> None:
        if batches:
            stop = self.start + batches * size
            self.rows.append((self.start, batches, size, stop))
            self.start = stop

    def _end(self, stop: int) -> None:
        """Cut the rest before `stop` as a batch that need not be full."""
        rest, multiple = stop - self.start, self.capacity.multiple
        if rest:
            self.rows.append((self.start, 1, -(-rest // multiple) * multiple, stop))
            self.start = stop
