"""Copies of kept batches, in place of what a DataLoader would give."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from ..training.step_records import Replayed

if TYPE_CHECKING:
    from ..passes import Pass
    from ..probe import Probe


POLL_S = 0.002


class Replays:
    """What stands for a loader's `next()` and `iter()` while the run is replayed."""

    def __init__(self, probe: Probe, is_grad_enabled: Callable[[], bool]) -> None:
        self._probe = probe
        self._training = probe.training
        self._is_grad_enabled = is_grad_enabled

    def next(self, pass_: Pass, otherwise: Callable[[], Any]) -> Any:
        """A copy, for that pass; what `otherwise()` gives, where there is none."""
        training = self._training
        try:
            start = training.ask()
            training.windows.asked()
            batch = training.windows.copy(pass_)
            training.replayed(pass_.number, start, training.received(), self._is_grad_enabled())
        except Exception as error:
            training.is_fetching = False
            training.windows.close()
            self._probe.fault("replay", error)
            return otherwise()
        return batch

    def next_elsewhere(self, pass_: Pass, otherwise: Callable[[], Any]) -> Any:
        """The same in a thread that hands its batches over: no more of them ahead than there ever were, since it may
        have no bound but the loader's pace."""
        training = self._training
        while self.is_on and training.elsewhere.is_far_ahead():
            time.sleep(POLL_S)
        start = time.monotonic_ns()
        try:
            batch = training.windows.copy(pass_)
            copy = Replayed(pass_.number, start, time.monotonic_ns())
            training.got_elsewhere(copy, threading.current_thread().name)
        except Exception:  # the window has ended meanwhile
            return otherwise()
        return batch

    def iterator(self, loader: Any, number: int | None) -> StandIn | None:
        """For a new pass over the loader of that number: its workers get no new indices. None where it is begun in
        another thread, for an evaluation, or over a loader whose batches are not replayed."""
        if number is None or not self._training.is_here() or not self._is_grad_enabled():
            return None
        pass_ = self._training.windows.stand_in_for(number)
        return None if pass_ is None else StandIn(self, pass_, loader)

    @property
    def is_on(self) -> bool:
        return self._training.windows.is_replaying


class StandIn:
    """The iterator of a pass whose batches are all copies."""

    def __init__(self, replays: Replays, pass_: Pass, loader: Any) -> None:
        self._replays = replays
        self._pass = pass_
        self._loader = loader

    def __iter__(self) -> StandIn:
        return self

    def __next__(self) -> Any:
        return self._replays.next(self._pass, _ends) if self._replays.is_on else _ends()

    def __len__(self) -> int:
        return len(self._loader)


def _ends() -> None:
    raise StopIteration
