"""Best-fit decreasing over a histogram: which lengths share a row, and how many rows are alike."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headrace.plan.bucket_members import Ints


@dataclass(frozen=True, eq=False)
class Patterns:
    """What a row may hold. Rows are numbered pattern by pattern, from the fullest rows to the emptiest.

    Pattern p's rows are those from `first_row[p]` on. Each has the `places[p]` places from `first_place[p]` on, the
    longest sequence first: at place i the pattern's k-th row has sequence number `first[i] + k * times[i]` of
    `classes[i]`. There are no more places than sequences.
    """

    first_row: Ints
    """[patterns + 1]"""
    first_place: Ints
    """[patterns]"""
    places: Ints
    classes: Ints
    """[places of all patterns]"""
    first: Ints
    times: Ints

    def __len__(self) -> int:
        return len(self.places)

    @property
    def rows(self) -> int:
        return int(self.first_row[-1])

    def samples_before(self, row: int) -> int:
        """Sequences in all rows before this one."""
        return int(((np.minimum(self.first_row[1:], row) - self.first_row[:-1]).clip(0) * self.places).sum())


class _Held(NamedTuple):
    """What a row holds: so many sequences of a class, and before them `others`."""

    size_class: int
    times: int
    others: _Held | None


def best_fit(sizes: Ints, counts: Ints, row: int) -> Patterns:
    """Puts `counts[c]` sequences of `sizes[c]` tokens each, ascending sizes of at most `row`, in rows of `row` tokens.

    As many rows as best-fit decreasing opens one sequence after another (each goes where the least room is left that
    it fits in), at the cost of the distinct lengths: rows alike are filled together, since equal sequences go on into
    the row that has just taken one. Packing of histograms: Krell et al., "Efficient sequence packing without
    cross-contamination", 2021, whose SPFHP takes the row with the most room instead.
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
        """By the room left: (rows, what each holds)."""

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
        """Rows that take some of `count` sequences, and how many sequences are left."""
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
        """Rows alike and what each holds, the fullest first."""
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
        first=(firsts - np.cumsum(times) + times).repeat(times) + np.arange(times.sum()),
        times=times.repeat(times),
    )


def _sums(values: list[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.array(values, np.int64))])


def _taken_before(classes: Ints, taken: Ints, count: int) -> Ints:
    """How many sequences of its class the entries before each take, of `count` classes."""
    order = np.argsort(classes, kind="stable")
    sums = np.cumsum(taken[order]) - taken[order]
    firsts = np.searchsorted(classes[order], np.arange(count))
    found = np.empty(len(classes), np.int64)
    found[order] = sums - sums[firsts[classes[order]]]
    return found
