"""`Sequences`: the ids of some texts in one array, and as entries of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.tokens.texts import Ints

ENTRY_FORMAT = 1
"""Raise it whenever the bytes of an entry mean something else."""

UNKNOWN = -1

_TYPES: tuple[np.dtype[np.integer[Any]], ...] = (np.dtype("<u2"), np.dtype("<u4"), np.dtype("<i8"))
"""An entry is the ids in the first of these that holds them all, then one byte that says which. So no entry is empty,
and each depends on its own ids alone."""
_WIDTHS = np.array([*(kind.itemsize for kind in _TYPES), 1])
"""The last for what is no type."""


@dataclass(frozen=True)
class Sequences:
    """N sequences of ids."""

    ids: Ints
    """All of them, one sequence after another."""
    lengths: Ints
    """[N], in ids; UNKNOWN where a sequence is not there."""

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Sequences:
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        return cls(np.fromiter(chain.from_iterable(sequences), np.int64, int(lengths.sum())), lengths)

    def with_missing(self, made: Sequences) -> Sequences:
        """`made` in the place of those that are not there, in their order."""
        missing = self.lengths == UNKNOWN
        lengths = self.lengths.copy()
        lengths[missing] = made.lengths
        of_made = np.repeat(missing, lengths)
        ids = np.empty(len(of_made), np.int64)
        ids[of_made], ids[~of_made] = made.ids, self.ids
        return Sequences(ids, lengths)


def to_entries(sequences: Sequences) -> tuple[NDArray[np.uint8], Ints]:
    """The bytes of an entry for each, on end, and how many each has. All sequences are there."""
    ends = np.cumsum(sequences.lengths)
    entries = [_entry(sequences.ids[start:end]) for start, end in zip(ends - sequences.lengths, ends, strict=True)]
    return np.frombuffer(b"".join(entries), np.uint8), np.fromiter(map(len, entries), np.int64, len(entries))


def _entry(ids: Ints) -> bytes:
    most = int(ids.max(initial=0))
    which = next(which for which, kind in enumerate(_TYPES) if most <= np.iinfo(kind).max)
    return ids.astype(_TYPES[which]).tobytes() + bytes([which])


def from_entries(data: NDArray[np.uint8], lengths: Ints, *, most: int) -> Sequences:
    """What `to_entries` made; `lengths` are those of the entries, below 0 where there is none. What is no entry of at
    most `most` ids is not there."""
    sizes = np.maximum(lengths, 0)
    there, lasts = lengths > 0, np.cumsum(sizes) - 1
    types = np.full(len(lengths), len(_TYPES))
    types[there] = np.minimum(data[lasts[there]], len(_TYPES))
    counts, left = np.divmod(sizes - 1, _WIDTHS[types])
    fit = (types < len(_TYPES)) & (left == 0) & (counts <= most)
    of_ids = np.repeat(fit, sizes)
    of_ids[lasts[there]] = False
    found = Sequences(np.empty(int(counts[fit].sum()), np.int64), np.where(fit, counts, UNKNOWN))
    for which in np.unique(types[fit]):
        of_type = types == which
        ids = data[of_ids & np.repeat(of_type, sizes)].view(_TYPES[which])
        found.ids[np.repeat(of_type[fit], counts[fit])] = ids
    return found
