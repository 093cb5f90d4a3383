"""Index of the samples in each bucket."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError
from headrace.plan.step_views import Ints

Allocate: TypeAlias = Callable[[tuple[int, ...], Any], NDArray[Any]]
"""Function from (shape, dtype) to an array of zeros: in memory, or in a mapped file."""

_LEAST_BLOCK = 1 << 10
_SCANNED = 1 << 21  # codes scanned at once
_COUNTED = 1 << 20


@dataclass(frozen=True)
class OneBucket:
    """All samples of a dataset."""

    length: int
    digest: str = ""
    """Digest, equal for equal buckets and the same number of samples."""

    @property
    def counts(self) -> Ints:
        """Number of samples in each bucket."""
        return np.array([self.length])

    def select(self, bucket: int, indices: Ints) -> Ints:
        """Return the dataset positions of members number `indices`, each below the bucket's count."""
        return indices


@dataclass(frozen=True, eq=False)
class ListedMembers:
    """Any number of buckets, as a list of their samples: eight bytes per sample.

    Buckets are numbered by their first samples, so a plan depends on which samples share a bucket, not on the buckets'
    names.
    """

    members: Ints
    """Dataset positions [length], bucket by bucket, ascending in each."""
    offsets: Ints
    """Bounds of the buckets: bucket b is members[offsets[b] : offsets[b + 1]]."""
    digest: str

    @classmethod
    def of(cls, values: Sequence[Any] | NDArray[Any]) -> ListedMembers:
        """Put samples with equal values in one bucket.

        `values` holds one hashable value per sample, or is an array of shape [length] or [length, n] (a row per
        sample). Raises UsageError for anything else.
        """
        codes = _codes(values)
        return cls(
            members=np.argsort(codes, kind="stable"),
            offsets=np.concatenate([[0], np.cumsum(np.bincount(codes))]),
            digest=hashlib.sha256(codes.astype("<i8").tobytes()).hexdigest()[:16],
        )

    @property
    def counts(self) -> Ints:
        return np.diff(self.offsets)

    def select(self, bucket: int, indices: Ints) -> Ints:
        positions: Ints = self.members[self.offsets[bucket] + indices]
        return positions


@dataclass(frozen=True, eq=False)
class CodedMembers:
    """Up to 4,096 buckets, as one or two bytes per sample and no list of members.

    Members are found by rank and select: a binary search in counts by block, then a scan of one block's codes. Method:
    Jacobson, "Space-efficient static trees and graphs", FOCS 1989, with one level of counts.
    """

    codes: NDArray[Any]
    """Bucket of each sample, uint8 or uint16 [blocks, block]; the last block is padded with `no_bucket`."""
    before: Ints
    """Members in all blocks before each block, [buckets, blocks + 1]."""
    digest: str

    @classmethod
    def of(cls, codes: NDArray[Any], buckets: int, allocate: Allocate = np.zeros) -> CodedMembers:
        """Index `codes`, allocated by `blank_codes` and fully written."""
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


BucketMembers: TypeAlias = OneBucket | ListedMembers | CodedMembers
"""Samples by bucket: member `i` of bucket `b` is its i-th sample in the dataset's order."""


def blank_codes(length: int, buckets: int, allocate: Allocate = np.zeros) -> NDArray[Any]:
    """Allocate each sample's code, in blocks: rows long enough that the counts take at most a byte per sample."""
    block = max(_LEAST_BLOCK, 1 << (8 * buckets - 1).bit_length())
    codes = allocate((-(-length // block), block), np.uint8 if buckets < no_bucket(np.uint8) else np.uint16)
    codes.reshape(-1)[length:] = no_bucket(codes.dtype)
    return codes


def no_bucket(dtype: Any) -> int:
    """Return the code that belongs to no bucket."""
    return int(np.iinfo(dtype).max)


def _counts(codes: NDArray[Any], buckets: int) -> Ints:
    """Return the members of each bucket in each of these blocks, int64 [buckets, blocks]."""
    rows = np.arange(len(codes))[:, None] * (buckets + 1)
    flat = (rows + np.minimum(codes, buckets)).reshape(-1)
    counts = np.bincount(flat, minlength=len(codes) * (buckets + 1)).reshape(len(codes), -1)
    return counts[:, :buckets].T


def _codes(values: Sequence[Any] | NDArray[Any]) -> Ints:
    """Return each sample's bucket, numbered in the order of first appearance."""
    if hasattr(values, "__array__"):
        array = np.asarray(values)
        if array.dtype != object:
            return _codes_of_array(array)
        values = array.tolist()
    seen: dict[Any, int] = {}
    try:
        return np.fromiter((seen.setdefault(value, len(seen)) for value in values), np.int64, len(values))
    except TypeError as error:
        raise UsageError(
            f"buckets: expected one hashable value per sample, such as a (height, width) tuple, or an array, got "
            f"{type(values).__name__}: {error}"
        ) from None


def _codes_of_array(array: NDArray[Any]) -> Ints:
    if array.ndim not in (1, 2) or 0 in array.shape[1:]:
        raise UsageError(f"buckets: expected an array of shape [length] or [length, n], got {list(array.shape)}")
    first, *rest = [array] if array.ndim == 1 else array.T
    codes = _labels(first)
    for column in rest:
        labels = _labels(column)
        # Labelled afresh after each column, so that the products stay below length squared.
        codes = _labels(codes * (labels.max(initial=0) + 1) + labels)
    first_seen = np.full(codes.max(initial=-1) + 1, len(codes))
    np.minimum.at(first_seen, codes, np.arange(len(codes)))
    place = np.empty(len(first_seen), np.int64)
    place[np.argsort(first_seen)] = np.arange(len(first_seen))
    return place[codes]


def _labels(values: NDArray[Any]) -> Ints:
    """Return each value's rank among the distinct values."""
    return np.unique(values, return_inverse=True)[1]
