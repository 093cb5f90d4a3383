"""Order of every epoch's samples: seed, shuffle, ranks, remainder and replacements. Plans cut batches from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import ReservedStage
from headrace.errors import UsageError
from headrace.plan.step_views import Ints, StepView

PLAN_VERSION = 2
"""Part of every saved state. Raise it with any change to the samples of a step, or to the keys of their draws.

Version 2 also keys draws by a sample's occurrence in a selection; version 1 drew the same for each occurrence."""

MAX_GLOBAL_BATCH = 1 << 30
"""Maximum global batch: the passes of a wrapped batch stay below replacement passes."""

FIRST_REPLACEMENT_PASS = 0x8000_0000
"""Passes from here up are replacements, so a replacement never shares a view with a planned sample."""

_REPLACEMENTS = ReservedStage.REPLACEMENTS << 8
"""Random stream of replacements: dataset 0, stage 255, draw 0. Above every stage of a view (core/rng/stream.hpp)."""

Remainder: TypeAlias = Literal["short", "drop", "wrap"]


def epoch_key(seed: int, epoch: int) -> int:
    """Return the 64-bit key of everything random in one epoch: its order, its views and its replacements."""
    return _core.hash64(seed, epoch)


@dataclass(frozen=True, eq=False, kw_only=True)
class Order:
    """Order of every epoch's samples, and this rank's part of it. Every plan is an Order.

    An epoch's order follows from `seed` and the epoch alone; no list of it is ever made. Global batches do not depend
    on the world size: the parts of all ranks, joined in rank order, are the batch of world size 1.

    `remainder` handles the last samples if global batches do not divide an epoch: "short" makes a smaller last batch,
    "drop" leaves the samples out, "wrap" fills the last batch from the epoch's start.
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
        """Raise UsageError if an epoch has no steps. `most` describes the largest possible global batch."""
        if steps == 0:
            raise UsageError(
                f"remainder='drop' leaves nothing: expected a global batch of at most {most}, got {batch_size} x "
                f"{self.world_size} ranks = {batch_size * self.world_size}; lower batch_size, or use remainder='short'"
            )

    def key(self, epoch: int) -> int:
        """Return the 64-bit key from which the epoch's order, views and replacements are drawn."""
        return epoch_key(self.seed, epoch)

    def shuffled(self, places: Ints, *, count: int, epoch: int, stream: int | None = None) -> Ints:
        """Return the items at `places` (int64 [N], below `count`) in this epoch's order.

        `stream` numbers a separate order, such as one bucket's order; None is the order of the whole dataset.
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

        A full batch (`count` is `batch_size` * `world_size`) gives rank r [r * batch_size, (r + 1) * batch_size). A
        short batch of m samples gives [r * m // n, (r + 1) * m // n): parts differ by one sample at most. With fewer
        samples than ranks some parts are empty, so that every rank takes every step.
        """
        if count == batch_size * self.world_size:
            return self.rank * batch_size, (self.rank + 1) * batch_size
        return self.rank * count // self.world_size, (self.rank + 1) * count // self.world_size

    def empty_parts_of(self, rests: Ints | int) -> int:
        """Return how many ranks get nothing from short last batches that hold `rests` samples (0: no such batch)."""
        some = np.atleast_1d(rests)
        return int(np.clip(self.world_size - some[some > 0], 0, None).sum()) if self.remainder == "short" else 0

    def draw_replacement(self, *, length: int, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        """Draw the (dataset position, pass) that replaces a bad sample at this position of the epoch.

        The position is uniform over range(length) and may itself be bad: call again with the next `attempt` (from 0).
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
    """One rank's part of one global batch. The arrays are parallel, and empty if a short batch leaves it nothing."""

    epoch: int
    step: int
    samples: Ints
    """Positions in the dataset."""
    passes: NDArray[np.uint32]
    """Number that differs each time a position comes in this epoch, so that a repeated sample gets another view. It
    counts earlier occurrences, or is the place in the epoch if samples are drawn. (`Dataset.draw_ids` does the same for
    a sample at several positions of the dataset.)"""
    positions: Ints
    """Positions in the epoch, over all ranks. A wrapped batch continues beyond the dataset's length."""
    longest: int | None = None
    """Maximum tokens of a text in the global batch if the plan measures texts; the same on every rank."""
    view: StepView | None = None
    """View of the images instead of the loader's own, the same on every rank; None for the loader's."""
    whole: bool = True
    """True unless this is a short last batch, in which the ranks' parts differ in size."""
    rows: PackedRows | None = None
    """Rows of tokens that the samples share, if texts are packed."""


@dataclass(frozen=True, kw_only=True)
class PackedRows:
    """Rows of one rank's part of a batch of packed sequences; each holds its samples one after another."""

    count: int
    """Number of rows of the part; 0 if a short batch leaves the rank none."""
    length: int
    """Tokens of a row."""
    first: int
    """First of these rows, counted over the epoch and all ranks."""
    slots: int
    """Number of epoch positions reserved for each row."""

    def of(self, positions: Ints) -> Ints:
        """Return the rows, from 0 to `count` - 1, that hold the samples at these positions of the epoch."""
        return positions // self.slots - self.first


def world_sizes(global_batch: int) -> list[int]:
    """Return every world size that splits the global batch evenly, ascending."""
    low = [n for n in range(1, math.isqrt(global_batch) + 1) if global_batch % n == 0]
    return sorted({*low, *(global_batch // n for n in low)})


def check_place(epoch: int, step: int, *, steps: int) -> None:
    """Raise UsageError unless `epoch` and `step` are valid."""
    check_int("epoch", epoch, 0, (1 << 64) - 1, "epochs count from 0")
    check_int("step", step, 0, steps - 1, "steps count from 0 and end with the epoch")


def check_int(name: str, value: object, low: int, high: int, hint: str) -> None:
    """Raise UsageError unless `value` is an int (not a bool) from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise UsageError(f"{name}: expected an int from {low} to {high}, got {value!r}" + (f"; {hint}" if hint else ""))
