"""Best-fit packing of sequences in rows of tokens, by a histogram of their lengths."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.data import numbers_in_ranges
from headrace.plan.bucket_members import Allocate
from headrace.plan.step_views import Ints

_EXACT_BITS = 12
"""Significant bits of a class's length. Lengths up to 4,096 each have a class; longer ones are rounded up to 12
significant bits, which leaves less than 1 / 2,048 of each unused. Without rounding, best fit in rows of 131,072 tokens
would scan as many classes."""
_PIECE = 1 << 20


@dataclass(frozen=True, eq=False)
class Patterns:
    """Patterns of rows: the lengths that a row may hold.

    Rows are numbered pattern by pattern, from the fullest to the emptiest. Pattern p has the rows from `first_row[p]`
    on. Each has the `places[p]` places from `first_place[p]` on, the longest sequence first. At place i, the pattern's
    k-th row has sequence number `first[i] + k * times[i]` of `classes[i]`. There are no more places than sequences.
    """

    first_row: Ints
    """First row of each pattern, [patterns + 1]."""
    first_place: Ints
    """First place of each pattern, [patterns]."""
    places: Ints
    classes: Ints
    """Length class of each place, [places of all patterns]."""
    first: Ints
    times: Ints

    def __len__(self) -> int:
        return len(self.places)

    @property
    def rows(self) -> int:
        return int(self.first_row[-1])

    def samples_before(self, row: int) -> int:
        """Return how many sequences all rows before this one hold."""
        return int(((np.minimum(self.first_row[1:], row) - self.first_row[:-1]).clip(0) * self.places).sum())


class _Held(NamedTuple):
    """Content of a row: `times` sequences of a class, after `others`."""

    size_class: int
    times: int
    others: _Held | None


def best_fit(sizes: Ints, counts: Ints, row: int) -> Patterns:
    """Put `counts[c]` sequences of `sizes[c]` tokens each, ascending sizes of at most `row`, in rows of `row` tokens.

    It opens as many rows as best-fit decreasing, sequence by sequence (each goes where it leaves the least room), at
    the cost of the distinct lengths. Equal rows are filled together, since equal sequences continue in the row that has
    just taken one. Packing of histograms: Krell et al., "Efficient sequence packing without cross-contamination", 2021,
    whose SPFHP takes the row with the most room instead.
    """
    packing = _Packing(row)
    for size_class in reversed(range(len(sizes))):
        packing.put(size_class, int(sizes[size_class]), int(counts[size_class]))
    return _patterns(packing.groups(), sizes)


class _Packing:
    def __init__(self, row: int) -> None:
        self._row = row
        self._rooms: list[int] = []
        self._alike: dict[int, list[tuple[int, _Held | None]]] = {}
        """Groups of equal rows by remaining room: (number of rows, content of each)."""

    def put(self, size_class: int, size: int, count: int) -> None:
        first = at = bisect_left(self._rooms, size)
        taken: list[tuple[int, int, _Held | None]] = []
        while count and at < len(self._rooms):
            room = self._rooms[at]
            groups = self._alike[room]
            while count and groups:
                rows, held = groups.pop()
                used, count = self._fill(taken, rows, room, held, size_class, size, count)
                if used < rows:
                    groups.append((rows - used, held))
            if not groups:
                del self._alike[room]
                at += 1
        del self._rooms[first:at]
        if count:
            self._fill(taken, count, self._row, None, size_class, size, count)
        for rows, room, held in taken:
            self._add(rows, room, held)

    @staticmethod
    def _fill(
        taken: list[tuple[int, int, _Held | None]],
        rows: int,
        room: int,
        held: _Held | None,
        size_class: int,
        size: int,
        count: int,
    ) -> tuple[int, int]:
        """Return how many rows take some of `count` sequences, and how many sequences are left."""
        fits = room // size
        full = min(rows, count // fits)
        rest = count - full * fits
        if full:
            taken.append((full, room - fits * size, _Held(size_class, fits, held)))
        if full == rows or rest == 0:
            return full, rest
        taken.append((1, room - rest * size, _Held(size_class, rest, held)))
        return full + 1, 0

    def _add(self, rows: int, room: int, held: _Held | None) -> None:
        if room not in self._alike:
            insort(self._rooms, room)
            self._alike[room] = []
        self._alike[room].append((rows, held))

    def groups(self) -> list[tuple[int, _Held | None]]:
        """Return groups of equal rows with the content of each, the fullest first."""
        return [group for room in self._rooms for group in self._alike[room]]


def _patterns(groups: list[tuple[int, _Held | None]], sizes: Ints) -> Patterns:
    entries: list[tuple[int, int, int]] = []
    places = []
    for rows, held in groups:
        first = len(entries)
        while held is not None:
            entries.append((held.size_class, held.times, rows))
            held = held.others
        entries[first:] = entries[first:][::-1]
        places.append(sum(times for _, times, _ in entries[first:]))
    classes, times, rows_of = np.array(entries, np.int64).reshape(-1, 3).T
    firsts = _taken_before(classes, times * rows_of, len(sizes))
    return Patterns(
        first_row=_sums([rows for rows, _ in groups]),
        first_place=_sums(places)[:-1],
        places=np.array(places, np.int64),
        classes=classes.repeat(times),
        first=numbers_in_ranges(firsts, times),
        times=times.repeat(times),
    )


def _sums(values: list[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.array(values, np.int64))])


def _taken_before(classes: Ints, taken: Ints, count: int) -> Ints:
    """Return, for each entry, how many sequences of its class the entries before it take. There are `count` classes."""
    order = np.argsort(classes, kind="stable")
    sums = np.cumsum(taken[order]) - taken[order]
    firsts = np.searchsorted(classes[order], np.arange(count))
    found = np.empty(len(classes), np.int64)
    found[order] = sums - sums[firsts[classes[order]]]
    return found


@dataclass(frozen=True, eq=False)
class SequencesByLength:
    """Index of samples by length: class by class from the shortest, and in the dataset's order within a class.

    It takes four bytes per sample. With thousands of classes CodedMembers would take three, but scan a block of codes
    for each sequence, which grows with the classes (benchmarks/packing.py).
    """

    samples: NDArray[Any]
    """Positions in the dataset, int32 or int64 [length]."""
    offsets: Ints
    """Bounds of the classes: class c has samples[offsets[c] : offsets[c + 1]]."""
    sizes: Ints
    """Maximum tokens of a sequence of each class; ascending. An empty sample counts as one token."""
    tokens: int
    """Number of tokens of all sequences, each cut to a row."""
    digest: str
    """Digest, equal for equal classes and the same number of samples."""

    @classmethod
    def of(cls, lengths: NDArray[Any], row: int, allocate: Allocate = np.zeros) -> SequencesByLength:
        """Index samples of `lengths` tokens (integers of 0 or more [length]).

        Lengths above `row`, which is at most 2^20, count as `row`.
        """
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
        """Number of samples in each class."""
        return np.diff(self.offsets)


def _pieces(lengths: NDArray[Any], row: int) -> Iterator[tuple[int, Ints]]:
    for first in range(0, len(lengths), _PIECE):
        yield first, np.minimum(lengths[first : first + _PIECE], row).astype(np.int64, copy=False)


def _classes(held: Ints, row: int) -> tuple[Ints, NDArray[np.uint16]]:
    """Return the sizes of classes that have a sample, and the class of each length from 0 to `row`."""
    lengths = np.arange(row + 1).clip(1)
    bits = np.frexp((lengths - 1).astype(np.float64))[1]
    step = 1 << (bits - _EXACT_BITS).clip(0).astype(np.int64)
    rounded = np.minimum(-(-lengths // step) * step, row)  # the maximum tokens of a sample in each length's class
    sizes = np.unique(rounded[held > 0])
    return sizes, np.searchsorted(sizes, rounded).clip(max=max(0, len(sizes) - 1)).astype(np.uint16)


def _deal(samples: NDArray[Any], ends: Ints, codes: NDArray[np.uint16], first: int) -> None:
    """Append each sample of a piece to its class, and advance `ends`, the current end of each class's samples."""
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes, minlength=len(ends))
    starts = np.cumsum(counts) - counts
    samples[np.repeat(ends - starts, counts) + np.arange(len(codes))] = order + first
    ends += counts
