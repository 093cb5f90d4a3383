"""Sources of batches for the windows: the iterators behind the training loop, and copies of a few of their batches."""

from __future__ import annotations

import copy
import os
import sys
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Callable, NamedTuple

from .state import ObservedPass
from .steps import FetchedBatch, OptimizerStep

LONGEST_PAUSE_S = 10.0
"""Maximum time that training waits before a window for workers to finish."""
POLL_S = 0.002


class HeldIterator:
    """Iterator of one pass over a DataLoader, owned by the user until `hold`. Dropping it ends its workers."""

    def __init__(self, iterator: Any, pass_: ObservedPass) -> None:
        self._iterator = weakref.ref(iterator)
        self.held: Any = None
        """The iterator; None until held, or if it no longer exists."""
        self.pass_ = pass_

    def hold(self) -> None:
        self.held = self._iterator()

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


@dataclass(eq=False)
class FeedingLoader:
    """DataLoader that fed observed steps, with its latest iterator and pass."""

    source: HeldIterator
    pass_: ObservedPass
    cached: CachedBatches | None = None
    fed: int = 0
    """Number of batches that fed a step."""
    per_step: float = 0.0


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


def wait_until(is_done: Callable[[], bool]) -> None:
    """Let training wait, for a bounded time, until workers have finished."""
    until = time.monotonic() + LONGEST_PAUSE_S
    while not is_done() and time.monotonic() < until:
        time.sleep(POLL_S)


MOST_CACHED = 16
"""Maximum number of cached batches. More say nothing new about step time, and each costs the observed run a copy."""
IN_WARMUP = 8
"""Maximum number cached during warm-up, whose step times are not reported: copying takes as long as a step."""
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
    """Return a deep copy of `batch`, pinned and strided alike. Raises Uncopyable, also outside host memory."""
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
