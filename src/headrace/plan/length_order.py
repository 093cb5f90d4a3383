"""Samples in order of their lengths, so that any sequence of a length is found at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.plan.bucket_members import Allocate, Ints

_EXACT_BITS = 12
"""Lengths up to 4,096 are classes of their own; longer ones are rounded up to 12 significant bits, which leaves less
than 1 / 2,048 of each unused. Without it best fit in rows of 131,072 tokens would look at that many classes."""
_PIECE = 1 << 20


@dataclass(frozen=True, eq=False)
class LengthOrder:
    """Every sample once, class by class from the shortest, and in the dataset's order within a class.

    Four bytes a sample. CodedMembers would take three where there are thousands of classes, but look through a block of
    codes for each sequence, which grows with the classes (benchmarks/packing.py).
    """

    samples: NDArray[Any]
    """Positions in the dataset, int32 or int64 [length]."""
    offsets: Ints
    """Class c has samples[offsets[c] : offsets[c + 1]]."""
    sizes: Ints
    """Tokens that a sequence of each class has at most; ascending. A sample without any counts as one."""
    tokens: int
    """Of all sequences, each cut to a row."""
    digest: str
    """Equal for equal classes of as many samples."""

    @classmethod
    def of(cls, lengths: NDArray[Any], row: int, allocate: Allocate = np.zeros) -> LengthOrder:
        """`lengths`: tokens of each sample (integers of 0 or more [length]); those above `row`, which is at most 2^20,
        count as `row`."""
        held = np.zeros(row + 1, np.int64)
        for _, piece in _pieces(lengths, row):
            held += np.bincount(piece, minlength=row + 1)
        sizes, class_of = _classes(held, row)
        counts = np.bincount(class_of, held, minlength=len(sizes)).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        samples = allocate((len(lengths),), np.int32 if len(lengths) < 1 << 31 else np.int64)
        digest = hashlib.blake2b(np.ascontiguousarray(sizes, "<i8").data, digest_size=8)
        ends = offsets[:-1].copy()
        for first, piece in _pieces(lengths, row):
            codes = class_of[piece]
            digest.update(np.ascontiguousarray(codes, "<u2").data)
            _deal(samples, ends, codes, first)
        tokens = int(held @ np.arange(row + 1))
        return cls(samples, offsets, sizes, tokens, digest.hexdigest())

    @cached_property
    def counts(self) -> Ints:
        """Samples of each class."""
        return np.diff(self.offsets)


def _pieces(lengths: NDArray[Any], row: int) -> Iterator[tuple[int, Ints]]:
    for first in range(0, len(lengths), _PIECE):
        yield first, np.minimum(lengths[first : first + _PIECE], row).astype(np.int64, copy=False)


def _classes(held: Ints, row: int) -> tuple[Ints, NDArray[np.uint16]]:
    """The sizes of classes that have a sample, and the class of each length from 0 to `row`."""
    rounded = _rounded_up(row)
    sizes = np.unique(rounded[held > 0])
    return sizes, np.searchsorted(sizes, rounded).clip(max=max(0, len(sizes) - 1)).astype(np.uint16)


def _rounded_up(row: int) -> Ints:
    """Of each length from 0 to `row`: the most tokens that one of its class has."""
    lengths = np.arange(row + 1).clip(1)
    bits = np.frexp((lengths - 1).astype(np.float64))[1]
    step = 1 << (bits - _EXACT_BITS).clip(0).astype(np.int64)
    rounded: Ints = np.minimum(-(-lengths // step) * step, row)
    return rounded


def _deal(samples: NDArray[Any], ends: Ints, codes: NDArray[np.uint16], first: int) -> None:
    """Appends each sample of a piece to its class; `ends`, where each class's samples end so far, go on."""
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=len(ends))
    starts = np.cumsum(counts) - counts
    samples[np.repeat(ends - starts, counts) + np.arange(len(codes))] = order + first
    ends += counts
