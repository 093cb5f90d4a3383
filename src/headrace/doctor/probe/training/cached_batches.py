"""Batches that are cached for replay: which, how many, and their copies."""

from __future__ import annotations

import copy
import os
import sys
from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple

MOST_CACHED = 16
"""More of them tell no more of a step's length, and each costs the observed run a copy."""
IN_WARMUP = 8
"""Of them as many come from the warm-up, whose length is not a figure: a copy of 20 MB takes as much as many a step."""
MOST_CACHED_BYTES = 512 << 20
MEMORY_SHARE = 0.1
"""Of what is free on the machine, or within the limit of the container, among the ranks of the machine."""
_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_MOST_DEPTH = 32

Memo = dict[int, Any]
"""Copies by the identity of what they were made of: what a batch holds twice, its copy does too."""


class CachedBatches:
    """Cached batches of one DataLoader: few, and in the proportions of all that were seen.

    The first ones of the warm-up are cached, one of each shape as it is first seen, and, where the warm-up was short,
    one every so often, as long as there is room. Then each stands for as many of the measured ones as came with its
    shape, or were nearest to it in size.
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
        """Why none of these batches can be replayed; empty while nothing speaks against it."""

    def offer(self, batch: Any, size: int | None, shape: int | None, *, is_measured: bool = True) -> None:
        """Take in a batch that the training thread has received; those of the warm-up are not measured."""
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
        """Return a copy of the batch whose turn it is: in the long run each comes as often as it stands for batches."""
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
    """Return how much memory may be used for caching batches."""
    free: list[int] = []
    with suppress(OSError, ValueError, KeyError), open("/proc/meminfo", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
        free.append(int(lines["MemAvailable"].split()[0]) << 10)
    with suppress(OSError, ValueError):  # the limit may be "max"; a container sees the control group that it is in
        limit, used = (_number_in(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
        free.append(max(0, limit - used))
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    share = MEMORY_SHARE / max(int(ranks) if ranks.isdigit() else 1, 1)
    return min(MOST_CACHED_BYTES, int(min(free, default=0) * share))


def _number_in(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return int(file.read())


class Uncopyable(Exception):  # noqa: N818  (what a batch is, not what went wrong)
    """Refusal to copy a batch: the type of what cannot be copied, and why not."""


def copied(batch: Any) -> Any:
    """Return a batch like `batch`, of the same types, that shares no tensor and no container with it.

    Pinned tensors stay pinned, and every tensor keeps its strides. So a step may change the one that it is given.
    Raises Uncopyable, also for a tensor that is not in the host's memory.
    """
    return _copied(batch, {}, _MOST_DEPTH)


def _copied(value: Any, memo: Memo, depth: int) -> Any:
    if type(value) in _PLAIN:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if not depth:
        raise Uncopyable(f"{type(value).__name__}: nested more than {_MOST_DEPTH} deep")
    try:
        memo[id(value)] = new = _new(value, memo, depth - 1)
    except Uncopyable:
        raise
    except Exception as error:
        raise Uncopyable(f"{type(value).__name__}: {type(error).__name__}: {error}") from error
    return new


def _new(value: Any, memo: Memo, depth: int) -> Any:
    torch: Any = sys.modules.get("torch")
    numpy: Any = sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor(torch, value)
    if numpy is not None and type(value) is numpy.ndarray and value.dtype != object:
        return value.copy(order="K")
    if isinstance(value, tuple):
        return tuple.__new__(type(value), [_copied(inner, memo, depth) for inner in value])
    return _object(value, memo, depth)


def _tensor(torch: Any, tensor: Any) -> Any:
    """Copy a tensor; a subclass as it knows to copy what it holds beside its data, which torch's own way may not."""
    kind = type(tensor)
    if tensor.device.type != "cpu":  # its memory may be full, and nobody waits for the host there
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


def _object(value: Any, memo: Memo, depth: int) -> Any:
    """Copy an object with its attributes, a dataclass or a UserDict say, and with its items, if it is a dict or list.

    Anything else copies itself.
    """
    kind: Any = next((kind for kind in (dict, list) if isinstance(value, kind)), None)
    # TensorFlow's tensors copy themselves to themselves, though numpy may have changed what they hold.
    is_opaque = callable(value) or not hasattr(value, "__dict__") or type(value).__name__ == "EagerTensor"
    if kind is None and is_opaque:
        return copy.deepcopy(value)
    new = value.copy() if type(value) is kind else copy.copy(value)
    if new is value:
        return new
    if kind is not None:
        for key in dict.keys(value) if kind is dict else range(list.__len__(value)):
            kind.__setitem__(new, key, _copied(kind.__getitem__(value, key), memo, depth))
    with suppress(AttributeError):  # it may have none; a frozen dataclass forbids to set them otherwise
        attributes = object.__getattribute__(new, "__dict__")
        for name, inner in list(attributes.items()):
            attributes[name] = _copied(inner, memo, depth)
    return new
