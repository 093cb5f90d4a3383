"""What the ranks of a run tell each other about their ends, through the store that they met at."""

from __future__ import annotations

import json
from dataclasses import dataclass

import torch.distributed
from torch._C._distributed_c10d import Store

from headrace.distributed.peers import Peer, is_gone, own_process

LONGEST = 500
"""Characters of an error's text that the others hear."""


@dataclass(frozen=True)
class Failure:
    """Why the run cannot go on: what became of `rank`, in words that follow its number. None: of the store."""

    rank: int | None
    what: str

    def __str__(self) -> str:
        return self.what if self.rank is None else f"rank {self.rank} {self.what}"


def failure_of(rank: int, error: BaseException) -> Failure:
    text = " ".join(str(error).split())
    shown = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    return Failure(rank, f"ended: {type(error).__name__}: {shown}" if shown else f"ended: {type(error).__name__}")


def is_of_a_collective(error: BaseException) -> bool:
    """Whether torch says by it that other ranks could not be reached: gloo does so by a plain RuntimeError."""
    return isinstance(error, torch.distributed.DistError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo", "NCCL"))
    )


class Board:
    """The records of all ranks in one store. Each is written once; the first failure is the run's.

    A rank is *through* when its block has ended without an error, and *informed* when it knows how the run ended and
    needs the store no more.
    """

    def __init__(self, store: Store, *, rank: int, world_size: int) -> None:
        self._store = store
        self._rank = rank
        self._others = [other for other in range(world_size) if other != rank]
        self._peers: dict[int, Peer] = {}

    def sign_in(self) -> None:
        self._store.set(f"process/{self._rank}", json.dumps(own_process()))

    def meet(self) -> None:
        """Reads who the others are, once all have signed in."""
        keys = [f"process/{other}" for other in self._others]
        self._store.wait(keys)
        found = self._store.multi_get(keys) if keys else []
        self._peers = {other: Peer(*json.loads(one)) for other, one in zip(self._others, found, strict=True)}

    def record(self, failure: Failure) -> Failure:
        """The run's failure: this one, or the one that was first."""
        mine = json.dumps([failure.rank, failure.what])
        return Failure(*json.loads(self._store.compare_set("failure", "", mine)))

    def failure(self) -> Failure | None:
        """What was recorded; else the end of a process that recorded nothing, recorded herewith."""
        if self._store.check(["failure"]):
            return Failure(*json.loads(self._store.get("failure")))
        for rank, peer in self._peers.items():
            if is_gone(peer) and not self._has("through", rank):
                return self.record(Failure(rank, f"is gone without a word ({peer}): killed, or out of memory"))
        return None

    def say_through(self) -> None:
        self._store.set(f"through/{self._rank}", "")

    def say_informed(self) -> None:
        self._store.set(f"informed/{self._rank}", "")

    def through(self) -> list[int]:
        """The other ranks whose blocks have ended without an error."""
        return [other for other in self._others if self._has("through", other)]

    def all_through(self) -> bool:
        return self._store.check([f"through/{other}" for other in self._others])

    def all_informed(self) -> bool:
        """Whether nobody else needs the store: they know, or are gone."""
        return all(self._has("informed", rank) or is_gone(peer) for rank, peer in self._peers.items())

    def _has(self, what: str, rank: int) -> bool:
        return self._store.check([f"{what}/{rank}"])
