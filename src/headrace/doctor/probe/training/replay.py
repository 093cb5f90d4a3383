"""Replay of the training loop with copies of cached batches, while its own iterators are held."""

from __future__ import annotations

import os
import sys
import time
from math import inf
from threading import current_thread
from typing import Any, Callable

from .loader_sources import POLL_S, FeedingLoader, wait_until
from .state import ObservedPass, TrainingState
from .steps import FetchedBatch

now = time.monotonic_ns
UNTOLD_PAUSE_S = 0.5
"""Pause before a replay if workers do not show whether they have finished."""
OVER = object()
"""Placeholder for a copy after the end of the loop's pass."""
GREED = 4
"""Factor over the most batches of any earlier step, above which a step does not train on its batches."""


def is_grad_enabled() -> bool:
    """Return True if autograd is recording. Batches requested otherwise are for an evaluation."""
    return bool(sys.modules["torch"].is_grad_enabled())


class LoopReplay:
    """Replacement of `next()` and `iter()` of the loaders that fed the loop, in replay windows."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self.is_on = False
        self.loaders: dict[int, FeedingLoader] = {}
        """Loaders by number; their iterators are held."""
        self.before_copies: list[Callable[[], None]] = []
        """Functions to call once, before the first copy is delivered."""
        self._passes = 0
        """Number of passes begun before the replay; only these are replayed."""
        self._most_gets = 0
        self._gets = 0
        """Copies delivered since the last closed step."""
        self._left: dict[int, float] = {}
        """Copies left in the loop's pass, by loader number; infinite if its length is unknown."""
        self._ended_at: int | None = None
        """Time at which the loop reached the end of a pass; None once it has a batch again."""

    # Control by the windows.

    def hold(self, loaders: dict[int, FeedingLoader], most_gets: int) -> None:
        """Set the loaders to replace, and the maximum number of batches per step."""
        self.let_go()
        self.loaders, self._most_gets = loaders, most_gets

    def let_go(self) -> None:
        """Release the iterators. An iterator without another owner ends its workers."""
        for loader in self.loaders.values():
            loader.source.held = None
        self.loaders = {}

    def end(self) -> None:
        self.is_on = False
        self.let_go()

    def begin(self) -> None:
        """Deliver copies once the workers have finished all requested batches. The loop's pass ends where it would."""
        self._passes = self._state.counter.passes
        self._left = {number: one.source.left() for number, one in self.loaders.items()}
        self._ended_at = None
        self.is_on = True
        sources = [loader.source for loader in self.held()]
        if any(source.pass_.makers and source.is_idle() is None for source in sources):
            time.sleep(UNTOLD_PAUSE_S)
        wait_until(lambda: all(source.is_idle() is not False for source in sources))

    def held(self) -> list[FeedingLoader]:
        return [loader for loader in self.loaders.values() if loader.source.held is not None]

    def room(self) -> float:
        """Return the number of steps for which the loop's passes have batches."""
        return min((one.source.left() / one.per_step for one in self.loaders.values()), default=inf)

    def obstacle(self) -> str:
        """Return why replaying steps is wrong or impossible in this process, as half a sentence; empty if it is not."""
        state = self._state
        if "capture" in state.said:
            return "steps run as CUDA graphs, which read batches from where they were when they were captured"
        if state.elsewhere.threads and not state.elsewhere.is_handed_over:
            return "batches are fetched in another thread, and it is not seen how the one that trains gets them"
        ranks = os.environ.get("WORLD_SIZE", "")
        if ranks.isdigit() and int(ranks) > 1 and state.group.world_size() == 1:
            return "there are several ranks, which torch.distributed does not join"
        for loader in self.loaders.values():
            if loader.cached is not None and loader.cached.why_not:
                return loader.cached.why_not
        return ""

    # Requests of the hooks.

    def serves(self, pass_: ObservedPass) -> bool:
        """Return True if copies replace the batches of the pass."""
        return pass_.number < self._passes and pass_.loader in self.loaders

    def take(self, pass_: ObservedPass, start: int) -> Any:
        """Return a copy, or OVER at the pass's end. Raises LookupError if a step requests ever more batches."""
        self._gets += 1
        if self._gets > GREED * (self._most_gets + 1):
            raise LookupError(f"a step asked for {self._gets} batches")
        if self._left[pass_.loader] < 1:
            self._ended_at = self._ended_at or start
            return OVER
        self._left[pass_.loader] -= 1
        return self.copy(pass_)

    def gap_before(self, start: int) -> tuple[int, int] | None:
        """Return the time between two passes that ends at `start`; the loop's work in it belongs to no step."""
        ended, self._ended_at = self._ended_at, None
        return None if ended is None else (ended, start)

    def iterator(
        self,
        loader: Any,
        number: int | None,
        length: int | None,
        take: Callable[[ObservedPass, Callable[[], Any]], Any],
    ) -> ReplayIterator | None:
        """Return a replacement for a new pass over loader `number`, so that its workers receive no new indices.

        A loader without a number is new, and replaces one of the same `length` whose pass is over: some scripts make a
        loader per epoch. Return None for another thread, an evaluation, or a loader that is not replayed. `take(pass_,
        otherwise)` delivers a copy to the loop.
        """
        if not self._state.thread.is_here() or not is_grad_enabled():
            return None
        if number is None:
            over = (one for one, left in self._left.items() if left < 1)
            number = next((one for one in over if self.loaders[one].source.length() == length), None)
        known = None if number is None else self.loaders.get(number)
        if known is None:
            return None
        self._left[known.pass_.loader] = inf if length is None else length
        return ReplayIterator(self, known.pass_, loader, take)

    def copy(self, pass_: ObservedPass) -> Any:
        while self.before_copies:
            self.before_copies.pop()()
        return self.loaders[pass_.loader].cached.next()  # type: ignore[union-attr]  # `hold` has left out others

    def closed(self) -> None:
        """Reset the count of copies at the end of a step."""
        self._gets = 0


