"""A thread that takes batches from a source and sends them down a lane, ahead of the consumer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from headrace.device.lanes import Lane, Sent
from headrace.device.stats import PrefetchStats
from headrace.system.channel import Channel, Closed
from headrace.threads import THREAD_PREFIX, Origin, close_at_exit, in_own_thread

N = TypeVar("N")

DROP_WAIT_S = 1.0
"""Longer than a batch takes to come; a source that hangs is left to its thread."""


class DeviceFeed(Generic[N]):
    """Batches in the order of their source, `depth` of them on the device or on their way beyond the consumer's.

    `produce` gives a batch and a note that comes out beside it; it raises StopIteration or Closed at the end, and an
    error as it is. `end` lets go of the source, in the feeding thread, once nothing more will be asked of it.
    """

    def __init__(
        self, produce: Callable[[], tuple[Any, N]], lane: Lane, depth: int, *, end: Callable[[], None]
    ) -> None:
        self._produce = produce
        self._lane = lane
        self._end = end
        self._channel: Channel[tuple[Sent, N]] = Channel(depth)
        self._origin = Origin()
        self._started = time.perf_counter()
        self._ended: float | None = None
        self._source_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"{THREAD_PREFIX}device", daemon=True)
        self._thread.start()
        close_at_exit(self)

    @property
    def foreign(self) -> bool:
        """Whether this process is a fork of the one that feeds: its thread is not here."""
        return self._origin.is_elsewhere

    def take(self) -> tuple[Any, N]:
        """The next batch, on the device, and its note. Raises Closed after the last, or what went wrong."""
        sent, note = self._channel.take()
        return self._lane.receive(sent), note

    def close(self, timeout_s: float | None = DROP_WAIT_S) -> None:
        """Drops what is under way and joins the thread; one that the source holds up for longer ends by itself."""
        if self.foreign:
            return
        if self._ended is None:
            self._ended = time.perf_counter()
        self._channel.close()
        if not in_own_thread():
            self._thread.join(timeout_s)

    def stats(self) -> PrefetchStats:
        """What was done so far, or in all once closed."""
        channel = self._channel.statistics()
        ended = self._ended if self._ended is not None else time.perf_counter()
        return PrefetchStats(
            batches=channel.taken,
            ready=channel.waiting,
            wall_s=ended - self._started,
            consumer_wait_s=channel.consumer_wait_s,
            ahead_wait_s=channel.producer_wait_s,
            source_s=self._source_s,
            copies=self._lane.statistics(),
        )

    # --- the feeding thread ---

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._feed()
        except (Closed, StopIteration):
            pass
        except BaseException as caught:
            error = caught
        try:
            self._end()
        except BaseException as caught:
            error = error or caught
        finally:
            self._lane.end()
            self._channel.finish(error)
            del error, self._produce, self._end  # they and its traceback hold the source, and this frame

    def _feed(self) -> None:
        while True:
            self._channel.reserve(block=True)
            since = time.perf_counter()
            batch, note = self._produce()
            self._source_s += time.perf_counter() - since
            sent = self._lane.send(batch)
            del batch  # its memory goes back while this thread waits
            self._channel.put((sent, note))
            del sent, note
