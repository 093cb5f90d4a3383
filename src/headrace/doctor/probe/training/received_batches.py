"""Passes over DataLoaders, and their batches received in the training thread or another thread."""

from __future__ import annotations

import copy
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple

ATTRIBUTE = "_headrace_pass"
"""Attribute of a DataLoader iterator: its `ObservedPass`."""
MOST_READ = 4096
"""Maximum number of batches in a reader; a DataLoader itself stores as many as its workers may prefetch."""
MOST_ELSEWHERE = 1024
"""Maximum number of stored batches of other threads."""
MOST_EXPECTED = 128
"""Maximum number of stored batches that the training thread may still take over."""


class FetchedBatch(NamedTuple):
    """Batch that a thread received, as in the `get` record. Times are clock readings."""

    pass_: int
    index_: int | None
    """Index; None for a copy of a cached batch."""
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
    """Times of reads from the worker queue of one iterator, until each batch is delivered.

    The times are end, duration and CPU time of unpickling, and start and duration of pinning. The pinning thread is not
    the thread that requests batches, and knows a batch's index only after reading it.
    """

    __slots__ = ("index", "pinned", "pinning", "unpickled")

    def __init__(self) -> None:
        self.index: int | None = None
        """Index of the last batch read."""
        self.unpickled: dict[int, tuple[int, int, int]] = {}
        self.pinned: dict[int, tuple[int, int]] = {}
        self.pinning = False

    def read(self, value: Any, end: int, duration: int, cpu: int) -> None:
        """Record the unpickling of a value if it is a batch: a tuple that begins with its index."""
        if type(value) is tuple and len(value) > 1 and type(value[0]) is int:
            self.index = value[0]
            _put(self.unpickled, value[0], (end, duration, cpu))

    def pin(self, start: int, duration: int) -> None:
        """Record that the last batch read was pinned. Without workers nothing was read, and the index is 0."""
        _put(self.pinned, self.index or 0, (start, duration))


def _put(held: dict[int, Any], index: int, times: tuple[int, ...]) -> None:
    """Store times, in place of the oldest if there are too many, from batches that nobody requests."""
    if len(held) >= MOST_READ:
        held.pop(next(iter(held)), None)
    held[index] = times


@dataclass(eq=False)
class ObservedPass:
    """One iteration over a DataLoader, from its `iter()` on."""

    training: object
    """Observer that follows the pass; an earlier observer may have existed in the process."""
    number: int
    epoch: int
    """Number of earlier passes of the same workers."""
    has_workers: bool
    """True if batches come from worker processes."""
    loader: int
    """Number of the loader."""
    owner: Callable[[], Any]
    """Function that returns the DataLoader, or None if it no longer exists."""
    makers: int
    """Number of processes or threads that prefetch batches."""
    index: int = -1
    """Index of the last batch taken from the queue, or produced by the process."""
    given: int = 0
    """Number of batches requested so far."""
    in_order: bool = True
    """True if batches arrive in index order, whichever worker is ready first."""
    reader: QueueReader = field(default_factory=QueueReader)
    """Reader of the thread that requests batches."""


