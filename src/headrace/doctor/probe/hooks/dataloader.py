"""Hooks on DataLoader: its passes, and each batch that the process asks it for."""

from __future__ import annotations

import functools
import os
import weakref
from threading import current_thread, get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..overhead import NOBODY
from ..stack_sampler import call_site
from ..training.cached_batches import BatchReplayer
from ..training.loader_sources import HeldIterator
from ..training.step_records import ATTRIBUTE, FetchedBatch, ObservedPass
from ..training.training import now
from . import worker_queues
from .batch_shapes import BatchShapes, PaddingLooks

if TYPE_CHECKING:
    from ..probe import Probe


# -- from doctor/probe/hooks/loader_facts.py: What is known of a DataLoader when it is first iterated.


def loader_facts(loader: Any) -> dict[str, Any]:
    """As docs/doctor/evidence.md has them. Asked once its workers have started: how they start is settled then."""
    file, line = call_site()
    if type(loader).__module__.startswith("headrace."):
        return {**_of_threads(loader), "file": file, "line": line}
    is_iterable = _is_iterable(loader)
    return {
        "num_workers": loader.num_workers,
        "batch_size": loader.batch_size or getattr(loader.batch_sampler, "batch_size", None),
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
        "pin_memory": bool(loader.pin_memory),
        "in_order": getattr(loader, "in_order", True),
        "timeout": loader.timeout,
        "iterable": is_iterable,
        "start_method": _start_method(loader),
        "dataset": f"{type(loader.dataset).__module__}.{type(loader.dataset).__qualname__}",
        "length": None if is_iterable else _length(loader),
        "file": file,
        "line": line,
    }


def makers_of(loader: Any) -> int:
    """How many processes, or threads, make its batches before they are asked for."""
    if type(loader).__module__.startswith("headrace."):
        return max(1, _of_threads(loader)["threads"] or 0)
    return int(loader.num_workers)


def _of_threads(loader: Any) -> dict[str, Any]:
    """Headrace's own loaders make batches in threads of the trainer."""
    kind = type(loader)
    return {
        "num_workers": 0,
        "threads": loader.threads if hasattr(loader, "threads") else loader.num_workers,
        "batch_size": getattr(loader, "batch_size", None),
        "dataset": f"{kind.__module__}.{kind.__qualname__}",
        "length": len(loader),
    }


def _is_iterable(loader: Any) -> bool:
    from torch.utils.data.dataloader import _DatasetKind

    return bool(loader._dataset_kind == _DatasetKind.Iterable)


def _start_method(loader: Any) -> str | None:
    import multiprocessing

    if not loader.num_workers:
        return None
    context = loader.multiprocessing_context or multiprocessing.get_context()
    return str(context.get_start_method())


def _length(loader: Any) -> int | None:
    """In batches. Not by `len(loader)`, which of an iterable dataset is remembered, and warned of later; that of a
    user's sampler may raise anything."""
    try:
        return len(loader._index_sampler)
    except Exception:
        return None


# -- from doctor/probe/hooks/dataloader.py: DataLoader: its passes, and each batch that the process asks it for.


NUMBER = "_headrace_loader"
"""Attribute of a DataLoader: the evidence that it is described in, and its number there."""


UNSEEN_BATCHES = "the batches of its loaders were"


def install_dataloader(probe: Probe, dataloader: ModuleType) -> None:
    """Hooks torch.utils.data.dataloader."""
    if not isinstance(getattr(dataloader, "_BaseDataLoaderIter", None), type):
        probe.unknown("torch.utils.data.dataloader._BaseDataLoaderIter", UNSEEN_BATCHES)
        return
    hooks = LoaderHooks(probe, dataloader)
    probe.hook(dataloader, "DataLoader.__iter__", hooks.iter, UNSEEN_BATCHES)
    probe.hook(dataloader, "DataLoader._get_iterator", hooks.get_iterator, "loaders that iterate in their own way were")
    probe.hook(dataloader, "_BaseDataLoaderIter.__next__", hooks.next, UNSEEN_BATCHES)
    worker_queues.install_queues(probe, dataloader)


def install_stateful(probe: Probe, stateful: ModuleType) -> None:
    """Hooks torchdata.stateful_dataloader.stateful_dataloader, which is a DataLoader whose iterators begin by
    themselves."""
    import torch

    hooks = LoaderHooks(probe, torch.utils.data.dataloader)
    probe.hook(stateful, "StatefulDataLoader.__iter__", hooks.iter, UNSEEN_BATCHES)
    worker_queues.install_iterator(probe, stateful, "_StatefulMultiProcessingDataLoaderIter")


