"""How the parts of one batch are loaded, and made into the batch: what DataLoader's fetchers do, part by part."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch.utils.data import Subset

from headrace.compat.thread_loader.worker_info import warn_of_lost_shards
from headrace.dropins.random_sources import SampleRandom, enter
from headrace.errors import StateError


class EndOfData(Exception):  # noqa: N818  # how an iterable dataset ends, no error
    """An iterable dataset has no further batch."""


class Fetcher(Protocol):
    """Loads batches of one pass. `cancelled` is set when nobody wants them any more."""

    cancelled: bool

    def parts(self, indices: Any) -> list[Any]:
        """What can be loaded side by side. An empty list makes a batch of nothing, as DataLoader does."""

    def load(self, part: Any, *, step: int, row: int) -> Any:
        """One part, in any thread."""

    def collate(self, loaded: list[Any], *, step: int) -> Any:
        """The batch, in any thread, once all parts are there."""

    def where(self, part: Any, *, step: int, row: int) -> str:
        """Names a part in an error."""


class MapFetcher:
    """Of a map-style dataset: a sample is a part, unless the dataset loads whole batches (`__getitems__`)."""

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], *, batched: bool, key: int) -> None:
        """`batched` is False for batch_size=None, where each index gives one sample that is no batch."""
        self._dataset = dataset
        self._collate = collate
        self._by_sample = batched and not _loads_batches(dataset)
        self._whole = batched and not self._by_sample
        self._key = key
        self.cancelled = False

    def parts(self, indices: Any) -> list[Any]:
        return list(indices) if self._by_sample else [indices]

    def load(self, part: Any, *, step: int, row: int) -> Any:
        enter(SampleRandom(self._key, step, row))
        return self._dataset.__getitems__(part) if self._whole else self._dataset[part]

    def collate(self, loaded: list[Any], *, step: int) -> Any:
        enter(SampleRandom(self._key, step, None))
        return self._collate(loaded if self._by_sample else loaded[0])

    def where(self, part: Any, *, step: int, row: int) -> str:
        name = reprlib.repr(part)
        return f"dataset[{name}], sample {row} of batch {step}" if self._by_sample else f"dataset[{name}], batch {step}"


def _loads_batches(dataset: Any) -> bool:
    """Whether `__getitems__` does more than __getitem__ for each: Subset has it only to hand it on."""
    if type(dataset) is Subset:
        return _loads_batches(dataset.dataset)
    return bool(getattr(dataset, "__getitems__", None))


class IterableFetcher:
    """Of an iterable dataset, which one thread reads from its start; `parts` are whole batches."""

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
        """The first `skip` batches are read and dropped. `workers` is the loader's `num_workers`."""
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
        """Reads batches that the consumer has had. One that failed, and was survived, fails again here.

        Raises StateError where the dataset ends before them; where that comes of a failure, what failed.
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
        """The next samples; fewer only at the end. Raises EndOfData."""
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