class ReplayIterator:
    """Iterator of a pass in which every batch is a copy."""

    def __init__(
        self,
        replay: LoopReplay,
        pass_: ObservedPass,
        loader: Any,
        take: Callable[[ObservedPass, Callable[[], Any]], Any],
    ) -> None:
        self._replay, self._take = replay, take
        self._pass = pass_
        self._loader = loader

    def __iter__(self) -> ReplayIterator:
        return self

    def __next__(self) -> Any:
        return self._take(self._pass, _ends) if self._replay.is_on else _ends()

    def __len__(self) -> int:
        return len(self._loader)


def _ends() -> None:
    raise StopIteration


def replayed(training: Any, pass_: ObservedPass, otherwise: Callable[[], Any]) -> Any:
    """Return a copy in place of the pass's next batch, or `otherwise()` without any. StopIteration ends the pass."""
    try:
        start = training.batch_requested(pass_.loader)
        batch = training.replay.take(pass_, start)
        copy = FetchedBatch(pass_.number, None, start, training.batch_returned(), loader=pass_.loader)
        if batch is not OVER:
            gap = training.replay.gap_before(copy.start)
            if gap is not None:
                training.state.steps.leave_out(*gap)
            training.record_batch(copy, is_grad_enabled())
    except Exception as error:
        training.thread.is_fetching = False
        training.windows.close()
        training.fault("replay", error)
        return otherwise()
    if batch is OVER:
        raise StopIteration
    return batch


def replayed_elsewhere(training: Any, pass_: ObservedPass, otherwise: Callable[[], Any]) -> Any:
    """Return a copy in a thread that passes batches on, never further ahead than it ran before the window."""
    while training.replay.is_on and training.elsewhere.is_far_ahead():
        time.sleep(POLL_S)
    start = now()
    try:
        batch = training.replay.copy(pass_)
        training.record_other_thread(FetchedBatch(pass_.number, None, start, now()), current_thread().name)
    except Exception:  # the window has ended meanwhile
        return otherwise()
    return batch
