"""Hooks on the making of batches: DataLoader's fetchers, and the queues to its workers at both ends."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from threading import get_ident
from types import ModuleType
from typing import Any, Callable

from ..batch_production import BatchRecorder, ProducedBatch
from ..evidence_file import EvidenceFile
from ..look.first_batches import MOST_FIRST, MOST_STREAMED, FirstBatchDigests
from ..patches import Fault, Function, Patches
from ..settings import SessionClock
from ..stages import NOBODY, CallTimer, timed
from ..training.state import ATTRIBUTE, QueueReader
from ..training.training import TrainingObserver, now
from .lifecycle import worker_facts

FETCHES = "_headrace_fetches"
"""Attribute of a fetcher: its `_Fetches`."""


def install_fetchers(
    timer: CallTimer,
    batches: BatchRecorder,
    training: TrainingObserver,
    evidence: EvidenceFile | None,
    fetch: ModuleType,
) -> None:
    """Hook torch's fetchers, which workers and num_workers=0 share. First batches are digested into `evidence`."""
    hook, unseen = _FetchHook(timer, batches, training, evidence), "the making of batches was"
    timer.patches.hook_around(fetch, "_BaseDatasetFetcher.__init__", hook.new_fetcher, unseen)
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        timer.patches.hook_around(fetch, f"{name}.fetch", hook.fetch, unseen)


@dataclass(eq=False)
class _Fetches:
    hook: _FetchHook
    pass_: int
    made: int = 0
    """Batches made in a process without a worker loop."""
    fetched: int = 0
    first: FirstBatchDigests | None = None
    collate_fn: Function | None = None
    collate: Function | None = None
    """Timed stand-in for its collate_fn."""


class _FetchHook:
    """Hook that times every fetch of a process."""

    def __init__(
        self, timer: CallTimer, batches: BatchRecorder, training: TrainingObserver, evidence: EvidenceFile | None
    ) -> None:
        self._timer, self._evidence, self._batches = timer, evidence, batches
        self._thread, self._clock, self._counter = training.thread, training.clock, training.counter
        self.rest = timer.stage("getitem", "rest")
        self._unknown, self._is_check = 0, training.short.is_on
        self.guard = guard = batches.guard
        self._count, self._begin, self._end = guard(self._count_pass), guard(self._begin_fetch), guard(self._end_fetch)

    def new_fetcher(self, original: Function, fetcher: Any, *args: Any, **kwargs: Any) -> None:
        self._count(fetcher)
        original(fetcher, *args, **kwargs)

    def fetch(self, original: Function, fetcher: Any, index: Any) -> Any:
        if self._thread.observed == NOBODY:
            return original(fetcher, index)
        under_way: _Fetch | None = self._begin(fetcher, index)
        if under_way is None:
            return original(fetcher, index)
        try:
            data = original(under_way.stand_in, index)
            under_way.batch.is_done = True
            if under_way.first is not None:
                self.guard(under_way.first.end)(under_way.batch, index, data)
            return data
        finally:
            under_way.keep_changes()
            self._end(under_way)

    def _count_pass(self, fetcher: Any) -> None:
        """Number the pass. A pass that the training thread does not begin gets a negative number."""
        number = self._counter.opening
        if number is None:
            self._unknown -= 1
            number = self._unknown
        setattr(fetcher, FETCHES, _Fetches(self, number))

    def _begin_fetch(self, fetcher: Any, index: Any) -> _Fetch | None:
        batch = self._batches.current()
        if batch is not None and batch.is_fetching:
            # The dataset itself runs a loader, which is part of the dataset's own code.
            return None
        known = self._known(fetcher)
        is_here = batch is None
        if batch is None:  # a process without a worker loop
            known.made += 1
            batch = self._batches.begin(known.pass_, known.made - 1)
        batch.is_fetching = True
        fetch = _Fetch(known, batch, fetcher, index, is_here=is_here)
        known.fetched += 1
        return fetch

    def first(self, known: _Fetches, fetcher: Any) -> FirstBatchDigests | None:
        most = MOST_STREAMED if self._is_check and hasattr(fetcher, "dataset_iter") else MOST_FIRST
        if self._evidence is None or known.fetched >= most:
            known.first = None
        elif known.fetched == 0:
            opened = self._batches.opened
            known.first = FirstBatchDigests(self._evidence, self._clock, fetcher, opened, has_state=self._is_check)
        if known.first is not None:
            known.first.begin(fetcher)
        return known.first

    def collate(self, known: _Fetches, fetcher: Any) -> Function:
        if known.collate is None or known.collate_fn is not fetcher.collate_fn:
            known.collate_fn = fetcher.collate_fn
            function = getattr(fetcher.collate_fn, "func", fetcher.collate_fn)
            stage = self._timer.stage("collate", getattr(function, "__qualname__", type(function).__qualname__))
            known.collate = timed(self._timer.stages, stage)(fetcher.collate_fn)
        return known.collate

    def _known(self, fetcher: Any) -> _Fetches:
        known: _Fetches | None = getattr(fetcher, FETCHES, None)
        if known is None or known.hook is not self:  # older than the probe
            self._count_pass(fetcher)
            known = getattr(fetcher, FETCHES)
        assert known is not None
        return known

    def _end_fetch(self, fetch: _Fetch) -> None:
        fetch.batch.is_fetching = False
        if fetch.is_here and fetch.batch.is_done:
            self._batches.end(fetch.batch)
            self._batches.write(fetch.batch)
        elif fetch.is_here:
            self._batches.drop(fetch.batch)


