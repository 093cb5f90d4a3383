"""Hooks on the queues between a DataLoader and its workers, at both ends."""

from __future__ import annotations

import functools
import inspect
import os
import time
from multiprocessing.reduction import ForkingPickler
from time import thread_time_ns
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from ..batch_production import ProducedBatch
from ..training.step_records import ATTRIBUTE, QueueReader
from ..training.training import now

if TYPE_CHECKING:
    from ..probe import Probe
    from ..training.training import TrainingObserver


# -- from doctor/probe/hooks/workers.py: The worker loop of a DataLoader: when an index arrived, when its batch was in
# the pipe, and what pickling took.


UNSEEN_WORKERS = "what workers do was"


def install_workers(probe: Probe, worker: ModuleType) -> None:
    """Hook torch.utils.data._utils.worker, or a module with such a loop."""
    probe.hook(worker, "_worker_loop", lambda original: _observed(probe, original), UNSEEN_WORKERS)


def _observed(probe: Probe, original: Callable[..., None]) -> Callable[..., None]:
    """Under the original's name, by which spawned workers find it."""

    close = probe.batches.guard(probe.batches.close)

    @functools.wraps(original)
    def _worker_loop(*args: Any, **kwargs: Any) -> None:
        try:
            _observe(probe, original, args, kwargs)
        except Exception as error:
            probe.fault("worker loop", error)
        try:
            original(*args, **kwargs)
        finally:
            close()

    return _worker_loop


