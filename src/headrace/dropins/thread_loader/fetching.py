"""Fetching of a batch's parts from the dataset, and the result of `get_worker_info()` meanwhile.

torch keeps one worker info for a process, in a global that `torch.utils.data.get_worker_info` returns, and datasets
import that function by name. So its code is replaced once, on the first thread that has an info of its own, by code
that asks this thread first. Everywhere else, worker processes of a DataLoader included, the answer stays torch's.
"""

from __future__ import annotations

import reprlib
import threading
import warnings
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any, TypeAlias

from torch.utils.data import Dataset, IterableDataset, Subset, get_worker_info
from torch.utils.data._utils.worker import WorkerInfo

from headrace.dropins.random_sources import SampleRandom, enter
from headrace.errors import StateError


class _ThreadInfo(threading.local):
    """What `get_worker_info()` returns in this thread of a ThreadDataLoader, and which of it was asked for."""

    def __init__(self) -> None:
        self.value: WorkerInfo | None = None
        self.asked: set[str] = set()


_info = _ThreadInfo()


class ReaderInfo(WorkerInfo):
    """Result of `get_worker_info()` in the thread that reads an iterable dataset; it records what is asked for."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in ("id", "num_workers"):
            _info.asked.add(name)
        return super().__getattribute__(name)


def warn_of_lost_shards(workers: int) -> None:
    """Warn where the dataset that this thread has read took the part of worker 0 as one of several would have it.

    `workers` is the loader's `num_workers`. Code that has cut shards for as many, and takes that of its id, has read a
    part of its data; code that asks how many workers there are has read all.
    """
    if workers > 1 and _info.asked == {"id"}:
        warnings.warn(
            "the iterable dataset asked get_worker_info() for its id, and not for num_workers: one thread reads it, as "
            f"worker 0 of 1, so shards that were cut for {workers} workers were read in part; cut them by "
            "get_worker_info().num_workers, or pass num_workers=1",
            stacklevel=2,
        )


def worker_info(worker: int, workers: int, seed: int, dataset: Dataset[Any]) -> WorkerInfo:
    """Return what `get_worker_info()` says in one of `workers`; `seed` is the loader's with the worker's number."""
    info: Any = ReaderInfo if isinstance(dataset, IterableDataset) else WorkerInfo
    more = {"worker_method": "thread"} if "worker_method" in signature(WorkerInfo).parameters else {}
    return info(id=worker, num_workers=workers, seed=seed, dataset=dataset, **more)  # type: ignore[no-any-return]


def _get_worker_info() -> WorkerInfo | None:
    """Return what DataLoader keeps for this process, unless this is a thread of a ThreadDataLoader.

    Only its code is used, inside torch's function of that name and with its globals: datasets import the function by
    name, and what it returns is one value for a process.
    """
    import sys

    from headrace.dropins.thread_loader.fetching import _info

    # default_collate asks as well, and puts tensors into shared memory wherever there is a worker.
    collates = sys._getframe(1).f_globals.get("__name__") == "torch.utils.data._utils.collate"
    own = None if collates else _info.value
    return _worker_info if own is None else own  # type: ignore[name-defined]  # noqa: F821  # torch's global


def tell_worker_info(info: WorkerInfo) -> None:
    """Make `get_worker_info()` return `info` in this thread, as it does in DataLoader's processes."""
    get_worker_info.__code__ = _get_worker_info.__code__
    _info.value, _info.asked = info, set()


class EndOfData(Exception):  # noqa: N818  # how an iterable dataset ends, no error
    """Signal that an iterable dataset has no further batch."""


