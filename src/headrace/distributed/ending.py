"""How one rank's part in a run ends: with all others, or because one of them failed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
import torch.distributed as group
from torch.distributed import DistError

from headrace.distributed.failures import Board, Failure, failure_of, is_of_a_collective
from headrace.distributed.watch import Watch, because_of
from headrace.errors import RankError

ENOUGH = 3
"""Graces until a main thread that does not come to an end by itself is ended."""
HINT_S = 2.0
"""The longest between a connection that breaks and the record of why."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.5


class End:
    """The end of the rank's block: `wait_for_all`, or `explain` what was raised; then `leave`."""

    def __init__(self, board: Board, rank: int, *, grace_s: float) -> None:
        self._board = board
        self._rank = rank
        self._grace_s = grace_s
        self._failed = False
        self._is_root = False
        self.watch = Watch(board, rank=rank, patience_s=ENOUGH * grace_s, end_process=lambda: os._exit(1))

    def wait_for_all(self) -> None:
        """Returns when all are through: a rank that left early would break what others still exchange.

        There is no limit of time, since rank 0 may be saving for long. A rank that hangs ends by the timeout of its
        collective operation, and one that is killed is seen to be gone.
        """
        self._board.say_through()
        self._eventually(lambda: self._board.all_through() or self.watch.failure() is not None)
        failure = None if self._board.all_through() else self.watch.failure()
        if failure is not None:
            raise because_of(failure, self._rank)

    def explain(self, error: BaseException) -> None:
        """Tells the others why this rank ends. Raises RankError where another one is behind `error`."""
        self.watch.let_end()
        self._failed = True
        if isinstance(error, SystemExit) and not error.code:
            self.wait_for_all()
            self._failed = False
        elif not isinstance(error, RankError):
            if isinstance(error, Exception) and is_of_a_collective(error):
                self._blame(error)
            self._record(failure_of(self._rank, error))

    def _blame(self, error: Exception) -> None:
        """A collective operation that fails shows that another rank does not take part, and not why."""
        self._eventually(
            lambda: self.watch.failure() is not None or self._board.through() != [],
            within_s=min(HINT_S, self._grace_s),
        )
        failure = self.watch.failure()
        if failure is not None:
            raise because_of(failure, self._rank) from error
        if through := self._board.through():
            unequal = RankError(
                f"rank {self._rank} waits in a collective operation, and rank {through[0]} is through: expected as "
                "many steps on every rank; give each as many batches (drop_last=True, or a Loader, which does)"
            )
            self._record(failure_of(self._rank, unequal))
            raise unequal from error
        error.add_note(f"rank {self._rank}: no other rank is known to have failed; one may be slower than timeout_s")

    def leave(self, device: torch.device) -> None:
        """Destroys the process group. A rank that failed stays until the others know, as does rank 0, which may keep
        the store."""
        self.watch.let_end()
        if self._failed and device.type == "cuda" and group.group.WORLD is not None:
            group.group.WORLD.abort()  # nccl would wait for what it exchanges with a rank that is gone
        group.destroy_process_group()
        with suppress(DistError):
            self._board.say_informed()
            if self._is_root or self._rank == 0:
                self._eventually(self._board.all_informed, within_s=self._grace_s)
        self.watch.end()

    def _record(self, failure: Failure) -> None:
        with suppress(DistError):  # the store is gone: the others know by that
            self._is_root = self._board.record(failure).rank == self._rank

    def _eventually(self, condition: Callable[[], bool], *, within_s: float | None = None) -> None:
        """Asks until it holds, or the time is over. To wait in the store would hold up signals, Ctrl-C among them."""
        deadline_s = None if within_s is None else time.monotonic() + within_s
        for pause_s in _pauses():
            if condition() or (deadline_s is not None and time.monotonic() > deadline_s):
                return
            time.sleep(pause_s)


def _pauses() -> Iterator[float]:
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
