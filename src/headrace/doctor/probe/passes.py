"""Passes over DataLoaders, and what the threads that read their workers' queues read there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Callable, TypeVar

if TYPE_CHECKING:
    from .training.training import Training

Times = TypeVar("Times")

ATTRIBUTE = "_headrace_pass"
"""Of a DataLoader's iterator: the `Pass` that it is in."""

MOST_HELD = 4096
"""Batches that a reader remembers; a DataLoader itself holds as many as its workers may prefetch."""


class Reader:
    """What is read from the workers' queue of one iterator, batch by batch, until the batch is handed out: the end,
    duration and CPU time of unpickling, and the start and duration of pinning.

    The thread that pins is not the one that asks for batches, and knows a batch's index only when it reads it.
    """

    __slots__ = ("index", "pinned", "pinning", "unpickled")

    def __init__(self) -> None:
        self.index: int | None = None
        """Of the batch that was read last."""
        self.unpickled: dict[int, tuple[int, int, int]] = {}
        self.pinned: dict[int, tuple[int, int]] = {}
        self.pinning = False

    def read(self, value: Any, end: int, duration: int, cpu: int) -> None:
        """Something was unpickled: a batch, where it is a tuple that begins with its index."""
        if type(value) is tuple and len(value) > 1 and type(value[0]) is int:
            self.index = value[0]
            _put(self.unpickled, value[0], (end, duration, cpu))

    def pin(self, start: int, duration: int) -> None:
        """The batch that was read last was pinned. Without workers none was read, and 0 stands for its index."""
        _put(self.pinned, self.index or 0, (start, duration))


def _put(held: dict[int, Times], index: int, times: Times) -> None:
    """In place of the oldest, where there are too many: of batches that nobody asks after."""
    if len(held) >= MOST_HELD:
        held.pop(next(iter(held)), None)
    held[index] = times


class Readers:
    """The threads that read for an iterator at this moment."""

    def __init__(self) -> None:
        self._by_thread: dict[int, Reader] = {}

    def current(self) -> Reader | None:
        """Of the calling thread."""
        return self._by_thread.get(threading.get_ident())

    def begin(self, reader: Reader) -> None:
        self._by_thread[threading.get_ident()] = reader

    def end(self) -> None:
        self._by_thread.pop(threading.get_ident(), None)

    def of(self, thread: int | None) -> Reader | None:
        return None if thread is None else self._by_thread.get(thread)

    def clear(self) -> None:
        self._by_thread.clear()


class Pass:
    """One iteration over a DataLoader: from its `iter()` on."""

    __slots__ = ("epoch", "has_workers", "index", "loader", "makers", "number", "owner", "reader", "training")

    def __init__(
        self,
        training: Training,
        number: int,
        epoch: int,
        has_workers: bool,
        *,
        loader: int,
        owner: Callable[[], Any],
        makers: int,
    ) -> None:
        self.training = training
        self.number = number
        self.epoch = epoch
        """Passes that the same workers made before."""
        self.has_workers = has_workers
        """Whether they are processes."""
        self.loader = loader
        """Its number."""
        self.owner = owner
        """Gives the DataLoader, or None once that has gone."""
        self.makers = makers
        """Processes, or threads, that make batches before they are asked for."""
        self.index = -1
        """Of the batch that came out of the queue last, or that the process made last."""
        self.reader = Reader()
        """Of what is read in the thread that asks for batches."""
