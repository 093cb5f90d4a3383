"""Plan with global batches of one shape each, from one bucket or neighbouring buckets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.plan.batch_cutting import ANY, BatchRuns, Capacity, Cells, cut
from headrace.plan.bucket_members import BucketMembers
from headrace.plan.draws import BucketFactors
from headrace.plan.order import BatchPlan, Order, check_place
from headrace.plan.step_views import NO_VIEWS, Ints, StepViews

_BATCH_ORDER = 0
"""Stream that draws the order of an epoch's batches; 1 + b draws bucket b's own order."""
_SCALES = 1 << 32
"""Stream that draws the scale of a batch with several possible scales."""
_OF_OWN_BUCKET = 8
"""Number of replacements drawn from a bad sample's own bucket. A bucket of a rare size may hold nothing else, so later
ones are drawn from all samples."""
_ASKED = 16
"""Number of replacements whose size is tried for a sample without a size, if none in its own bucket has a size."""


@dataclass(frozen=True)
class GlobalBatch:
    """One global batch of an epoch: slots from `start` to `stop`, and `extra` repeated samples after them."""

    number: int
    start: int
    stop: int
    extra: int
    size: int
    """Samples of the batch if it is full."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ShapedPlan(Order):
    """Order with buckets that are divided over the scales, cut into global batches, and mixed.

    The composition of cells and batches is drawn anew each epoch. The number of batches of each size is not, so any
    step is computed without the others, with time and memory only for its own batch. Each sample gets each scale
    equally often. Under a budget that is exact for a bucket as a whole, if batches shared with a neighbour are a small
    part of it. A batch over several cells gets the scale of one of them, drawn in proportion to its samples.

    `joined`: the rest of one bucket may join the next bucket in a batch. `remainder` applies to batches that are not
    full; a bucket smaller than the global batch never comes under "drop". Without `shuffle`, samples come in the
    dataset's order within each bucket, and batches in the order of buckets, or of their first samples.
    """

    members: BucketMembers
    capacity: Capacity
    views: StepViews = NO_VIEWS
    joined: bool = False
    by_first_sample: bool = False
    """True if unshuffled batches come in the order of their first samples."""
    grouping: str = ""
    """Description of everything that the batches depend on, apart from the order."""
    lengths: Callable[[Ints], NDArray[np.float64]] | None = None
    """Text lengths in tokens by dataset position, if they decide a sample's bucket; NaN for a sample without a text."""
    factors: BucketFactors | None = None
    """Repeat factors of the samples; None if each comes once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes(length=self.length, batch_size=self.batch_size)
        most = f"the {self._counts.max()} samples of the largest bucket"
        self.check_drop(self.steps, most, batch_size=self.batch_size)

    @property
    def length(self) -> int:
        return int(self._counts.sum())

    @property
    def batch_size(self) -> int:
        """Samples of a full batch per rank; about their mean if a budget makes batches of several sizes."""
        return self.global_batch // self.world_size

    @cached_property
    def global_batch(self) -> int:
        """Samples of a full batch over all ranks, or about their mean: the number that a state counts per step."""
        multiple, runs = self.capacity.multiple, self._every_run
        mean = int((runs.sizes * runs.batches).sum()) / int(runs.batches.sum())
        return max(1, round(mean / multiple)) * multiple

    @property
    def part_multiple(self) -> int:
        """Divisor of a rank's number of samples in a full batch."""
        return self.capacity.multiple // self.world_size

    @property
    def steps(self) -> int:
        return int(self._first_batch[-1])

    @property
    def left_out(self) -> int:
        return self.length - int((self._runs.stops - self._runs.starts).sum())

    @property
    def repeated(self) -> int:
        return int(self._runs.missing.sum()) if self.remainder == "wrap" else 0

    @property
    def empty_parts(self) -> int:
        runs = self._runs
        return self.empty_parts_of(np.where(runs.missing > 0, runs.stops - runs.starts, 0))

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """Return this rank's part of the global batch at `step` (below `steps`) of `epoch`."""
        check_place(epoch, step, steps=self.steps)
        batch = self._at(epoch, step)
        samples, passes = self._samples(epoch, batch)
        positions = np.arange(len(samples), dtype=np.int64) + step * self._stride
        view = self.views.of(
            self._scale(epoch, batch),
            samples,
            lambda row, of_all: self._stand_ins(epoch, batch, int(positions[row]), row, of_all),
        )
        part = slice(*self.part(len(samples), batch_size=self.batch_size))
        return BatchPlan(
            epoch,
            step,
            samples[part],
            passes[part],
            positions[part],
            longest=None if self.lengths is None else int(np.nan_to_num(self.lengths(samples)).max(initial=0)),
            view=view.of_rows(part),
            whole=len(samples) == batch.size,
        )

    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        """Return the (dataset position, pass) that replaces a bad sample at this position of the epoch.

        It comes from the sample's own bucket, so that it has about the same shape; from attempt 8 on, from any bucket.
        """
        step, row = divmod(position, self._stride)
        return self._replacement(epoch, self._at(epoch, step), position, row, attempt)

    def _replacement(self, epoch: int, batch: GlobalBatch, position: int, row: int, attempt: int) -> tuple[int, int]:
        bucket = self._bucket_at(min(batch.start + row, batch.stop - 1))
        of_own = attempt < _OF_OWN_BUCKET
        of_all = self.length if self.factors is None else self.factors.samples
        length = int(self._counts[bucket]) if of_own else of_all
        index, pass_ = self.draw_replacement(length=length, epoch=epoch, position=position, attempt=attempt)
        return int(self._select(epoch, bucket, np.array([index]))[0]) if of_own else index, pass_

    def _stand_ins(self, epoch: int, batch: GlobalBatch, position: int, row: int, of_all: bool) -> Ints:
        """Return the first replacements of the sample in this row, from its own bucket, or also from all samples."""
        attempts = range(_ASKED if of_all else _OF_OWN_BUCKET)
        return np.array([self._replacement(epoch, batch, position, row, attempt)[0] for attempt in attempts])

    def _at(self, epoch: int, step: int) -> GlobalBatch:
        if not self.shuffle and self.by_first_sample:
            number = int(self._order_of_first_samples[step])
        else:
            number = int(self.shuffled(np.array([step]), count=self.steps, epoch=epoch, stream=_BATCH_ORDER)[0])
        run = int(np.searchsorted(self._first_batch, number, side="right")) - 1
        size, end = int(self._runs.sizes[run]), int(self._runs.stops[run])
        start = int(self._runs.starts[run]) + (number - int(self._first_batch[run])) * size
        stop = min(start + size, end)
        return GlobalBatch(number, start, stop, start + size - stop if self.remainder == "wrap" else 0, size)

    def _samples(self, epoch: int, batch: GlobalBatch) -> tuple[Ints, NDArray[np.uint32]]:
        """Return the global batch's samples and passes; repeated samples come from the start of its last bucket."""
        samples, passes, slot = [], [], batch.start
        while slot < batch.stop:
            bucket = self._bucket_at(slot)
            count, bucket_end = int(self._counts[bucket]), int(self._bucket_ends[bucket])
            end, first = min(batch.stop, bucket_end), slot - (bucket_end - count)
            extra = batch.extra if end == batch.stop else 0
            places = np.arange(first, first + end - slot + extra, dtype=np.int64)
            again, turns = np.divmod(places, count)
            turns = self.shuffled(turns, count=count, epoch=epoch, stream=1 + bucket)
            samples.append(self._select(epoch, bucket, turns))
            # A repeated sample has several places in its bucket.
            passes.append((again if self.factors is None else places).astype(np.uint32))
            slot = end
        return np.concatenate(samples), np.concatenate(passes)

    def _scale(self, epoch: int, batch: GlobalBatch) -> int:
        """Return the scale of one of the batch's samples, each equally likely."""
        scales = len(self.views.tables)
        if scales == 1:
            return 0
        key = _core.hash64(self.key(epoch), _SCALES)
        drawn = _core.hash64(key, batch.number)
        slot = batch.start + (drawn * (batch.stop - batch.start) >> 64)
        scale = int(self._cells.scales[self._cells.at(slot)])
        scale = _core.hash64(drawn, 0) * scales >> 64 if scale == ANY else scale
        # Rotate the scales, so that even a bucket smaller than a batch gets all of them: equal scales are
        # interchangeable.
        turn = _core.hash64(key, self.steps) * scales >> 64 if self.capacity.alike else 0
        return (scale + turn) % scales

    def _select(self, epoch: int, bucket: int, turns: Ints) -> Ints:
        """Return the dataset positions of the samples at these turns of a bucket."""
        members = turns if self.factors is None else self.factors.members_at(self.key(epoch), bucket, turns)
        return self.members.select(bucket, members)

    def _bucket_at(self, slot: int) -> int:
        return int(np.searchsorted(self._bucket_ends, slot, side="right"))

    @cached_property
    def _counts(self) -> Ints:
        return self.members.counts if self.factors is None else self.factors.counts

    @cached_property
    def _bucket_ends(self) -> Ints:
        """End of each bucket's slots."""
        return np.cumsum(self._counts)

    @cached_property
    def _cells(self) -> Cells:
        return Cells.of(self._counts, len(self.views.tables))

    @cached_property
    def _every_run(self) -> BatchRuns:
        return cut(self._cells, self.capacity, joined=self.joined)

    @cached_property
    def _runs(self) -> BatchRuns:
        return self._every_run.whole(self.capacity.multiple) if self.remainder == "drop" else self._every_run

    @cached_property
    def _first_batch(self) -> Ints:
        """First batch of each run, and the number of batches at the end. Batches are numbered run by run."""
        return np.concatenate([[0], np.cumsum(self._runs.batches)])

    @cached_property
    def _order_of_first_samples(self) -> Ints:
        starts = self._runs.starts.repeat(self._runs.batches)
        sizes = self._runs.sizes.repeat(self._runs.batches)
        slots = starts + (np.arange(self.steps) - self._first_batch[:-1].repeat(self._runs.batches)) * sizes
        buckets = np.searchsorted(self._bucket_ends, slots, side="right")
        within = slots - (self._bucket_ends[buckets] - self._counts[buckets])
        first = [int(self.members.select(b, np.array([i]))[0]) for b, i in zip(buckets, within, strict=True)]
        return np.argsort(np.array(first, np.int64))

    @cached_property
    def _stride(self) -> int:
        """Positions per step: room for the largest batch. Positions are numbered step by step."""
        return int(self._every_run.sizes.max())


def bucket_plan(members: BucketMembers, order: Order, *, batch_size: int) -> ShapedPlan:
    """Return a plan of `batch_size` samples per rank, in which every global batch comes from one bucket."""
    order.check_sizes(length=int(members.counts.sum()), batch_size=batch_size)
    size = batch_size * order.world_size
    return ShapedPlan(members=members, capacity=Capacity(size, size), by_first_sample=True, **vars(order))