class _Fetch:
    """One fetch through a stand-in for the fetcher, and the dataset's time for the batch.

    The dataset's time ends where the stand-in's collate_fn begins. The fetcher itself stays unchanged for anyone else
    who uses it meanwhile: another thread that reads the same iterator, or code that saves its state.
    """

    def __init__(self, known: _Fetches, batch: ProducedBatch, fetcher: Any, index: Any, *, is_here: bool) -> None:
        """Make the stand-in, and begin to time the dataset's code as the stage `rest`. `index`: what is fetched."""
        hook = known.hook
        self.batch, self.first, self.is_here = batch, hook.first(known, fetcher), is_here
        self._rest, self._fetcher, collate = hook.rest, fetcher, hook.collate(known, fetcher)
        end, is_stream, is_listed = hook.guard(self._end), hasattr(fetcher, "dataset_iter"), fetcher.auto_collation
        count = len(index) if isinstance(index, (list, tuple)) else None if is_stream or is_listed else 1

        def timed_until(data: Any) -> Any:
            end(len(data) if is_stream and is_listed else count)
            return collate(data)

        batch.account.enter(self._rest)
        self._given = {**vars(fetcher), "collate_fn": timed_until}
        self.stand_in: Any = object.__new__(type(fetcher))
        vars(self.stand_in).update(self._given)

    def keep_changes(self) -> None:
        """Copy the stand-in's changed state to the fetcher, and release both: their cycle would keep the iterator."""
        fetcher, given, now = self._fetcher, self._given, vars(self.stand_in)
        self._fetcher = self.stand_in = None
        self._given = {}
        for name, value in now.items():
            if value is not given.get(name, self):
                setattr(fetcher, name, value)

    def _end(self, samples: int | None) -> None:
        """Stop timing the dataset, which gave `samples` samples; None if the number is unknown."""
        account = self.batch.account
        account.leave()
        if samples:
            account.totals[self._rest][0] += samples - 1
            self.batch.samples = samples


UNSEEN_WORKERS = "what workers do was"


# In the training process: which batch arrives, and the time of unpickling and pinning.


def hook_queues(patches: Patches, training: TrainingObserver, dataloader: ModuleType) -> None:
    """Hook the functions with which torch.utils.data.dataloader reads its workers' queues."""
    readers = training.readers

    def loads(original: Function) -> Any:
        def loads(*args: Any, **kwargs: Any) -> Any:
            reader = readers.get(get_ident())
            if reader is None:
                return original(*args, **kwargs)
            start, cpu = now(), time.thread_time_ns()
            value = original(*args, **kwargs)
            end, cpu = now(), time.thread_time_ns() - cpu
            try:
                reader.read(value, end, end - start, cpu)
            except Exception as error:
                training.fail("unpickling", error)
            return value

        return staticmethod(loads)

    def pin_memory_loop(original: Function, *args: Any, **kwargs: Any) -> None:
        readers[get_ident()] = QueueReader()
        try:
            original(*args, **kwargs)
        finally:
            readers.pop(get_ident(), None)

    def pin_memory(original: Function, *args: Any, **kwargs: Any) -> Any:
        reader = readers.get(get_ident())
        if reader is None or reader.pinning:
            return original(*args, **kwargs)
        reader.pinning = True
        start = now()
        try:
            return original(*args, **kwargs)
        finally:
            reader.pinning = False
            reader.pin(start, now() - start)

    hook_iterator(patches, dataloader, "_MultiProcessingDataLoaderIter")
    patches.replace(ForkingPickler, "loads", loads)
    patches.hook_around(dataloader, "_utils.pin_memory._pin_memory_loop", pin_memory_loop, "pinning was")
    patches.hook_around(dataloader, "_utils.pin_memory.pin_memory", pin_memory, "pinning was")


