"""Hooks on DataLoader: its passes, and each batch that the process requests."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from multiprocessing import parent_process
from threading import current_thread, get_ident, main_thread
from types import FrameType, ModuleType
from typing import Any

from ..look.first_batches import numbers_of
from ..look.leaves import BatchShapes, PaddingLooks
from ..look.objects import class_name, described_loader, sampler_epoch
from ..look.value_look import MADE, NUMBER, ORDINAL
from ..patches import Function, Patches
from ..stack_sampler import call_site, is_users
from ..training.loader_sources import HeldIterator
from ..training.replay import replayed, replayed_elsewhere
from ..training.state import ATTRIBUTE, ObservedPass
from ..training.steps import FetchedBatch
from ..training.training import TrainingObserver, now
from .batch_making import hook_iterator, hook_queues

_LOADER = "_headrace_owner"
"""Attribute of an iterator: its DataLoader, so that the loader stays alive."""
_PROBES_FILES = os.path.dirname(os.path.dirname(__file__)) + os.sep
UNSEEN_BATCHES = "the batches of its loaders were"


def install_dataloader(patches: Patches, training: TrainingObserver, dataloader: ModuleType) -> None:
    iterators = getattr(dataloader, "_BaseDataLoaderIter", None)
    if not isinstance(iterators, type):
        patches.unknown("torch.utils.data.dataloader._BaseDataLoaderIter", UNSEEN_BATCHES)
        return
    hooks = LoaderHooks(training, iterators)
    if training.short.is_on:
        training.short.install(patches, iterators)
    patches.hook_around(dataloader, "DataLoader.__init__", hooks.make, "where its loaders are made was")
    patches.hook_around(dataloader, "DataLoader.__iter__", hooks.iter, UNSEEN_BATCHES)
    own_way = "loaders that iterate in their own way were"
    patches.hook_around(dataloader, "DataLoader._get_iterator", hooks.get_iterator, own_way)
    patches.hook_around(dataloader, "_BaseDataLoaderIter.__next__", hooks.next, UNSEEN_BATCHES)
    hook_queues(patches, training, dataloader)
    if get_ident() == main_thread().ident and parent_process() is None:  # no worker
        training.work.starts(get_ident())


def install_stateful(patches: Patches, training: TrainingObserver, stateful: ModuleType) -> None:
    """Hook torchdata.stateful_dataloader.stateful_dataloader, a DataLoader with iterators of its own."""
    from torch.utils.data import dataloader

    iterators = getattr(dataloader, "_BaseDataLoaderIter", None)
    if not isinstance(iterators, type):  # reported by install_dataloader
        return
    hooks = LoaderHooks(training, iterators)
    patches.hook_around(stateful, "StatefulDataLoader.__iter__", hooks.iter, UNSEEN_BATCHES)
    hook_iterator(patches, stateful, "_StatefulMultiProcessingDataLoaderIter")


class LoaderHooks:
    """Hooks on a DataLoader and its iterators. Each public method takes the original as its first argument."""

    def __init__(self, training: TrainingObserver, iterators: type) -> None:
        """`iterators`: base class of the iterators that are followed."""
        import torch
        from torch.utils.data._utils.worker import get_worker_info  # torch itself may be only partly imported

        self._iterators = iterators
        self._training = training
        self._is_grad_enabled = torch.is_grad_enabled
        self._worker_info = get_worker_info
        self._made = 0
        self._lengths: dict[int, int | None] = {}
        """Batches per pass, by loader number."""
        self._shapes = BatchShapes(training.evidence.name)
        self._padding = PaddingLooks(training.evidence, training.costs)

    def make(self, original: Function, loader: Any, *args: Any, **kwargs: Any) -> None:
        """Make a DataLoader, and remember the line of the user's that does."""
        try:
            file, line = call_site()
            self._made += 1
            object.__setattr__(loader, MADE, f"{file}:{line}")
            object.__setattr__(loader, ORDINAL, self._made)
        except Exception as error:
            self._training.fail("DataLoader.__init__", error)
        original(loader, *args, **kwargs)
        try:
            self._training.looked.made(loader)
        except Exception as error:
            self._training.fail("DataLoader.__init__", error)

    def iter(self, original: Function, loader: Any) -> Any:
        training = self._training
        if training.replay.is_on:
            number, take = training.number_of(loader), functools.partial(replayed, training)
            stand_in = training.replay.iterator(loader, number, _length(loader), take)
            if stand_in is not None:
                return stand_in
        return self._begin(original, loader, "DataLoader.__iter__")

    def get_iterator(self, original: Function, loader: Any) -> Any:
        """Begin a pass of a loader that reuses one iterator. `__iter__` calls this also for a new one, in its pass."""
        if self._training.counter.opening is not None:
            return original(loader)
        return self._begin(original, loader, "DataLoader._get_iterator")

    def _begin(self, original: Function, loader: Any, name: str) -> Any:
        """Return the iterator from `original` and follow its pass."""
        training, thread = self._training, self._training.thread
        is_inner = thread.is_fetching and thread.is_its_thread()
        if not thread.is_on or is_inner or self._worker_info() is not None:
            return original(loader)
        try:
            number = training.begin_pass(training.number_of(loader))
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
                if training.short.is_on:
                    self._shorten(iterator, getattr(iterator, ATTRIBUTE))
                if training.settings.looks_first and self._is_grad_enabled() and thread.is_its_thread():
                    training.look_and_end(loader)
        except Exception as error:
            training.fail(name, error)
        return iterator

    def next(self, original: Function, iterator: Any) -> Any:
        training, thread, replay = self._training, self._training.thread, self._training.replay
        pass_ = getattr(iterator, ATTRIBUTE, None)
        if pass_ is None or pass_.training is not training or not thread.is_on:
            return original(iterator)
        is_here = get_ident() == thread.observed
        if is_here and thread.is_fetching:  # a loader that a dataset itself reads
            return original(iterator)
        if replay.is_on and replay.serves(pass_):
            give = replayed if is_here else replayed_elsewhere
            return give(training, pass_, functools.partial(original, iterator))
        return (self._fetch if is_here else self._fetch_elsewhere)(original, iterator, pass_)

    def _shorten(self, iterator: Any, pass_: ObservedPass) -> None:
        """Let a pass of the training thread be cut, or end the run, if it has seen enough passes."""
        training = self._training
        if training.thread.is_its_thread():
            if training.short.is_done(pass_.owner()):
                training.look_and_end(training.looked.most_used())
            training.short.begun(pass_, iterator, self._is_grad_enabled())

    def _fetch(self, original: Function, iterator: Any, pass_: ObservedPass) -> Any:
        training, with_grad = self._training, self._is_grad_enabled()
        short = training.short

        def returned(batch: Any, start: int, end: int) -> None:
            received = self._received(iterator, pass_, batch, start, end)
            if short.is_on:
                short.received(pass_, iterator, batch)
                if training.inputs is not None and with_grad:
                    training.inputs.received(batch)
            training.record_batch(received, with_grad)
            if with_grad:
                training.feed(pass_, batch, received, functools.partial(HeldIterator, iterator, pass_))

        def ended(start: int) -> None:
            training.pass_ended(pass_.number, start, with_grad)
            if short.is_on:
                short.ended(pass_, iterator)
                if short.is_done():
                    training.look_and_end(training.looked.most_used())

        read = functools.partial(self._read, original, iterator, pass_)
        if short.is_on and short.is_cut(pass_):
            read = functools.partial(short.follow, read, iterator, pass_)
        elif short.is_on and short.is_late():
            training.look_and_end(training.looked.most_used())
        return training.wait("next", read, returned, ended, pass_.loader)

    def _read(self, original: Function, iterator: Any, pass_: ObservedPass) -> Any:
        """Call `original` while the calling thread reads for this pass."""
        self._training.readers[get_ident()] = pass_.reader
        try:
            return original(iterator)
        finally:
            self._training.readers.pop(get_ident(), None)

    def _fetch_elsewhere(self, original: Function, iterator: Any, pass_: ObservedPass) -> Any:
        training = self._training
        start = now()
        batch = self._read(original, iterator, pass_)
        try:
            received = self._received(iterator, pass_, batch, start, now())
            training.record_other_thread(received, current_thread().name)
            training.feed(pass_, batch, received, functools.partial(HeldIterator, iterator, pass_))
        except Exception as error:
            training.fail("next", error)
        return batch

    def _received(self, iterator: Any, pass_: ObservedPass, batch: Any, start: int, end: int) -> FetchedBatch:
        pass_.given += 1
        if not pass_.has_workers:
            pass_.index += 1
        elif pass_.in_order:
            pass_.index = getattr(iterator, "_rcvd_idx", pass_.given) - 1
        index = pass_.index
        reader = pass_.reader
        arrived = unpickle = unpickle_cpu = pin_start = pin = None
        if pass_.has_workers:
            thread = getattr(iterator, "_pin_memory_thread", None)
            if thread is not None:
                reader = self._training.readers.get(thread.ident, reader)
            arrived, unpickle, unpickle_cpu = reader.unpickled.pop(index, (None, None, None))
            pin_start, pin = reader.pinned.pop(index, (None, None))
        elif reader.pinned:
            pin_start, pin = reader.pinned.pop(0)
        size, shape = self._shapes.of(batch)
        self._padding.look(pass_.number, index, batch)
        times = start, end, arrived, unpickle, pin_start, pin
        return FetchedBatch(pass_.number, index, *times, size, shape, unpickle_cpu, loader=pass_.loader)

    def _write_pass(self, loader: Any, iterator: Any, number: int, start: int) -> None:
        training, clock = self._training, self._training.clock
        records: list[Any] = []
        loader_number = training.number_of(loader)
        if loader_number is None:
            loader_number = training.counter.loaders
            training.counter.loaders += 1
            setattr(loader, NUMBER, (training.evidence.path, loader_number))
            facts = self._facts(loader)
            self._lengths[loader_number] = facts.get("length")
            records.append(("loader", loader_number, clock.us(start), facts))
        before: ObservedPass | None = getattr(iterator, ATTRIBUTE, None)
        processes = getattr(iterator, "_workers", None)
        workers = [worker.pid for worker in processes] if isinstance(processes, list) else []  # otherwise threads
        epoch = (0 if before is None else before.epoch + 1) if workers else number
        makers = len(workers) or (max(1, _threads(loader) or 0) if _is_headraces(loader) else int(loader.num_workers))
        pass_ = ObservedPass(
            training, number, epoch, bool(workers), loader=loader_number, owner=weakref.ref(loader), makers=makers
        )
        pass_.in_order = bool(getattr(loader, "in_order", True))  # torch before 2.6 has no other order
        setattr(iterator, ATTRIBUTE, pass_)
        if getattr(loader, "_iterator", None) is None:  # scripts may hold only the iterator; never a cycle
            setattr(iterator, _LOADER, loader)
        training.limit.lasts(self._lengths.get(loader_number))
        training.limit.prefetches(len(workers) * (getattr(loader, "prefetch_factor", None) or 0))
        pids = workers or [os.getpid()]
        times = clock.us(start), clock.now_us()
        begun = number, loader_number, *times, epoch, pids, sampler_epoch(loader), self._is_grad_enabled()
        state = numbers_of(getattr(loader, "dataset", None)) if training.short.is_on else {}
        records.append(("pass", *begun, state))
        training.evidence.write(*records)

    def _facts(self, loader: Any) -> dict[str, Any]:
        """Describe a loader; return an empty dict if it differs from all known ones."""
        try:
            file, line = call_site()
            facts = _thread_loader_facts(loader) if _is_headraces(loader) else _dataloader_facts(loader)
            facts.update(file=file, line=line, made=getattr(loader, MADE, None), ordinal=getattr(loader, ORDINAL, None))
            if not _is_headraces(loader):
                facts["described"] = described_loader(loader, _wrapper_of(loader))
        except Exception as error:
            self._training.fault("facts of a DataLoader", error)
            return {}
        return facts


