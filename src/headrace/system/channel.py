"""Bounded channel from one thread to another, with statistics of the waits on both sides."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Closed(Exception):  # noqa: N818  # the normal end of a channel
    """Signal that the channel has ended: no item will come, or none will be taken."""


@dataclass(frozen=True)
class ChannelStatistics:
    """Statistics of a channel.

    A high `consumer_wait_s` means that the producer is too slow. A high `producer_wait_s` means that the consumer is,
    and all is well. `waiting` counts the items that are ready now.
    """

    taken: int
    waiting: int
    consumer_wait_s: float
    producer_wait_s: float


class Channel(Generic[T]):
    """Bounded queue from one thread to one other: in order, at most `capacity` items reserved and not yet taken.

    A producer reserves a place before it starts work (`reserve`), so that the capacity bounds work in progress too. The
    capacity may change at any time (`set_capacity`). Waiting never polls; closing and failing wake both sides. Two C
    queues, of items and of free places, cost the consumer 14 µs per item after a training step; a condition over a
    deque cost 40 (benchmarks/device_wait.py).
    """

    def __init__(self, capacity: int) -> None:
        self._items: SimpleQueue[T | _End] = SimpleQueue()
        self._places: SimpleQueue[None] = SimpleQueue()
        for _ in range(capacity):
            self._places.put(None)
        self._capacity = capacity
        self._owed = 0  # places that are removed as soon as they come back
        self._resizing = threading.Lock()
        self._taken = 0
        self._finished = False  # by the producer
        self._closed = False  # by the consumer
        self._error: BaseException | None = None
        self._consumer_wait, self._producer_wait = _Wait(), _Wait()

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def ready(self) -> int:
        """Number of items ready now, including the end mark; cheaper than `statistics`."""
        return self._items.qsize()

    def set_capacity(self, capacity: int) -> None:
        """Change the capacity, from any thread. Items reserved beyond a smaller capacity are still put and taken."""
        with self._resizing:
            self._owed += self._capacity - capacity
            self._capacity = capacity
            with suppress(Empty):
                while self._owed > 0:
                    self._places.get_nowait()
                    self._owed -= 1
            while self._owed < 0:
                self._places.put(None)
                self._owed += 1
        if self._ended:  # a removed place may have been there to wake the producer
            self._places.put(None)

    def reserve(self, *, block: bool) -> bool:
        """Reserve a place for one item. Return False if there is no room and `block` is False. Raises Closed."""
        if not self._ended:
            try:
                self._places.get_nowait()
            except Empty:
                if not block:
                    return False
                with self._producer_wait:
                    self._places.get()
        if self._ended:
            raise Closed
        return True

    def put(self, item: T) -> None:
        """Deliver an item to its reserved place. Raises Closed."""
        if self._ended:
            raise Closed
        self._items.put(item)

    def give_back(self) -> None:
        """Free a reserved place whose item will not come, or has been taken."""
        with self._resizing:
            if self._owed > 0:
                self._owed -= 1
                return
        self._places.put(None)

    def stop(self) -> None:
        """Stop the producer, from any thread of its side: its `reserve` and `put` raise Closed.

        Items already put are still delivered, and `finish` gives the reason.
        """
        self._finished = True
        self._places.put(None)

    def finish(self, error: BaseException | None = None) -> None:
        """End the producer's side: items already put are still delivered, then `error` or the end.

        Once the consumer has closed, an error is dropped: its traceback would hold the producer's objects alive.
        """
        self._error = error
        self._finished = True
        if self._closed:  # checked last: whichever comes second, here or in `close`, drops all
            self._error = None
            self._drop_items()  # an item may have come between `close` and the producer's noticing it
        self._items.put(END)

    def close(self) -> None:
        """End the consumer's side: all waiting items are dropped, and an error that was not taken, too."""
        self._closed = True
        self._error = None
        self._drop_items()
        self._items.put(END)
        self._places.put(None)  # a producer that waits for a place finds the channel closed

    def take(self) -> T:
        """Return the next item. Raises Closed at the end, or the producer's error."""
        try:
            item = self._items.get_nowait()
        except Empty:
            with self._consumer_wait:
                item = self._items.get()
        if isinstance(item, _End):
            self._items.put(END)  # for the next call
            error, self._error = self._error, None
            if error is None or self._closed:
                raise Closed
            try:
                raise error
            finally:
                del error  # its traceback holds this frame: a cycle would hold the batch's memory
        self._taken += 1
        self.give_back()
        return item

    def statistics(self) -> ChannelStatistics:
        ready = self._items.qsize() if not self._ended else max(0, self._items.qsize() - 1)
        return ChannelStatistics(self._taken, ready, self._consumer_wait.total_s, self._producer_wait.total_s)

    @property
    def _ended(self) -> bool:
        return self._finished or self._closed

    def _drop_items(self) -> None:
        with suppress(Empty):
            while True:
                self._items.get_nowait()


class _Wait:
    """Time that one thread has waited, a wait in progress included."""

    def __init__(self) -> None:
        self._before_s = 0.0
        self._since: float | None = None

    def __enter__(self) -> None:
        self._since = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._before_s, self._since = self.total_s, None

    @property
    def total_s(self) -> float:
        since = self._since
        return self._before_s if since is None else self._before_s + time.perf_counter() - since


class _End:
    """Mark after the last item."""


END = _End()
