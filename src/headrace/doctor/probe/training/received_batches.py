"""Passes over DataLoaders, and the batches that the training thread, or another one, receives of them."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple

ATTRIBUTE = "_headrace_pass"
"""Of a DataLoader's iterator: the `ObservedPass` that it is in."""
MOST_READ = 4096
"""Batches that a reader remembers; a DataLoader itself holds as many as its workers may prefetch."""
MOST_ELSEWHERE = 1024
"""Batches of other threads that are remembered;"""
MOST_EXPECTED = 128
"""of these, those that are expected in the training thread yet."""


class FetchedBatch(NamedTuple):
    """A batch that a thread received, as the `get` record has it; times are readings of the clock."""

    pass_: int
    index_: int | None
    """None for a copy of a cached batch."""
    start: int
    end: int
    arrived: int | None = None
    unpickle: int | None = None
    pin_start: int | None = None
    pin: int | None = None
    bytes: int | None = None
    shape: int | None = None
    unpickle_cpu: int | None = None
    others_cpu: int | None = None


class QueueReader:
    """Times of what is read from the workers' queue of one iterator, until each batch is handed out.

    These are the end, duration and CPU time of unpickling, and the start and duration of pinning. The thread that pins
    is not the one that asks for batches, and knows a batch's index only when it reads it.
    """

    __slots__ = ("index", "pinned", "pinning", "unpickled")

    def __init__(self) -> None:
        self.index: int | None = None
        """Of the batch that was read last."""
        self.unpickled: dict[int, tuple[int, int, int]] = {}
        self.pinned: dict[int, tuple[int, int]] = {}
        self.pinning = False

    def read(self, value: Any, end: int, duration: int, cpu: int) -> None:
        """Record what was unpickled, where it is a batch: a tuple that begins with its index."""
        if type(value) is tuple and len(value) > 1 and type(value[0]) is int:
            self.index = value[0]
            _put(self.unpickled, value[0], (end, duration, cpu))

    def pin(self, start: int, duration: int) -> None:
        """Record that the batch read last was pinned. Without workers none was read, and 0 stands for its index."""
        _put(self.pinned, self.index or 0, (start, duration))


def _put(held: dict[int, Any], index: int, times: tuple[int, ...]) -> None:
    """Put it in place of the oldest, where there are too many: of batches that nobody asks after."""
    if len(held) >= MOST_READ:
        held.pop(next(iter(held)), None)
    held[index] = times


@dataclass(eq=False)
class ObservedPass:
    """One iteration over a DataLoader: from its `iter()` on."""

    training: object
    """The observer that follows it; a process may have had another before."""
    number: int
    epoch: int
    """Passes that the same workers made before."""
    has_workers: bool
    """Whether they are processes."""
    loader: int
    """Its number."""
    owner: Callable[[], Any]
    """Returns the DataLoader, or None once that has gone."""
    makers: int
    """Processes, or threads, that produce batches before they are asked for."""
    index: int = -1
    """Of the batch that came out of the queue last, or that the process produced last."""
    given: int = 0
    """Batches asked for so far."""
    in_order: bool = True
    """Whether batches come out in the order of their indices, whichever worker is ready first."""
    reader: QueueReader = field(default_factory=QueueReader)
    """Of what is read in the thread that asks for batches."""


class HandedOverBatches:
    """Batches that other threads than the training thread received, until it takes them over.

    Filled by any thread, emptied by the training thread alone: each of its calls is one operation of a deque.
    """

    def __init__(self) -> None:
        self._batches: deque[FetchedBatch] = deque(maxlen=MOST_ELSEWHERE)
        self._first: list[Callable[[], None]] = []
        self.threads: set[int] = set()
        """Those that received a batch."""
        self.clear()

    def clear(self) -> None:
        """Forget all batches and threads."""
        self._batches.clear()
        self.threads.clear()
        self._most_ahead = 0
        self._newest: FetchedBatch | None = None
        self.is_handed_over = False
        """Whether the batches come to the training thread in a way that is seen."""

    def at_first(self, call: Callable[[], None]) -> None:
        """Call it once another thread has received a batch: at once, where one has."""
        if self.threads:
            call()
        else:
            self._first.append(call)

    def add(self, batch: FetchedBatch) -> None:
        """Record a batch that the calling thread has received."""
        self._batches.append(batch)
        self._most_ahead = max(self._most_ahead, len(self._batches))
        self._newest = batch
        self.threads.add(threading.get_ident())
        while self._first:
            self._first.pop()()

    def is_far_ahead(self) -> bool:
        """Tell whether as many batches wait to be taken over as ever did."""
        return len(self._batches) >= self._most_ahead

    def put_on(self) -> FetchedBatch | None:
        """Return the batch that is put where the training thread will take it, the newest; None for what is none."""
        self.is_handed_over = True
        batch, self._newest = self._newest, None
        return batch

    def oldest(self) -> FetchedBatch | None:
        return self._batches[0] if self._batches else None

    def take(self, batch: FetchedBatch) -> bool:
        """Tell whether the training thread takes it over only now."""
        try:
            self._batches.remove(batch)
        except ValueError:
            return False
        return True

    def left(self, is_over: bool) -> list[FetchedBatch]:
        """Remove and return those that nobody is expected to take over any more; all of them, once it `is_over`."""
        held = MOST_EXPECTED if self.is_handed_over and not is_over else 0
        return [self._batches.popleft() for _ in range(len(self._batches) - held)]


class PassCounter:
    """Numbers of loaders and of their passes."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.passes = 0
        self.loaders = 0
        self.opening: int | None = None
        """The number of the pass that is being begun in `iter(loader)`."""

    def next_pass(self) -> int:
        self.passes += 1
        return self.passes - 1

    def next_loader(self) -> int:
        self.loaders += 1
        return self.loaders - 1
