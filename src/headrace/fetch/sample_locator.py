"""Samples of a pass as byte ranges of objects in stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset
from headrace.fetch.objects import ExpectedSize, Objects, object_of
from headrace.fetch.parts import RangeFetcher
from headrace.fetch.read_groups import Ints, LocatedGroup, Place, WantedPlaces
from headrace.plan import ReadGroup
from headrace.stores import WantedRanges

Cached: TypeAlias = Callable[[str, Ints], NDArray[np.bool_]]
"""Function that returns the samples, by base id, whose bytes of a column are cached and need not be read."""


class SampleLocator:
    """Byte ranges of the samples of a pass, and the objects that hold them."""

    def __init__(self, dataset: Dataset, columns: Sequence[str], cached: Cached | None, engine: RangeFetcher) -> None:
        """Locate samples of these columns. `engine` gives the size to expect of an object before any is read."""
        self._dataset, self._columns, self._cached, self._engine = dataset, tuple(columns), cached, engine
        self.objects = Objects()
        self.expected_size = ExpectedSize()
        self.paged: set[str] = set()
        """Columns with located pages."""

    def group(self, group: ReadGroup) -> LocatedGroup:
        """Locate the samples of a group in all columns."""
        wanted, cached = [], set[Place]()
        for column in self._columns:
            found = self.wanted(column, group.samples, group.steps)
            wanted.append(found)
            cached.update(self._cached_places(column, found.places))
        return LocatedGroup(group.first_step, wanted, cached)

    def wanted(self, column: str, samples: Ints, need: Ints) -> WantedPlaces:
        """Locate the samples that exist, with the headers that the core checks before their data."""
        at = self._dataset.locate(column, samples)
        files = self._dataset.files(column) if at.files is None else at.files
        objects = {number: object_of(files, number) for number in np.unique(at.path_id).tolist()}
        there = np.array([objects[number] is not None for number in at.path_id.tolist()], bool)
        if at.length is not None:
            there &= at.length >= 0
        if at.packed is not None:
            self.paged.add(column)
        stored = at.stored()
        named = {at_id: self.objects.numbered(path) for at_id, path in objects.items() if path is not None}
        if stored is None:
            expected = self.expected_size.bytes(self._engine.model().request_bytes)
            sizes = {at_id: of.size(expected) for at_id, of in named.items()}
            stored = np.zeros_like(samples), np.array([sizes.get(at_id, 0) for at_id in at.path_id.tolist()], np.int64)
        start, stop = stored
        rows = np.flatnonzero(there)
        numbers = np.array([named[at_id].number for at_id in at.path_id[rows].tolist()], np.int64)
        ranges = WantedRanges(numbers, start[rows], stop[rows], need[rows])
        return WantedPlaces([(column, sample) for sample in samples[rows].tolist()], ranges, list(named.values()))

    def _cached_places(self, column: str, places: list[Place]) -> list[Place]:
        """Return the places that need not be fetched, unless they turn out to be damaged."""
        if self._cached is None or not places:
            return []
        samples = np.array([sample for _, sample in places], np.int64)
        ids = samples if self._dataset.base_ids is None else self._dataset.base_ids[samples]
        return [places[row] for row in np.flatnonzero(self._cached(column, ids)).tolist()]
