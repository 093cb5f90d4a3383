"""Plans that cut an epoch's order as it comes: batch by batch, or sample by sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headrace import _core
from headrace.errors import UsageError
from headrace.plan.draws import Draws
from headrace.plan.order import BatchPlan, Order, check_place
from headrace.plan.step_views import Ints
from headrace.plan.windowed import WindowedEpoch, WindowShape, windowed_epoch

_OF_OWN_WINDOW = 8
"""Replacements drawn from a bad sample's own window, whose blocks are at hand; further ones are drawn from all."""


@dataclass(frozen=True, kw_only=True)
class UniformPlan(Order):
    """Order cut into global batches of `batch_size` x `world_size` samples."""

    length: int
    """Samples of an epoch: all of the dataset's, each once, or the number of `draws`."""
    batch_size: int
    draws: Draws | None = None
    """How samples are drawn; None: each comes once."""
    window: WindowShape | None = None
    """How samples are shuffled in blocks and windows; None: over the whole epoch."""

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
        """Number of which a rank's samples of a whole batch are a multiple."""
        return self.batch_size

    @property
    def grouping(self) -> str:
        """Description of how samples are drawn and windowed; "" where each comes once, in the order as it is."""
        parts = [None if self.draws is None else self.draws.words, None if self.window is None else str(self.window)]
        return "; ".join(part for part in parts if part is not None)

    @property
    def steps(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return self.steps_of(self.length, global_batch=self.global_batch)

    @property
    def rank_samples(self) -> int:
        """Most different samples that this rank takes in an epoch, apart from replacements."""
        share = -(-self.length // self.world_size)
        return share if self.draws is None else min(share, self.draws.different)

    @property
    def left_out(self) -> int:
        """Samples that an epoch leaves out under "drop"; other ones each epoch when shuffled. Low is good."""
        return max(0, self.length - self.steps * self.global_batch)

    @property
    def repeated(self) -> int:
        """Samples that an epoch takes once more under "wrap". Low is good."""
        return self.steps * self.global_batch - self.length if self.remainder == "wrap" else 0

    @property
    def empty_parts(self) -> int:
        """Parts of an epoch's batches that are empty, because a batch has fewer samples than there are ranks."""
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
        return windowed_epoch(count, self.window, self.key(epoch)).samples_at(places)

    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        """Return the (dataset position, pass) that replaces a bad sample at this position of the epoch.

        `attempt` counts from 0, for a replacement that is bad as well. It is drawn as likely as any draw; in a windowed
        order, it is one of the window, until attempt 8.
        """
        if self.draws is not None:
            bits, pass_ = self.replacement_bits(epoch=epoch, position=position, attempt=attempt)
            return self.draws.pick(bits), pass_
        if self.window is None or attempt >= _OF_OWN_WINDOW:
            return self.draw_replacement(length=self.length, epoch=epoch, position=position, attempt=attempt)
        order = self.windows(epoch)
        start, stop = order.bounds(order.window_at(np.array([position % self.length], np.int64)))
        size = int(stop[0] - start[0])
        place, pass_ = self.draw_replacement(length=size, epoch=epoch, position=position, attempt=attempt)
        return int(order.samples_at(start + place)[0]), pass_

    def windows(self, epoch: int) -> WindowedEpoch:
        """Return the windows of an epoch in which each sample comes once. Raises UsageError where there are none."""
        if self.window is None or self.draws is not None:
            raise UsageError(
                f"windows: expected order='windowed' and no draws, got {self.grouping or 'the global order'!r}; ask "
                "for samples, not blocks"
            )
        return windowed_epoch(self.length, self.window, self.key(epoch))

    def next_use(self, samples: Ints, *, epoch: int, step: int) -> Ints:
        """Return when each sample comes next, at `step` of `epoch` or later: int64 [N], counted in steps of `epoch`.

        `steps` + k is step k of the next epoch, 2 * `steps` is later still: under "drop", an epoch leaves some out. A
        cache that evicts what comes last does the least possible reading (L. A. Belady, "A study of replacement
        algorithms for a virtual-storage computer", 1966). Raises UsageError where samples are drawn.
        """
        if self.draws is not None:
            raise UsageError(f"next_use: expected samples that come once an epoch, got {self.grouping!r}")

        def find(of_epoch: int) -> tuple[Ints, Ints]:
            positions = self.position_of(samples, epoch=of_epoch)
            return positions, positions + 1

        return self._next_steps(find, epoch, step)

    def next_use_of_blocks(self, blocks: Ints, *, epoch: int, step: int) -> Ints:
        """Return the same of blocks of a windowed order. A block is in use from its window's start to the end."""
        return self._next_steps(
            lambda of_epoch: self.windows(of_epoch).bounds(self.windows(of_epoch).window_of(blocks)), epoch, step
        )

    def position_of(self, samples: Ints, *, epoch: int) -> Ints:
        """Return the position of the epoch at which each sample comes first, whether a batch takes it or not."""
        if not self.shuffle:
            return samples
        if self.window is not None:
            return self.windows(epoch).positions_of(samples)
        return _core.permute(self.length, self.key(epoch), samples, inverse=True)

    def _next_steps(self, find: Callable[[int], tuple[Ints, Ints]], epoch: int, step: int) -> Ints:
        here, later = self._next_positions(*find(epoch), step), self._next_positions(*find(epoch + 1), 0)
        steps = np.where(later < self._end, self.steps + later // self.global_batch, 2 * self.steps)
        found: Ints = np.where(here < self._end, here // self.global_batch, steps)
        return found

    def _next_positions(self, starts: Ints, stops: Ints, step: int) -> Ints:
        """Return the first positions from `step` on that are in these ranges, which come again after `length`."""
        first = step * self.global_batch
        again = -(-np.maximum(first + 1 - stops, 0) // self.length) * self.length
        positions: Ints = np.maximum(starts + again, first)
        return positions

    @property
    def _end(self) -> int:
        """Positions that the epoch's batches take."""
        return self.length if self.remainder == "short" else self.steps * self.global_batch


@dataclass(frozen=True, kw_only=True)
class SamplePlan(Order):
    """Order dealt out to the ranks one sample at a time.

    Rank r of n takes positions r, r + n, r + 2n, … After any number of samples each, all ranks together have a prefix
    of the epoch, however they batch them. Any world size and batch size goes on from there. Every rank takes equally
    many: `remainder` "wrap" fills up the last round from the epoch's start, "drop" leaves it out.
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
        """The unit in which a state counts: one sample, at every world size."""
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
