"""Plan whose batches are rows of tokens, each filled with whole sequences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import UsageError
from headrace.plan.best_fit import LengthOrder, Patterns, best_fit
from headrace.plan.order import BatchPlan, PackedRows, Remainder, check_int, check_order, epoch_key, rank_part
from headrace.plan.order import replacement as draw_replacement

Ints = NDArray[np.int64]

_ROW_ORDER = 0
"""Draws the order of an epoch's rows; the order of class c's samples is drawn with 1 + c."""
_OF_OWN_LENGTH = 8
"""Replacements drawn from a bad sample's own class. It may be the only one of its length, so further ones are drawn
from all that are no longer."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedPlan:
    """Cuts an epoch's rows into global batches of `batch_size` x `world_size` rows.

    What lengths rows hold is the same in every epoch, as the lengths are; which sample of a length is in which row, and
    when the row comes, is drawn anew. So an epoch has always as many rows, and any of them is found without the others.
    Each sample comes once.

    `remainder` is said of rows: the last batch has fewer ("short"), the emptiest rows are left out so that the others
    fill batches ("drop"), or the fullest rows' samples come once more ("wrap"). Without `shuffle` the fullest rows come
    first, and samples of one length in the dataset's order. Global batches do not depend on the world size, as in Plan.
    """

    order: LengthOrder
    row: int
    """Tokens of a row."""
    batch_size: int
    """Rows of a batch per rank."""
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
                f"remainder='drop' leaves nothing: expected a global batch of at most the {self.rows} rows of "
                f"{self.row} tokens that the dataset fills, got {self.batch_size} x {self.world_size} ranks = "
                f"{self.global_batch}; lower batch_size, or use remainder='short'"
            )

    @property
    def length(self) -> int:
        """Samples of the dataset."""
        return len(self.order.samples)

    @property
    def rows(self) -> int:
        """Rows that hold all samples of the dataset."""
        return self.patterns.rows

    @property
    def used(self) -> float:
        """The share of all rows' tokens that belong to a sequence. High is good."""
        return self.order.tokens / (self.rows * self.row)

    @property
    def global_batch(self) -> int:
        """Rows that one step takes over all ranks (fewer in a short last batch)."""
        return self.batch_size * self.world_size

    @property
    def grouping(self) -> str:
        return f"packed in {self.rows} rows of {self.row} tokens ({self.order.digest})"

    @property
    def steps(self) -> int:
        """Steps of an epoch, the same on every rank and in every epoch."""
        return self.rows // self.global_batch if self.remainder == "drop" else -(-self.rows // self.global_batch)

    @property
    def left_out(self) -> int:
        """Samples that an epoch leaves out under "drop"; of the same lengths in every epoch. Low is good."""
        return self.length - self.patterns.samples_before(self._kept_rows)

    @property
    def repeated(self) -> int:
        """Samples that an epoch takes once more under "wrap"; of the same lengths in every epoch. Low is good."""
        if self.remainder != "wrap":
            return 0
        passes, rest = divmod(self.steps * self.global_batch - self.rows, self.rows)
        return passes * self.length + self.patterns.samples_before(rest)

    @property
    def empty_parts(self) -> int:
        """Ranks whose part of an epoch's last batch is empty, because it has fewer rows than there are ranks."""
        rest = self.rows % self.global_batch
        return max(0, self.world_size - rest) if self.remainder == "short" and rest else 0

    @cached_property
    def patterns(self) -> Patterns:
        return best_fit(self.order.sizes, self.order.counts, self.row)

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """This rank's part of the global batch at `step` (below `steps`) of `epoch`, row by row."""
        check_int("epoch", epoch, 0, (1 << 64) - 1, "epochs count from 0")
        check_int("step", step, 0, self.steps - 1, "steps count from 0 and end with the epoch")
        first = step * self.global_batch
        count = self.global_batch if self.remainder == "wrap" else min(self.global_batch, self._kept_rows - first)
        start, stop = rank_part(count, batch_size=self.batch_size, rank=self.rank, world_size=self.world_size)
        rows = np.arange(first + start, first + stop, dtype=np.int64)
        passes, numbers = self._at(epoch, rows)
        counts, places, classes, members = self._sequences(numbers)
        return BatchPlan(
            epoch,
            step,
            self._samples(epoch, classes, members),
            passes.astype(np.uint32).repeat(counts),
            (rows * self._stride).repeat(counts) + places,
            rows=PackedRows(count=len(rows), length=self.row, first=first + start, slots=self._stride),
        )

    def key(self, epoch: int) -> int:
        """The 64-bit key from which the epoch's views are drawn."""
        return epoch_key(self.seed, epoch)

    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        """The (dataset position, pass) that stands in for a bad sample at this position of the epoch: one of its own
        length, so that it fills the same part of the row.

        `attempt` counts from 0, for a replacement that is bad as well; from 8 on it is one of any length that fits.
        """
        row, place = divmod(position, self._stride)
        _, numbers = self._at(epoch, np.array([row], np.int64))
        size_class = int(self._sequences(numbers)[2][place])
        first = int(self.order.offsets[size_class]) if attempt < _OF_OWN_LENGTH else 0
        among = int(self.order.offsets[size_class + 1]) - first
        index, pass_ = draw_replacement(length=among, seed=self.seed, epoch=epoch, position=position, attempt=attempt)
        return int(self.order.samples[first + index]), pass_

    def _at(self, epoch: int, rows: Ints) -> tuple[Ints, Ints]:
        """(passes, numbers) of the rows at these places of the epoch. What comes once more is not drawn, so that it is
        as many samples in every epoch."""
        passes, numbers = np.divmod(rows, self._kept_rows)
        if self.shuffle:
            drawn = passes == 0
            key = _core.hash64(epoch_key(self.seed, epoch), _ROW_ORDER)
            numbers[drawn] = _core.permute(self._kept_rows, key, numbers[drawn])
        return passes, numbers

    def _sequences(self, rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """How many sequences each row of these numbers has. Of each sequence its place in the row, its class, and which
        of the class it is."""
        patterns = self.patterns
        kinds = patterns.first_row.searchsorted(rows, side="right") - 1
        alike = rows - patterns.first_row[kinds]
        counts = patterns.places[kinds]
        places = np.arange(counts.sum()) - (counts.cumsum() - counts).repeat(counts)
        at = patterns.first_place[kinds].repeat(counts) + places
        members = patterns.first[at] + alike.repeat(counts) * patterns.times[at]
        return counts, places, patterns.classes[at], members

    def _samples(self, epoch: int, classes: Ints, members: Ints) -> Ints:
        order = self.order
        if self.shuffle:
            members = _core.permute_each(order.counts[classes], epoch_key(self.seed, epoch), 1 + classes, members)
        samples: Ints = order.samples[order.offsets[classes] + members].astype(np.int64)
        return samples

    @cached_property
    def _kept_rows(self) -> int:
        """Rows that an epoch has before any comes once more."""
        return self.steps * self.global_batch if self.remainder == "drop" else self.rows

    @cached_property
    def _stride(self) -> int:
        """Positions are numbered row by row, with room for the most sequences in each."""
        return int(self.patterns.places.max())
