"""Order of every epoch's samples: seed, shuffle, ranks, remainder and replacements, and what a plan cuts from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import UsageError
from headrace.plan.step_views import Ints, StepView

PLAN_VERSION = 2
"""Part of every saved state. Raise it with any change to which samples a step holds, or to what keys their draws.

Version 2 keys them by a sample's occurrence in a selection as well, where version 1 drew the same for each.
"""

MAX_GLOBAL_BATCH = 1 << 30
"""Keeps the passes of a wrapped batch below those of replacements."""

FIRST_REPLACEMENT_PASS = 0x8000_0000
"""Passes from here up are replacements, so a replacement never shares a view with a planned sample."""

_REPLACEMENTS = 255 << 8
"""Dataset 0, stage 255, draw 0: above every stage of a view (core/rng/stream.hpp)."""

Remainder: TypeAlias = Literal["short", "drop", "wrap"]


def epoch_key(seed: int, epoch: int) -> int:
    """Return the 64-bit key of everything random in one epoch: its order, its views and its replacements."""
    return _core.hash64(seed, epoch)


@dataclass(frozen=True, eq=False, kw_only=True)
class Order:
    """Order of every epoch's samples, and the part of it that this rank takes. Every plan is one.

    An epoch's order follows from `seed` and the epoch alone; no list of it is ever made. Global batches do not depend
    on the world size: the parts of all ranks, joined in rank order, are the batch that world size 1 has.

    `remainder` decides what becomes of the last samples where global batches do not divide an epoch: "short" makes a
    smaller last batch, "drop" leaves them out, "wrap" fills the last batch from the epoch's start.
    """

    world_size: int = 1
    rank: int = 0
    shuffle: bool = True
    seed: int = 0
    remainder: Remainder = "short"

    def __post_init__(self) -> None:
        check_int("world_size", self.world_size, 1, 1 << 30, "it is the number of ranks")
        check_int("rank", self.rank, 0, self.world_size - 1, "ranks count from 0 to world_size - 1")
        check_int("seed", self.seed, 0, (1 << 64) - 1, "take it modulo 2**64")
        if not isinstance(self.shuffle, bool):
            raise UsageError(f"shuffle: expected True or False, got {self.shuffle!r}")
        if self.remainder not in ("short", "drop", "wrap"):
            raise UsageError(f"remainder: expected 'short', 'drop' or 'wrap', got {self.remainder!r}")

    def check_sizes(self, *, length: int, batch_size: int) -> None:
        """Raise UsageError for a dataset or a batch that no plan can have."""
        check_int("length", length, 1, 1 << 62, "the dataset holds no sample" if length == 0 else "")
        check_int("batch_size", batch_size, 1, 1 << 30, "it is the number of samples per rank")
        check_int("batch_size x world_size", batch_size * self.world_size, 1, MAX_GLOBAL_BATCH, "lower batch_size")

    def check_drop(self, steps: int, most: str, *, batch_size: int) -> None:
        """Raise UsageError where an epoch has no steps. `most` says what the largest possible global batch holds."""
        if steps == 0:
            raise UsageError(
                f"remainder='drop' leaves nothing: expected a global batch of at most {most}, got {batch_size} x "
                f"{self.world_size} ranks = {batch_size * self.world_size}; lower batch_size, or use remainder='short'"
            )

    def key(self, epoch: int) -> int:
        """Return the 64-bit key from which the epoch's order, views and replacements are drawn."""
        return epoch_key(self.seed, epoch)

    def shuffled(self, places: Ints, *, count: int, epoch: int, stream: int | None = None) -> Ints:
        """Return what stands at `places` (int64 [N], below `count`) in this epoch.

        `stream` numbers an order of its own, such as that of one bucket; None is the order of the whole dataset.
        """
        if not self.shuffle:
            return places
        key = self.key(epoch)
        return _core.permute(count, key if stream is None else _core.hash64(key, stream), places)

    def steps_of(self, count: int, *, global_batch: int) -> int:
        """Return how many global batches an epoch of `count` has."""
        return count // global_batch if self.remainder == "drop" else -(-count // global_batch)

    def part(self, count: int, *, batch_size: int) -> tuple[int, int]:
        """Return the half-open part of a global batch of `count` samples that this rank takes.

        A whole batch (`count` is `batch_size` * `world_size`) gives rank r [r * batch_size, (r + 1) * batch_size). A
        short one of m samples gives [r * m // n, (r + 1) * m // n): parts differ by one sample at most. With fewer
        samples than ranks some parts are empty, so that every rank takes every step.
        """
        if count == batch_size * self.world_size:
            return self.rank * batch_size, (self.rank + 1) * batch_size
        return self.rank * count // self.world_size, (self.rank + 1) * count // self.world_size

    def empty_parts_of(self, rests: Ints | int) -> int:
        """Return how many ranks get nothing of short last batches that hold `rests` samples (0: there is none)."""
        some = np.atleast_1d(rests)
        return int(np.clip(self.world_size - some[some > 0], 0, None).sum()) if self.remainder == "short" else 0

    def draw_replacement(self, *, length: int, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        """Draw the (dataset position, pass) that replaces a bad sample at this position of the epoch.

        The position is uniform over range(length) and may itself be bad: ask again with the next `attempt` (from 0).
        Every rank and every resume draws the same.
        """
        bits, pass_ = self.replacement_bits(epoch=epoch, position=position, attempt=attempt)
        return bits * length >> 64, pass_

    def replacement_bits(self, *, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        """Return the 64 random bits that choose a replacement, and its pass."""
        counter = np.array([position & 0xFFFF_FFFF, position >> 32, attempt, _REPLACEMENTS], np.uint32)
        low, high, third, _ = (int(word) for word in _core.philox(self.key(epoch), counter))
        return high << 32 | low, FIRST_REPLACEMENT_PASS | (third & 0x7FFF_FFFF)


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """One rank's part of one global batch; the arrays are parallel, and empty where a short batch leaves it nothing."""

    epoch: int
    step: int
    samples: Ints
    """Positions in the dataset."""
    passes: NDArray[np.uint32]
    """Another number each time that a position comes in this epoch, so that a sample that comes again gets another
    view: how often it came before, or where it stands if samples are drawn. (`Dataset.draw_ids` does so for one that
    the dataset holds at several positions.)"""
    positions: Ints
    """Positions in the epoch, over all ranks. Those of a wrapped batch go on beyond the dataset's length."""
    longest: int | None = None
    """The most tokens of a text in the global batch, where the plan measures texts; the same on every rank."""
    view: StepView | None = None
    """The view that images get instead of the loader's own, the same on every rank; None: the loader's."""
    whole: bool = True
    """False for a short last batch: the parts of its ranks differ in size."""
    rows: PackedRows | None = None
    """The rows of tokens that the samples share, where texts are packed."""


@dataclass(frozen=True, kw_only=True)
class PackedRows:
    """Rows of one rank's part of a batch of packed sequences; each holds its samples one after another."""

    count: int
    """Rows of the part; 0 where a short batch leaves the rank none."""
    length: int
    """Tokens of a row."""
    first: int
    """The first of these rows, counted over the epoch and all ranks."""
    slots: int
    """Positions of an epoch that each row has, whether it needs them or not."""

    def of(self, positions: Ints) -> Ints:
        """Return the rows, from 0 to `count` - 1, that hold the samples at these positions of the epoch."""
        return positions // self.slots - self.first


def world_sizes(global_batch: int) -> list[int]:
    """Return every world size that splits the global batch evenly, ascending."""
    low = [n for n in range(1, math.isqrt(global_batch) + 1) if global_batch % n == 0]
    return sorted({*low, *(global_batch // n for n in low)})


def check_place(epoch: int, step: int, *, steps: int) -> None:
    """Raise UsageError for what is no step of an epoch."""
    check_int("epoch", epoch, 0, (1 << 64) - 1, "epochs count from 0")
    check_int("step", step, 0, steps - 1, "steps count from 0 and end with the epoch")


def check_int(name: str, value: object, low: int, high: int, hint: str) -> None:
    """Raise UsageError unless `value` is an int (not a bool) from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise UsageError(f"{name}: expected an int from {low} to {high}, got {value!r}" + (f"; {hint}" if hint else ""))
