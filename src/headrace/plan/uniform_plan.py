"""Plans that cut an epoch's order in sequence: batch by batch, or sample by sample."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np

from headrace.errors import UsageError
from headrace.plan.draws import Draws
from headrace.plan.order import BatchPlan, Order, check_place
from headrace.plan.step_views import Ints
from headrace.plan.windowed import LanePart, Lanes, WindowedEpoch, WindowShape, lanes_of, windowed_epoch

_OF_OWN_WINDOW = 8
"""Number of replacements drawn from a bad sample's own window, whose blocks are in memory; later ones come from all."""


@dataclass(frozen=True, kw_only=True)
class UniformPlan(Order):
    """Order cut into global batches of `batch_size` x `world_size` samples."""

    length: int
    """Samples of an epoch: each of the dataset's samples once, or the number of `draws`."""
    batch_size: int
    draws: Draws | None = None
    """Draws of the samples; None if each sample comes once."""
    window: WindowShape | None = None
    """Blocks and windows of the shuffle; None for a shuffle over the whole epoch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes(length=self.length, batch_size=self.batch_size)
        of = "dataset" if self.draws is None else "epoch"
        self.check_drop(self.steps, f"the {self.length} samples of the {of}", batch_size=self.batch_size)

    @property
    def global_batch(self) -> int:
        """Samples that one step takes over all ranks (fewer in a short last batch)."""
        return self.batch_size * self.world_size

    @property
    def part_multiple(self) -> int:
        """Divisor of a rank's number of samples in a full batch."""
        return self.batch_size

    @property
    def grouping(self) -> str:
        """Description of the draws and windows; "" if each sample comes once, in the global order."""
        parts = [None if self.draws is None else self.draws.words, None if self.window is None else str(self.window)]
        return "; ".join(part for part in parts if part is not None)

    @property
    def steps(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return self.steps_of(self.length, global_batch=self.global_batch)

    @property
    def rank_samples(self) -> int:
        """Maximum different samples that this rank takes in an epoch, apart from replacements."""
        share = -(-self.length // self.world_size)
        return share if self.draws is None else min(share, self.draws.different)

    @property
    def left_out(self) -> int:
        """Samples that an epoch leaves out under "drop"; other samples each epoch when shuffled. Low is good."""
        return max(0, self.length - self.steps * self.global_batch)

    @property
    def repeated(self) -> int:
        """Samples that an epoch repeats under "wrap". Low is good."""
        return self.steps * self.global_batch - self.length if self.remainder == "wrap" else 0

    @property
    def empty_parts(self) -> int:
        """Number of empty parts in an epoch's batches, if a batch has fewer samples than there are ranks."""
        return self.empty_parts_of(self.length % self.global_batch)

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """Return this rank's part of the global batch at `step` (below `steps`) of `epoch`."""
        check_place(epoch, step, steps=self.steps)
        first = step * self.global_batch
        count = self.global_batch if self.remainder == "wrap" else min(self.global_batch, self.length - first)
        start, stop = self.part(count, batch_size=self.batch_size)
        positions = np.arange(first + start, first + stop, dtype=np.int64)
        if self.draws is None:
            passes, within = np.divmod(positions, self.length)
            samples = self.shuffled(within, count=self.length, epoch=epoch)
        else:
            samples, passes = self.draws.draw(self, epoch, positions, first=first, size=count)
        whole = count == self.global_batch
        return BatchPlan(epoch, step, samples, passes.astype(np.uint32), positions, whole=whole)

    def shuffled(self, places: Ints, *, count: int, epoch: int, stream: int | None = None) -> Ints:
        if self.window is None:
            return super().shuffled(places, count=count, epoch=epoch, stream=stream)
        return windowed_epoch(count, self.window, self.key(epoch)).samples_at(self._lanes(count).places_of(places))

    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        """Return the (dataset position, pass) that replaces a bad sample at this position of the epoch.

        `attempt` counts from 0, for a replacement that is bad as well. The replacement has the same distribution as a
        draw; in a windowed order, it comes from the window, until attempt 8.
        """
        if self.draws is not None:
            bits, pass_ = self.replacement_bits(epoch=epoch, position=position, attempt=attempt)
            return self.draws.pick(bits), pass_
        if self.window is None or attempt >= _OF_OWN_WINDOW:
            return self.draw_replacement(length=self.length, epoch=epoch, position=position, attempt=attempt)
        order = windowed_epoch(self.length, self.window, self.key(epoch))
        place = self._lanes(self.length).places_of(np.array([position % self.length], np.int64))
        start, stop = order.bounds(order.window_at(place))
        size = int(stop[0] - start[0])
        within, pass_ = self.draw_replacement(length=size, epoch=epoch, position=position, attempt=attempt)
        return int(order.samples_at(start + within)[0]), pass_

    def reads(self, epoch: int, first_step: int) -> Iterator[ReadGroup]:
        """Yield the reads of this rank from `first_step` of `epoch` on, in the order of need.

        A group is read together: a step's samples, or in a windowed order the samples of a window of a lane.
        """
        if self.window is None or self.draws is not None:
            yield from reads_by_step(self, epoch, first_step)
            return
        order = windowed_epoch(self.length, self.window, self.key(epoch))
        whole = self.length // self.global_batch
        parts = self._lanes(self.length).takes(self.rank * self.batch_size, (self.rank + 1) * self.batch_size)
        lanes = (_lane_reads(order, part, first_step, whole) for part in parts)
        yield from heapq.merge(*lanes, key=lambda group: group.first_step)
        yield from reads_by_step(self, epoch, max(whole, first_step))

    @property
    def window_samples(self) -> int:
        """Samples of the windows that this rank mixes at a time; 0 if no windows are read."""
        if self.window is None or self.draws is not None:
            return 0
        lanes = len(self._lanes(self.length).takes(self.rank * self.batch_size, (self.rank + 1) * self.batch_size))
        return min(lanes * self.window.lane_blocks * self.window.block, self.rank_samples)

    def _lanes(self, count: int) -> Lanes:
        """Return the lanes of the order; a single lane with draws, whose batches do not follow the order."""
        assert self.window is not None
        return lanes_of(count, self.global_batch, self.window.lanes if self.draws is None else 1)


class Planned(Protocol):
    """Steps of a plan, the interface that prefetching needs."""

    @property
    def steps(self) -> int: ...

    def batch(self, epoch: int, step: int) -> BatchPlan: ...


class ReadGroup(NamedTuple):
    """Samples that are read together, and the step of each sample."""

    first_step: int
    samples: Ints
    steps: Ints


def reads_by_step(plan: Planned, epoch: int, first_step: int) -> Iterator[ReadGroup]:
    """Yield the samples of each step of an epoch from `first_step` on."""
    for step in range(first_step, plan.steps):
        samples = plan.batch(epoch, step).samples
        if len(samples):
            yield ReadGroup(step, samples, np.full(len(samples), step, np.int64))


def _lane_reads(order: WindowedEpoch, part: LanePart, first_step: int, steps: int) -> Iterator[ReadGroup]:
    """Yield a rank's samples of one lane, window by window, for its full batches."""
    place, end = part.first + first_step * part.stride, part.first + steps * part.stride
    while place < end:
        stop = min(end, int(order.bounds(order.window_at(np.array([place], np.int64)))[1][0]))
        places = np.arange(place, stop, dtype=np.int64)
        step, offset = np.divmod(places - part.first, part.stride)
        mine = offset < part.samples
        if mine.any():
            yield ReadGroup(int(step[mine][0]), order.samples_at(places[mine]), step[mine])
        place = stop


@dataclass(frozen=True, kw_only=True)
class SamplePlan(Order):
    """Order dealt out to the ranks one sample at a time.

    Rank r of n takes positions r, r + n, r + 2n, … After any number of samples each, all ranks together have a prefix
    of the epoch, however they batch them. A run of any world size and batch size continues from there. Every rank takes
    equally many: `remainder` "wrap" fills up the last round from the epoch's start, "drop" leaves it out.
    """

    length: int
    remainder: Literal["drop", "wrap"] = "wrap"

    def __post_init__(self) -> None:
        if self.remainder not in ("drop", "wrap"):
            raise UsageError(
                f"remainder: expected 'drop' or 'wrap', which give every rank equally many samples, got "
                f"{self.remainder!r}; a sampler of whole batches (ResumableBatchSampler) also has 'short'"
            )
        super().__post_init__()
        self.check_sizes(length=self.length, batch_size=1)
        self.check_drop(self.steps, f"the {self.length} samples of the dataset", batch_size=1)

    @property
    def global_batch(self) -> int:
        """Unit in which a state counts: one sample, at every world size."""
        return 1

    @property
    def grouping(self) -> str:
        return ""

    @property
    def steps(self) -> int:
        """Samples that each rank takes of an epoch."""
        return self.steps_from(0)

    @property
    def left_out(self) -> int:
        return max(0, self.length - self.steps * self.world_size)

    @property
    def repeated(self) -> int:
        return max(0, self.steps * self.world_size - self.length)

    def steps_from(self, consumed: int) -> int:
        """Return how many samples each rank takes of the rest of an epoch, after `consumed` over all ranks."""
        return self.steps_of(max(0, self.length - consumed), global_batch=self.world_size)

    def samples(self, epoch: int, consumed: int, start: int, stop: int) -> Ints:
        """Return the dataset positions of this rank's samples `start` to `stop` after the first `consumed`."""
        first = consumed + self.rank
        positions = np.arange(first + start * self.world_size, first + stop * self.world_size, self.world_size)
        return self.shuffled(positions % self.length, count=self.length, epoch=epoch)
