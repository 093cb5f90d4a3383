"""Thread that takes batches from a source and sends them to the device ahead of the consumer.

The iterator of a DataLoader with worker processes needs some care of whoever drives it from a thread. It is known by
torch's own attributes, which have had these names since torch 1.2; where they are missing, nothing happens, and torch's
own ways (`__del__`, its signal handler) remain.
"""

from __future__ import annotations

import errno
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import wait
from typing import Any, Generic, TypeVar

from headrace.device.h2d_copy import CopyLane, PrefetchStats, SentBatch
from headrace.system import THREAD_PREFIX, Channel, Closed, ProcessOrigin, close_at_exit, in_own_thread

N = TypeVar("N")

DROP_WAIT_S = 1.0
"""Longer than a batch takes to come; a source that hangs is left to its thread."""


class DeviceFeed(Generic[N]):
    """Batches in the order of their source, `depth` of them on the device or on their way beyond the consumer's.

    `produce` gives a batch and a note that comes out beside it; it raises StopIteration or Closed at the end, and an
    error as it is. `end` lets go of the source, in the feeding thread, once nothing more will be asked of it.
    """

    def __init__(
        self, produce: Callable[[], tuple[Any, N]], lane: CopyLane, depth: int, *, end: Callable[[], None]
    ) -> None:
        self._produce = produce
        self._lane = lane
        self._end = end
        self._channel: Channel[tuple[SentBatch, N]] = Channel(depth)
        self._origin = ProcessOrigin()
        self._started = time.perf_counter()
        self._ended: float | None = None
        self._source_s = 0.0
        self._thread = threading.Thread(target=self._run, name=f"{THREAD_PREFIX}device", daemon=True)
        self._thread.start()
        close_at_exit(self)

    @property
    def foreign(self) -> bool:
        """Return whether this process is a fork of the one that feeds: its thread is not here."""
        return self._origin.is_elsewhere

    def take(self) -> tuple[Any, N]:
        """Return the next batch, on the device, and its note. Raises Closed after the last, or what went wrong."""
        sent, note = self._channel.take()
        return self._lane.receive(sent), note

    def close(self, timeout_s: float | None = DROP_WAIT_S) -> None:
        """Drop what is under way and join the thread; one that the source holds up for longer ends by itself."""
        if self.foreign:
            return
        if self._ended is None:
            self._ended = time.perf_counter()
        self._channel.close()
        if not in_own_thread():
            self._thread.join(timeout_s)

    def stats(self) -> PrefetchStats:
        """Return what was done so far, or in all once closed."""
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


T = TypeVar("T")

MORE_ROOM = (
    "where /dev/shm is full, give it more room (docker run --shm-size), or load on threads "
    "(headrace.ThreadDataLoader), which need none of it"
)

EXIT_WAIT_S = 1.0
"""A worker closes its sockets when it dies, and is dead a moment later."""


def begin_iterator(source: Iterable[T]) -> Iterator[T]:
    """Return `iter(source)`. An error for want of room says where: a DataLoader keeps its queues in /dev/shm."""
    try:
        return iter(source)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            error.add_note(f"while the batches' source was started; if it has worker processes: {MORE_ROOM}")
        raise


def end_workers(iterator: Iterator[Any]) -> None:
    """End the workers, unless they are persistent.

    Not left to `__del__`: the traceback of an error holds the iterator, and as long as torch knows of a killed worker
    its signal handler raises again, in whatever the main thread does next.
    """
    if hasattr(iterator, "_shutdown_workers") and not getattr(iterator, "_persistent_workers", False):
        iterator._shutdown_workers()


def lost_worker(iterator: Iterator[Any], error: Exception) -> RuntimeError | None:
    """Return what to raise instead of an `error` of transport that a dying worker has left; None if none has died.

    torch looks whether the worker is alive at once, which it is still, and lets a bare ConnectionResetError out.
    """
    workers = getattr(iterator, "_workers", ())
    if not workers or not isinstance(error, OSError | EOFError):
        return None
    dead = wait([worker.sentinel for worker in workers], timeout=EXIT_WAIT_S)
    for worker in workers:
        if worker.sentinel in dead:
            worker.join()  # dead by its sentinel; now its exit code is known
            code = worker.exitcode
            cause = (
                f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited unexpectedly with code {code}"
            )
            return RuntimeError(
                f"DataLoader worker (pid {worker.pid}) {cause} while it sent a batch; where memory is short, "
                f"use fewer workers or a smaller prefetch_factor; {MORE_ROOM}"
            )
    return None
