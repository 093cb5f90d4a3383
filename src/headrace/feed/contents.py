"""Fields that Python makes: of members that the core has read, or of what the dataset holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset
from headrace.errors import SampleError

Ints: TypeAlias = NDArray[np.int64]
Raws: TypeAlias = Sequence[Sequence[bytes]]
"""The bytes of each of the recipe's raw fields, by row."""


@dataclass(frozen=True)
class Rows:
    """What some rows of a batch are. Arrays are [N]."""

    samples: Ints
    """Positions in the dataset."""
    base_ids: Ints
    draw_ids: Ints
    """What random draws are keyed by, beside the passes."""
    passes: NDArray[np.uint32]
    key: int
    """Of the epoch's random numbers."""


@dataclass(frozen=True)
class Places:
    """Where a batch's samples lie, if they share rows of tokens."""

    row_of: Ints
    """[N], ascending."""
    rows: int
    length: int
    """Tokens of a row."""


class Content(Protocol):
    """One such field."""

    @property
    def name(self) -> str: ...

    def take(self, rows: Rows, raws: Raws) -> list[Any]:
        """Each row's content, or the SampleError that says why it has none."""
        ...

    def join(self, contents: list[Any], samples: Ints, places: Places | None, longest: int) -> dict[str, NDArray[Any]]:
        """The parts of the batch, by their flat names. `places` where texts are packed; `longest`: the tokens of the
        longest text over all ranks, 0 where that is not known. Raises UsageError for contents that do not go
        together."""
        ...


@dataclass(frozen=True)
class Origin:
    """Where the contents of a field come from, for errors."""

    dataset: Dataset
    field: str
    column: str
    read: bool
    """Whether it is read, from members or files."""

    def error(self, kind: type[SampleError], why: str, sample: int) -> SampleError:
        dataset = self.dataset
        shard, offset = dataset.where(self.column, sample) if self.read else (self._held_at(sample), None)
        named = dataset.named(self.column, sample) if self.read else None
        why = why if named is None else f"{why} ({named})"
        return kind(why, key=dataset.key(sample), shard=shard, offset=offset, field=self.field)

    def _held_at(self, sample: int) -> str:
        table = self.dataset.table
        base_id = sample if self.dataset.base_ids is None else int(self.dataset.base_ids[sample])
        return table.source if table.origin is None else table.origin.of(base_id)
