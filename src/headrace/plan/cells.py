"""Cells: the samples of one bucket that one scale takes, in the order in which an epoch's batches are cut from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

ANY = -1
"""The scale of the few samples that are left over where a bucket is divided evenly: each as likely as the others."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Slots 0 to length - 1 are dealt to cells, one cell after another; a bucket's slots lie together.

    Each bucket is divided over the scales in equal shares. Every second bucket has its scales in reverse, so that
    neighbours in the chain have a bucket or a scale in common.
    """

    offsets: Ints
    """Cell c has the slots from offsets[c] to offsets[c + 1]; none is empty."""
    buckets: Ints
    scales: Ints
    """A number of a scale, or ANY."""

    @classmethod
    def of(cls, counts: Ints, scales: int) -> Cells:
        """`counts`: samples in each bucket. With one scale each bucket is a cell."""
        dealt: list[tuple[int, int, int]] = []
        for turn, bucket in enumerate(np.flatnonzero(counts).tolist()):
            share, rest = divmod(int(counts[bucket]), scales)
            parts = [(bucket, scale, share) for scale in range(scales)] + [(bucket, ANY, rest)]
            dealt += [part for part in parts[:: -1 if turn % 2 else 1] if part[2]]
        table = np.array(dealt, np.int64).reshape(-1, 3)
        return cls(np.concatenate([[0], np.cumsum(table[:, 2])]), table[:, 0], table[:, 1])

    def __len__(self) -> int:
        return len(self.buckets)

    def at(self, slot: int) -> int:
        """The cell of a slot."""
        return int(np.searchsorted(self.offsets, slot, side="right")) - 1
