"""What the iterator of a DataLoader with worker processes needs of whoever drives it from a thread.

It is known by torch's own attributes, which have had these names since torch 1.2; where they are missing, nothing
happens, and torch's own ways (`__del__`, its signal handler) remain.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterable, Iterator
from multiprocessing.connection import wait
from typing import Any, TypeVar

T = TypeVar("T")

MORE_ROOM = (
    "where /dev/shm is full, give it more room (docker run --shm-size), or load on threads "
    "(headrace.ThreadDataLoader), which need none of it"
)

EXIT_WAIT_S = 1.0
"""A worker closes its sockets when it dies, and is dead a moment later."""


def begin(source: Iterable[T]) -> Iterator[T]:
    """`iter(source)`. An error for want of room says where there is none: a DataLoader keeps its queues in /dev/shm."""
    try:
        return iter(source)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            error.add_note(f"while the batches' source was started; if it has worker processes: {MORE_ROOM}")
        raise


def end(iterator: Iterator[Any]) -> None:
    """Ends the workers, unless they are persistent.

    Not left to `__del__`: the traceback of an error holds the iterator, and as long as torch knows of a killed worker
    its signal handler raises again, in whatever the main thread does next.
    """
    if hasattr(iterator, "_shutdown_workers") and not getattr(iterator, "_persistent_workers", False):
        iterator._shutdown_workers()


def lost(iterator: Iterator[Any], error: Exception) -> RuntimeError | None:
    """What to raise instead of an `error` of transport that a dying worker has left; None if none has died.

    torch looks whether the worker is alive at once, which it is still, and lets a bare ConnectionResetError out.
    """
    workers = getattr(iterator, "_workers", ())
    if not workers or not isinstance(error, OSError | EOFError):
        return None
    dead = wait([worker.sentinel for worker in workers], timeout=EXIT_WAIT_S)
    for worker in workers:
        if worker.sentinel in dead:
            return RuntimeError(
                f"DataLoader worker (pid {worker.pid}) {_cause(worker)} while it sent a batch; where memory is short, "
                f"use fewer workers or a smaller prefetch_factor; {MORE_ROOM}"
            )
    return None


def _cause(worker: Any) -> str:
    worker.join()  # dead by its sentinel; now its exit code is known
    code = worker.exitcode
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited unexpectedly with code {code}"
