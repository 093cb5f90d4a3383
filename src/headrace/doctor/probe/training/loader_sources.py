"""Iterators behind the training loop, from which the windows take batches: at its pace, or as fast as they come."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from .cached_batches import MOST_CACHED, CachedBatches, room_bytes
from .step_records import ATTRIBUTE

if TYPE_CHECKING:
    from .step_records import FetchedBatch, ObservedPass
    from .steps import OptimizerStep

LONGEST_STOP_S = 2.0


class HeldIterator:
    """Iterator of one pass over a DataLoader, the user's until `hold`: it ends its workers when it is dropped."""

    def __init__(self, iterator: Any, pass_: ObservedPass, take: Callable[[Any, ObservedPass], FetchedBatch]) -> None:
        """`take(iterator, pass_)` receives the next batch, and raises StopIteration at the end."""
        self._iterator = weakref.ref(iterator)
        self._held: Any = None
        self._take = take
        self.pass_ = pass_

    def hold(self) -> bool:
        """Hold the iterator until `let_go`. False where it has gone."""
        self._held = self._iterator()
        return self._held is not None

    @property
    def is_held(self) -> bool:
        return self._held is not None

    def let_go(self) -> None:
        self._held = None

    @property
    def outstanding(self) -> int:
        """Batches that its workers were asked for, and that were not received yet."""
        asked = getattr(self._held, "_tasks_outstanding", 0)
        return asked if isinstance(asked, int) else 0

    def left(self) -> float:
        """Count the batches that the pass has yet to give; without end where nobody knows how many it has."""
        try:
            return float(len(self._held) - self.pass_.index - 1)
        except Exception:  # an iterable dataset's, or a sampler of the user's without a length
            return float("inf")

    def renewed(self) -> HeldIterator | None:
        """Begin a new pass over the same DataLoader in place of this one, which ends. None where that has gone."""
        loader = self.pass_.owner()
        if loader is None:
            return None
        self.let_go()
        iterator = iter(loader)
        source = HeldIterator(iterator, getattr(iterator, ATTRIBUTE), self._take)
        source.hold()
        return source

    def take(self) -> FetchedBatch:
        return self._take(self._held, self.pass_)

    def is_idle(self) -> bool | None:
        """Tell whether its workers have produced all that they were asked for; None where that cannot be told."""
        asked = getattr(self._held, "_tasks_outstanding", None)
        results, data = (getattr(self._held, name, None) for name in ("_worker_result_queue", "_data_queue"))
        if asked is None or results is None:
            return None
        queues = [results] if data is None or data is results else [results, data]  # one, where nothing is pinned
        try:
            return bool(sum(queue.qsize() for queue in queues) >= asked)
        except NotImplementedError:  # macOS
            return None


class ObservedLoaders:
    """Gatherer of batches in the observed steps, for the windows after them: which, where from, and how fast.

    By DataLoader, of those whose batches fed a step. `since` is when the first observed step began, 0 before.
    """

    def __init__(self, steps: int) -> None:
        self._asked = steps
        self._passes: dict[int, ObservedPass] = {}
        self._fed: Counter[int] = Counter()
        self._steps = 0
        self.since = 0
        self.cached: dict[int, CachedBatches] = {}
        self.sources: dict[int, HeldIterator] = {}
        """The newest."""
        self.most_gets = 0
        """Batches of a step, at most."""

    @property
    def loaders(self) -> list[int]:
        """Numbers of the loaders that fed steps."""
        return [loader for loader in self._fed if loader in self.cached]

    def add_source(self, pass_: ObservedPass, source: Callable[[], HeldIterator]) -> None:
        """Take in the source of a pass that has given a batch."""
        if pass_.number not in self._passes:
            self._passes[pass_.number] = pass_
            self.sources[pass_.loader] = source()

    def offer(self, pass_: ObservedPass, batch: Any, received: FetchedBatch, gets: int) -> None:
        """Offer a batch of an observed step, which has `gets` of them."""
        cached = self.cached.get(pass_.loader)
        if cached is None:
            every = self._asked * max(gets, 1) // MOST_CACHED
            cached = self.cached[pass_.loader] = CachedBatches(every, room_bytes())
        cached.offer(batch, received.bytes, received.shape)

    def closed(self, step: OptimizerStep, is_measured: bool) -> None:
        """Count a step that has been closed; the warm-up's are not measured."""
        feeding = [event.pass_ for event, _ in step.gets if event.pass_ not in step.evaluated]
        self.most_gets = max(self.most_gets, len(feeding))
        if is_measured:
            self.since = self.since or step.start
            self._steps += 1
            self._fed.update(self._passes[one].loader for one in feeding if one in self._passes)

    def pass_of(self, loader: int) -> ObservedPass | None:
        """Return the newest pass that gave batches."""
        return next((one for one in reversed(list(self._passes.values())) if one.loader == loader), None)

    def per_step(self, loader: int) -> float:
        return self._fed[loader] / max(self._steps, 1)

    def forget(self) -> None:
        for source in self.sources.values():
            source.let_go()
        self.sources.clear()
        self.cached.clear()
        self._fed.clear()


class BackgroundLoad:
    """Thread that takes batches of one source at the pace observed and drops them, so that the workers go on.

    It ends when it is stopped, or when the source does.
    """

    def __init__(self, source: HeldIterator, interval_s: float) -> None:
        self.source = source
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-load", daemon=True)
        self.taken = 0

    def start(self) -> None:
        self._thread.start()

    @property
    def is_on(self) -> bool:
        """False once the source has ended, by itself or by an error."""
        return not self._ended.is_set()

    def stop(self) -> bool:
        """Stop, and tell whether it has ended in time: else it waits for a batch, and the source is its own."""
        self._stop.set()
        self._thread.join(LONGEST_STOP_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                self.source.take()
                self.taken += 1
                due = max(due + self._interval_s, time.monotonic())
        except Exception:  # of the user's loader, whose end it is: the training loop will not ask it any more
            self._ended.set()


class SourceShare(NamedTuple):
    """A source, and how many of its batches a step takes."""

    source: HeldIterator
    per_step: float


def drain(shares: list[SourceShare], steps: int, deadline_s: float) -> list[FetchedBatch]:
    """Take the batches of so many steps as fast as they come, beyond those that lay ready.

    There are fewer where the first source ends, or time does. At most one batch's time longer than `deadline_s`.
    """
    batches: list[FetchedBatch] = []
    taken = [0] * len(shares)
    most = sum(round(share.per_step * steps) + share.source.outstanding for share in shares)
    until = time.monotonic() + deadline_s
    while len(batches) < most and time.monotonic() < until:
        turn = min(range(len(shares)), key=lambda turn: taken[turn] / shares[turn].per_step)
        try:
            batches.append(shares[turn].source.take())
        except Exception:  # of the user's loader, whose end it is
            return batches
        taken[turn] += 1
    return batches
