"""Thread that takes batches from a source and sends them to the device ahead of the consumer.

The iterator of a DataLoader with worker processes needs some care when a thread drives it. It is recognised by torch's
private attributes, which have had these names since torch 1.2. Without them nothing happens, and torch's own handling
(`__del__`, its signal handler) remains.
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
"""Timeout of a join: longer than a batch takes. A source that hangs is left to its thread."""


class DeviceFeed(Generic[N]):
    """Batches in the order of their source, `depth` of them on the device or on their way ahead of the consumer.

    `produce` returns a batch and a note, which is delivered with the batch. It raises StopIteration or Closed at the
    end, and errors unchanged. `end` releases the source, in the feeding thread, after the last call of `produce`.
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
        """True if this process is a fork of the feeding process, so that the thread is missing."""
        return self._origin.is_elsewhere

    def take(self) -> tuple[Any, N]:
        """Return the next batch, on the device, and its note. Raises Closed at the end, or the source's error."""
        sent, note = self._channel.take()
        return self._lane.receive(sent), note

    def close(self, timeout_s: float | None = DROP_WAIT_S) -> None:
        """Drop what is under way and join the thread; a thread blocked in the source for longer ends by itself."""
        if self.foreign:
            return
        if self._ended is None:
            self._ended = time.perf_counter()
        self._channel.close()
        if not in_own_thread():
            self._thread.join(timeout_s)

    def stats(self) -> PrefetchStats:
        """Return the statistics so far, or the final ones once closed."""
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
            del batch  # frees its memory while this thread waits
            self._channel.put((sent, note))
            del sent, note


T = TypeVar("T")

MORE_ROOM = (
    "where /dev/shm is full, give it more room (docker run --shm-size), or load on threads "
    "(headrace.ThreadDataLoader), which need none of it"
)

EXIT_WAIT_S = 1.0
"""Timeout of a worker's exit: a worker closes its sockets when it dies, and is dead a moment later."""


def begin_iterator(source: Iterable[T]) -> Iterator[T]:
    """Return `iter(source)`. Adds a note to an error for lack of space: a DataLoader has its queues in /dev/shm."""
    try:
        return iter(source)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            error.add_note(f"while the batches' source was started; if it has worker processes: {MORE_ROOM}")
        raise


def end_workers(iterator: Iterator[Any]) -> None:
    """End the workers, unless they are persistent.

    Not left to `__del__`: the traceback of an error holds the iterator. As long as torch tracks a killed worker, its
    signal handler raises again, in whatever the main thread does next.
    """
    if hasattr(iterator, "_shutdown_workers") and not getattr(iterator, "_persistent_workers", False):
        iterator._shutdown_workers()


def lost_worker(iterator: Iterator[Any], error: Exception) -> RuntimeError | None:
    """Return the replacement of a transport `error` that a dying worker has left; None if no worker has died.

    torch checks at once whether the worker is alive, which it still is, and lets a bare ConnectionResetError out.
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
