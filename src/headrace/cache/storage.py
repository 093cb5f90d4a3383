"""`Store`: bytes by number, kept for later epochs, and shared by the processes of a node."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.cache.files import open_file
from headrace.cache.identity import CacheIdentity
from headrace.cache.spec import CacheSpec
from headrace.cache.stats import CacheStats
from headrace.threads import close_at_exit

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Store:
    """Entries 0 to `identity.entries - 1`, each empty or some bytes. What is kept stays until the cache is made anew.

    Any number of threads and processes use one cache at a time. Forks have it, a pickle opens the same one again. What
    is wrong with an entry makes it empty again, and is counted; no call raises because of it. All but `close` raise
    ValueError once it is closed.
    Raises UsageError, SharedMemoryError or WriteError where the cache cannot be opened.
    """

    def __init__(self, spec: CacheSpec, identity: CacheIdentity) -> None:
        self._spec = spec
        self._identity = identity
        descriptor, self._hand_out = open_file(spec, identity)
        try:
            self._native: _core.Store | None = _core.Store(
                descriptor, entries=identity.entries, limit_bytes=spec.limit_bytes
            )
        except BaseException:
            os.close(descriptor)
            raise
        if self._hand_out is not None:
            close_at_exit(self)

    def __len__(self) -> int:
        return self._identity.entries

    def __reduce__(self) -> tuple[Callable[..., Store], tuple[Any, ...]]:
        return Store, (self._spec, self._identity)

    def __del__(self) -> None:
        if hasattr(self, "_native"):
            self.close()

    @property
    def native(self) -> _core.Store:
        """What the core works with. Raises ValueError once closed."""
        if self._native is None:
            raise ValueError("this cache is closed")
        return self._native

    def get(self, index: int) -> bytes | None:
        """The bytes of an entry. None where it is empty."""
        return self.native.get(index)

    def put(self, index: int, data: Buffer) -> bool:
        """Keeps bytes, below 4 GiB, under a number. False where they are not kept: something is there already, or
        there is no room left. Everybody has to give the same bytes for the same number."""
        return self.native.put(index, data)

    def get_many(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The bytes of many entries on end, and how many each has; -1 where one is empty."""
        return self.native.get_many(indices)

    def put_many(self, indices: NDArray[np.int64], data: NDArray[np.uint8], lengths: NDArray[np.int64]) -> int:
        """Keeps many entries, whose bytes lie on end in `data`. How many of them are kept, as `put` says."""
        return self.native.put_many(indices, data, lengths)

    def stats(self) -> CacheStats:
        counts, stopped = self.native.counts(), self.native.stopped
        return CacheStats(
            where=str(self._spec),
            hits=counts["hits"],
            misses=counts["misses"],
            admitted=counts["admitted"],
            damaged=counts["damaged"],
            used_bytes=self.native.used_bytes,
            limit_bytes=self._spec.limit_bytes,
            stopped=None if stopped == 0 else "full" if stopped == _core.CACHE_FULL else os.strerror(stopped),
        )

    def close(self) -> None:
        """Lets go of the cache; RAM is freed with the last store, of any process, that has it. May be called twice."""
        if self._hand_out is not None:
            self._hand_out.close()
            self._hand_out = None
        self._native = None
