"""Index of which samples are in which bucket."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import UsageError
from headrace.plan.order import BatchPlan, Remainder, UniformPlan, check_int, epoch_key, rank_part

# -- from plan/members.py: Which samples are in which bucket, at a byte or two a sample and without a list of them.


Ints: TypeAlias = NDArray[np.int64]
Allocate: TypeAlias = Callable[[tuple[int, ...], Any], NDArray[Any]]
"""(shape, dtype) to an array of zeros: in memory, or in a mapped file."""

MOST_BUCKETS = 4096
_LEAST_BLOCK = 1 << 10
_SCANNED = 1 << 21  # codes looked at together
_COUNTED = 1 << 20


class Membership(Protocol):
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


# -- from plan/buckets.py: A plan in which every global batch comes from one bucket, so that all its samples have one
# shape.


_BATCH_ORDER = 0
"""Draws the order of an epoch's batches; bucket b's own order is drawn with 1 + b."""


@dataclass(frozen=True, eq=False)
class ListedMembers:
    """Which samples belong together.

    Buckets are numbered by their first samples, so a plan depends on which samples share a bucket, and not on what the
    buckets are called.
    """

    members: NDArray[np.int64]
    """Dataset positions [length], bucket by bucket, ascending in each."""
    offsets: NDArray[np.int64]
    """Bucket b is members[offsets[b] : offsets[b + 1]]."""
    fingerprint: str
    """Equal for equal buckets of the same samples."""

    @classmethod
    def of(cls, values: Sequence[Any] | NDArray[Any]) -> ListedMembers:
        """Samples with equal values share a bucket.

        `values` holds one hashable value per sample, or is an array of shape [length] or [length, n] (a row per
        sample). Raises UsageError for anything else.
        """
        codes = _codes(values)
        counts = np.bincount(codes)
        return cls(
            members=np.argsort(codes, kind="stable"),
            offsets=np.concatenate([[0], np.cumsum(counts)]),
            fingerprint=hashlib.sha256(codes.astype("<i8").tobytes()).hexdigest()[:16],
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples in each bucket."""
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False, kw_only=True)
class BucketPlan:
    """Cuts each bucket into global batches, mixes the batches of all buckets, and gives each rank its part of each.

    Which samples share a batch is drawn anew each epoch. Otherwise as Plan: global batches do not depend on the world
    size, and every rank takes every step, hence the same bucket. `remainder` is said of each bucket: its last batch is
    smaller ("short"), left out ("drop"; a bucket smaller than the global batch then never comes), or filled up from
    the bucket's own start ("wrap"). Without `shuffle`, batches come in the order of their first samples.
    """

    buckets: ListedMembers
    batch_size: int
    world_size: int = 1
    rank: int = 0
    shuffle: bool = True
    seed: int = 0
    remainder: Remainder = "short"

    def __post_init__(self) -> None:
        UniformPlan(
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
                f"remainder='drop' leaves nothing: expected a global batch of at most the {self.buckets.sizes.max()} "
                f"samples of the largest bucket, got {self.batch_size} x {self.world_size} ranks = "
                f"{self.global_batch}; lower batch_size, or use remainder='short'"
            )

    @property
    def length(self) -> int:
        """Samples of the dataset."""
        return len(self.buckets.members)

    @property
    def global_batch(self) -> int:
        """Samples that one step takes over all ranks (fewer in a bucket's short last batch)."""
        return self.batch_size * self.world_size

    @property
    def grouping(self) -> str:
        """Nothing: it is part of the dataset's fingerprint in a sampler's state."""
        return ""

    @property
    def steps(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return int(self._first_batch[-1])

    @property
    def left_out(self) -> int:
        """Samples that an epoch leaves out under "drop", over all buckets. Low is good."""
        return self.length - self.steps * self.global_batch if self.remainder == "drop" else 0

    @property
    def repeated(self) -> int:
        """Samples that an epoch takes once more under "wrap", over all buckets. Low is good."""
        return self.steps * self.global_batch - self.length if self.remainder == "wrap" else 0

    @property
    def empty_parts(self) -> int:
        """Parts of an epoch's batches that are empty, because a batch has fewer samples than there are ranks."""
        rests = self.buckets.sizes % self.global_batch
        return int(np.clip(self.world_size - rests[rests > 0], 0, None).sum()) if self.remainder == "short" else 0

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """This rank's part of the global batch at `step` (below `steps`) of `epoch`; its arrays are parallel.

        Costs the same at every step, and nothing at an epoch's start: no order is ever written down.
        """
        check_int("epoch", epoch, 0, (1 << 64) - 1, "epochs count from 0")
        check_int("step", step, 0, self.steps - 1, "steps count from 0 and end with the epoch")
        bucket, first = self._cut(epoch, step)
        begin, end = self.buckets.offsets[bucket : bucket + 2].tolist()
        count = self.global_batch if self.remainder == "wrap" else min(self.global_batch, end - begin - first)
        start, stop = rank_part(count, batch_size=self.batch_size, rank=self.rank, world_size=self.world_size)
        passes, places = np.divmod(np.arange(first + start, first + stop, dtype=np.int64), end - begin)
        if self.shuffle:
            places = _core.permute(end - begin, _core.hash64(epoch_key(self.seed, epoch), 1 + bucket), places)
        samples = self.buckets.members[begin + places]
        positions = np.arange(start, stop, dtype=np.int64) + step * self.global_batch
        return BatchPlan(epoch, step, samples, passes.astype(np.uint32), positions)

    def _cut(self, epoch: int, step: int) -> tuple[int, int]:
        """The bucket of this step's batch, and the place in the bucket's order at which the batch begins."""
        if self.shuffle:
            key = _core.hash64(epoch_key(self.seed, epoch), _BATCH_ORDER)
            batch = int(_core.permute(self.steps, key, np.array([step], np.int64))[0])
        else:
            batch = int(self._order_of_first_samples[step])
        bucket = int(np.searchsorted(self._first_batch, batch, side="right")) - 1
        return bucket, (batch - int(self._first_batch[bucket])) * self.global_batch

    @cached_property
    def _first_batch(self) -> NDArray[np.int64]:
        """Batches are numbered bucket by bucket: each bucket's first, and how many there are."""
        sizes = self.buckets.sizes
        counts = sizes // self.global_batch if self.remainder == "drop" else -(-sizes // self.global_batch)
        return np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def _order_of_first_samples(self) -> NDArray[np.int64]:
        batches = np.arange(self.steps)
        buckets = np.searchsorted(self._first_batch, batches, side="right") - 1
        first = (batches - self._first_batch[buckets]) * self.global_batch
        return np.argsort(self.buckets.members[self.buckets.offsets[buckets] + first])


def _codes(values: Sequence[Any] | NDArray[Any]) -> NDArray[np.int64]:
    """Each sample's bucket, numbered in the order of first appearance."""
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


def _codes_of_array(array: NDArray[Any]) -> NDArray[np.int64]:
    if array.ndim not in (1, 2) or 0 in array.shape[1:]:
        raise UsageError(f"buckets: expected an array of shape [length] or [length, n], got {list(array.shape)}")
    first, *rest = [array] if array.ndim == 1 else array.T
    codes = _labels(first)
    for column in rest:
        labels = _labels(column)
        # Labelled afresh after each column, so that the products stay below length squared.
        codes = _labels(codes * (labels.max(initial=0) + 1) + labels)
    return _by_first_appearance(codes)


def _labels(values: NDArray[Any]) -> NDArray[np.int64]:
    """Each value's place among the distinct ones."""
    return np.unique(values, return_inverse=True)[1]


def _by_first_appearance(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    first = np.full(codes.max(initial=-1) + 1, len(codes))
    np.minimum.at(first, codes, np.arange(len(codes)))
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[codes]
