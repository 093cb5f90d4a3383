"""`ThreadDataLoader`: torch's DataLoader with threads as workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    IterDataPipe,
    MapDataPipe,
    RandomSampler,
    Sampler,
    SequentialSampler,
    default_collate,
)
from typing_extensions import TypeVar

from headrace.dropins.random_sources import GlobalRandomWatch
from headrace.dropins.thread_loader.epoch_order import (
    EpochOrder,
    ThreadLoaderPosition,
    at_epoch_of,
    drawing_sampler,
    epoch_sampler,
    generators,
    set_states,
    stateful_sampler,
    states_of,
)
from headrace.dropins.thread_loader.fetching import CollateMemory, Fetcher, IterableFetcher, pin, worker_info
from headrace.dropins.thread_loader.iterator import ThreadLoaderIterator
from headrace.dropins.thread_loader.worker_threads import DROP_WAIT_S, WorkerThreads
from headrace.errors import StateError, UsageError, warn_caller
from headrace.foreign_arguments import KnownArguments
from headrace.system import default_threads, rank_of_process

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from headrace.loader import LoaderDataLoader


T_co = TypeVar("T_co", covariant=True, default=Any)


class ThreadDataLoader(KnownArguments, DataLoader[T_co]):
    """DataLoader with threads as workers, for datasets that release the GIL while they read and decode.

    Takes DataLoader's arguments and yields DataLoader's batches: for the same seed or generator, the same samples in
    the same order with the same collation. Workers start in a millisecond, share the dataset object, and pass batches
    without pickling or shared memory. Samples, not batches, are loaded in parallel, in the order of their batches.

    `num_workers` is the number of threads; default: the available cores, divided among the ranks on the node. 0 loads
    in the calling thread. `prefetch_factor` (default 2) times `num_workers` batches are in progress or ready.
    `worker_init_fn(worker_id)` is called in each thread; with `persistent_workers`, threads outlive the epoch. An
    iterable dataset is read by one thread for any `num_workers`: `get_worker_info()` returns worker 0 of 1. The error
    of `timeout` names the samples that the loader is waiting for.

    `multiprocessing_context`, `pin_memory_device` and `in_order=False` have no effect with threads and cause a warning.

    For random draws in the dataset, see `sample_random`. Errors keep their type and traceback and name the sample.
    Raises UsageError, or DataLoader's own ValueError, for invalid arguments.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        threads = default_threads() if num_workers is None else num_workers
        if isinstance(dataset, IterDataPipe | MapDataPipe):
            raise UsageError(
                f"dataset: expected a Dataset or an IterableDataset, got the data pipe {type(dataset).__name__}; "
                "DataLoader shards and seeds data pipes by process, so keep DataLoader for it"
            )
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            threads,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,  # type: ignore[arg-type]  # its result is ignored
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
        )
        self.in_order = True  # not set by torch before 2.6; frameworks rebuild the loader from attributes
        ignored = {
            "multiprocessing_context": multiprocessing_context is not None,
            "pin_memory_device": bool(pin_memory_device),
            "in_order=False": not in_order,
        }
        if any(ignored.values()):
            names = ", ".join(name for name, given in ignored.items() if given)
            warn_caller(f"{names}: the workers are threads, and batches come in order; leave it out")
        self._next = ThreadLoaderPosition()  # start of the next pass, unless one has begun
        self._order: EpochOrder | None = None  # of the latest pass, or of the next after `seek`
        self._sought = False
        self._positioned = False
        self._workers: WorkerThreads | None = None  # persistent ones
        self._memory = CollateMemory(most_idle=1 + self.num_workers * (self.prefetch_factor or 0))
        self._watch = GlobalRandomWatch()

    @property
    def epoch(self) -> int:
        """Epoch of the current pass, or of the next pass once it has finished."""
        return self._next_start().epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the loader, and of the sampler if it has `set_epoch`.

        For the current epoch, a restored position is preserved.
        """
        if type(epoch) is not int or epoch < 0:
            raise UsageError(f"set_epoch: expected an int of at least 0, got {epoch!r}")
        if epoch != self.epoch:
            start = ThreadLoaderPosition() if self._order is None else self._order.next_start()
            self._begin_at(replace(start, epoch=epoch))
        sampler = epoch_sampler(self)
        if sampler is not None:
            sampler.set_epoch(epoch)
        self._positioned = True

    @property
    def next_step(self) -> int:
        """First step of the next pass: 0 unless a state was loaded or `seek` was called since the last pass."""
        if self._order is None:
            return self._next_start().batches
        return self._order.received if self._sought else 0

    def seek(self, epoch: int, step: int) -> None:
        """Start the next pass at this step of this epoch.

        Earlier indices are drawn but their samples are not loaded, except from an iterable dataset. The epoch must be
        the next one, or its order must depend on the sampler's epoch; `load_state_dict` restores any order. Raises
        UsageError for a step beyond the epoch or before a restored position.
        """
        self.set_epoch(epoch)
        order = EpochOrder(self, self._next_start())
        if type(step) is not int or step < order.received:
            raise UsageError(f"seek: expected step to be an int, {order.received} or more, got {step!r}")
        for _ in range(step - order.received):
            try:
                order.hand_out(order.draw())
            except StopIteration:
                raise UsageError(f"seek: expected a step of the epoch's {order.received}, got {step}") from None
        self._order, self._sought = order, True

    def _begin_at(self, start: ThreadLoaderPosition) -> None:
        self._next, self._order, self._sought, self._positioned = start, None, False, True

    def _next_start(self) -> ThreadLoaderPosition:
        return at_epoch_of(epoch_sampler(self), self._next) if self._order is None else self._order.next_start()

    def check_worker_number_rationality(self) -> None:
        """Do nothing. DataLoader warns of more workers than cores, but threads that wait for files may exceed them."""

    def __iter__(self) -> ThreadLoaderIterator:  # type: ignore[override]  # torch names a private class
        order = self._order if self._sought else None
        self._order = order = EpochOrder(self, self._next_start()) if order is None else order
        self._sought = self._positioned = False
        collate: Callable[[Any], Any] = self._memory.collate if self.collate_fn is default_collate else self.collate_fn
        pins = self.pin_memory and torch.cuda.is_available()
        if pins:
            collate = partial(_pinned, collate)
        elif self.pin_memory:
            warn_caller("pin_memory=True: no CUDA device is found, so batches are not pinned")
        fetcher = Fetcher(self, collate, key=order.key)
        if isinstance(self.dataset, IterableDataset):
            fetcher = IterableFetcher(self, collate, key=order.key, skip=order.received)
        start = partial(self._start_workers, order.base_seed, torch.cuda.current_device() if pins else None)
        return ThreadLoaderIterator(self, order, fetcher, start_workers=start, watch=self._watch)

    def _start_workers(self, seed: int, device: int | None) -> WorkerThreads:
        if self._workers is not None and not self._workers.foreign:
            return self._workers
        count = 1 if isinstance(self.dataset, IterableDataset) else self.num_workers
        info = partial(worker_info, workers=count, seed=seed, dataset=self.dataset)
        workers = WorkerThreads(count, init=self.worker_init_fn, info=info, device=device)
        if self.persistent_workers:
            self._workers = workers
            weakref.finalize(self, workers.close, DROP_WAIT_S)
        return workers

    def as_dataloader(self) -> LoaderDataLoader:
        """Return a DataLoader of these batches for frameworks that rebuild DataLoaders.

        Accelerate and Lightning would otherwise build a plain DataLoader, with processes, from its parts. Raises
        UsageError for a loader without a length, and if the sampler yields all samples on each of several ranks.
        """
        from headrace.loader import as_dataloader

        return as_dataloader(self)

    def _loader_source(self) -> ThreadLoaderSource:
        """Return the adapter that `as_dataloader` needs."""
        return ThreadLoaderSource(self)

    # --- state ---

    def state_dict(self) -> dict[str, Any]:
        """Return the consumer's position as a JSON dict. It counts received batches, not prefetched ones.

        The dict takes a few hundred bytes, plus 7 KB for each torch.Generator of the loader and its sampler.
        """
        if self._order is not None:
            return self._order.position().to_dict()
        sampler = stateful_sampler(self)
        position = replace(
            self._next_start(),
            generators=states_of(generators(self)),
            sampler=None if sampler is None else sampler.state_dict(),
        )
        return position.to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume the next pass at the position of `state`, with the same order and random sources.

        The indices of earlier batches are drawn and dropped, and the samples of an iterable dataset are read and
        dropped. Later epochs have the same orders too if the loader or its sampler has its own generator or state;
        otherwise they depend on torch's default generator, as always.

        Raises StateError for a state of another loader, or on the next iter() if the sampler draws other indices.
        """
        position = ThreadLoaderPosition.from_dict(state)
        sampler = stateful_sampler(self)
        if (sampler is None) != (position.sampler is None):
            raise StateError(
                f"state['sampler']: expected the state of {'none' if sampler is None else 'one'}, as in this loader; "
                "make the loader with the kind of sampler that it had"
            )
        set_states(generators(self), position.generators)
        if sampler is not None:
            sampler.load_state_dict(position.sampler)
        elif position.sampler_epoch is not None and (counting := epoch_sampler(self)) is not None:
            counting.set_epoch(position.sampler_epoch)
        self._begin_at(replace(position, generators=[], sampler=None))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy without threads that starts at the next pass of this loader."""
        return {**self.__dict__, "_next": self._next_start(), "_order": None, "_sought": False, "_workers": None}


def _pinned(collate: Callable[[Any], Any], samples: Any) -> Any:
    return pin(collate(samples))


class ThreadLoaderSource:
    """Source for `as_dataloader`: a ThreadDataLoader and its sampler's rank. Its position is the loader's."""

    epoch = property(attrgetter("_loader.epoch"))
    next_step = property(attrgetter("_loader.next_step"))
    _positioned = property(attrgetter("_loader._positioned"))

    def __init__(self, loader: ThreadDataLoader) -> None:
        """Find the sampler's rank. Raises UsageError if the sampler yields all samples on each of several ranks."""
        self._loader = loader
        self._sampler = drawing_sampler(loader)
        # The sampler's partition of the dataset, under Headrace's or torch's attribute names.
        rank = getattr(self._sampler, "rank", None)
        world_size = getattr(self._sampler, "world_size", getattr(self._sampler, "num_replicas", None))
        known = rank is not None and world_size is not None
        self._place = rank_of_process(rank, world_size) if known else rank_of_process()
        self.rank, self.world_size = self._place.rank, self._place.world_size
        if self.world_size > 1 and type(self._sampler) in (RandomSampler, SequentialSampler):
            raise UsageError(
                f"as_dataloader: expected a sampler that gives each of {self.world_size} ranks a part, got "
                f"{type(self._sampler).__name__}, which gives all of the dataset to each; pass "
                "batch_sampler=ResumableBatchSampler(dataset, batch_size) or sampler=DistributedSampler(dataset)"
            )
        self.set_epoch, self.seek = loader.set_epoch, loader.seek
        self.state_dict, self.load_state_dict = loader.state_dict, loader.load_state_dict

    @property
    def batch_size(self) -> int:
        """Samples per rank; 1 if the batch sampler has no `batch_size`."""
        return self._loader.batch_size or getattr(self._loader.batch_sampler, "batch_size", None) or 1

    @property
    def samples(self) -> int:
        """Samples per epoch: without repeats for Headrace's samplers, otherwise only of whole batches."""
        loader = self._loader
        if isinstance(loader.dataset, IterableDataset) or loader.drop_last or not hasattr(self._sampler, "left_out"):
            return len(loader) * self.batch_size * self.world_size
        left_out: int = self._sampler.left_out
        return len(loader.dataset) - left_out  # type: ignore[arg-type]  # the sampler has had its length

    @property
    def _next_start(self) -> tuple[int, int]:
        return self.epoch, self.next_step

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        self._place.check("as_dataloader")
        return iter(self._loader)

    def _state_at(self, epoch: int, step: int) -> dict[str, Any]:
        raise UsageError(
            "expected a headrace.Loader, got a ThreadDataLoader: it does not know its state at a step that it is not "
            "at. Leave Accelerate's use_stateful_dataloader off, and pass what as_dataloader made to "
            "register_for_checkpointing"
        )