class HandedOverBatches:
    """Batches that other threads received, until the training thread takes them over.

    Any thread adds batches; only the training thread removes them. Each of its calls is one operation of a deque.
    """

    def __init__(self) -> None:
        self._batches: deque[FetchedBatch] = deque(maxlen=MOST_ELSEWHERE)
        self._first: list[Callable[[], None]] = []
        self.threads: set[int] = set()
        """Ids of the threads that received a batch."""
        self.clear()

    def clear(self) -> None:
        self._batches.clear()
        self.threads.clear()
        self._most_ahead = 0
        self._newest: FetchedBatch | None = None
        self.is_handed_over = False
        """True if the batches' way to the training thread is observed."""

    def at_first(self, call: Callable[[], None]) -> None:
        """Run `call` once another thread has received a batch; immediately if one has."""
        if self.threads:
            call()
        else:
            self._first.append(call)

    def add(self, batch: FetchedBatch) -> None:
        self._batches.append(batch)
        self._most_ahead = max(self._most_ahead, len(self._batches))
        self._newest = batch
        self.threads.add(threading.get_ident())
        while self._first:
            self._first.pop()()

    def is_far_ahead(self) -> bool:
        """Return True if as many batches wait to be taken over as ever did."""
        return len(self._batches) >= self._most_ahead

    def put_on(self) -> FetchedBatch | None:
        """Return the latest batch, which is being passed to the training thread, or None."""
        self.is_handed_over = True
        batch, self._newest = self._newest, None
        return batch

    def oldest(self) -> FetchedBatch | None:
        return self._batches[0] if self._batches else None

    def take(self, batch: FetchedBatch) -> bool:
        """Remove a batch and return True, or return False if the training thread has already taken it over."""
        try:
            self._batches.remove(batch)
        except ValueError:
            return False
        return True

    def left(self, is_over: bool) -> list[FetchedBatch]:
        """Remove and return the batches that will not be taken over, or all of them if `is_over`."""
        held = MOST_EXPECTED if self.is_handed_over and not is_over else 0
        return [self._batches.popleft() for _ in range(len(self._batches) - held)]


class PassCounter:
    """Counter that numbers loaders and their passes."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.passes = 0
        self.loaders = 0
        self.opening: int | None = None
        """Number of the pass that `iter(loader)` is beginning."""

    def next_pass(self) -> int:
        self.passes += 1
        return self.passes - 1

    def next_loader(self) -> int:
        self.loaders += 1
        return self.loaders - 1


MOST_CACHED = 16
"""Maximum number of cached batches. More say nothing new about step time, and each costs the observed run a copy."""
IN_WARMUP = 8
"""Maximum number cached during warm-up: step times are not reported there.

