"""Joint decisions of all ranks of a training, through the key-value store of their process group."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any, Callable

DEADLINE_S = 30.0
"""Time after which a rank counts as being elsewhere in its program, since ranks train in step."""


class RankAgreement:
    """Joint decisions of all ranks through the key-value store of their process group.

    No existing key of the store is touched.
    """

    def __init__(self, store: Any, rank: int, count: int) -> None:
        self._store = store
        self._rank = rank
        self.count = count

    def agree(self, question: str, vote: Any, merge: Callable[[list[Any]], Any], deadline_s: float = DEADLINE_S) -> Any:
        """Return `merge(votes)` of all ranks, the same on each of them.

        Return None on every rank if not all have voted by the deadline. Votes and the result are JSON values.
        """
        if self.count == 1:
            return merge([vote])
        key = f"headrace/{question}/"
        self._store.set(f"{key}{self._rank}", json.dumps(vote))
        proposal = json.dumps(None)
        if self._store.add(key + "votes", 1) == self.count:
            proposal = json.dumps(merge([json.loads(self._store.get(f"{key}{rank}")) for rank in range(self.count)]))
        else:
            with suppress(Exception):  # each kind of store raises its own error on a timeout
                self._store.wait([key + "decision"], timedelta(seconds=deadline_s))
        # The first proposal counts, from whichever rank.
        return json.loads(self._store.compare_set(key + "decision", "", proposal))


class RankGroup:
    """The ranks of this training, as joined by torch.distributed."""

    def __init__(self) -> None:
        self.distributed: Any = None
        """torch.distributed, once imported."""

    def world_size(self) -> int:
        is_joined = self.distributed is not None and self.distributed.is_initialized()
        return int(self.distributed.get_world_size()) if is_joined else 1

    def ranks(self) -> RankAgreement:
        """Return the object for joint decisions. Without other ranks, this process decides alone."""
        count = self.world_size()
        if count == 1:
            return RankAgreement(None, 0, 1)
        store = self.distributed.distributed_c10d._get_default_store()
        return RankAgreement(store, self.distributed.get_rank(), count)
