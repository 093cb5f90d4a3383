"""Wrapper of a DataLoader that counts batches as the training loop receives them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from torch.utils.data import BatchSampler, DataLoader

from headrace.device import end_workers, lost_worker
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
from headrace.errors import StateError, UsageError


class CountedPass(Protocol):
    """Pass of a sampler with steps that the loader counts."""

    steps: int
    drawn: int
    received: int | None
    ended: bool


class CountedSampler(Protocol):
    """Sampler that tracks its position by what the training loop has received."""

    def begin_tracked(self, tracker: TrackedIterator) -> CountedPass:
        """Begin the next pass, with `received` counted by the iterator."""
        ...

    def set_epoch(self, epoch: int) -> None: ...

    def state_dict(self) -> dict[str, int | str | bool]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    @property
    def epoch(self) -> int: ...


class TrackedLoader:
    """DataLoader with exact tracking of its sampler's position. All other attributes are the DataLoader's.

    `set_epoch`, `state_dict` and `load_state_dict` are the sampler's: its state counts the batches that the training
    loop has received.

    Only one pass is active: beginning another ends it. An exception ends the pass as well; a resume starts with the
    batch that raised it, since the loop has not received it.
    """

    def __init__(self, sampler: CountedSampler, loader: DataLoader[Any]) -> None:
        self._sampler = sampler
        self._loader = loader
        self._steps_a_batch, self._drop_last = _batching(sampler, loader)
        if isinstance(loader, ThreadDataLoader):
            raise UsageError(
                "track: expected a DataLoader, got a ThreadDataLoader, which counts what the loop receives by itself; "
                "iterate over it and take its state_dict"
            )
        self.set_epoch = sampler.set_epoch
        self.state_dict, self.load_state_dict = sampler.state_dict, sampler.load_state_dict
        self._latest: weakref.ref[TrackedIterator] | None = None
        if not getattr(loader, "in_order", True):
            raise UsageError(
                "track: expected a DataLoader that gives batches in the order they were drawn, got in_order=False: a "
                "count of batches does not say which ones came; leave in_order out"
            )

    def __iter__(self) -> TrackedIterator:
        before = None if self._latest is None else self._latest()
        if before is not None:
            before.replace()
        iterator = TrackedIterator(
            self._sampler, self._loader, steps_a_batch=self._steps_a_batch, drop_last=self._drop_last
        )
        self._latest = weakref.ref(iterator)
        return iterator

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch, the same on every rank."""
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle look these up before `_loader` is set
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._loader, name)

    @property
    def rank(self) -> int:
        return self._sampler.rank

    @property
    def world_size(self) -> int:
        return self._sampler.world_size

    @property
    def epoch(self) -> int:
        """Epoch of the current pass, or of the next pass once it has finished."""
        return self._sampler.epoch


class TrackedIterator(Iterator[Any]):
    """One pass. The DataLoader's workers end with it unless they are persistent."""

    def __init__(
        self, sampler: CountedSampler, loader: DataLoader[Any], *, steps_a_batch: int, drop_last: bool
    ) -> None:
        self._replaced = False
        self._pass = sampler.begin_tracked(self)
        self._steps_a_batch = steps_a_batch
        whole, rest = divmod(self._pass.steps, steps_a_batch)
        self._batches = whole + (rest > 0 and not drop_last)
        self._received = 0
        self._iterator: Iterator[Any] | None = iter(loader)

    def __next__(self) -> Any:
        if self._iterator is None:
            if self._replaced:
                raise UsageError(
                    "this pass has ended, because another one over the same tracked loader has begun; for loops within "
                    "each other make a DataLoader and a sampler each"
                )
            raise StopIteration
        try:
            batch = next(self._iterator)
        except StopIteration:
            self._pass.ended = True
            self.close()
            raise
        except Exception as error:
            lost = lost_worker(self._iterator, error)
            self.close()
            if lost is None:
                raise
            raise lost from error
        except BaseException:
            self.close()
            raise
        steps = min((self._received + 1) * self._steps_a_batch, self._pass.steps)
        if steps > self._pass.drawn:
            raise StateError(
                f"tracked loader: expected each batch to be drawn from the sampler that tracks it, got batch "
                f"{self._received + 1} when {self._pass.drawn} steps were drawn; iterate over the tracked loader only"
            )
        self._received += 1
        self._pass.received = steps
        self._pass.ended = self._received == self._batches
        return batch

    def close(self) -> None:
        """End the pass. Prefetched batches are dropped and not counted."""
        iterator, self._iterator = self._iterator, None
        if iterator is not None:
            end_workers(iterator)

    def replace(self) -> None:
        """End the pass in favour of another that may use the same workers: drawing from both would mix batches."""
        self._replaced = self._iterator is not None
        self.close()


def _batching(sampler: object, loader: DataLoader[Any]) -> tuple[int, bool]:
    """Return the sampler's steps per batch of the loader, and True if a short last batch is dropped."""
    batches = loader.batch_sampler
    if batches is sampler or (batches is None and loader.sampler is sampler):
        return 1, False
    if isinstance(batches, BatchSampler) and batches.sampler is sampler:
        return batches.batch_size, batches.drop_last
    raise UsageError(
        f"track: expected a DataLoader with batch_sampler= or sampler= this {type(sampler).__name__}, got one that "
        f"draws from {type(loader.sampler if batches is None else batches).__name__}"
    )
