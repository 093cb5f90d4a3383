"""`cached`: around a map-style Dataset, keeps what is the same each time a sample is made."""

from __future__ import annotations

import hashlib
import itertools
import operator
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, SupportsIndex

from headrace.cache import CacheSpec, CacheStats, Store, identity_of, parse_spec
from headrace.compat.caching.counters import ADMITTED, DAMAGED, HITS, MISSES, Counters
from headrace.compat.caching.encoding import UndecodableError, decode_sample
from headrace.compat.caching.sameness import Load, Maker
from headrace.errors import UsageError

FORMAT = "headrace cached 1"
Augment = Callable[[Any], Any]

_numbers = itertools.count()


def cached(
    dataset: Any,
    *,
    cache: str,
    load: Load | None = None,
    augment: Augment | None = None,
    name: str | None = None,
) -> CachedDataset:
    """A dataset whose sample `i` is `augment(load(i))`, with what `load` gives kept from its first time on.

    `cache`   "ram:8GB", or "disk:/path:200GB", which also later runs use. Beyond the limit samples are made each time
    `load`    index → sample, the same each time; None: `dataset[index]`
    `augment` sample → sample, called each time, so what is random there stays random; None: nothing. It has a sample
              of its own, in which it may write
    `name`    says which data and which `load` this is; needed for a disk: who opens the cache of that name and length
              there gets its samples. In RAM, processes of this node with the same name share one cache; without,
              workers and the ranks that torchrun starts do

    Samples are dicts, lists and tuples of None, bool, int, float, str, bytes, numpy arrays, CPU tensors and Pillow
    images, and come back of the same types, bit for bit; a picture as `PIL.Image.Image`.

    Four samples are made when it is opened, each twice. Where they are not what they were when the cache was made, the
    cache is made anew, with a warning on a disk.

    Raises UsageError (arguments, a sample that cannot be kept, or that is another one when it is made again or draws
    from a global random source), SharedMemoryError or WriteError.
    """
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise UsageError(
            f"cached: expected a map-style dataset, with len() and an index, got a {type(dataset).__name__}"
        )
    for argument, value in (("load", load), ("augment", augment)):
        if value is not None and not callable(value):
            raise UsageError(f"cached: {argument}: expected a function, got {value!r}")
    spec = parse_spec(cache)
    if spec.kind == "disk" and not name:
        raise UsageError(
            "cached: name: expected a name beside a cache on a disk, such as name='cifar-train-256px-v1', got none. "
            "Later runs find their samples by it: change it whenever the data or load= change"
        )
    length = len(dataset)
    if length == 0:
        raise UsageError("cached: expected a dataset with samples, got an empty one")
    maker = Maker(dataset, dataset.__getitem__ if load is None else load)
    identity = identity_of(length, [FORMAT, _name_of(spec, name)], _stamp(maker, length))
    counters = Counters(f"{identity.name}-{identity.stamp[:8].hex()}-{uuid.uuid4().hex}")
    return CachedDataset(dataset, maker, augment, Store(spec, identity), counters)


class CachedDataset:
    """Made by `cached`. Attributes that it does not have are the dataset's."""

    def __init__(self, dataset: Any, maker: Maker, augment: Augment | None, store: Store, counters: Counters) -> None:
        self.dataset = dataset
        self._maker = maker
        self._augment = augment
        self._store = store
        self._counters = counters
        self._damaged = 0
        self._length = len(store)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Any:
        at = operator.index(index)
        if not -self._length <= at < self._length:
            raise IndexError(f"sample {at:,} of {self._length:,}")
        sample = self._kept(at % self._length)
        return sample if self._augment is None else self._augment(sample)

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(self._length))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "dataset":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.dataset, name)

    def __repr__(self) -> str:
        return f"cached({self.dataset!r}): {self.stats()}"

    def stats(self) -> CacheStats:
        """What the cache did for this dataset in all processes that were started with it."""
        totals = self._counters.totals()
        return replace(
            self._store.stats(),
            hits=totals[HITS],
            misses=totals[MISSES],
            admitted=totals[ADMITTED],
            damaged=totals[DAMAGED],
        )

    def _kept(self, index: int) -> Any:
        data = self._store.get(index)
        if data is not None:
            try:
                sample = decode_sample(data)
            except UndecodableError:  # a named tuple of a module that is not here
                self._counters.add(DAMAGED)
            else:
                self._counters.add(HITS)
                return sample
        self._count_damaged()
        made = self._maker.make(index)
        self._counters.add(MISSES)
        if self._store.put(index, made):
            self._counters.add(ADMITTED)
        return decode_sample(made)  # so that a sample is the same object's kind the first time, too

    def _count_damaged(self) -> None:
        damaged = self._store.stats().damaged
        if damaged > self._damaged:
            self._counters.add(DAMAGED, damaged - self._damaged)
            self._damaged = damaged


def _name_of(spec: CacheSpec, name: str | None) -> list[Any]:
    """Of a cache in RAM without a name: this process's, or if torchrun started it the run's, by the order in which
    its caches are made, which is the same on all ranks."""
    if name is not None:
        return ["named", name]
    run = os.environ.get("TORCHELASTIC_RUN_ID")
    if run is None or run == "none":
        address = [os.environ.get(part) for part in ("MASTER_ADDR", "MASTER_PORT")]
        run = None if run is None or None in address else ":".join(map(str, address))
    return ["run", uuid.uuid4().hex if run is None else run, next(_numbers)]


def _stamp(maker: Maker, length: int) -> list[str]:
    """What some samples are: data or code that changed gives others."""
    return [hashlib.blake2b(data, digest_size=16).hexdigest() for data in maker.probe(length)]
