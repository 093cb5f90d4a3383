"""Plan in which all images of a global batch have one shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import UsageError
from headrace.plan.batch_cutting import ANY, Capacity, Cells, Runs, cut
from headrace.plan.bucket_members import Membership
from headrace.plan.order import BatchPlan, Remainder, check_int, check_order, epoch_key, rank_part
from headrace.plan.order import replacement as draw_replacement
from headrace.plan.step_views import StepViews

Ints = NDArray[np.int64]

_BATCH_ORDER = 0
"""Draws the order of an epoch's batches; bucket b's own order is drawn with 1 + b."""
_SCALES = 1 << 32
"""Draws the scales of batches that more than one could have."""
_OF_OWN_BUCKET = 8
"""Replacements drawn from a bad sample's own bucket. The bucket may hold nothing else, as one of a rare size does, so
further ones are drawn from all samples."""
_ASKED = 16
"""Replacements asked for the size of a sample that has none, if those of its own bucket have none either."""


@dataclass(frozen=True)
class GlobalBatch:
    """One global batch of an epoch: slots from `start` to `stop`, and `extra` samples once more after them."""

    number: int
    start: int
    stop: int
    extra: int


@dataclass(frozen=True, eq=False, kw_only=True)
class ShapedPlan:
    """Divides each bucket over the scales, cuts the cells into global batches, and mixes these.

    Which samples are in a cell together, and with which a batch, is drawn anew each epoch; how many batches there are
    of which size is not, so any step is computed without the others, in time and memory that only its own batch
    determines. Each sample gets each scale equally often; under a budget that is exact for a bucket as a whole, if no
    batch of its samples and a neighbour's is a large part of it. A batch over several cells gets the scale of one of
    them, drawn by how many of its samples each has.

    `joined`: what is left of one bucket may join the next in a batch. `remainder` is said of the batches that are not
    full. Without `shuffle` batches come in the order of buckets, and samples in the dataset's within each. `grouping`
    says in words what the rest was made of. Global batches do not depend on the world size, as in Plan.
    """

    members: Membership
    capacity: Capacity
    views: StepViews
    joined: bool
    grouping: str
    lengths: Callable[[Ints], NDArray[np.float64]] | None = None
    """Tokens of texts, by dataset position, NaN where a sample has none: where these are what tells samples apart."""
    world_size: int = 1
    rank: int = 0
    shuffle: bool = True
    seed: int = 0
    remainder: Remainder = "short"

    def __post_init__(self) -> None:
        check_order(
            length=self.length,
            batch_size=self.batch_size,
            world_size=self.world_size,
            rank=self.rank,
            shuffle=self.shuffle,
            seed=self.seed,
            remainder=self.remainder,
        )
        if self.steps == 0:
            raise UsageError(
                f"remainder='drop' leaves nothing: expected a bucket that fills a global batch, got global batches of "
                f"{self.global_batch} and at most {self._counts.max()} samples in a bucket; lower batch_size, have "
                "fewer buckets, or use remainder='short'"
            )

    @property
    def length(self) -> int:
        """Samples of the dataset."""
        return int(self._counts.sum())

    @property
    def batch_size(self) -> int:
        """Samples of a full batch per rank; where a budget makes batches of several sizes, about their mean."""
        return self.global_batch // self.world_size

    @cached_property
    def global_batch(self) -> int:
        """Samples of a full batch over all ranks, or about their mean: what a state counts as consumed a step."""
        multiple, runs = self.capacity.multiple, self._every_run
        mean = int((runs.sizes * runs.batches).sum()) / int(runs.batches.sum())
        return max(1, round(mean / multiple)) * multiple

    @property
    def steps(self) -> int:
        """Steps of an epoch, the same on every rank and in every epoch."""
        return int(self._first_batch[-1])

    @property
    def left_out(self) -> int:
        """Samples that an epoch leaves out under "drop". Low is good."""
        return self.length - int((self._runs.stops - self._runs.starts).sum())

    @property
    def repeated(self) -> int:
        """Samples that an epoch takes once more under "wrap". Low is good."""
        return int(self._runs.missing.sum()) if self.remainder == "wrap" else 0

    @property
    def empty_parts(self) -> int:
        """Parts of an epoch's batches that are empty, because a batch has fewer samples than there are ranks."""
        if self.remainder != "short":
            return 0
        last = self._runs.missing > 0
        return int(np.clip(self.world_size - (self._runs.stops - self._runs.starts)[last], 0, None).sum())

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """This rank's part of the global batch at `step` (below `steps`) of `epoch`."""
        check_int("epoch", epoch, 0, (1 << 64) - 1, "epochs count from 0")
        check_int("step", step, 0, self.steps - 1, "steps count from 0 and end with the epoch")
        batch = self._at(epoch, step)
        samples, passes = self._samples(epoch, batch)
        positions = np.arange(len(samples), dtype=np.int64) + step * self._stride
        view = self.views.of(
            self._scale(epoch, batch),
            samples,
            lambda row, of_all: self._stand_ins(epoch, batch, int(positions[row]), row, of_all),
        )
        first, last = rank_part(len(samples), batch_size=self.batch_size, rank=self.rank, world_size=self.world_size)
        part = slice(first, last)
        return BatchPlan(
            epoch,
            step,
            samples[part],
            passes[part],
            positions[part],
            longest=None if self.lengths is None else int(np.nan_to_num(self.lengths(samples)).max(initial=0)),
            view=view.of_rows(part),
        )

    def key(self, epoch: int) -> int:
        """The 64-bit key from which the epoch's views are drawn."""
        return epoch_key(self.seed, epoch)

    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        """The (dataset position, pass) that stands in for a bad sample at this position of the epoch: one of its own
        bucket, so that it has about the same shape.

        `attempt` counts from 0, for a replacement that is bad as well; from 8 on it is one of any bucket.
        """
        step, row = divmod(position, self._stride)
        return self._replacement(epoch, self._at(epoch, step), position, row, attempt)

    def _replacement(self, epoch: int, batch: GlobalBatch, position: int, row: int, attempt: int) -> tuple[int, int]:
        bucket = self._bucket_at(min(batch.start + row, batch.stop - 1))
        of_own = attempt < _OF_OWN_BUCKET
        length = int(self._counts[bucket]) if of_own else self.length
        index, pass_ = draw_replacement(length=length, seed=self.seed, epoch=epoch, position=position, attempt=attempt)
        return int(self.members.select(bucket, np.array([index]))[0]) if of_own else index, pass_

    def _stand_ins(self, epoch: int, batch: GlobalBatch, position: int, row: int, of_all: bool) -> Ints:
        """The first that would replace the sample in this row, of its own bucket, or also of all."""
        attempts = range(_ASKED if of_all else _OF_OWN_BUCKET)
        return np.array([self._replacement(epoch, batch, position, row, attempt)[0] for attempt in attempts])

    def _at(self, epoch: int, step: int) -> GlobalBatch:
        number = step
        if self.shuffle:
            key = _core.hash64(epoch_key(self.seed, epoch), _BATCH_ORDER)
            number = int(_core.permute(self.steps, key, np.array([step]))[0])
        run = int(np.searchsorted(self._first_batch, number, side="right")) - 1
        size, end = int(self._runs.sizes[run]), int(self._runs.stops[run])
        start = int(self._runs.starts[run]) + (number - int(self._first_batch[run])) * size
        stop = min(start + size, end)
        return GlobalBatch(number, start, stop, start + size - stop if self.remainder == "wrap" else 0)

    def _samples(self, epoch: int, batch: GlobalBatch) -> tuple[Ints, NDArray[np.uint32]]:
        """The global batch's samples and passes; what is taken once more comes from its last bucket's start."""
        samples, passes, slot = [], [], batch.start
        while slot < batch.stop:
            bucket = self._bucket_at(slot)
            end = min(batch.stop, int(self._bucket_ends[bucket]))
            count, first = (
                int(self._counts[bucket]),
                slot - (int(self._bucket_ends[bucket]) - int(self._counts[bucket])),
            )
            extra = batch.extra if end == batch.stop else 0
            again, places = np.divmod(np.arange(first, first + end - slot + extra, dtype=np.int64), count)
            if self.shuffle:
                places = _core.permute(count, _core.hash64(epoch_key(self.seed, epoch), 1 + bucket), places)
            samples.append(self.members.select(bucket, places))
            passes.append(again.astype(np.uint32))
            slot = end
        return np.concatenate(samples), np.concatenate(passes)

    def _scale(self, epoch: int, batch: GlobalBatch) -> int:
        """That of one of the batch's samples, each as likely as the others."""
        key, scales = _core.hash64(epoch_key(self.seed, epoch), _SCALES), len(self.views.tables)
        drawn = _core.hash64(key, batch.number)
        slot = batch.start + (drawn * (batch.stop - batch.start) >> 64)
        scale = int(self._cells.scales[self._cells.at(slot)])
        scale = _core.hash64(drawn, 0) * scales >> 64 if scale == ANY else scale
        # So that even a bucket that is less than a batch has all scales: any of them could stand for any other.
        turn = _core.hash64(key, self.steps) * scales >> 64 if self.capacity.alike else 0
        return (scale + turn) % scales

    def _bucket_at(self, slot: int) -> int:
        return int(np.searchsorted(self._bucket_ends, slot, side="right"))

    @cached_property
    def _counts(self) -> Ints:
        return self.members.counts

    @cached_property
    def _bucket_ends(self) -> Ints:
        """Where each bucket's slots end."""
        return np.cumsum(self._counts)

    @cached_property
    def _cells(self) -> Cells:
        return Cells.of(self._counts, len(self.views.tables))

    @cached_property
    def _every_run(self) -> Runs:
        return cut(self._cells, self.capacity, joined=self.joined)

    @cached_property
    def _runs(self) -> Runs:
        return self._every_run.whole(self.capacity.multiple) if self.remainder == "drop" else self._every_run

    @cached_property
    def _first_batch(self) -> Ints:
        """Batches are numbered run by run: each run's first, and how many there are."""
        return np.concatenate([[0], np.cumsum(self._runs.batches)])

    @cached_property
    def _stride(self) -> int:
        """Positions are numbered step by step, with room for the largest batch in each."""
        return int(self._every_run.sizes.max())
