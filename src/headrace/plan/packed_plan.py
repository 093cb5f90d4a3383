"""Plan with batches of rows of tokens, each filled with whole sequences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace import _core
from headrace.plan.best_fit import Patterns, SequencesByLength, best_fit
from headrace.plan.order import BatchPlan, Order, PackedRows, check_place
from headrace.plan.step_views import Ints

_ROW_ORDER = 0
"""Stream that draws the order of an epoch's rows; 1 + c draws the order of class c's samples."""
_OF_OWN_LENGTH = 8
"""Number of replacements drawn from a bad sample's own class. It may be the only one of its length, so later ones are
drawn from all that are no longer."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PackedPlan(Order):
    """Order of rows, cut into global batches of `batch_size` x `world_size` rows.

    The lengths that rows hold are the same in every epoch. The sample of each length in a row, and the place of the
    row, are drawn anew. An epoch therefore always has the same number of rows, and any row is found without the others.
    Each sample comes once.

    `remainder` applies to rows: the last batch has fewer ("short"), the emptiest rows are left out so that the others
    fill batches ("drop"), or the samples of the fullest rows come once more ("wrap"). Without `shuffle` the fullest
    rows come first, and samples of one length in the dataset's order.
    """

    sequences: SequencesByLength
    row: int
    """Tokens of a row."""
    batch_size: int
    """Rows of a batch per rank."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes(length=self.length, batch_size=self.batch_size)
        most = f"the {self.rows} rows of {self.row} tokens that the dataset fills"
        self.check_drop(self.steps, most, batch_size=self.batch_size)

    @property
    def length(self) -> int:
        return len(self.sequences.samples)

    @property
    def rows(self) -> int:
        """Number of rows that hold all samples of the dataset."""
        return self.patterns.rows

    @property
    def used(self) -> float:
        """Share of all rows' tokens that belong to a sequence. High is good."""
        return self.sequences.tokens / (self.rows * self.row)

    @property
    def global_batch(self) -> int:
        """Rows that one step takes over all ranks (fewer in a short last batch)."""
        return self.batch_size * self.world_size

    @property
    def grouping(self) -> str:
        return f"packed in {self.rows} rows of {self.row} tokens ({self.sequences.digest})"

    @property
    def steps(self) -> int:
        return self.steps_of(self.rows, global_batch=self.global_batch)

    @property
    def left_out(self) -> int:
        """Samples that an epoch leaves out under "drop"; of the same lengths in every epoch. Low is good."""
        return self.length - self.patterns.samples_before(self._kept_rows)

    @property
    def repeated(self) -> int:
        """Samples that an epoch repeats under "wrap"; of the same lengths in every epoch. Low is good."""
        if self.remainder != "wrap":
            return 0
        passes, rest = divmod(self.steps * self.global_batch - self.rows, self.rows)
        return passes * self.length + self.patterns.samples_before(rest)

    @property
    def empty_parts(self) -> int:
        return self.empty_parts_of(self.rows % self.global_batch)

    @cached_property
    def patterns(self) -> Patterns:
        return best_fit(self.sequences.sizes, self.sequences.counts, self.row)

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """Return this rank's part of the global batch at `step` (below `steps`) of `epoch`, row by row."""
        check_place(epoch, step, steps=self.steps)
        first = step * self.global_batch
        count = self.global_batch if self.remainder == "wrap" else min(self.global_batch, self._kept_rows - first)
        start, stop = self.part(count, batch_size=self.batch_size)
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

    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        """Return the (dataset position, pass) that replaces a bad sample at this position of the epoch.

        It has the sample's own length, so that it fills the same part of the row; from attempt 8 on, any length that
        fits.
        """
        row, place = divmod(position, self._stride)
        _, numbers = self._at(epoch, np.array([row], np.int64))
        size_class = int(self._sequences(numbers)[2][place])
        first = int(self.sequences.offsets[size_class]) if attempt < _OF_OWN_LENGTH else 0
        among = int(self.sequences.offsets[size_class + 1]) - first
        index, pass_ = self.draw_replacement(length=among, epoch=epoch, position=position, attempt=attempt)
        return int(self.sequences.samples[first + index]), pass_

    def _at(self, epoch: int, rows: Ints) -> tuple[Ints, Ints]:
        """Return the (passes, numbers) of the rows at these places of the epoch.

        Repeated rows are not drawn, so that they hold the same number of samples in every epoch.
        """
        passes, numbers = np.divmod(rows, self._kept_rows)
        drawn = passes == 0
        numbers[drawn] = self.shuffled(numbers[drawn], count=self._kept_rows, epoch=epoch, stream=_ROW_ORDER)
        return passes, numbers

    def _sequences(self, rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Return each row's count of sequences, and each sequence's place in the row, class and number in it."""
        patterns = self.patterns
        kinds = patterns.first_row.searchsorted(rows, side="right") - 1
        alike = rows - patterns.first_row[kinds]
        counts = patterns.places[kinds]
        places = np.arange(counts.sum()) - (counts.cumsum() - counts).repeat(counts)
        at = patterns.first_place[kinds].repeat(counts) + places
        members = patterns.first[at] + alike.repeat(counts) * patterns.times[at]
        return counts, places, patterns.classes[at], members

    def _samples(self, epoch: int, classes: Ints, members: Ints) -> Ints:
        sequences = self.sequences
        if self.shuffle:
            members = _core.permute_each(sequences.counts[classes], self.key(epoch), 1 + classes, members)
        samples: Ints = sequences.samples[sequences.offsets[classes] + members].astype(np.int64)
        return samples

    @cached_property
    def _kept_rows(self) -> int:
        """Number of rows of an epoch before any row repeats."""
        return self.steps * self.global_batch if self.remainder == "drop" else self.rows

    @cached_property
    def _stride(self) -> int:
        """Positions per row: room for the maximum number of sequences. Positions are numbered row by row."""
        return int(self.patterns.places.max())
