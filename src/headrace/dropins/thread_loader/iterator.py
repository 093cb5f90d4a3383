"""Iterator over a ThreadDataLoader, with several batches in progress, returned in order."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from headrace.dropins.random_sources import GlobalRandomWatch
from headrace.dropins.thread_loader.epoch_order import EpochOrder
from headrace.dropins.thread_loader.fetching import EndOfData, Fetcher
from headrace.dropins.thread_loader.worker_threads import DROP_WAIT_S, BatchTask, WorkerThreads
from headrace.errors import UsageError


class ThreadLoaderIterator(Iterator[Any]):
    """Iterator over batches in the sampler's order. Ends with the epoch, on `close`, on Ctrl-C, or when dropped.

    The error of a failed batch is raised in its place, and the next call returns the following batch, as in DataLoader.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        order: EpochOrder,
        fetcher: Fetcher,
        *,
        start_workers: Callable[[], WorkerThreads],
        watch: GlobalRandomWatch,
    ) -> None:
        """Begin a pass. With `num_workers=0` the calling thread loads each batch on request.

        Raises the error of `worker_init_fn`.
        """
        self._loader = loader
        self._order = order
        self._fetcher = fetcher
        self._watch = watch
        self._step = order.received  # of the next draw
        self._pending: deque[BatchTask] = deque()
        self._drawing = self._open = True
        self._sampler_error: Exception | None = None  # takes the place of the batch after the pending ones
        self._workers: WorkerThreads | None = None
        if loader.num_workers:
            self._workers = workers = start_workers()
            # Persistent threads belong to the loader, others end with the pass.
            owned = None if loader.persistent_workers else workers
            self._finalizer = weakref.finalize(self, _drop, fetcher, owned)
            for _ in range(loader.num_workers * (loader.prefetch_factor or 1)):
                self._draw()

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch."""
        return len(self._loader)

    def __next__(self) -> Any:
        if not self._open:
            raise StopIteration
        try:
            task = self._next_task()
        except StopIteration:
            self.close()
            raise
        except BaseException:  # Ctrl-C, the sampler, a fork: must not wait for a hung dataset
            self._end(DROP_WAIT_S)
            raise
        if isinstance(task, str):  # the pass continues: the caller may wait again
            raise RuntimeError(
                f"DataLoader timed out after {self._loader.timeout} seconds; it waits for {task}. Raise timeout=, or "
                "see what the dataset waits for"
            )
        try:
            batch = task.result()
        except EndOfData:
            self._order.finish()
            self.close()
            raise StopIteration from None
        except BaseException:
            self._order.hand_out(task.draw, failed=True)
            raise
        self._order.hand_out(task.draw)
        return batch

    def close(self) -> None:
        """End the pass, wait for samples in progress, and drop prefetched batches. May be called in any thread."""
        self._end(None)

    def _next_task(self) -> BatchTask | str:
        """Return the next batch, or what it waits for after a timeout. Raises StopIteration after the last batch."""
        workers, pending = self._workers, self._pending
        if workers is None and self._open:
            self._draw()
        if not pending and self._open:
            if self._sampler_error is not None:
                raise self._sampler_error
            self._order.finish()
        if not pending or not self._open:
            raise StopIteration
        task = pending[0]
        if workers is None:
            task.run()
        elif not self._wait(workers, task):
            return task.under_way()
        if not self._open:  # closed by another thread: the batch may never be done
            raise StopIteration
        pending.popleft()
        if workers is not None:
            self._draw()
        return task

    def _wait(self, workers: WorkerThreads, task: BatchTask) -> bool:
        if workers.foreign:
            raise UsageError(
                "this process was forked in mid-epoch from the one whose threads load the batches, and cannot go on "
                "from there; begin a pass of its own with iter(loader)"
            )
        if task.done:
            return True
        before = self._watch.before_wait()
        in_time = workers.wait(task, self._loader.timeout or None)
        self._watch.after_wait(before)
        return in_time

    def _draw(self) -> None:
        """Draw the next batch's indices and submit them."""
        if not self._drawing:
            return
        try:
            draw = self._order.draw()
        except StopIteration:
            self._drawing = False
        except Exception as error:
            self._drawing = False
            error.add_note(f"in the sampler, batch {self._step}")
            self._sampler_error = error
        else:
            task = BatchTask(self._fetcher, draw, step=self._step)
            self._step += 1
            self._pending.append(task)
            if self._workers is not None:
                self._workers.submit(task)

    def _end(self, timeout_s: float | None) -> None:
        self._open = False
        self._fetcher.cancelled = True
        self._pending = deque()  # a new deque: the consumer's thread may be using the old one
        self._sampler_error = None
        if self._workers is None:
            return
        self._finalizer.detach()
        if self._loader.persistent_workers:
            self._workers.wake()
        else:
            self._workers.close(timeout_s)


def _drop(fetcher: Fetcher, workers: WorkerThreads | None) -> None:
    """End a pass that is no longer referenced."""
    fetcher.cancelled = True
    if workers is not None:
        workers.close(DROP_WAIT_S)