def _is_headraces(loader: Any) -> bool:
    """Return True for one of Headrace's own loaders, which produce batches in threads of the trainer."""
    return type(loader).__module__.startswith("headrace.")


def _threads(loader: Any) -> Any:
    return loader.threads if hasattr(loader, "threads") else loader.num_workers


def _thread_loader_facts(loader: Any) -> dict[str, Any]:
    return {
        "num_workers": 0,
        "threads": _threads(loader),
        "batch_size": getattr(loader, "batch_size", None),
        "dataset": class_name(type(loader)),
        "length": len(loader),
    }


def _dataloader_facts(loader: Any) -> dict[str, Any]:
    """Describe a DataLoader (docs/doctor/internals.md) once its workers, and so their start method, exist."""
    import multiprocessing

    from torch.utils.data import IterableDataset

    context = loader.multiprocessing_context or multiprocessing
    is_iterable = isinstance(loader.dataset, IterableDataset)  # the same check as in DataLoader itself
    return {
        "num_workers": loader.num_workers,
        "batch_size": loader.batch_size or getattr(loader.batch_sampler, "batch_size", None),
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
        "pin_memory": bool(loader.pin_memory),
        "in_order": getattr(loader, "in_order", True),
        "iterable": is_iterable,
        "start_method": str(context.get_start_method()) if loader.num_workers else None,
        "dataset": class_name(type(loader.dataset)),
        "length": None if is_iterable else _length(loader),
    }


def _wrapper_of(loader: Any) -> Any:
    """Return the library object, such as timm's PrefetchLoader, that iterates the loader in `__iter__`, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PROBES_FILES):
        frame = frame.f_back
    if frame is None or frame.f_code.co_name != "__iter__" or is_users(frame.f_code.co_filename):
        return None
    caller = frame.f_locals.get("self")
    return None if caller is loader else caller


def _length(loader: Any) -> int | None:
    """Return the length of a loader in batches. `len(loader)` has effects, and a sampler's length may raise."""
    try:
        return len(loader._index_sampler)
    except Exception:
        return None
