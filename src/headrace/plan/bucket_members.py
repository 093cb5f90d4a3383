"""Which samples are in which bucket, at a byte or two a sample and without a list of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Allocate: TypeAlias = Callable[[tuple[int, ...], Any], NDArray[Any]]
"""(shape, dtype) to an array of zeros: in memory, or in a mapped file."""

MOST_BUCKETS = 4096
_LEAST_BLOCK = 1 << 10
_SCANNED = 1 << 21  # codes looked at together
_COUNTED = 1 << 20


class Members(Protocol):
    """Samples by bucket: member `i` of bucket `b` is the i-th of its samples in the dataset's order."""

    @property
    def counts(self) -> Ints:
        """Samples in each bucket."""
        ...

    @property
    def digest(self) -> str:
        """Equal for equal buckets of as many samples."""
        ...

    def select(self, bucket: int, indices: Ints) -> Ints:
        """The dataset positions of members number `indices`, each below the bucket's count."""
        ...


@dataclass(frozen=True)
class OneBucket:
    """All samples of a dataset."""

    length: int

    @property
    def counts(self) -> Ints:
        return np.array([self.length])

    @property
    def digest(self) -> str:
        return ""

    def select(self, bucket: int, indices: Ints) -> Ints:
        return indices


@dataclass(frozen=True, eq=False)
class CodedMembers:
    """Finds members by rank and select: a binary search in counts by block, then a look at one block's codes.

    Method: Jacobson, "Space-efficient static trees and graphs", FOCS 1989, with one level of counts.
    """

    codes: NDArray[Any]
    """Each sample's bucket, uint8 or uint16 [blocks, block]; the last block is filled up with `no_bucket`."""
    before: Ints
    """[buckets, blocks + 1]: members in all blocks before each."""
    digest: str

    @classmethod
    def of(cls, codes: NDArray[Any], buckets: int, allocate: Allocate = np.zeros) -> CodedMembers:
        """`codes` as `blank_codes` laid them out, written full."""
        blocks, block = codes.shape
        before = allocate((buckets, blocks + 1), np.int64)
        digest = hashlib.blake2b(digest_size=8)
        total = np.zeros((buckets, 1), np.int64)
        for first in range(0, blocks, max(1, _COUNTED // block)):
            piece = codes[first : first + max(1, _COUNTED // block)]
            digest.update(np.ascontiguousarray(piece, f"<u{piece.itemsize}").data)
            counts = _counts(piece, buckets).cumsum(axis=1) + total
            before[:, first + 1 : first + len(piece) + 1] = counts
            total = counts[:, -1:]
        return cls(codes, before, digest.hexdigest())

    @property
    def counts(self) -> Ints:
        return np.array(self.before[:, -1])

    def select(self, bucket: int, indices: Ints) -> Ints:
        before = self.before[bucket]
        blocks = np.searchsorted(before, indices, side="right") - 1
        ranks = indices - before[blocks]
        found = np.empty(len(indices), np.int64)
        at_once = max(1, _SCANNED // self.codes.shape[1])
        for first in range(0, len(indices), at_once):
            part = slice(first, first + at_once)
            found[part] = self._scan(bucket, blocks[part], ranks[part])
        return found

    def _scan(self, bucket: int, blocks: Ints, ranks: Ints) -> Ints:
        block, before = self.codes.shape[1], self.before[bucket]
        hits = np.flatnonzero(self.codes[blocks] == bucket)
        counts = before[blocks + 1] - before[blocks]
        positions: Ints = blocks * block + hits[np.cumsum(counts) - counts + ranks] % block
        return positions


def blank_codes(length: int, buckets: int, allocate: Allocate = np.zeros) -> NDArray[Any]:
    """Room for each sample's code, in blocks: rows long enough that the counts take at most a byte a sample."""
    block = max(_LEAST_BLOCK, 1 << (8 * buckets - 1).bit_length())
    codes = allocate((-(-length // block), block), np.uint8 if buckets < no_bucket(np.uint8) else np.uint16)
    codes.reshape(-1)[length:] = no_bucket(codes.dtype)
    return codes


def no_bucket(dtype: Any) -> int:
    """The code of no sample."""
    return int(np.iinfo(dtype).max)


def _counts(codes: NDArray[Any], buckets: int) -> Ints:
    """[buckets, blocks]: members in each of these blocks."""
    rows = np.arange(len(codes))[:, None] * (buckets + 1)
    flat = (rows + np.minimum(codes, buckets)).reshape(-1)
    counts = np.bincount(flat, minlength=len(codes) * (buckets + 1)).reshape(len(codes), -1)
    return counts[:, :buckets].T
