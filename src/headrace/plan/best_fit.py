"""Best-fit decreasing over a histogram: which lengths share a row, and how many rows are alike."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Patterns:
    """What a row may hold. Rows are numbered pattern by pattern, from the fullest rows to the emptiest.

    Pattern p is `entries[p]` entries from `first_entry[p]` on: `times` sequences of each of `classes`, longest first.
    Its rows are those from `first_row[p]` on; `first_slot` says how many sequences of an entry's class the rows before
    these have.
    """

    first_row: Ints
    """[patterns + 1]"""
    first_entry: Ints
    """[patterns]"""
    entries: Ints
    classes: Ints
    """[entries]"""
    times: Ints
    first_slot: Ints
    slots: Ints
    """[patterns]: sequences in each row."""

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def rows(self) -> int:
        return int(self.first_row[-1])

    def samples_before(self, row: int) -> int:
        """Sequences in all rows before this one."""
        return int(((np.minimum(self.first_row[1:], row) - self.first_row[:-1]).clip(0) * self.slots).sum())


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
    lengths, slots = [], []
    for rows, held in groups:
        first = len(entries)
        while held is not None:
            entries.append((held.size_class, held.times, rows))
            held = held.others
        entries[first:] = entries[first:][::-1]
        lengths.append(len(entries) - first)
        slots.append(sum(times for _, times, _ in entries[first:]))
    classes, times, rows_of = np.array(entries, np.int64).reshape(-1, 3).T
    return Patterns(
        first_row=_sums([rows for rows, _ in groups]),
        first_entry=_sums(lengths)[:-1],
        entries=np.array(lengths, np.int64),
        classes=np.ascontiguousarray(classes),
        times=np.ascontiguousarray(times),
        first_slot=_first_slots(classes, times * rows_of, len(sizes)),
        slots=np.array(slots, np.int64),
    )


def _sums(values: list[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.array(values, np.int64))])


def _first_slots(classes: Ints, taken: Ints, count: int) -> Ints:
    """How many sequences of its class the entries before each have."""
    order = np.argsort(classes, kind="stable")
    sums = np.cumsum(taken[order]) - taken[order]
    firsts = np.searchsorted(classes[order], np.arange(count))
    found = np.empty(len(classes), np.int64)
    found[order] = sums - sums[firsts[classes[order]]]
    return found
