"""What tells the samples of one run from those of another: digests of the first batches that a process trains on."""

from __future__ import annotations

import functools
import hashlib
import sys
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable

from .passes import ATTRIBUTE
from .sample_digests import random_states

if TYPE_CHECKING:
    from types import ModuleType

    from .probe import Probe

MOST_BYTES = 256 << 20
"""Digested of all batches together: at 1 GB/s a quarter of a second of the warm-up."""
SKETCHED = 32
"""Values of each tensor that are kept, so that batches which differ by rounding alone can be told from others."""
MOST_TENSORS = 64
"""Of a batch that is sketched: of one with more nothing is."""
LOOKED_AT = 4
"""Batches of each process that are looked at for random numbers drawn while they are made: what a look costs, 0.1 ms,
is a part of making them."""
_KEYS = "_headrace_keys"
"""Attribute of a DataLoader's iterator: digests of the keys that it drew, batch by batch."""


def watch(probe: Probe) -> None:
    """To be called before the hooks are there: what a digest costs then is a part of waiting for a batch, early on."""
    probe.when_imported("torch.utils.data.dataloader", _watch_batches)
    probe.when_imported("torch.utils.data._utils.fetch", _watch_draws)


def _watch_batches(probe: Probe, dataloader: ModuleType) -> None:
    digests = _Digests(probe)
    iterator = dataloader._BaseDataLoaderIter
    probe.patches.replace(iterator, "__next__", digests.next)
    probe.patches.replace(iterator, "_next_index", digests.next_index)


class _Digests:
    """Of the batches of a process, in the order in which it receives them, as long as it warms up: the steps after that
    are measured."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._left = probe.settings.digests
        self._free = MOST_BYTES

    def next(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: N807
            batch = original(iterator)
            if self._left > 0 and self._is_warming_up():
                self._try(self._write, iterator, batch)
            return batch

        return __next__

    def next_index(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def _next_index(iterator: Any) -> Any:
            keys = original(iterator)
            if self._left > 0:
                self._try(self._keep_keys, iterator, keys)
            return keys

        return _next_index

    def _is_warming_up(self) -> bool:
        training = self._probe.training
        return training.limit.warmup is None or training.steps.number < training.limit.warmup

    def _try(self, call: Callable[[Any, Any], None], iterator: Any, value: Any) -> None:
        try:
            call(iterator, value)
        except Exception as error:
            self._left = 0
            self._probe.fault("digests of samples", error)

    def _keep_keys(self, iterator: Any, keys: Any) -> None:
        kept = vars(iterator).setdefault(_KEYS, [])
        if len(kept) <= self._probe.settings.digests:
            kept.append(_keys_digest(keys))

    def _write(self, iterator: Any, batch: Any) -> None:
        pass_ = getattr(iterator, ATTRIBUTE, None)
        if pass_ is None:  # none that is followed: inside a worker, or of a loader that a dataset reads
            return
        tensors = list(_tensors(batch))
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if size > self._free or any(tensor.device.type != "cpu" for tensor in tensors):
            self._left = 0
            return
        self._left -= 1
        self._free -= size
        keys = vars(iterator).get(_KEYS)
        digest = hashlib.blake2b(digest_size=8)
        for tensor in tensors:
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(_bytes(tensor))
        sketches = [_sketch(tensor) for tensor in tensors] if len(tensors) <= MOST_TENSORS else []
        record = ("digest", pass_.number, digest.hexdigest(), keys.pop(0) if keys else None, sketches)
        self._probe.evidence.write(record)


def _keys_digest(keys: Any) -> str | None:
    """None where an iterable dataset, or one that takes no keys, is asked for samples by None."""
    if not isinstance(keys, (list, tuple)) or all(key is None for key in keys):
        return None
    return hashlib.blake2b(repr(keys).encode(errors="replace"), digest_size=8).hexdigest()


def _tensors(batch: Any) -> Any:
    """In the order in which the batch has them."""
    torch = sys.modules["torch"]
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _tensors(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from _tensors(value)


def _bytes(tensor: Any) -> Any:
    return memoryview(tensor.detach().contiguous().view(-1).view(sys.modules["torch"].uint8).numpy())


def _sketch(tensor: Any) -> list[float]:
    """A few of its values, from all over it. Of labels and tokens, which are not rounded, a sum of all."""
    if _is_exact(tensor):
        return [float(zlib.crc32(_bytes(tensor)))]
    flat = tensor.detach().reshape(-1)
    every = max(flat.numel() // SKETCHED, 1)
    values = flat[::every][:SKETCHED].double().nan_to_num()
    return [round(value, 5) for value in values.tolist()]


def _is_exact(tensor: Any) -> bool:
    """Whole numbers wider than a pixel's, and no image of them."""
    torch = sys.modules["torch"]
    return tensor.dtype is not torch.uint8 and tensor.dim() <= 2 and not torch.is_floating_point(tensor)


def _watch_draws(probe: Probe, fetch: ModuleType) -> None:
    """Says of a process whether random numbers were drawn in it while samples were made: then what a sample holds
    hangs also on who made it, and on what was made before."""
    watch = _Draws(probe)
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        probe.patches.replace(getattr(fetch, name), "fetch", watch.fetch)


class _Draws:
    """Looks at the first batches that a process makes."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._left = 0
        self._file = ""

    def fetch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def fetch(fetcher: Any, index: Any) -> Any:
            before = self._state() if self._may_look() else None
            data = original(fetcher, index)
            if before is not None and before != self._state():
                self._say()
            return data

        return fetch

    def _may_look(self) -> bool:
        if self._file != self._probe.evidence.path:  # a fork looks anew
            self._file = self._probe.evidence.path
            self._left = LOOKED_AT
        self._left -= 1
        return self._left >= 0

    def _state(self) -> Any:
        """Of the generators that everybody shares."""
        try:
            return random_states()
        except Exception as error:
            self._left = 0
            self._probe.fault("draws of samples", error)
            return None

    def _say(self) -> None:
        self._left = 0
        self._probe.evidence.write(("facts", self._probe.clock.now_us(), {"draws": True}))
