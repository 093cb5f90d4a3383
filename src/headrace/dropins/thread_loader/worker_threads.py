"""Threads of a ThreadDataLoader, which load batches in parallel, sample by sample, oldest first."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils.worker import WorkerInfo

from headrace.dropins.random_sources import enter, present_sample
from headrace.dropins.thread_loader.epoch_order import Draw
from headrace.dropins.thread_loader.fetching import EndOfData, Fetcher, tell_worker_info
from headrace.system import THREAD_PREFIX, close_at_exit, in_own_thread, share_cores

DROP_WAIT_S = 1.0
"""Timeout in seconds for dropped passes, far above a sample's time. The caller may hold a lock that a sample needs."""

EXIT_WAIT_S = 5.0
"""Timeout in seconds at exit, after which threads in a hung dataset are abandoned."""

_MISSING = object()


class BatchTask:
    """Task of loading one batch. Call `claim` and `complete` with the workers' lock held, `load` and `collate` without.

    After a failure no further part is started. The batch's error is that of its first failed part, independent of
    timing and the same as in DataLoader.
    """

    def __init__(self, fetcher: Fetcher, draw: Draw, *, step: int) -> None:
        self.draw = draw
        self.done = False
        """True once `result` may be called; set with the workers' lock held."""
        self._fetcher = fetcher
        self._step = step
        self._parts = fetcher.parts(draw.indices)
        self._loaded: list[Any] = [_MISSING] * len(self._parts)
        self._claimed = 0
        self._in_progress = 0
        self._failed_row = len(self._parts)
        self._error: BaseException | None = None
        self._batch: Any = None

    @property
    def claimable(self) -> bool:
        """True if a part is left to start. An empty batch has one part, so that a thread collates it."""
        return self._claimed < max(1, len(self._parts)) and self._error is None and not self._fetcher.cancelled

    @property
    def settled(self) -> bool:
        """True if the batch is done, or is no longer needed and may never be done."""
        return self.done or self._fetcher.cancelled

    def claim(self) -> int:
        """Claim the next part and return its row."""
        row = self._claimed
        self._claimed += 1
        self._in_progress += 1
        return row

    def load(self, row: int) -> BaseException | None:
        """Load one part; return its error, if any, for `complete`."""
        if row >= len(self._parts):
            return None
        outer = present_sample()  # may be a loader inside another loader's dataset
        try:
            self._loaded[row] = self._fetcher.load(self._parts[row], step=self._step, row=row)
        except EndOfData as end:
            return end
        except BaseException as error:
            return placed(error, self._where(row))
        finally:
            enter(outer)
        return None

    def complete(self, row: int, error: BaseException | None) -> bool:
        """Record the end of a part. Return True for the last part: its thread must then collate."""
        if error is not None and (self._error is None or row < self._failed_row):
            self._error, self._failed_row = error, row
        self._in_progress -= 1
        return self._in_progress == 0 and not self.claimable

    def collate(self) -> None:
        """Collate the parts into the batch, unless one has failed."""
        if self._error is not None or self._fetcher.cancelled:
            return
        outer = present_sample()
        try:
            self._batch = self._fetcher.collate(self._loaded, step=self._step)
        except BaseException as error:
            self._error = placed(error, f"collate_fn, batch {self._step}")
        finally:
            enter(outer)
            self._loaded = []

    def run(self) -> None:
        """Load and collate the batch in the calling thread."""
        while self.claimable:
            row = self.claim()
            self.complete(row, self.load(row))
        self.collate()
        self.done = True

    def result(self) -> Any:
        """Return the batch, once. Raises its error, or EndOfData."""
        if self._error is None:
            batch, self._batch = self._batch, None
            return batch
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: a cycle would keep what the dataset's frames hold

    def under_way(self) -> str:
        """Describe the parts that the batch is waiting for."""
        rows = [row for row in range(min(self._claimed, len(self._loaded))) if self._loaded[row] is _MISSING]
        names = "; ".join(map(self._where, rows[:3]))
        return names + ("; …" if len(rows) > 3 else "") if rows else f"collate_fn, batch {self._step}"

    def _where(self, row: int) -> str:
        return self._fetcher.where(self._parts[row], step=self._step, row=row)


def placed(error: BaseException, where: str) -> BaseException:
    """Add a note with the sample to the user's exception; its type and traceback are unchanged."""
    if isinstance(error, StopIteration):  # would silently end the consumer's loop (PEP 479)
        stopped = RuntimeError(f"StopIteration raised in {where}")
        stopped.__cause__ = error
        return stopped
    error.add_note(f"in {where}")
    return error


