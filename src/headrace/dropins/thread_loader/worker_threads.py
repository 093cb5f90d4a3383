"""Threads of a ThreadDataLoader, which load submitted batches sample by sample, oldest first."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

import torch
from torch.utils.data._utils.worker import WorkerInfo

from headrace.dropins.thread_loader.batch_task import BatchTask, placed
from headrace.dropins.thread_loader.fetching import tell_worker_info, worker_info
from headrace.system import THREAD_PREFIX, close_at_exit, in_own_thread, share_cores

DROP_WAIT_S = 1.0
"""Timeout in seconds for dropped passes, far above a sample's time. The caller may hold a lock that a sample needs."""

EXIT_WAIT_S = 5.0
"""Timeout in seconds at exit, after which threads in a hung dataset are abandoned."""


class WorkerThreads:
    """Owner of `count` threads. `close` ends them and is idempotent; a forked child has none."""

    def __init__(
        self, count: int, *, init: Callable[[int], object] | None, info: WorkerInfo, device: int | None
    ) -> None:
        """Start the threads and call `init` in each with its number, 0 to count - 1.

        `info` is the result of `get_worker_info()` in the first thread. `device` is the CUDA device for pinned memory,
        or None.
        """
        self._init = init
        self._info = info
        self._device = device
        self._pid = os.getpid()
        # Reentrant: the garbage collector may call `close` anywhere.
        lock = threading.RLock()
        self._work = threading.Condition(lock)  # wakes the threads: a part can be started
        self._news = threading.Condition(lock)  # wakes consumers: a batch is done, or a thread has started
        self._tasks: deque[BatchTask] = deque()
        self._prepared = self._initialised = 0
        self._error: BaseException | None = None
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, args=(i,), name=f"{THREAD_PREFIX}loader-{i}", daemon=True)
            for i in range(count)
        ]
        close_at_exit(self)
        own = torch.get_num_threads()  # before `_prepare` changes it
        try:
            for thread in self._threads:
                thread.start()
            with self._news:
                self._news.wait_for(lambda: self._prepared == count)
        except BaseException:  # Ctrl-C, or a thread cannot start: no one else has this object yet
            self.close()
            raise
        torch.set_num_threads(own)  # for threads started later; this thread's number is unchanged

    @property
    def foreign(self) -> bool:
        """True if this process is a fork of the process that owns the threads."""
        return os.getpid() != self._pid

    @property
    def failed(self) -> bool:
        """True if `init` has failed."""
        return self._error is not None

    def submit(self, task: BatchTask) -> None:
        with self._work:
            self._tasks.append(task)
            self._work.notify_all()

    def wait(self, task: BatchTask, timeout_s: float | None) -> bool:
        """Wait for the batch; return True if it is done or cancelled in time. Raises the error of `worker_init_fn`.

        No batch is returned before `worker_init_fn` has finished in every thread, so its failure precedes the first
        batch.
        """
        with self._news:
            self._news.wait_for(lambda: self._ready(task), timeout_s)
            if self._error is not None:
                raise self._error
            return self._ready(task)

    def _ready(self, task: BatchTask) -> bool:
        if self._error is not None or task.cancelled:
            return True
        return task.done and self._initialised == len(self._threads)

    def cancelled(self) -> None:
        """Wake waiting consumers after batches were cancelled."""
        if not self.foreign:  # a fork has no such consumers, and may have inherited a locked lock
            with self._news:
                self._news.notify_all()

    def close(self, timeout_s: float | None = EXIT_WAIT_S) -> None:
        """End the threads after their samples in progress; threads that exceed the timeout end later on their own."""
        if self.foreign:
            return
        with self._work:
            self._closed = True
            self._work.notify_all()
        if in_own_thread():  # a worker thread must not join itself or its peers
            return
        for thread in self._threads:
            if thread.ident is None:  # never started
                continue
            thread.join(timeout_s)
            if thread.is_alive():
                timeout_s = 0  # the others had the same time

    # --- in the threads ---

    def _run(self, worker: int) -> None:
        self._prepare()
        share_cores(len(self._threads))
        error = self._initialise(worker)
        with self._news:
            self._initialised += 1
            self._error = error if self._error is None else self._error
            self._news.notify_all()
        del error  # its traceback holds this frame
        while (claim := self._claim()) is not None:
            task, row = claim
            self._work_on(task, row)
            del task, claim  # a waiting thread must not keep a batch alive

    def _prepare(self) -> None:
        """Limit torch to one intra-op thread per worker, as DataLoader does: n pools of n threads would compete.

        This also sets the number for threads started later, which `__init__` restores.
        """
        if torch.backends.openmp.is_available():
            torch.get_num_threads()  # first call: a thread adopts the global number; later ones set its own
            torch.set_num_threads(1)
        with self._news:
            self._prepared += 1
            self._news.notify_all()

    def _initialise(self, worker: int) -> BaseException | None:
        try:
            if self._device is not None:
                torch.cuda.set_device(self._device)  # per thread: pinning would otherwise initialize another GPU
            info = self._info
            tell_worker_info(worker_info(worker, info.num_workers, info.seed + worker, info.dataset))
            if self._init is not None:
                self._init(worker)
        except BaseException as error:
            return placed(error, f"worker_init_fn({worker})")
        return None

    def _claim(self) -> tuple[BatchTask, int] | None:
        """Wait for a part to load and claim it; return None once closed."""
        with self._work:
            while not self._closed:
                while self._tasks and not self._tasks[0].claimable:
                    self._tasks.popleft()
                if self._tasks:
                    return self._tasks[0], self._tasks[0].claim()
                self._work.wait()
            return None

    def _work_on(self, task: BatchTask, row: int) -> None:
        error = task.load(row)
        with self._work:
            last = task.complete(row, error)
        del error
        if last:
            task.collate()
            with self._news:
                task.done = True
                self._news.notify_all()
