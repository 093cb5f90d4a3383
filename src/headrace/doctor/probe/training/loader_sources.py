"""Iterators behind the training loop, from which windows take batches: at the loop's pace, or at full speed."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Any, Callable

from .received_batches import ATTRIBUTE, MOST_CACHED, CachedBatches, room_bytes

if TYPE_CHECKING:
    from ..settings import ProbeSettings
    from .received_batches import FetchedBatch, ObservedPass
    from .steps import OptimizerStep

LONGEST_STOP_S = 2.0
LONGEST_PAUSE_S = 10.0
"""Maximum time that training waits before a window for workers to finish, or to resume."""
POLL_S = 0.002


class HeldIterator:
    """Iterator of one pass over a DataLoader, owned by the user until `hold`. Dropping it ends its workers."""

    def __init__(self, iterator: Any, pass_: ObservedPass, take: Callable[[Any, ObservedPass], FetchedBatch]) -> None:
        """`take(iterator, pass_)` receives the next batch, and raises StopIteration at the end."""
        self._iterator = weakref.ref(iterator)
        self.held: Any = None
        """The iterator; None until held, or if it no longer exists."""
        self._take = take
        self.pass_ = pass_

    def hold(self) -> None:
        self.held = self._iterator()

    @property
    def outstanding(self) -> int:
        """Batches requested from its workers, but not received yet."""
        asked = getattr(self.held, "_tasks_outstanding", 0)
        return asked if isinstance(asked, int) else 0

    def length(self) -> float:
        """Return the number of batches in the pass, infinite if unknown."""
        try:
            iterator: Any = self._iterator() if self.held is None else self.held
            return float(len(iterator))
        except Exception:  # an iterable dataset's iterator, or a user's sampler without a length
            return inf

    def left(self) -> float:
        """Return the number of batches left in the pass, infinite if unknown."""
        left = self.length() - self.pass_.given
        return left if left >= 0 else inf  # a sampler that continues beyond its length

    def renewed(self) -> HeldIterator | None:
        """Begin a new pass over the same DataLoader in place of this one; return None if the loader is gone."""
        loader = self.pass_.owner()
        if loader is None:
            return None
        self.held = None
        iterator = iter(loader)
        source = HeldIterator(iterator, getattr(iterator, ATTRIBUTE), self._take)
        source.hold()
        return source

    def take(self) -> FetchedBatch:
        return self._take(self.held, self.pass_)

    def is_idle(self) -> bool | None:
        """Return True if its workers have produced all requested batches; None if unknown."""
        asked = getattr(self.held, "_tasks_outstanding", None)
        results, data = (getattr(self.held, name, None) for name in ("_worker_result_queue", "_data_queue"))
        if asked is None or results is None:
            return None
        queues = [results] if data is None or data is results else [results, data]  # a single queue without pinning
        try:
            return bool(sum(queue.qsize() for queue in queues) >= asked)
        except NotImplementedError:  # macOS
            return None


class FeedingLoader:
    """DataLoader that fed observed steps, with its iterator and number of batches."""

    def __init__(self, source: HeldIterator, pass_: ObservedPass) -> None:
        self.source = source
        """Latest iterator."""
        self.pass_ = pass_
        """Latest observed pass."""
        self.cached: CachedBatches | None = None
        self.fed = 0
        """Number of batches that fed a step."""
        self.per_step = 0.0
        """Mean number of batches per step."""


class ObservedLoaders:
    """DataLoaders of the observed steps, with batches collected for the windows that follow."""

    def __init__(self, steps: int) -> None:
        self._asked = steps
        self._by_number: dict[int, FeedingLoader] = {}
        self._by_pass: dict[int, FeedingLoader] = {}
        self._steps = 0
        self.since = 0
        """Start of the first observed step; 0 before."""
        self.most_gets = 0
        """Maximum number of batches in a step."""

    def add(self, pass_: ObservedPass, new_source: Callable[[], HeldIterator]) -> None:
        if pass_.number not in self._by_pass:
            source = new_source()
            loader = self._by_number.setdefault(pass_.loader, FeedingLoader(source, pass_))
            loader.source, loader.pass_ = source, pass_
            self._by_pass[pass_.number] = loader

    def offer(self, batch: Any, received: FetchedBatch, gets: int, *, is_measured: bool = True) -> None:
        """Offer a batch of an observed step with `gets` batches; `is_measured` is False in the warm-up."""
        loader = self._by_pass[received.pass_]
        if loader.cached is None:
            loader.cached = CachedBatches(self._asked * max(gets, 1) // MOST_CACHED, room_bytes())
        loader.cached.offer(batch, received.bytes, received.shape, is_measured=is_measured)

    def closed(self, step: OptimizerStep, is_measured: bool) -> None:
        """Count a closed step; `is_measured` is False in the warm-up."""
        feeding = [batch.pass_ for batch in step.gets if batch.pass_ not in step.evaluated]
        self.most_gets = max(self.most_gets, len(feeding))
        if not is_measured:
            return
        self.since = self.since or step.start
        self._steps += 1
        for loader in (self._by_pass[pass_] for pass_ in feeding if pass_ in self._by_pass):
            loader.fed += 1

    def hold(self) -> dict[int, FeedingLoader]:
        """Return the loaders that fed steps, by number, and hold their iterators from now on."""
        loaders = {number: one for number, one in self._by_number.items() if one.fed and one.cached is not None}
        for loader in loaders.values():
            loader.per_step = loader.fed / self._steps
            loader.source.hold()
        return loaders


class BackgroundLoad(threading.Thread):
    """Thread that takes and drops batches of one source at the observed pace, so that the workers keep working.

    It ends when stopped, at the end of the source, or at an error of the source.
    """

    def __init__(self, source: HeldIterator, interval_s: float) -> None:
        super().__init__(name="headrace-load", daemon=True)
        self.source = source
        self.taken = 0
        self._interval_s = interval_s
        self._halt = threading.Event()

    def stop(self) -> bool:
        """Stop, and return True if the thread ended in time. Otherwise it still uses the source."""
        self._halt.set()
        self.join(LONGEST_STOP_S)
        return not self.is_alive()

    def run(self) -> None:
        due = time.monotonic()
        try:
            while not self._halt.wait(max(0.0, due - time.monotonic())):
                self.source.take()
                self.taken += 1
                due = max(due + self._interval_s, time.monotonic())
        except Exception:  # of the user's loader, now ended: the training loop will not use it again
            return


def drain(loaders: list[FeedingLoader], steps: int, deadline_s: float) -> list[FetchedBatch]:
    """Take the batches of `steps` steps as fast as they come, after the batches already waiting.

    There are fewer if the first source or the time ends. Takes at most one batch's time longer than `deadline_s`.
    """
    batches: list[FetchedBatch] = []
    taken = [0] * len(loaders)
    most = sum(round(loader.per_step * steps) + loader.source.outstanding for loader in loaders)
    until = time.monotonic() + deadline_s
    while len(batches) < most and time.monotonic() < until:
        turn = min(range(len(loaders)), key=lambda turn: taken[turn] / loaders[turn].per_step)
        try:
            batches.append(loaders[turn].source.take())
        except Exception:  # of the user's loader, now ended
            return batches
        taken[turn] += 1
    return batches


def wait_until(is_done: Callable[[], bool]) -> None:
    """Let training wait, for a bounded time, until workers have finished or resumed."""
    until = time.monotonic() + LONGEST_PAUSE_S
    while not is_done() and time.monotonic() < until:
        time.sleep(POLL_S)


class LookedLoader:
    """The DataLoader that gave training the most batches. Only rank 0 inspects it."""

    def __init__(self, settings: ProbeSettings, note: Callable[[str, str], None]) -> None:
        self._seconds, self._note = settings.look_s, note
        self.may_look = self._seconds > 0
        self._folder = settings.folder
        self._counts: Counter[int] = Counter()
        self._owners: dict[int, Callable[[], Any]] = {}

    def fed_by(self, pass_: ObservedPass) -> None:
        self._counts[pass_.loader] += 1
        self._owners[pass_.loader] = pass_.owner

    def most_used(self) -> Any:
        """Return the loader with the most batches, or None if it no longer exists."""
        return next((self._owners[number]() for number, _ in self._counts.most_common(1)), None)

    def look_at(self, loader: Any) -> None:
        """Inspect a DataLoader. Never raises, whatever its dataset does."""
        if not self._seconds or loader is None or not _is_first_rank():
            return
        if type(loader).__module__.startswith("headrace."):
            return
        from ..value_look import LOOK_FILE, look_within  # few processes need it

        why = look_within(loader, os.path.join(self._folder, LOOK_FILE), self._seconds)
        if why:
            self._note("no-look", f"The dataset's samples could not be looked at: {why}")


def _is_first_rank() -> bool:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    return os.environ.get("RANK", "0") == "0"
