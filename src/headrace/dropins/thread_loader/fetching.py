"""Loading of a batch's parts from the dataset, with a per-thread `get_worker_info()`.

torch has one worker info per process, in a global that `torch.utils.data.get_worker_info` returns, and datasets import
that function by name. Its code is therefore replaced once, by the first thread that has its own info, with code that
checks the current thread first. Everywhere else, including DataLoader's worker processes, it returns torch's value.
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
    """This thread's result of `get_worker_info()`, and the names of the attributes read from it."""

    def __init__(self) -> None:
        self.value: WorkerInfo | None = None
        self.asked: set[str] = set()


_info = _ThreadInfo()


class ReaderInfo(WorkerInfo):
    """Result of `get_worker_info()` in the thread that reads an iterable dataset; records the attributes read."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in ("id", "num_workers"):
            _info.asked.add(name)
        return super().__getattribute__(name)


def warn_of_lost_shards(workers: int) -> None:
    """Warn if the dataset read in this thread has probably used only worker 0's shards out of several.

    `workers` is the loader's `num_workers`. Code that splits shards for that many workers and selects by id reads only
    part of its data; code that also reads `num_workers` reads all of it.
    """
    if workers > 1 and _info.asked == {"id"}:
        warnings.warn(
            "the iterable dataset asked get_worker_info() for its id, and not for num_workers: one thread reads it, as "
            f"worker 0 of 1, so shards that were cut for {workers} workers were read in part; cut them by "
            "get_worker_info().num_workers, or pass num_workers=1",
            stacklevel=2,
        )


def worker_info(worker: int, workers: int, seed: int, dataset: Dataset[Any]) -> WorkerInfo:
    """Return the result of `get_worker_info()` for one of `workers`; `seed` is the loader's plus the worker's id."""
    info: Any = ReaderInfo if isinstance(dataset, IterableDataset) else WorkerInfo
    more = {"worker_method": "thread"} if "worker_method" in signature(WorkerInfo).parameters else {}
    return info(id=worker, num_workers=workers, seed=seed, dataset=dataset, **more)  # type: ignore[no-any-return]


def _get_worker_info() -> WorkerInfo | None:
    """Return the process's worker info from DataLoader, unless this is a thread of a ThreadDataLoader.

    Only the code object is used, inside torch's function of that name and with its globals.
    """
    import sys

    from headrace.dropins.thread_loader.fetching import _info

    # default_collate calls it too, and puts tensors into shared memory if there is a worker.
    collates = sys._getframe(1).f_globals.get("__name__") == "torch.utils.data._utils.collate"
    own = None if collates else _info.value
    return _worker_info if own is None else own  # type: ignore[name-defined]  # noqa: F821  # torch's global


def tell_worker_info(info: WorkerInfo) -> None:
    """Make `get_worker_info()` return `info` in this thread, as in DataLoader's worker processes."""
    get_worker_info.__code__ = _get_worker_info.__code__
    _info.value, _info.asked = info, set()


class EndOfData(Exception):  # noqa: N818  # how an iterable dataset ends, no error
    """Signal that an iterable dataset has no further batch."""


class MapFetcher:
    """Fetcher of a map-style dataset. A part is a sample, or a whole batch if the dataset has `__getitems__`.

    `cancelled` is set when the pass's batches are no longer needed. All methods may be called in any thread.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], *, batched: bool, key: int) -> None:
        """Set up a pass; `batched` is False for batch_size=None, where each index is a single sample."""
        self._dataset = dataset
        self._collate = collate
        self._by_sample = batched and not _loads_batches(dataset)
        self._whole = batched and not self._by_sample
        self._key = key
        self.cancelled = False

    def parts(self, indices: Any) -> list[Any]:
        """Return the parts that can be loaded in parallel. An empty list is an empty batch, as in DataLoader."""
        return list(indices) if self._by_sample else [indices]

    def load(self, part: Any, *, step: int, row: int) -> Any:
        enter(SampleRandom(self._key, step, row))
        return self._dataset.__getitems__(part) if self._whole else self._dataset[part]

    def collate(self, loaded: list[Any], *, step: int) -> Any:
        """Collate the batch once all parts are loaded."""
        enter(SampleRandom(self._key, step, None))
        return self._collate(loaded if self._by_sample else loaded[0])

    def where(self, part: Any, *, step: int, row: int) -> str:
        """Return the name of a part for error messages."""
        name = reprlib.repr(part)
        return f"dataset[{name}], sample {row} of batch {step}" if self._by_sample else f"dataset[{name}], batch {step}"


def _loads_batches(dataset: Any) -> bool:
    """Return True if the dataset itself has `__getitems__`; Subset merely forwards it."""
    if type(dataset) is Subset:
        return _loads_batches(dataset.dataset)
    return bool(getattr(dataset, "__getitems__", None))


class IterableFetcher:
    """Fetcher of an iterable dataset, read by one thread from the start. A part is a whole batch."""

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
        """Set up a pass that reads and drops the first `skip` batches. `workers` is the loader's `num_workers`."""
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
        """Read batches that the consumer already received. A batch that failed then fails again and is skipped.

        Raises StateError if the dataset ends too early, or the error that ended it.
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
        """Read the next `count` samples, fewer only at the end. Raises EndOfData."""
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
"""Fetcher of the batches of one pass."""