Copying 20 MB takes as long as many a step.
"""
MOST_CACHED_BYTES = 512 << 20
MEMORY_SHARE = 0.1
"""Share of the free memory of the machine or container, divided among its ranks."""
_MOST_DEPTH = 8


class CachedBatches:
    """Cached batches of one DataLoader: few, and in the proportions of all batches seen.

    Cached are the first batches of the warm-up and the first of each shape. After a short warm-up, further ones follow
    at regular intervals, as long as there is room. Each then stands for the measured batches of its shape, or of the
    nearest size.
    """

    def __init__(self, every: int, room_bytes: int, most: int = MOST_CACHED) -> None:
        self._every = max(every, 1)
        self._room_bytes = room_bytes
        self._most = most
        self._cached: list[_CachedBatch] = []
        self._seen: Counter[int] = Counter()
        self._bytes: dict[int, int] = {}
        self._credit: list[float] = []
        self._weights: list[float] = []
        self.seen = 0
        self.why_not = ""
        """Reason why these batches cannot be replayed; empty if they can."""

    def offer(self, batch: Any, size: int | None, shape: int | None, *, is_measured: bool = True) -> None:
        """Add a batch that the training thread has received; `is_measured` is False in the warm-up."""
        if self.why_not:
            return
        if size is None or shape is None:
            self.why_not = (
                "its batches hold no tensors of torch or arrays of numpy, or more shapes than can be told apart"
            )
            return
        few = len(self._cached) < min(IN_WARMUP, self._most)
        if not is_measured:
            if few:
                self._cache(batch, size, shape)
            return
        is_new = shape not in self._seen and all(one.shape != shape for one in self._cached)
        self._seen[shape] += 1
        self._bytes[shape] = size
        if (is_new and len(self._cached) < self._most) or (few and self.seen % self._every == 0):
            self._cache(batch, size, shape)
        self.seen += 1

    def _cache(self, batch: Any, size: int, shape: int) -> None:
        if size > self._room_bytes:
            if not self._cached:
                self.why_not = f"there is no room in memory to keep a batch of {size} bytes"
            return
        try:
            self._cached.append(_CachedBatch(copied(batch), size, shape))
        except Uncopyable as error:
            self.why_not = f"its batches cannot be copied ({error})"
            self._cached.clear()
            return
        self._room_bytes -= size

    def next(self) -> Any:
        """Return a copy of the next batch; frequencies converge to the number of batches each stands for."""
        if not self._weights:
            self._weights = self._shares()
            self._credit = [0.0] * len(self._cached)
        for turn, weight in enumerate(self._weights):
            self._credit[turn] += weight
        turn = max(range(len(self._cached)), key=self._credit.__getitem__)
        self._credit[turn] -= 1.0
        return copied(self._cached[turn].batch)

    def _shares(self) -> list[float]:
        shares = [0.0] * len(self._cached)
        for shape, count in self._seen.items():
            turns = [turn for turn, one in enumerate(self._cached) if one.shape == shape]
            if not turns:  # the nearest in size
                size = self._bytes[shape]
                turns = [min(range(len(shares)), key=lambda turn: abs(self._cached[turn].bytes - size))]
            for turn in turns:
                shares[turn] += count / len(turns) / self.seen
        return shares


class _CachedBatch(NamedTuple):
    batch: Any
    bytes: int
    shape: int


def room_bytes() -> int:
    """Return the memory available for caching batches."""
    free: list[int] = []
    with suppress(OSError, ValueError, KeyError), open("/proc/meminfo", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
        free.append(int(lines["MemAvailable"].split()[0]) << 10)
    with suppress(OSError, ValueError):  # the limit may be "max"; a container sees its own control group
        limit, used = (_number_in(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
        free.append(max(0, limit - used))
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    share = MEMORY_SHARE / max(int(ranks) if ranks.isdigit() else 1, 1)
    return min(MOST_CACHED_BYTES, int(min(free, default=0) * share))


def _number_in(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return int(file.read())


class Uncopyable(Exception):  # noqa: N818  (what a batch is, not what went wrong)
    """Refusal to copy a batch, with the reason."""


def copied(batch: Any) -> Any:
    """Return a deep copy of `batch` that shares no tensor or container.

    Pinned tensors stay pinned, and tensors keep their strides, so a step may modify its batch. Raises Uncopyable, also
    for a tensor outside host memory.
    """
    torch: Any = sys.modules.get("torch")
    memo: dict[int, Any] = {}
    try:
        for tensor in _tensors_in(batch, torch, _MOST_DEPTH) if torch is not None else ():
            if id(tensor) not in memo:
                memo[id(tensor)] = _tensor(torch, tensor)
        return copy.deepcopy(batch, memo)
    except Uncopyable:
        raise
    except Exception as error:
        raise Uncopyable(f"{type(error).__name__}: {error}") from error


def _tensors_in(value: Any, torch: Any, depth: int) -> Iterator[Any]:
    """Yield the tensors in containers and attributes. deepcopy copies tensors anywhere else in its own way."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        attributes = () if callable(value) else getattr(value, "__dict__", {}).values()
        for one in (*inner, *attributes):
            yield from _tensors_in(one, torch, depth - 1)


def _tensor(torch: Any, tensor: Any) -> Any:
    """Copy a tensor. A subclass with its own copy method copies attributes that torch's method may miss."""
    kind = type(tensor)
    if tensor.device.type != "cpu":  # device memory may be full, and the host waits for nothing there
        raise Uncopyable(f"{kind.__name__}: on {tensor.device} already")
    is_plain = kind in (torch.Tensor, torch.nn.Parameter)
    if not is_plain and kind.__deepcopy__ is not torch.Tensor.__deepcopy__:
        return copy.deepcopy(tensor)
    with torch.no_grad():
        if is_plain and tensor.layout is torch.strided and tensor.is_pinned():
            new = torch.empty_like(tensor, pin_memory=True).copy_(tensor)
        else:
            new = tensor.detach().clone()
    if is_plain:
        return new.requires_grad_(tensor.requires_grad)
    return new if type(new) is kind else copy.deepcopy(tensor)