class LoaderHooks:
    """Each method takes what it stands for, and gives what stands for it."""

    def __init__(self, probe: Probe, dataloader: ModuleType, iterators: type | None = None) -> None:
        """`iterators`: what passes are followed through, if not DataLoader's own."""
        import torch

        self._iterators = dataloader._BaseDataLoaderIter if iterators is None else iterators
        self._probe = probe
        self._training = probe.training
        self._is_grad_enabled = torch.is_grad_enabled
        self._dataloader = dataloader
        self._shapes = BatchShapes(probe)
        self._padding = PaddingLooks(probe)
        self._replays = BatchReplayer(probe, torch.is_grad_enabled)

    def iter(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        training = self._training

        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:  # noqa: N807
            if training.windows.is_replaying and (stand_in := self._stand_in(loader)) is not None:
                return stand_in
            return self._begin(original, loader, "DataLoader.__iter__")

        return __iter__

    def get_iterator(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Begin a pass where a loader has an `__iter__` of its own and keeps one iterator for good.

        `__iter__` calls it, too, for a new iterator; its pass has begun by then.
        """
        training = self._training

        @functools.wraps(original)
        def _get_iterator(loader: Any) -> Any:
            if training.opening is not None:
                return original(loader)
            return self._begin(original, loader, "DataLoader._get_iterator")

        return _get_iterator

    def _begin(self, original: Callable[[Any], Any], loader: Any, name: str) -> Any:
        """Return the iterator that `original` gives, whose pass is followed from now on."""
        training = self._training
        is_inner = training.is_fetching and training.is_its_thread()
        if not training.is_on or is_inner or self._dataloader._utils.worker.get_worker_info() is not None:
            return original(loader)
        try:
            number = training.begin_pass()
        except Exception as error:
            training.fail(name, error)
            return original(loader)
        start = now()
        try:
            iterator = original(loader)
        except BaseException:
            training.pass_failed()
            raise
        try:
            training.pass_begun(number, start, self._is_grad_enabled())
            if isinstance(iterator, self._iterators):
                self._write_pass(loader, iterator, number, start)
        except Exception as error:
            training.fail(name, error)
        return iterator

    def next(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        training = self._training

        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: N807
            pass_ = getattr(iterator, ATTRIBUTE, None)
            if pass_ is None or pass_.training is not training or not training.is_on:
                return original(iterator)
            if training.thread == NOBODY:
                return self._fetch_at_rest(original, iterator, pass_)
            if get_ident() != training.thread:
                if training.windows.is_replaying and training.windows.serves(pass_):
                    return self._replays.next_elsewhere(pass_, functools.partial(original, iterator))
                return self._fetch_elsewhere(original, iterator, pass_)
            if training.is_fetching:  # a loader that a dataset itself reads
                return original(iterator)
            if training.windows.is_replaying and training.windows.serves(pass_):
                return self._replays.next(pass_, functools.partial(original, iterator))
            return self._fetch(original, iterator, pass_)

        return __next__

    def _fetch(self, original: Callable[[Any], Any], iterator: Any, pass_: ObservedPass) -> Any:
        training = self._training
        try:
            with_grad = self._is_grad_enabled()
            start = training.ask()
            training.readers.begin(pass_.reader)
        except Exception as error:
            training.fail("next", error)
            return original(iterator)
        try:
            batch = original(iterator)
        except BaseException as reason:
            self._not_received(pass_, reason, start, with_grad)
            raise
        try:
            end = training.received()
            training.readers.end()
            received = self._received(iterator, pass_, batch, start, end)
            training.got(received, with_grad)
            if training.windows.is_keeping and with_grad:
                self._keep(original, iterator, pass_, batch, received)
        except Exception as error:
            training.fail("next", error)
        return batch

    def _keep(
        self, original: Callable[[Any], Any], iterator: Any, pass_: ObservedPass, batch: Any, received: FetchedBatch
    ) -> None:
        begun = now()
        self._training.windows.keep(
            lambda: HeldIterator(iterator, pass_, functools.partial(self._take, original)), pass_, batch, received
        )
        self._training.costs.since(begun)

    def _take(self, original: Callable[[Any], Any], iterator: Any, pass_: ObservedPass) -> FetchedBatch:
        """The next batch, for nobody."""
        self._training.readers.begin(pass_.reader)
        start = now()
        try:
            batch = original(iterator)
        finally:
            self._training.readers.end()
        return self._received(iterator, pass_, batch, start, now())

    def _stand_in(self, loader: Any) -> Any | None:
        file, number = getattr(loader, NUMBER, (None, 0))
        return self._replays.iterator(loader, number if file == self._probe.evidence.path else None)

    def _fetch_at_rest(self, original: Callable[[Any], Any], iterator: Any, pass_: ObservedPass) -> Any:
        """Batches are still counted, and those noted that arrive early for a step that will be observed."""
        training = self._training
        if training.is_fetching or get_ident() != training.resting:
            return original(iterator)
        training.is_fetching = True
        if pass_.has_workers:
            training.readers.begin(pass_.reader)
        else:
            pass_.index += 1
        try:
            return original(iterator)
        finally:
            training.is_fetching = False
            if pass_.has_workers:
                training.readers.end()

    def _not_received(self, pass_: ObservedPass, reason: BaseException, start: int, with_grad: bool) -> None:
        training = self._training
        try:
            training.received()
            training.readers.end()
            if isinstance(reason, StopIteration):
                training.pass_ended(pass_.number, start, with_grad)
        except Exception as error:
            training.fail("next", error)

    def _fetch_elsewhere(self, original: Callable[[Any], Any], iterator: Any, pass_: ObservedPass) -> Any:
        training = self._training
        training.readers.begin(pass_.reader)
        start = now()
        try:
            batch = original(iterator)
        finally:
            training.readers.end()
        try:
            received = self._received(iterator, pass_, batch, start, now())
            training.got_elsewhere(received, current_thread().name)
            if training.windows.is_keeping:
                self._keep(original, iterator, pass_, batch, received)
        except Exception as error:
            training.fail("next", error)
        return batch

    def _received(self, iterator: Any, pass_: ObservedPass, batch: Any, start: int, end: int) -> FetchedBatch:
        if not pass_.has_workers:
            pass_.index += 1
        elif getattr(iterator, "_in_order", True):  # torch before 2.6 knows no other order
            pass_.index = iterator._rcvd_idx - 1
        index = pass_.index
        reader = pass_.reader
        arrived = unpickle = unpickle_cpu = pin_start = pin = None
        if pass_.has_workers:
            thread = getattr(iterator, "_pin_memory_thread", None)
            if thread is not None:
                reader = self._training.readers.of(thread.ident) or reader
            arrived, unpickle, unpickle_cpu = reader.unpickled.pop(index, (None, None, None))
            pin_start, pin = reader.pinned.pop(index, (None, None))
        elif reader.pinned:
            pin_start, pin = reader.pinned.pop(0)
        size, shape = self._shapes.of(batch)
        self._padding.look(pass_.number, index, batch)
        return FetchedBatch(
            pass_.number, index, start, end, arrived, unpickle, pin_start, pin, size, shape, unpickle_cpu
        )

    def _write_pass(self, loader: Any, iterator: Any, number: int, start: int) -> None:
        training, clock = self._training, self._probe.clock
        records: list[Any] = []
        file, loader_number = getattr(loader, NUMBER, (None, 0))
        if file != self._probe.evidence.path:
            loader_number = training.loaders
            training.loaders += 1
            setattr(loader, NUMBER, (self._probe.evidence.path, loader_number))
            records.append(("loader", loader_number, clock.us(start), self._facts(loader)))
        before: ObservedPass | None = getattr(iterator, ATTRIBUTE, None)
        processes = getattr(iterator, "_workers", None)
        workers = [worker.pid for worker in processes] if isinstance(processes, list) else []  # else threads
        epoch = (0 if before is None else before.epoch + 1) if workers else number
        pass_ = ObservedPass(
            training,
            number,
            epoch,
            bool(workers),
            loader=loader_number,
            owner=weakref.ref(loader),
            makers=len(workers) or makers_of(loader),
        )
        setattr(iterator, ATTRIBUTE, pass_)
        if workers:
            self._probe.batches.made_twice.is_known(loader.dataset)
        training.limit.prefetches(len(workers) * (getattr(loader, "prefetch_factor", None) or 0))
        pids = workers or [os.getpid()]
        records.append(("pass", number, loader_number, clock.us(start), clock.now_us(), epoch, pids))
        self._probe.evidence.write(*records)

    def _facts(self, loader: Any) -> dict[str, Any]:
        """Nothing, where a loader is unlike any that is known."""
        try:
            return loader_facts(loader)
        except Exception as error:
            self._probe.fault("facts of a DataLoader", error)
            return {}
