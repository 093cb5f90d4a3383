"""The members of one extension: where each sample's lies in its tar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .columns import ABSENT

Ints = npt.NDArray[np.int64]


class Members(NamedTuple):
    """An entry a sample in each array."""

    offset: Ints
    """First byte in the tar."""
    length: Ints
    """Bytes; `ABSENT` where the sample has none, and then its offset and check are 0."""
    check: npt.NDArray[np.uint32]
    """Identity of the tar header before it."""

    @classmethod
    def none(cls, samples: int) -> Members:
        return cls(np.zeros(samples, np.int64), np.full(samples, ABSENT, np.int64), np.zeros(samples, np.uint32))

    @classmethod
    def join(cls, parts: Sequence[Members]) -> Members:
        """The members of several tars, one after another."""
        return cls(
            np.concatenate([part.offset for part in parts]),
            np.concatenate([part.length for part in parts]),
            np.concatenate([part.check for part in parts]),
        )

    @property
    def present(self) -> npt.NDArray[np.bool_]:
        here: npt.NDArray[np.bool_] = self.length != ABSENT
        return here

    def take(self, ids: Ints) -> Members:
        return Members(self.offset[ids], self.length[ids], self.check[ids])

    def spread(self, sample_of: Ints, samples: int) -> Members:
        """From an entry a member to an entry a sample. Of duplicates the last one counts, as when extracting."""
        column = Members.none(samples)
        column.offset[sample_of], column.length[sample_of], column.check[sample_of] = self
        return column

    def or_else(self, other: Members) -> Members:
        """These members, and the other's where a sample has none of these."""
        here = self.present
        return Members(
            np.where(here, self.offset, other.offset),
            np.where(here, self.length, other.length),
            np.where(here, self.check, other.check),
        )
