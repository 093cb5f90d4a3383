"""Hooks on the queues between a DataLoader and its workers, at both ends."""

from __future__ import annotations

import inspect
import multiprocessing.process
import os
import sys
import time
from multiprocessing.reduction import ForkingPickler
from threading import get_ident
from types import ModuleType
from typing import Any, Callable

from ..batch_production import BatchRecorder, ProducedBatch
from ..evidence_file import EvidenceFile
from ..patches import Fault, Function, Patches
from ..settings import SessionClock
from ..training.received_batches import ATTRIBUTE, QueueReader
from ..training.training import TrainingObserver, now

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
        _IndexQueue(batches, queues[0], lambda: evidence.write(("worker", begun, _worker_facts(clock))))
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


def _worker_facts(clock: SessionClock) -> dict[str, Any]:
    """Return the facts of a worker whose loop has begun, and told torch's public `get_worker_info()` what it is."""
    info: Any = sys.modules["torch.utils.data"].get_worker_info()
    dataset, process = type(info.dataset), multiprocessing.process.current_process()
    return {
        "id": info.id,
        "parent": os.getppid(),
        "num_workers": info.num_workers,
        "dataset": f"{dataset.__module__}.{dataset.__qualname__}",
        # Start method of this process, or the default if its loader had no context of its own.
        "start_method": getattr(process, "_start_method", None) or multiprocessing.get_start_method(allow_none=True),
        "started_us": _started_us(clock),
    }


def _started_us(clock: SessionClock) -> int | None:
    """Return the time at which the kernel started this process, accurate to its clock tick (10 ms)."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return None
    return clock.now_us() - round(age_s * 1e6)


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
        data = original(cls, message, *args, **kwargs)
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
