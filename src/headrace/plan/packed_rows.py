"""How the sequences of a batch lie in rows of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
