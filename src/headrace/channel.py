"""A bounded way from one thread to another that can be closed, can fail, and counts who waits for whom."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


class Closed(Exception):  # noqa: N818  # how a channel ends, no error
    """The channel has ended: nothing will come, or nobody will take."""


@dataclass(frozen=True)
class ChannelStatistics:
    """`consumer_wait_s` high: the producer is too slow. `producer_wait_s` high: the consumer is, and all is well.

    `waiting` is what lies ready now.
    """

    taken: int
    waiting: int
    consumer_wait_s: float
    producer_wait_s: float


class Channel(Generic[T]):
    """Items in order, at most `capacity` promised and not yet taken.

    A producer reserves a place before it starts work (`reserve`), so that the capacity bounds work in progress too.
    Waiting is on a condition, never by polling; close and fail wake both sides.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._reserved = 0
        self._taken = 0
        self._closed = False
        self._error: BaseException | None = None
        self._consumer_wait_s = self._producer_wait_s = 0.0

    def reserve(self, *, block: bool) -> bool:
        """Promises one item. False where there is no room and `block` is False. Raises Closed."""
        with self._changed:
            if self._reserved >= self._capacity and block and not self._closed:
                since = time.perf_counter()
                self._changed.wait_for(lambda: self._closed or self._reserved < self._capacity)
                self._producer_wait_s += time.perf_counter() - since
            if self._closed:
                raise Closed
            if self._reserved >= self._capacity:
                return False
            self._reserved += 1
            return True

    def put(self, item: T) -> None:
        """Delivers what was reserved. Raises Closed."""
        with self._changed:
            if self._closed:
                raise Closed
            self._items.append(item)
            self._changed.notify_all()

    def finish(self, error: BaseException | None = None) -> None:
        """The producer's last word: what was put is still handed out, then `error` or the end. After the consumer's
        last word an error is dropped: kept here, its traceback would keep alive whatever the producer held."""
        with self._changed:
            self._error = None if self._closed else error
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """The consumer's last word: everything waiting is dropped."""
        with self._changed:
            self._items.clear()
            self._closed = True
            self._changed.notify_all()

    def take(self) -> T:
        """The next item. Raises Closed at the end, or what the producer failed with."""
        with self._changed:
            if not self._items and not self._closed:
                since = time.perf_counter()
                self._changed.wait_for(lambda: self._closed or bool(self._items))
                self._consumer_wait_s += time.perf_counter() - since
            if self._items:
                self._reserved -= 1
                self._taken += 1
                self._changed.notify_all()
                return self._items.popleft()
            if self._error is not None:
                error, self._error = self._error, None
                try:
                    raise error
                finally:
                    del error  # its traceback holds this frame: a cycle would keep the batch's memory
            raise Closed

    def statistics(self) -> ChannelStatistics:
        with self._changed:
            return ChannelStatistics(self._taken, len(self._items), self._consumer_wait_s, self._producer_wait_s)
