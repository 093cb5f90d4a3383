"""Order of an epoch: shuffle, seed, ranks, remainder and replacements, and the plans that cut it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import UsageError
from headrace.plan.step_views import StepView

# -- from plan/order.py: Which sample stands where in an epoch: a function of (seed, epoch), without a list of the
# order.


def epoch_key(seed: int, epoch: int) -> int:
    """The 64-bit key of everything random in one epoch: its order, its views and its replacements."""
    return _core.hash64(seed, epoch)


def samples_at(positions: NDArray[np.int64], *, length: int, shuffle: bool, seed: int, epoch: int) -> NDArray[np.int64]:
    """The dataset positions (int64[N]) that stand at these positions (int64[N], below `length`) of the epoch."""
    if not shuffle:
        return positions
    return _core.permute(length, epoch_key(seed, epoch), positions)


# -- from plan/ranks.py: How a global batch is split over ranks, and which world sizes can split it.


def rank_part(count: int, *, batch_size: int, rank: int, world_size: int) -> tuple[int, int]:
    """The half-open part of a global batch of `count` samples that a rank takes.

    A whole batch (`count` is `batch_size` * `world_size`) gives rank r [r * batch_size, (r + 1) * batch_size). A short
    one of m samples gives [r * m // n, (r + 1) * m // n): parts differ by one sample at most, and the parts in rank
    order are the batch. With fewer samples than ranks some parts are empty, so that every rank takes every step.
    """
    if count == batch_size * world_size:
        return rank * batch_size, (rank + 1) * batch_size
    return rank * count // world_size, (rank + 1) * count // world_size


def world_sizes(global_batch: int) -> list[int]:
    """Every world size that splits the global batch evenly, ascending."""
    low = [n for n in range(1, math.isqrt(global_batch) + 1) if global_batch % n == 0]
    return sorted({*low, *(global_batch // n for n in low)})


# -- from plan/replacement.py: Which sample stands in for one that cannot be decoded.


_STREAM = 255 << 8
"""Dataset 0, stage 255, draw 0: above every stage of a view (core/rng/stream.hpp)."""

FIRST_REPLACEMENT_PASS = 0x8000_0000
"""Passes from here up are replacements, so a replacement never shares a view with a planned sample."""


def replacement(*, length: int, seed: int, epoch: int, position: int, attempt: int) -> tuple[int, int]:
    """The (dataset position, pass) that replaces the sample at this position of the epoch.

    The position is uniform over range(length) and may itself be bad: ask again with the next `attempt` (from 0).
    Every rank and every resume draws the same.
    """
    counter = np.array([position & 0xFFFF_FFFF, position >> 32, attempt, _STREAM], np.uint32)
    low, high, third, _ = (int(word) for word in _core.philox(epoch_key(seed, epoch), counter))
    sample = ((high << 32 | low) * length) >> 64
    return sample, FIRST_REPLACEMENT_PASS | (third & 0x7FFF_FFFF)


# -- from plan/packed_rows.py: How the sequences of a batch lie in rows of tokens.


@dataclass(frozen=True, kw_only=True)
class PackedRows:
    """One rank's part of a batch of packed sequences: each row has those of its samples one after another."""

    count: int
    """PackedRows of the part; 0 where a short batch leaves the rank none."""
    length: int
    """Tokens of a row."""
    first: int
    """The first of these rows, counted over the epoch and all ranks."""
    slots: int
    """Positions of an epoch that each row has, whether it needs them or not."""

    def of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows, from 0 to `count` - 1, in which the samples at these positions of the epoch lie."""
        return positions // self.slots - self.first


# -- from plan/plan.py: The plan: which samples each rank holds at each step of each epoch.


PLAN_VERSION = 2
"""Part of every saved state. Raise it with any change to which samples a step holds, or to what keys their draws.

Version 2 keys them by a sample's occurrence in a selection as well, where version 1 drew the same for each.
"""

MAX_GLOBAL_BATCH = 1 << 30
"""Keeps the passes of a wrapped batch below those of replacements."""

Remainder = Literal["short", "drop", "wrap"]


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """One rank's part of one global batch; the arrays are parallel, and empty where a short batch leaves it nothing."""

    epoch: int
    step: int
    samples: NDArray[np.int64]
    """Positions in the dataset."""
    passes: NDArray[np.uint32]
    """How often each position came before in this epoch; it makes a sample that comes again get another view. (One that
    the dataset holds at several positions does so by `Dataset.draw_ids`.)"""
    positions: NDArray[np.int64]
    """Positions in the epoch, over all ranks. Those of a wrapped batch go on beyond the dataset's length."""
    longest: int | None = None
    """The most tokens of a text in the global batch, where the plan measures texts; the same on every rank."""
    view: StepView | None = None
    """What images get instead of the loader's own view, the same on every rank; None: that view."""
    rows: PackedRows | None = None
    """Where texts are packed: the rows of tokens that the samples share."""


@dataclass(frozen=True, kw_only=True)
class UniformPlan:
    """Cuts each epoch's order into global batches, and gives each rank its part of each.

    `batch_size` is per rank. Global batches do not depend on the world size: the parts of all ranks, joined in rank
    order, are the batch that world size 1 would have at the same global batch size. Every rank takes `steps` steps.

    `remainder` says what becomes of the last samples where the global batch does not divide `length`: "short" makes
    a smaller last batch, "drop" leaves them out (`left_out` counts them), "wrap" fills the last batch from the epoch's
    start (`repeated` counts those).
    """

    length: int
    batch_size: int
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
        if self.remainder == "drop" and self.global_batch > self.length:
            raise UsageError(
                f"remainder='drop' leaves nothing: expected a global batch of at most the {self.length} samples of the "
                f"dataset, got {self.batch_size} x {self.world_size} ranks = {self.global_batch}; lower batch_size, or "
                "use remainder='short'"
            )

    @property
    def global_batch(self) -> int:
        """Samples that one step takes over all ranks (fewer in a short last batch)."""
        return self.batch_size * self.world_size

    @property
    def grouping(self) -> str:
        """Nothing: each epoch is cut as it comes."""
        return ""

    @property
    def steps(self) -> int:
        """Steps of an epoch, the same on every rank."""
        if self.remainder == "drop":
            return self.length // self.global_batch
        return -(-self.length // self.global_batch)

    @property
    def left_out(self) -> int:
        """Samples that an epoch leaves out under "drop"; other ones each epoch when shuffled. Low is good."""
        return self.length - self.steps * self.global_batch if self.remainder == "drop" else 0

    @property
    def repeated(self) -> int:
        """Samples that an epoch takes once more under "wrap". Low is good."""
        return self.steps * self.global_batch - self.length if self.remainder == "wrap" else 0

    @property
    def empty_parts(self) -> int:
        """Ranks whose part of an epoch's last batch is empty, because it has fewer samples than there are ranks."""
        rest = self.length % self.global_batch
        return max(0, self.world_size - rest) if self.remainder == "short" and rest else 0

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """This rank's part of the global batch at `step` (below `steps`) of `epoch`."""
        check_int("epoch", epoch, 0, (1 << 64) - 1, "epochs count from 0")
        check_int("step", step, 0, self.steps - 1, "steps count from 0 and end with the epoch")
        first = step * self.global_batch
        count = self.global_batch if self.remainder == "wrap" else min(self.global_batch, self.length - first)
        start, stop = rank_part(count, batch_size=self.batch_size, rank=self.rank, world_size=self.world_size)
        positions = np.arange(first + start, first + stop, dtype=np.int64)
        passes, within = np.divmod(positions, self.length)
        samples = samples_at(within, length=self.length, shuffle=self.shuffle, seed=self.seed, epoch=epoch)
        return BatchPlan(epoch, step, samples, passes.astype(np.uint32), positions)

    def key(self, epoch: int) -> int:
        """The 64-bit key from which the epoch's views are drawn."""
        return epoch_key(self.seed, epoch)

    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        """The (dataset position, pass) that stands in for a bad sample at this position of the epoch.

        `attempt` counts from 0, for a replacement that is bad as well.
        """
        return replacement(length=self.length, seed=self.seed, epoch=epoch, position=position, attempt=attempt)


def check_order(
    *, length: int, batch_size: int, world_size: int, rank: int, shuffle: bool, seed: int, remainder: Remainder
) -> None:
    """Raises UsageError for what no plan of any kind can have."""
    check_int("length", length, 1, 1 << 62, "the dataset holds no sample" if length == 0 else "")
    check_int("batch_size", batch_size, 1, 1 << 30, "it is the number of samples per rank")
    check_int("world_size", world_size, 1, 1 << 30, "it is the number of ranks")
    check_int("rank", rank, 0, world_size - 1, "ranks count from 0 to world_size - 1")
    check_int("batch_size x world_size", batch_size * world_size, 1, MAX_GLOBAL_BATCH, "lower batch_size")
    check_int("seed", seed, 0, (1 << 64) - 1, "take it modulo 2**64")
    if not isinstance(shuffle, bool):
        raise UsageError(f"shuffle: expected True or False, got {shuffle!r}")
    if remainder not in ("short", "drop", "wrap"):
        raise UsageError(f"remainder: expected 'short', 'drop' or 'wrap', got {remainder!r}")


def check_int(name: str, value: object, low: int, high: int, hint: str) -> None:
    """Raises UsageError unless `value` is an int (not a bool) from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise UsageError(f"{name}: expected an int from {low} to {high}, got {value!r}" + (f"; {hint}" if hint else ""))


# -- from plan/epoch_plan.py: What a feed asks of a plan, whichever kind it is.


class EpochPlan(Protocol):
    """Which samples this rank holds at each step of each epoch. Every rank takes `steps` steps."""

    @property
    def length(self) -> int:
        """Samples of the dataset."""
        ...

    @property
    def batch_size(self) -> int:
        """Samples of a batch per rank; of batches that differ, about their mean."""
        ...

    @property
    def world_size(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def shuffle(self) -> bool: ...
    @property
    def seed(self) -> int: ...
    @property
    def remainder(self) -> Remainder: ...

    @property
    def global_batch(self) -> int:
        """What a state counts as consumed a step; the same at every world size."""
        ...

    @property
    def grouping(self) -> str:
        """How samples are grouped to batches, in words; "" where each epoch is cut as it comes."""
        ...

    @property
    def steps(self) -> int: ...

    @property
    def left_out(self) -> int:
        """Samples that an epoch leaves out under "drop". Low is good."""
        ...

    @property
    def repeated(self) -> int:
        """Samples that an epoch takes once more under "wrap". Low is good."""
        ...

    @property
    def empty_parts(self) -> int:
        """Parts of an epoch's batches that are empty, because a batch has fewer samples than there are ranks."""
        ...

    def batch(self, epoch: int, step: int) -> BatchPlan: ...
    def key(self, epoch: int) -> int: ...
    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]: ...


# -- from grouping/order.py: `Order`: what every plan is told.


@dataclass(frozen=True, kw_only=True)
class Order:
    """A loader's arguments that every plan has."""

    world_size: int
    rank: int
    shuffle: bool
    seed: int
    remainder: Remainder