def _observe(probe: Probe, original: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    roles = loop_roles(inspect.signature(original).bind(*args, **kwargs).arguments)
    probe.evidence.write(("worker", probe.clock.now_us(), _facts(probe, roles)))
    if roles.index_queue is None or roles.data_queue is None:
        probe.unknown(f"{original.__module__}._worker_loop", UNSEEN_WORKERS)
        return
    _IndexQueue(probe, roles.index_queue)
    _DataQueue(probe, roles.data_queue)


class LoopRoles(NamedTuple):
    """What a worker loop was called with, by what each argument is for; None for what was not found."""

    dataset: Any
    index_queue: Any
    data_queue: Any
    worker_id: Any
    num_workers: Any


def loop_roles(arguments: dict[str, Any]) -> LoopRoles:
    """Find the roles by the arguments' names, else the queues by what they can do: indices come first everywhere.

    torch from 2.15 on hands over the dataset in a list, which the loop empties.
    """
    queues = [value for value in arguments.values() if all(hasattr(value, name) for name in QUEUE_METHODS)]
    first, second = (*queues, None, None)[:2] if len(queues) == 2 else (None, None)
    holder = arguments.get("dataset_holder")
    held = holder[0] if isinstance(holder, list) and len(holder) == 1 else None
    return LoopRoles(
        arguments.get("dataset", held),
        arguments.get("index_queue", first),
        arguments.get("data_queue", second),
        arguments.get("worker_id"),
        arguments.get("num_workers"),
    )


QUEUE_METHODS = ("get", "put", "_send_bytes")
"""What a queue of multiprocessing has."""


def _facts(probe: Probe, roles: LoopRoles) -> dict[str, Any]:
    dataset = type(roles.dataset)
    return {
        "id": roles.worker_id,
        "parent": os.getppid(),
        "num_workers": roles.num_workers,
        "dataset": None if roles.dataset is None else f"{dataset.__module__}.{dataset.__qualname__}",
        "start_method": _start_method(),
        "started_us": _started_us(probe),
    }


def _start_method() -> str | None:
    """A loader without a context of its own starts processes that carry none: then it is the default's."""
    import multiprocessing

    own: str | None = getattr(multiprocessing.process.current_process(), "_start_method", None)
    return multiprocessing.get_start_method(allow_none=True) if own is None else own


def _started_us(probe: Probe) -> int | None:
    """When the kernel started this process, to its clock tick (10 ms)."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return None
    return probe.clock.now_us() - round(age_s * 1e6)


class _IndexQueue:
    """Sees what the loop gets. It sets `get` on the queue itself, which stays the object that it is."""

    def __init__(self, probe: Probe, queue: Any) -> None:
        self._batches = probe.batches
        self._epoch = 0
        guard = probe.batches.guard
        self._drop, self._begin = guard(self._drop_unsent), guard(self._begin_batch)
        self._get = queue.get
        queue.get = self.get

    def get(self, *args: Any, **kwargs: Any) -> Any:
        self._drop()
        message = self._get(*args, **kwargs)
        self._begin(message)
        return message

    def _drop_unsent(self) -> None:
        """The loop skips what it gets once the pass is over."""
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
    """Sees what the loop puts, and what becomes of it in the queue's feeder thread: pickled, then in the pipe."""

    def __init__(self, probe: Probe, queue: Any) -> None:
        # Here and not above: processes that have no workers load this module, too, and should not pay for it.
        from multiprocessing.reduction import ForkingPickler

        self._batches = probe.batches
        self._unsent: dict[int, ProducedBatch] = {}
        self._sending: ProducedBatch | None = None
        self._serialise = 0
        guard = probe.batches.guard
        self._end, self._written = guard(self._end_batch), guard(self._write_sent)
        self._put, self._send = queue.put, queue._send_bytes
        queue.put, queue._send_bytes = self.put, self.send
        probe.patches.replace(ForkingPickler, "dumps", self._pickling)

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

    def _pickling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def dumps(cls: Any, message: Any, *args: Any, **kwargs: Any) -> Any:
            batch = self._unsent.pop(id(message), None)
            if batch is None:
                return original(cls, message, *args, **kwargs)
            started = time.monotonic_ns()
            data = original(cls, message, *args, **kwargs)
            self._serialise = time.monotonic_ns() - started
            self._sending = batch
            return data

        return dumps

    def send(self, data: Any) -> None:
        self._send(data)
        self._written()

    def _write_sent(self) -> None:
        batch, self._sending = self._sending, None
        if batch is not None:
            self._batches.write(batch, time.monotonic_ns(), self._serialise)


# -- from doctor/probe/hooks/arrivals.py: Batches that come from workers: which one it is, how long unpickling it
# takes, and pinning it.


def install_queues(probe: Probe, dataloader: ModuleType) -> None:
    """Hooks torch.utils.data.dataloader."""
    hooks = QueueHooks(probe.training)
    install_iterator(probe, dataloader, "_MultiProcessingDataLoaderIter")
    probe.patches.replace(ForkingPickler, "loads", hooks.loads)
    probe.hook(dataloader, "_utils.pin_memory._pin_memory_loop", hooks.pin_memory_loop, "pinning was")
    probe.hook(dataloader, "_utils.pin_memory.pin_memory", hooks.pin_memory, "pinning was")


def install_iterator(probe: Probe, module: ModuleType, iterator: str) -> None:
    """Hooks an iterator over worker processes."""
    unseen = "batches that come out of order were"
    probe.hook(module, f"{iterator}._try_get_data", QueueHooks(probe.training).try_get_data, unseen)


class QueueHooks:
    """Each method takes what it stands for, and gives what stands for it."""

    def __init__(self, training: TrainingObserver) -> None:
        self._training = training

    def try_get_data(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Tells the index of a batch that is handed out as soon as it came, whatever the order."""

        @functools.wraps(original)
        def _try_get_data(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(iterator, *args, **kwargs)
            pass_ = getattr(iterator, ATTRIBUTE, None)
            if pass_ is not None and result[0] and type(result[1]) is tuple and type(result[1][0]) is int:
                pass_.index = result[1][0]
            return result

        return _try_get_data

    def loads(self, original: Callable[..., Any]) -> Any:
        current = self._training.readers.current

        def loads(*args: Any, **kwargs: Any) -> Any:
            reader = current()
            if reader is None:
                return original(*args, **kwargs)
            start, cpu = now(), thread_time_ns()
            value = original(*args, **kwargs)
            end, cpu = now(), thread_time_ns() - cpu
            try:
                reader.read(value, end, end - start, cpu)
            except Exception as error:
                self._training.fail("unpickling", error)
            return value

        return staticmethod(loads)

    def pin_memory_loop(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def _pin_memory_loop(*args: Any, **kwargs: Any) -> None:
            readers = self._training.readers
            readers.begin(QueueReader())
            try:
                original(*args, **kwargs)
            finally:
                readers.end()

        return _pin_memory_loop

    def pin_memory(self, original: Callable[..., Any]) -> Callable[..., Any]:
        current = self._training.readers.current

        @functools.wraps(original)
        def pin_memory(*args: Any, **kwargs: Any) -> Any:
            reader = current()
            if reader is None or reader.pinning:
                return original(*args, **kwargs)
            reader.pinning = True
            start = now()
            try:
                return original(*args, **kwargs)
            finally:
                reader.pinning = False
                reader.pin(start, now() - start)

        return pin_memory
