"""Decisions that all ranks of a training make together, through the key-value store in which they met."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any, Callable

DEADLINE_S = 30.0
"""Ranks train in step: one that comes so much later is in another part of its program."""


class RankAgreement:
    """Decisions of all ranks of a training together, by the key-value store that they met in.

    Nothing of theirs in it is touched.
    """

    def __init__(self, store: Any, rank: int, count: int) -> None:
        self._store = store
        self._rank = rank
        self.count = count

    def agree(self, question: str, vote: Any, merge: Callable[[list[Any]], Any], deadline_s: float = DEADLINE_S) -> Any:
        """Return what `merge` makes of the votes of all ranks, by rank: the same on each of them.

        None, on each as well, where not all have voted by then. Votes and what is made of them are JSON.
        """
        if self.count == 1:
            return merge([vote])
        key = f"headrace/{question}/"
        self._store.set(f"{key}{self._rank}", json.dumps(vote))
        proposal = json.dumps(None)
        if self._store.add(key + "votes", 1) == self.count:
            proposal = json.dumps(merge([json.loads(self._store.get(f"{key}{rank}")) for rank in range(self.count)]))
        else:
            with suppress(Exception):  # each kind of store has one of its own for what came too late
                self._store.wait([key + "decision"], timedelta(seconds=deadline_s))
        # The first proposal counts, whoever made it.
        return json.loads(self._store.compare_set(key + "decision", "", proposal))


class RankGroup:
    """The ranks of this training, as torch.distributed joins them."""

    def __init__(self) -> None:
        self.distributed: Any = None
        """torch.distributed, once that has been imported."""

    def world_size(self) -> int:
        """Return the number of ranks that are joined."""
        is_joined = self.distributed is not None and self.distributed.is_initialized()
        return int(self.distributed.get_world_size()) if is_joined else 1

    def ranks(self) -> RankAgreement:
        """Return how they decide something together; one decides by itself where none are joined."""
        count = self.world_size()
        if count == 1:
            return RankAgreement(None, 0, 1)
        store = self.distributed.distributed_c10d._get_default_store()
        return RankAgreement(store, self.distributed.get_rank(), count)
