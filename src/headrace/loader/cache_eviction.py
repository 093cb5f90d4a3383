"""Eviction by plan: a node that reads a part of the dataset per epoch caches the samples that it reads next."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.cache import Store
from headrace.loader.decoding.arrays import Ints
from headrace.plan import NextUses, choose_eviction

_FREED_SHARE = 32
"""Part of a cache that is freed at once (1/n). A larger part caches samples that should go, a smaller part scans the
index more often."""
_WATCHED_SHARE = 8
"""Free space at which the ranks begin to compare samples: twice this part (1/n) of the cache."""
_STEPS_AT_ONCE = 2
"""Steps of the node for which the freed space has room at least, whatever its share."""
_LOOKS_PER_EPOCH = 16
"""Minimum comparisons of a rank per epoch, while other ranks of its node free space."""


class CacheEviction:
    """Choice of the samples that a Loader stores and drops, once its cache is full. Used by one thread at a time.

    Each rank decides by itself, for the whole node. It drops the samples that the node reads last, a part of the cache
    at once, and does not store samples that are read still later. Two ranks that decide at once drop the same samples.
    """

    def __init__(self, uses: NextUses, *, fields: int, length: int, steps: int) -> None:
        """Cover the first `fields` x `length` entries of a store. Other entries, such as tokens, are never dropped."""
        self._uses, self._fields, self._length, self._steps = uses, fields, length, steps
        self._keep_before: int | None = None
        self._looked = -steps
        self._steps_bytes = 0
        self.evicted = 0
        """Number of samples that this process dropped."""

    def make_room(self, store: Store, *, epoch: int, step: int) -> None:
        """Free a part of a full store. `step` is the first step that has not read its samples."""
        native, now = store.native, epoch * self._steps + step
        room, all_room = store.limit_bytes - native.used_bytes, native.room_bytes
        part = max(all_room // _FREED_SHARE, min(self._steps_bytes, all_room // _WATCHED_SHARE))
        is_full = native.stopped == _core.CACHE_FULL
        if not is_full and room * _WATCHED_SHARE > 2 * all_room:
            self._keep_before = None
            return
        if not is_full and room * 2 > part and 0 <= now - self._looked < self._pause:
            return
        self._looked = now
        taken = native.taken(0, self._fields * self._length).reshape(self._fields, self._length).sum(axis=0)
        kept = np.flatnonzero(taken)
        self._steps_bytes = _STEPS_AT_ONCE * self._uses.step_samples * int(taken.sum()) // max(1, len(kept))
        # A full store that still has room has it only in pieces that are too small.
        wanted = max(part - room, part // 4 if is_full else 0)
        next_use = self._uses.of(kept, epoch, step - 1)
        eviction = choose_eviction(kept, taken[kept], next_use, free_bytes=wanted)
        self._keep_before = eviction.keep_before
        if len(eviction.samples):
            firsts = np.arange(self._fields, dtype=np.int64) * self._length
            native.evict((eviction.samples[:, None] + firsts).ravel())
            self.evicted += len(eviction.samples)
        native.resume()

    @property
    def _pause(self) -> int:
        return max(1, self._steps // _LOOKS_PER_EPOCH)

    def keeps(self, base_ids: Ints, *, epoch: int, step: int) -> NDArray[np.uint8] | None:
        """Return a flag per sample of a step, 1 to store it; None for all samples."""
        if self._keep_before is None:
            return None
        return (self._uses.of(base_ids, epoch, step) < self._keep_before).view(np.uint8)
