"""What all ranks decide together, so that none does what another does not."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Callable

DEADLINE_S = 30.0
"""Ranks train in step: one that comes so much later is in another part of its program."""
_NONE = json.dumps(None)


class Ranks:
    """The ranks of a training, by the key-value store that they met in. Nothing of theirs in it is touched."""

    def __init__(self, store: Any, rank: int, count: int) -> None:
        self._store = store
        self._rank = rank
        self.count = count

    def agree(self, question: str, vote: Any, merge: Callable[[list[Any]], Any], deadline_s: float = DEADLINE_S) -> Any:
        """What `merge` makes of the votes of all ranks, by rank: the same on each of them. None, on each as well, where
        not all have voted by then. Votes and what is made of them are JSON."""
        if self.count == 1:
            return merge([vote])
        key = f"headrace/{question}/"
        self._store.set(f"{key}{self._rank}", json.dumps(vote))
        if self._store.add(key + "votes", 1) == self.count:
            votes = [json.loads(self._store.get(f"{key}{rank}")) for rank in range(self.count)]
            return self._decided(key, json.dumps(merge(votes)))
        try:
            self._store.wait([key + "decision"], timedelta(seconds=deadline_s))
        except Exception:  # each kind of store has one of its own for what came too late
            return self._decided(key, _NONE)
        return self._decided(key, _NONE)

    def _decided(self, key: str, proposal: str) -> Any:
        """The first proposal counts, whoever made it."""
        return json.loads(self._store.compare_set(key + "decision", "", proposal))


def ranks(torch: Any) -> Ranks | None:
    """None where there are several, which torch.distributed does not join."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        store = distributed.distributed_c10d._get_default_store()
        return Ranks(store, distributed.get_rank(), distributed.get_world_size())
    return None