class WorkerThreads:
    """Owner of `count` threads. `close` ends them and is idempotent; a forked child has none."""

    def __init__(
        self,
        count: int,
        *,
        init: Callable[[int], object] | None,
        info: Callable[[int], WorkerInfo],
        device: int | None,
    ) -> None:
        """Start the threads and wait until `init` has returned in each for its number, 0 to count - 1.

        `info` returns the result of `get_worker_info()` in a thread. `device` is the CUDA device for pinned memory, or
        None. Raises the error of `init`.
        """
        self._init = init
        self._info = info
        self._device = device
        self._pid = os.getpid()
        self._changed = threading.Condition()  # reentrant: the garbage collector may call `close` anywhere
        self._tasks: deque[BatchTask] = deque()
        self._ready = 0
        self._error: BaseException | None = None
        self._closed = False
        self._threads: list[threading.Thread] = []
        close_at_exit(self)
        own = torch.get_num_threads()
        try:
            for worker in range(count):
                name = f"{THREAD_PREFIX}loader-{worker}"
                thread = threading.Thread(target=self._run, args=(worker, count), name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            with self._changed:
                self._changed.wait_for(lambda: self._ready == count)
            if self._error is not None:
                raise self._error
        except BaseException:  # also Ctrl-C, or a thread cannot start: no one else has this object yet
            self.close(DROP_WAIT_S)
            raise
        finally:
            self._error = None
            torch.set_num_threads(own)  # for threads started later, which `_prepare` has changed

    @property
    def foreign(self) -> bool:
        """True if this process is a fork of the process that owns the threads."""
        return os.getpid() != self._pid

    def submit(self, task: BatchTask) -> None:
        with self._changed:
            self._tasks.append(task)
            self._changed.notify_all()

    def wait(self, task: BatchTask, timeout_s: float | None) -> bool:
        """Wait for the batch; return True if it is done or cancelled in time."""
        with self._changed:
            return self._changed.wait_for(lambda: task.settled, timeout_s)

    def wake(self) -> None:
        """Wake waiting consumers after batches were cancelled."""
        if not self.foreign:  # a fork has no such consumers, and may have inherited a locked lock
            with self._changed:
                self._changed.notify_all()

    def close(self, timeout_s: float | None = EXIT_WAIT_S) -> None:
        """End the threads after their samples in progress; threads that exceed the timeout end later on their own."""
        self._closed = True
        self.wake()
        if self.foreign or in_own_thread():  # a worker thread must not join itself or its peers
            return
        for thread in self._threads:
            thread.join(timeout_s)
            if thread.is_alive():
                timeout_s = 0  # the others had the same time

    # --- in the threads ---

    def _run(self, worker: int, count: int) -> None:
        error = None
        try:
            self._prepare(worker, count)
        except BaseException as failure:
            error = placed(failure, f"worker_init_fn({worker})")
        with self._changed:
            self._ready += 1
            self._error = error if self._error is None else self._error
            self._changed.notify_all()
        del error  # its traceback holds this frame
        while (claim := self._claim()) is not None:
            self._work_on(*claim)
            del claim  # a waiting thread must not keep a batch alive

    def _prepare(self, worker: int, count: int) -> None:
        """Set up the thread, with one intra-op thread of torch as in DataLoader: n pools of n threads would compete."""
        if torch.backends.openmp.is_available():
            torch.get_num_threads()  # first call: a thread adopts the global number; later ones set its own
            torch.set_num_threads(1)
        share_cores(count)
        if self._device is not None:
            torch.cuda.set_device(self._device)  # per thread: pinning would otherwise initialize another GPU
        tell_worker_info(self._info(worker))
        if self._init is not None:
            self._init(worker)

    def _claim(self) -> tuple[BatchTask, int] | None:
        """Wait for a part to load and claim it; return None once closed."""
        with self._changed:
            while not self._closed:
                while self._tasks and not self._tasks[0].claimable:
                    self._tasks.popleft()
                if self._tasks:
                    return self._tasks[0], self._tasks[0].claim()
                self._changed.wait()
            return None

    def _work_on(self, task: BatchTask, row: int) -> None:
        error = task.load(row)
        with self._changed:
            last = task.complete(row, error)
        del error
        if last:
            task.collate()
            with self._changed:
                task.done = True
                self._changed.notify_all()
