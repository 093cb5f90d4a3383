"""`cached`: a map-style Dataset with samples cached in RAM or on disk."""

from __future__ import annotations

import hashlib
import itertools
import mmap
import operator
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, SupportsIndex

from headrace.cache import CacheStats, DescriptorServer, Store, identity_of, parse_spec, shared_descriptor
from headrace.dropins.random_sources import global_states, moved_sources
from headrace.dropins.sample_encoding import UndecodableError, decode_sample, encode_sample
from headrace.errors import SharedMemoryError, UsageError
from headrace.foreign_arguments import known_arguments
from headrace.system import close_at_exit

PROBES = 4
"""Samples that are loaded twice when a cache is opened."""
LOOKS, LOOK_EVERY = 64, 16
"""Global random sources are checked for a process's first 64 samples, then every 16th, since a check costs CPU time."""
HOW_TO_CUT = "Give load= what is done before the first random step, and augment= all from there on"

Load = Callable[[int], Any]


class SampleBuilder:
    """Builder of the samples for a cache."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._made = 0

    def make(self, index: int) -> bytes:
        """Load the sample and encode it.

        Outside the main thread, draws cannot be attributed to a sample, so only the encoding is checked. Raises
        UsageError if the sample visibly draws from a global random source or cannot be cached, and any error of `load`.
        """
        self._made += 1
        looked_at = self._made <= LOOKS or self._made % LOOK_EVERY == 0
        is_main = threading.current_thread() is threading.main_thread()
        before = global_states() if looked_at and is_main else None
        sample = self._load(index)
        moved = [] if before is None else moved_sources(before)
        if moved:
            raise UsageError(
                f"cached: sample {index:,}: expected a sample that is the same each time, got one that draws from "
                f"{' and '.join(moved)}: random steps would be cached. {HOW_TO_CUT}"
            )
        return encode_sample(sample, index)

    def probe(self, length: int) -> list[bytes]:
        """Load a fixed set of samples twice each and return them encoded.

        Raises UsageError also if a sample differs the second time, for example because the dataset has its own random
        generator.
        """
        made = []
        for index in probed(length):
            made.append(self.make(index))
            if made[-1] != self.make(index):
                raise UsageError(
                    f"cached: sample {index:,}: expected a sample that is the same each time, got another one when it "
                    f"was made again: random steps would be cached. {HOW_TO_CUT}"
                )
        return made


def probed(length: int) -> list[int]:
    """Return the indices to probe: the first, the last, and two in between."""
    if length <= PROBES:
        return list(range(length))
    between = random.Random(length).sample(range(1, length - 1), PROBES - 2)
    return sorted({0, length - 1, *between})


ROWS = 1024
"""Rows of counters, one per process by pid. Concurrent processes that share a row may lose an increment."""
HITS, MISSES, ADMITTED, DAMAGED = range(4)
_COLUMNS = 4
_BYTES = ROWS * _COLUMNS * 8


class CacheCounters:
    """Counters in anonymous shared memory under a cache's name. Forks inherit them, unpickled copies reattach."""

    def __init__(self, name: str) -> None:
        """Allocate the counters. Raises SharedMemoryError."""
        self._name = name
        descriptor, self._hand_out = shared_descriptor(f"{name}-counts", _make)
        try:
            self._view = memoryview(mmap.mmap(descriptor, _BYTES)).cast("Q")
        except OSError as error:
            raise SharedMemoryError(f"no memory for the counts of a cache: {error}") from error
        finally:
            if self._hand_out is None:
                os.close(descriptor)
        self._descriptor = descriptor if self._hand_out is not None else None
        close_at_exit(self)

    def __reduce__(self) -> tuple[Callable[..., CacheCounters], tuple[Any, ...]]:
        return CacheCounters, (self._name,)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    def add(self, column: int, count: int = 1) -> None:
        self._view[os.getpid() % ROWS * _COLUMNS + column] += count

    def totals(self) -> list[int]:
        """Return the totals over all processes, by column."""
        return [sum(self._view[column::_COLUMNS].tolist()) for column in range(_COLUMNS)]

    def close(self) -> None:
        """Stop serving the memory to other processes."""
        hand_out: DescriptorServer | None = self._hand_out
        if hand_out is not None:
            hand_out.close()
            self._hand_out = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _make() -> int:
    try:
        descriptor = os.memfd_create("headrace-cache-counts")
        os.ftruncate(descriptor, _BYTES)
    except (AttributeError, OSError) as error:
        raise SharedMemoryError(f"no memory for the counts of a cache: memfd_create of Linux: {error}") from error
    return descriptor