def hook_iterator(patches: Patches, module: ModuleType, iterator: str) -> None:
    """Hook an iterator over worker processes, to get the index of a batch that arrives out of order."""

    def try_get_data(original: Function, iterator: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(iterator, *args, **kwargs)
        pass_ = getattr(iterator, ATTRIBUTE, None)
        if pass_ is not None and result[0] and type(result[1]) is tuple and type(result[1][0]) is int:
            pass_.index = result[1][0]
        return result

    patches.hook_around(module, f"{iterator}._try_get_data", try_get_data, "batches that come out of order were")


# In a worker: when an index arrived, when its batch was in the pipe, and the time of pickling.


def install_workers(
    patches: Patches,
    batches: BatchRecorder,
    evidence: EvidenceFile,
    clock: SessionClock,
    fault: Fault,
    worker: ModuleType,
) -> None:
    """Hook torch.utils.data._utils.worker, or a module with the same loop."""
    close = batches.guard(batches.close)

    def observe(original: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        begun = clock.now_us()
        arguments = inspect.signature(original).bind(*args, **kwargs).arguments
        queues = [arguments[name] for name in ("index_queue", "data_queue") if name in arguments]
        if len(queues) < 2:
            patches.unknown(f"{original.__module__}._worker_loop", UNSEEN_WORKERS)
            return
        _IndexQueue(batches, queues[0], lambda: evidence.write(("worker", begun, worker_facts())))
        _DataQueue(patches, batches, queues[1])

    def loop(original: Function, *args: Any, **kwargs: Any) -> None:
        try:
            observe(original, args, kwargs)
        except Exception as error:
            fault("worker loop", error)
        try:
            original(*args, **kwargs)
        finally:
            close()

    # Spawned workers find it by its name, which the stand-in shares.
    patches.hook_around(worker, "_worker_loop", loop, UNSEEN_WORKERS)


class _IndexQueue:
    """Hook on the loop's index queue. The queue object stays the same."""

    def __init__(self, batches: BatchRecorder, queue: Any, at_first: Callable[[], None]) -> None:
        """`at_first` is called when the loop first requests an index, and so has begun."""
        self._batches = batches
        self._epoch = 0
        self._at_first: Callable[[], None] | None = at_first
        self._drop, self._begin = batches.guard(self._drop_unsent), batches.guard(self._begin_batch)
        self._get = queue.get
        queue.get = self.get

    def get(self, *args: Any, **kwargs: Any) -> Any:
        self._drop()
        message = self._get(*args, **kwargs)
        self._begin(message)
        return message

    def _drop_unsent(self) -> None:
        """Drop a batch that the loop received and skipped after the end of the pass."""
        if self._at_first is not None:
            at_first, self._at_first = self._at_first, None
            at_first()
        unsent = self._batches.current()
        if unsent is not None:
            self._batches.drop(unsent)

    def _begin_batch(self, message: Any) -> None:
        if type(message) is tuple and message and type(message[0]) is int:
            self._batches.begin(self._epoch, message[0])
        elif type(message).__name__ == "_ResumeIteration":
            self._batches.flush()
            self._epoch += 1


class _DataQueue:
    """Hook on the loop's data queue. Its feeder thread pickles and sends the batches."""

    def __init__(self, patches: Patches, batches: BatchRecorder, queue: Any) -> None:
        self._batches = batches
        self._unsent: dict[int, ProducedBatch] = {}
        self._sending: ProducedBatch | None = None
        self._serialise = 0
        self._end, self._written = batches.guard(self._end_batch), batches.guard(self._write_sent)
        self._lost = batches.guard(batches.lost)
        self._put, self._send = queue.put, queue._send_bytes
        queue.put, queue._send_bytes = self.put, self.send
        patches.around(ForkingPickler, "dumps", self._dumps)

    def put(self, message: Any, *args: Any, **kwargs: Any) -> None:
        self._end(message)
        self._put(message, *args, **kwargs)

    def _end_batch(self, message: Any) -> None:
        batch = self._batches.current()
        if batch is not None and batch.is_done:
            self._batches.end(batch)
            self._unsent[id(message)] = batch
        elif batch is not None:
            self._batches.drop(batch)

    def _dumps(self, original: Function, cls: Any, message: Any, *args: Any, **kwargs: Any) -> Any:
        batch = self._unsent.pop(id(message), None)
        if batch is None:
            return original(cls, message, *args, **kwargs)
        started = time.monotonic_ns()
        try:
            data = original(cls, message, *args, **kwargs)
        except Exception as error:
            self._lost(error)
            raise
        self._serialise = time.monotonic_ns() - started
        self._sending = batch
        return data

    def send(self, data: Any) -> None:
        self._send(data)
        self._written()

    def _write_sent(self) -> None:
        batch, self._sending = self._sending, None
        if batch is not None:
            self._batches.write(batch, time.monotonic_ns(), self._serialise)
