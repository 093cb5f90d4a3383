"""Samples that other passes of a node fetch into a cache that they share with this one."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.data import HeldParts
from headrace.fetch.parts import Part
from headrace.fetch.read_groups import Ints, LocatedGroup, Place


class SharedCache(Protocol):
    """Cache whose users fetch each sample once. Positions are in the dataset."""

    def take(self, column: str, samples: Ints) -> NDArray[np.bool_]:
        """Claim samples, and return a flag for each that is not to be fetched, since another pass does or did."""

    def release(self, column: str, samples: Ints) -> None:
        """Drop the claims of samples that are not fetched now."""

    def is_coming(self, column: str, samples: Ints) -> NDArray[np.bool_]:
        """Return a flag for each sample that another pass still fetches."""

    def wait(self, column: str, samples: Ints) -> NDArray[np.bool_]:
        """Wait for other passes, and return a flag for each sample that has to be fetched here after all."""

    def store(self, column: str, samples: Ints, held: Callable[[], HeldParts]) -> None:
        """Store samples soon, and drop their claims. `held` returns their bytes, or raises if there are none."""

    def close(self) -> None: ...


class SharedFetching:
    """One pass's view of the fetches of others. Any thread may call it."""

    def __init__(self, cache: SharedCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._coming: set[Place] = set()
        """Places in the steps of this pass that others fetch."""

    def claim(self, group: LocatedGroup, in_memory: Container[Place]) -> None:
        """Claim what is to be fetched for a group; what others fetch counts as cached."""
        for column, samples in _by_column(group, in_memory):
            theirs = {(column, sample) for sample in samples[self._cache.take(column, samples)].tolist()}
            group.cached.update(theirs)
            with self._lock:
                self._coming.update(theirs)

    def unclaim(self, groups: Iterable[LocatedGroup], in_memory: Container[Place]) -> None:
        """Drop the claims of groups that are not fetched yet, since memory has no room."""
        for group in groups:
            for column, samples in _by_column(group, in_memory):
                self._cache.release(column, samples)

    def is_coming(self, places: Iterable[Place]) -> bool:
        """Return True if others still fetch some of the places."""
        return any(self._cache.is_coming(column, samples).any() for column, samples in _columns(self._known(places)))

    def overdue(self, places: Iterable[Place]) -> set[Place]:
        """Wait for what others fetch of the places, and return those that have to be fetched here after all."""
        late = set[Place]()
        for column, samples in _columns(self._known(places)):
            is_late = self._cache.wait(column, samples)
            late.update((column, sample) for sample in samples[is_late].tolist())
            self.forget((column, sample) for sample in samples[~is_late].tolist())
        return late

    def forget(self, places: Iterable[Place]) -> None:
        with self._lock:
            self._coming.difference_update(places)

    def hand_out(self, places: Iterable[Place], part: Part) -> None:
        """Store the samples of a part for others once its bytes arrive."""
        for column, samples in _columns(places):
            part.data.add_done_callback(partial(self._arrived, column, samples, part))

    def _arrived(self, column: str, samples: Ints, part: Part, _: Future[Any]) -> None:
        self._cache.store(column, samples, partial(_held, part, len(samples)))

    def close(self) -> None:
        self._cache.close()

    def _known(self, places: Iterable[Place]) -> list[Place]:
        with self._lock:
            return [place for place in places if place in self._coming]


def _held(part: Part, count: int) -> HeldParts:
    return HeldParts([part.data.result(0)], [part.first], np.zeros(count, np.int64), [part.unpacked])


def _by_column(group: LocatedGroup, in_memory: Container[Place]) -> Iterator[tuple[str, Ints]]:
    places = (place for wanted in group.wanted for place in wanted.places)
    return _columns(place for place in dict.fromkeys(places) if place not in group.cached and place not in in_memory)


def _columns(places: Iterable[Place]) -> Iterator[tuple[str, Ints]]:
    """Yield the samples of each column."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for column, sample in places:
        found[column].append(sample)
    for column, samples in found.items():
        yield column, np.array(samples, np.int64)