FORMAT = "headrace cached 1"
Augment = Callable[[Any], Any]

_numbers = itertools.count()


@known_arguments("cached")
def cached(
    dataset: Any,
    *,
    cache: str,
    load: Load | None = None,
    augment: Augment | None = None,
    name: str | None = None,
) -> CachedDataset:
    """Return a dataset whose sample `i` is `augment(load(i))`, with the results of `load` cached on first use.

    `cache`   "ram:8GB", or "disk:/path:200GB", which persists across runs. Samples over the limit are loaded each time
    `load`    index → sample, deterministic; None: `dataset[index]`
    `augment` sample → sample, called on each access, so its random draws stay random; None: no augmentation. It
              receives its own copy of the sample and may modify it
    `name`    identifies the data and `load`, required for disk: caches with equal names and lengths share samples. In
              RAM, processes on this node with the same name share one cache; without a name, workers and the ranks that
              torchrun starts share it

    Samples are dicts, lists and tuples of None, bool, int, float, str, bytes, NumPy arrays, CPU tensors and Pillow
    images. Types and bits are preserved; a picture is returned as `PIL.Image.Image`.

    Opening the cache loads four samples twice each. If they differ from an existing cache, the cache is rebuilt, with a
    warning for disk.

    Raises UsageError (arguments; a sample that cannot be cached, is not deterministic, or draws from a global random
    source), SharedMemoryError or WriteError.
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
            "cached: name: expected a name for a cache on a disk, such as name='cifar-train-256px-v1', got none. "
            "Later runs find their samples by it: change it whenever the data or load= change"
        )
    length = len(dataset)
    if length == 0:
        raise UsageError("cached: expected a dataset with samples, got an empty one")
    maker = SampleBuilder(dataset.__getitem__ if load is None else load)
    # Changed data or code changes the digests.
    stamp = [hashlib.blake2b(data, digest_size=16).hexdigest() for data in maker.probe(length)]
    identity = identity_of(length, [FORMAT, _name_of(name)], stamp)
    counters = CacheCounters(f"{identity.name}-{identity.stamp[:8].hex()}-{uuid.uuid4().hex}")
    return CachedDataset(dataset, maker, augment, Store(spec, identity), counters)


class CachedDataset:
    """Dataset returned by `cached`. Other attributes are forwarded to the wrapped dataset."""

    def __init__(
        self, dataset: Any, maker: SampleBuilder, augment: Augment | None, store: Store, counters: CacheCounters
    ) -> None:
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
        """Return this dataset's cache statistics over all processes that share the object."""
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
            except UndecodableError:  # e.g. a named tuple whose module is not imported
                self._counters.add(DAMAGED)
            else:
                self._counters.add(HITS)
                return sample
        damaged = self._store.stats().damaged
        if damaged > self._damaged:
            self._counters.add(DAMAGED, damaged - self._damaged)
            self._damaged = damaged
        made = self._maker.make(index)
        self._counters.add(MISSES)
        if self._store.put(index, made):
            self._counters.add(ADMITTED)
        return decode_sample(made)  # so that the first access returns the same types as later ones


def _name_of(name: str | None) -> list[Any]:
    """Return the identity of a cache by name.

    A RAM cache without a name belongs to this process, or to the torchrun run. All ranks of a run create their caches
    in the same order, so a counter identifies each cache.
    """
    if name is not None:
        return ["named", name]
    run = os.environ.get("TORCHELASTIC_RUN_ID")
    if run is None or run == "none":
        address = [os.environ.get(part) for part in ("MASTER_ADDR", "MASTER_PORT")]
        run = None if run is None or None in address else ":".join(map(str, address))
    return ["run", uuid.uuid4().hex if run is None else run, next(_numbers)]
