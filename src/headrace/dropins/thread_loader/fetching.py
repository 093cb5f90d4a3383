"""Loading and collation of a batch's parts, with a per-thread `get_worker_info()`.

torch has one worker info per process, in a global that `torch.utils.data.get_worker_info` returns, and datasets import
that function by name. Its code is therefore replaced once, by the first thread that has its own info, with code that
checks the current thread first. Everywhere else, including DataLoader's worker processes, it returns torch's value.
"""

from __future__ import annotations

import reprlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info
from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate_fn_map
from torch.utils.data._utils.worker import WorkerInfo

from headrace.device import NO_LEAF, map_leaves
from headrace.dropins.random_sources import SampleRandom, enter
from headrace.errors import StateError, warn_caller
from headrace.loader import ProcessBlocks


class _ThreadInfo(threading.local):
    """This thread's result of `get_worker_info()`, and the names of the attributes read from it."""

    value: WorkerInfo | None = None
    asked: frozenset[str] = frozenset()


_info = _ThreadInfo()


class ReaderInfo(WorkerInfo):
    """Result of `get_worker_info()` in the thread that reads an iterable dataset; records the attributes read."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in ("id", "num_workers"):
            _info.asked |= {name}
        return super().__getattribute__(name)


def worker_info(worker: int, *, workers: int, seed: int, dataset: Dataset[Any]) -> WorkerInfo:
    """Return the result of `get_worker_info()` for one of `workers`, from the loader's base seed."""
    info: Any = ReaderInfo if isinstance(dataset, IterableDataset) else WorkerInfo
    more = {"worker_method": "thread"} if hasattr(WorkerInfo, "worker_method") else {}
    return info(id=worker, num_workers=workers, seed=seed + worker, dataset=dataset, **more)  # type: ignore[no-any-return]


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
    _info.value, _info.asked = info, frozenset()


class EndOfData(Exception):  # noqa: N818  # how an iterable dataset ends, no error
    """Signal that an iterable dataset has no further batch."""


class Fetcher:
    """Fetcher of a pass over a map-style dataset. A part is a sample, or a whole batch if there is `__getitems__`.

    `cancelled` is set when the pass's batches are no longer needed. All methods may be called in any thread.
    """

    def __init__(self, loader: DataLoader[Any], collate: Callable[[Any], Any], *, key: int) -> None:
        """Set up a pass; `key` identifies its random sources. Without a batch sampler, each index is a sample."""
        self._dataset: Any = loader.dataset
        self._collate = collate
        self._batched = loader.batch_sampler is not None
        self._by_sample = self._batched and not _loads_batches(loader.dataset)
        self._key = key
        self.cancelled = False

    def parts(self, indices: Any) -> list[Any]:
        """Return the parts that can be loaded in parallel. An empty list is an empty batch, as in DataLoader."""
        return list(indices) if self._by_sample else [indices]

    def load(self, part: Any, *, step: int, row: int) -> Any:
        enter(SampleRandom(self._key, step, row))
        whole = self._batched and not self._by_sample
        return self._dataset.__getitems__(part) if whole else self._dataset[part]

    def collate(self, loaded: list[Any], *, step: int) -> Any:
        """Collate the batch once all parts are loaded."""
        enter(SampleRandom(self._key, step, None))
        return self._collate(loaded if self._by_sample else loaded[0])

    def where(self, part: Any, *, step: int, row: int) -> str:
        """Return the name of a part for error messages."""
        name = reprlib.repr(part)
        return f"dataset[{name}], sample {row} of batch {step}" if self._by_sample else f"dataset[{name}], batch {step}"


def _loads_batches(dataset: Any) -> bool:
    """Return True if the dataset is iterable, or has `__getitems__` itself; Subset merely forwards it."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return isinstance(dataset, IterableDataset) or bool(getattr(dataset, "__getitems__", None))


class IterableFetcher(Fetcher):
    """Fetcher of an iterable dataset, read by one thread from the start. A part is a whole batch."""

    def __init__(self, loader: DataLoader[Any], collate: Callable[[Any], Any], *, key: int, skip: int) -> None:
        """Set up a pass that reads and drops the first `skip` batches."""
        super().__init__(loader, collate, key=key)
        self._drop_last = loader.drop_last
        self._workers = loader.num_workers
        self._skip = skip
        self._samples: Iterator[Any] | None = None
        self._ended = False

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
                self._warn_of_lost_shards()
        if not samples or (self._drop_last and len(samples) < count):
            raise EndOfData
        return samples if self._batched else samples[0]

    def _warn_of_lost_shards(self) -> None:
        """Warn if the dataset has probably taken worker 0's shards out of several: it read the id alone."""
        if self._workers > 1 and _info.asked == {"id"}:
            warn_caller(
                "the iterable dataset asked get_worker_info() for its id, and not for num_workers: one thread reads "
                f"it, as worker 0 of 1, so shards that were cut for {self._workers} workers were read in part; cut "
                "them by get_worker_info().num_workers, or pass num_workers=1"
            )

    def where(self, part: Any, *, step: int, row: int) -> str:
        return f"the iterable dataset, batch {step}"


WORTHWHILE_BYTES = 1 << 20
"""Minimum size for pooled blocks; smaller allocations are served by the C library without system calls."""


class CollateMemory:
    """Collation like `default_collate`, with large tensors in pooled blocks.

    A block returns to the pool when the last view of it is gone, so a batch stays valid as long as it is referenced.
    """

    def __init__(self, most_idle: int) -> None:
        """Retain at most `most_idle` blocks for later batches."""
        self._most_idle = most_idle
        self._blocks = ProcessBlocks(most_idle)

    def collate(self, samples: Sequence[Any]) -> Any:
        """Collate samples like `default_collate`; may be called in any thread."""
        functions: dict[Any, Callable[..., Any]] = dict(default_collate_fn_map)
        if functions[torch.Tensor] is collate_tensor_fn:  # else the user replaced it
            functions[torch.Tensor] = self._stack
        return collate(samples, collate_fn_map=functions)

    def __reduce__(self) -> tuple[Any, ...]:
        return CollateMemory, (self._most_idle,)

    def _stack(self, tensors: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
        first, count = tensors[0], len(tensors)
        # `nbytes` comes after the check: tensors that are not strided may have none.
        is_large = _plain(first, first) and first.nbytes * count >= WORTHWHILE_BYTES
        if not is_large or not all(_plain(each, first) for each in tensors):
            batch: torch.Tensor = collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)
            return batch
        block = torch.from_numpy(self._blocks.acquire(first.nbytes * count))
        return torch.stack(tuple(tensors), out=block.view(first.dtype).view(count, *first.shape))


def _plain(tensor: torch.Tensor, first: torch.Tensor) -> bool:
    """Return True if stacking the tensor with `first` is a plain copy of bytes."""
    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.dtype is first.dtype
        and tensor.shape == first.shape
        and tensor.is_contiguous()
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def pin(batch: Any) -> Any:
    """Pin each tensor of `batch`; types of containers are preserved, dataclasses included.

    Like DataLoader, calls `pin_memory` on objects that have it, containers included; other values are unchanged.
    """
    return map_leaves(batch, lambda _, part: part.pin_memory() if hasattr(part, "pin_memory") else NO_LEAF)