class MapFetcher:
    """Fetcher of a map-style dataset: a sample is a part, unless the dataset loads whole batches (`__getitems__`).

    `cancelled` is set when nobody wants the pass's batches any more. All methods may be called in any thread.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], *, batched: bool, key: int) -> None:
        """Fetch by sample; `batched` is False for batch_size=None, where each index is one sample and no batch."""
        self._dataset = dataset
        self._collate = collate
        self._by_sample = batched and not _loads_batches(dataset)
        self._whole = batched and not self._by_sample
        self._key = key
        self.cancelled = False

    def parts(self, indices: Any) -> list[Any]:
        """Return the parts that can be loaded in parallel. An empty list makes a batch of nothing, as in DataLoader."""
        return list(indices) if self._by_sample else [indices]

    def load(self, part: Any, *, step: int, row: int) -> Any:
        """Load one part."""
        enter(SampleRandom(self._key, step, row))
        return self._dataset.__getitems__(part) if self._whole else self._dataset[part]

    def collate(self, loaded: list[Any], *, step: int) -> Any:
        """Collate the batch, once all parts are there."""
        enter(SampleRandom(self._key, step, None))
        return self._collate(loaded if self._by_sample else loaded[0])

    def where(self, part: Any, *, step: int, row: int) -> str:
        """Name a part in an error."""
        name = reprlib.repr(part)
        return f"dataset[{name}], sample {row} of batch {step}" if self._by_sample else f"dataset[{name}], batch {step}"


def _loads_batches(dataset: Any) -> bool:
    """Return whether `__getitems__` does more than __getitem__ for each: Subset has it only to hand it on."""
    if type(dataset) is Subset:
        return _loads_batches(dataset.dataset)
    return bool(getattr(dataset, "__getitems__", None))


class IterableFetcher:
    """Fetcher of an iterable dataset, which one thread reads from its start; `parts` are whole batches."""

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[Any], Any],
        *,
        batched: bool,
        drop_last: bool,
        key: int,
        skip: int,
        workers: int,
    ) -> None:
        """Read and drop the first `skip` batches. `workers` is the loader's `num_workers`."""
        self._dataset = dataset
        self._collate = collate
        self._batched = batched
        self._drop_last = drop_last
        self._key = key
        self._skip = skip
        self._workers = workers
        self._samples: Iterator[Any] | None = None
        self._ended = False
        self.cancelled = False

    def parts(self, indices: Any) -> list[Any]:
        return [indices]

    def load(self, part: Any, *, step: int, row: int) -> Any:
        count = len(part) if self._batched else 1
        if self._samples is None:
            self._samples = iter(self._dataset)
            self._pass_over(count, range(step - self._skip, step))
        return self._read(count, step)

    def _pass_over(self, count: int, steps: range) -> None:
        """Read batches that the consumer has had. One that failed, and was survived, fails again here.

        Raises StateError where the dataset ends before them, or the error that ended it.
        """
        failure: Exception | None = None
        for step in steps:
            try:
                self._read(count, step)
            except EndOfData:
                if self.cancelled:
                    raise
                raise failure or StateError(
                    f"state: expected an iterable dataset of at least the {len(steps)} batches that were received "
                    f"before, got {step - steps.start}; resume with the same dataset and batch size"
                ) from None
            except Exception as error:
                failure = error

    def _read(self, count: int, step: int) -> Any:
        """Read the next samples; fewer only at the end. Raises EndOfData."""
        samples: list[Any] = []
        while len(samples) < count and not self._ended:
            if self.cancelled:
                raise EndOfData
            enter(SampleRandom(self._key, step, len(samples)))
            try:
                samples.append(next(self._samples))  # type: ignore[arg-type]  # `load` has opened it
            except StopIteration:
                self._ended = True
                warn_of_lost_shards(self._workers)
        if not samples or (self._drop_last and len(samples) < count):
            raise EndOfData
        return samples if self._batched else samples[0]

    def collate(self, loaded: list[Any], *, step: int) -> Any:
        enter(SampleRandom(self._key, step, None))
        return self._collate(loaded[0])

    def where(self, part: Any, *, step: int, row: int) -> str:
        return f"the iterable dataset, batch {step}"


Fetcher: TypeAlias = MapFetcher | IterableFetcher
"""Loads the batches of one pass."""
