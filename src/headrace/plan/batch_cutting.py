"""Global batches cut from buckets and scales: as many samples as a batch size or a budget allows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# -- from plan/cells.py: Cells: the samples of one bucket that one scale takes, in the order in which an epoch's
# batches are cut from them.


Ints = NDArray[np.int64]

ANY = -1
"""The scale of the few samples that are left over where a bucket is divided evenly: each as likely as the others."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Slots 0 to length - 1 are dealt to cells, one cell after another; a bucket's slots lie together.

    Each bucket is divided over the scales in equal shares. Every second bucket has its scales in reverse, so that
    neighbours in the chain have a bucket or a scale in common.
    """

    offsets: Ints
    """Cell c has the slots from offsets[c] to offsets[c + 1]; none is empty."""
    buckets: Ints
    scales: Ints
    """A number of a scale, or ANY."""

    @classmethod
    def of(cls, counts: Ints, scales: int) -> Cells:
        """`counts`: samples in each bucket. With one scale each bucket is a cell."""
        dealt: list[tuple[int, int, int]] = []
        for turn, bucket in enumerate(np.flatnonzero(counts).tolist()):
            share, rest = divmod(int(counts[bucket]), scales)
            parts = [(bucket, scale, share) for scale in range(scales)] + [(bucket, ANY, rest)]
            dealt += [part for part in parts[:: -1 if turn % 2 else 1] if part[2]]
        table = np.array(dealt, np.int64).reshape(-1, 3)
        return cls(np.concatenate([[0], np.cumsum(table[:, 2])]), table[:, 0], table[:, 1])

    def __len__(self) -> int:
        return len(self.buckets)

    def at(self, slot: int) -> int:
        """The cell of a slot."""
        return int(np.searchsorted(self.offsets, slot, side="right")) - 1


# -- from plan/capacity.py: How many samples a global batch holds: a given number, or as many as a budget bears.


class Capacity(Protocol):
    """Samples of a whole global batch, a multiple of `multiple`."""

    @property
    def multiple(self) -> int: ...

    @property
    def alike(self) -> bool:
        """Whether every scale has the same."""
        ...

    def of(self, buckets: Ints, scales: Ints) -> int:
        """For a batch of samples of these buckets that gets any one of these scales; 0 where none fits."""
        ...


@dataclass(frozen=True)
class FixedCapacity:
    """The same number whatever the samples are."""

    samples: int

    @property
    def multiple(self) -> int:
        return self.samples

    @property
    def alike(self) -> bool:
        return True

    def of(self, buckets: Ints, scales: Ints) -> int:
        return self.samples


@dataclass(frozen=True, eq=False)
class BudgetCapacity:
    """As many as cost at most `total` over all ranks, if each is as large as the largest of its cell."""

    total: int
    heights: Ints
    """[buckets, scales]: the greatest height that a member of the bucket has at the scale."""
    widths: Ints
    multiple: int

    @property
    def alike(self) -> bool:
        return all(bool((bound == bound[:, :1]).all()) for bound in (self.heights, self.widths))

    def of(self, buckets: Ints, scales: Ints) -> int:
        return self.total // self.cost(buckets, scales) // self.multiple * self.multiple

    def cost(self, buckets: Ints, scales: Ints) -> int:
        """Of one sample of a batch of these, at the scale where it costs most."""
        chosen = slice(None) if ANY in scales else np.unique(scales)
        heights, widths = (bound[np.unique(buckets)][:, chosen].max(axis=0) for bound in (self.heights, self.widths))
        return int((heights * widths).max())


# -- from plan/runs.py: Cuts a chain of cells into global batches: a table as long as there are cells, the same in
# every epoch.


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
