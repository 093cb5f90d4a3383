"""The plan: which samples each rank holds at each step of each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError
from headrace.plan import order_old, ranks
from headrace.plan.packed_rows import PackedRows
from headrace.plan.replacement import replacement as draw_replacement
from headrace.plan.step_views import StepView

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
class Plan:
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
        start, stop = ranks.rank_part(count, batch_size=self.batch_size, rank=self.rank, world_size=self.world_size)
        positions = np.arange(first + start, first + stop, dtype=np.int64)
        passes, within = np.divmod(positions, self.length)
        samples = order_old.samples_at(within, length=self.length, shuffle=self.shuffle, seed=self.seed, epoch=epoch)
        return BatchPlan(epoch, step, samples, passes.astype(np.uint32), positions)

    def key(self, epoch: int) -> int:
        """The 64-bit key from which the epoch's views are drawn."""
        return order_old.epoch_key(self.seed, epoch)

    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        """The (dataset position, pass) that stands in for a bad sample at this position of the epoch.

        `attempt` counts from 0, for a replacement that is bad as well.
        """
        return draw_replacement(length=self.length, seed=self.seed, epoch=epoch, position=position, attempt=attempt)


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
