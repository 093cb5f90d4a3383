"""`SharedFetches`: bytes that one process of a node fetches for all that share a cache.

A pass claims the samples that it requests, and stores them in the cache as soon as their bytes arrive, long before
their steps. Other passes leave them out, and wait for them when their own steps begin.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import Limits
from headrace.cache import Claims
from headrace.data import Dataset, HeldParts, StringColumn, native_paths
from headrace.fetch import FetchCancelled
from headrace.loader.cache import EpochCache
from headrace.loader.decoding.arrays import Ints
from headrace.system import THREAD_PREFIX, close_in_forks

_WAIT_S = 5.0
"""Maximum wait for bytes that others fetch. Then a pass fetches all of its bytes itself: the others may be stopped."""
_LOOK_AGAIN_S = 0.005


class SharedFetches:
    """Claims of one pass, and the thread that stores what arrives. Positions are in the dataset."""

    def __init__(self, dataset: Dataset, cache: EpochCache, claims: Claims, limits: Limits) -> None:
        self._dataset, self._cache, self._claims, self._limits = dataset, cache, claims, limits
        self._fields = _fields_of(cache)
        self._arrived: queue.SimpleQueue[tuple[str, Ints, Callable[[], HeldParts]] | None] = queue.SimpleQueue()
        self._is_patient = True
        self._closed = False
        self._thread = threading.Thread(target=self._store_all, name=f"{THREAD_PREFIX}share", daemon=True)
        close_in_forks(claims)
        self._thread.start()

    @classmethod
    def of(cls, dataset: Dataset, cache: EpochCache | None, limits: Limits) -> SharedFetches | None:
        """Return the claims of a pass; None if its cache has no files' bytes, evicts samples, or has no room."""
        if cache is None or cache.eviction is not None or cache.stats().stopped is not None:
            return None
        if not any(dataset.files(column).is_remote for column in _fields_of(cache)):
            return None
        claims = cache.store.claims()
        return None if claims is None else cls(dataset, cache, claims, limits)

    def take(self, column: str, samples: Ints) -> NDArray[np.bool_]:
        """Claim samples, and return a flag for each that another pass has claimed, or has stored meanwhile."""
        found = np.zeros(len(samples), bool)
        rows = np.flatnonzero(self._shares(column, samples))
        if not len(rows):
            return found
        entries = self._entries(column, samples[rows])
        theirs = self._claims.take(entries) & self._is_patient
        stored = ~theirs & self._cache.has_all(column, self._ids(samples[rows]))  # since the caller looked
        self._claims.release(entries[stored])
        found[rows] = theirs | stored
        return found

    def is_coming(self, column: str, samples: Ints) -> NDArray[np.bool_]:
        """Return a flag for each sample that another pass still fetches."""
        theirs = self._claims.theirs(self._entries(column, samples))
        return theirs & ~self._cache.has_all(column, self._ids(samples))

    def wait(self, column: str, samples: Ints) -> NDArray[np.bool_]:
        """Wait until others have stored samples, and return a flag for each that has to be fetched here after all.

        Raises FetchCancelled once closed.
        """
        until_s = time.monotonic() + _WAIT_S
        while self._is_patient and self.is_coming(column, samples).any():
            if self._closed:
                raise FetchCancelled
            self._is_patient = time.monotonic() < until_s
            time.sleep(_LOOK_AGAIN_S)
        return ~self._cache.has_all(column, self._ids(samples))

    def store(self, column: str, samples: Ints, held: Callable[[], HeldParts]) -> None:
        """Store samples soon, and drop their claims. `held` returns their bytes, or raises if there are none."""
        rows = self._shares(column, samples)
        if rows.any():
            self._arrived.put((column, samples, held))

    def release(self, column: str, samples: Ints) -> None:
        """Drop the claims of samples that are not fetched now."""
        if column in self._fields:
            self._claims.release(self._entries(column, samples))

    def close(self) -> None:
        """Drop all claims and end the thread. May be called twice."""
        self._closed = True
        self._arrived.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _shares(self, column: str, samples: Ints) -> NDArray[np.bool_]:
        """Return a flag for each sample whose bytes the cache will have."""
        cache = self._cache
        if column not in self._fields or cache.store.native.stopped != 0:
            return np.zeros(len(samples), bool)
        return np.ones(len(samples), bool) if cache.admission is None else cache.admission.keeps(samples).view(np.bool_)

    def _ids(self, samples: Ints) -> Ints:
        ids: Ints = samples if self._dataset.base_ids is None else self._dataset.base_ids[samples]
        return ids

    def _entries(self, column: str, samples: Ints) -> Ints:
        """Return the entries of a column's first field, which stand for all its fields."""
        return self._ids(samples) + self._cache.place(self._fields[column][0])[1]

    def _store_all(self) -> None:
        engine = _core.Engine(1, limits=self._limits)
        try:
            while (found := self._arrived.get()) is not None and not self._closed:
                column, samples, held = found
                with suppress(Exception):  # such as a failed request, which the step that needs the bytes reports
                    self._store(engine, column, samples, held())
                self._claims.release(self._entries(column, samples))
        finally:
            engine.close()
            self._claims.close()

    def _store(self, engine: _core.Engine, column: str, samples: Ints, held: HeldParts) -> None:
        cache, files = self._cache, self._dataset.files(column)
        paths = native_paths(files) if isinstance(files.names, StringColumn) else None
        try:
            at = self._dataset.locate(column, samples).native(paths, held)
            ids, passes = self._ids(samples), np.zeros(len(samples), np.uint32)
            job = _core.Job(ids, passes, key=0, program=np.zeros((0, 10)))
            for name in self._fields[column]:
                job.add_raw(at, cache=cache.place(name))
            engine.submit(job)
            job.wait()
        finally:
            if paths is not None:
                paths.close()


def _fields_of(cache: EpochCache) -> dict[str, list[str]]:
    """Return the cached fields of each column of which only the files' bytes are cached."""
    found: dict[str, list[str]] = {}
    for name in cache.cuts:
        found.setdefault(cache.columns[name], []).append(name)
    return {column: names for column, names in found.items() if all(cache.cuts[name] == "file" for name in names)}
