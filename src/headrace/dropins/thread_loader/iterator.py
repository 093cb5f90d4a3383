"""Iterator over a ThreadDataLoader, with several batches in progress, returned in order."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from headrace.dropins.random_sources import GlobalRandomWatch
from headrace.dropins.thread_loader.batch_task import BatchTask
from headrace.dropins.thread_loader.epoch_order import Draw, EpochOrder
from headrace.dropins.thread_loader.fetching import EndOfData, Fetcher
from headrace.dropins.thread_loader.worker_threads import DROP_WAIT_S, WorkerThreads
from headrace.errors import UsageError


class ThreadLoaderIterator(Iterator[Any]):
    """Iterator over batches in the sampler's order. Ends with the epoch, on `close`, on Ctrl-C, or when dropped.

    The error of a failed batch is raised in its place, and the next call returns the following batch, as in DataLoader.
    In a process forked in mid-epoch, a map-style dataset continues at the same batch with new threads.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        order: EpochOrder,
        fetcher: Fetcher,
        *,
        start_workers: Callable[[], WorkerThreads],
        pin: Callable[[Any], Any] | None,
        watch: GlobalRandomWatch,
    ) -> None:
        """Begin a pass. With `num_workers=0` the calling thread loads each batch on request."""
        self._loader = loader
        self._order = order
        self._fetcher = fetcher
        self._start_workers = start_workers
        self._pin = pin
        self._watch = watch
        self._step = order.received  # of the next draw
        self._pending: deque[BatchTask] = deque()
        self._drawing = self._open = True
        self._sampler_error: Exception | None = None  # takes the place of the batch after the pending ones
        self._workers: WorkerThreads | None = None
        if loader.num_workers:
            self._employ()
            for _ in range(loader.num_workers * (loader.prefetch_factor or 1)):
                self._draw()

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch."""
        return len(self._loader)

    def __next__(self) -> Any:
        if not self._open:
            raise StopIteration
        try:
            self._go_on_after_fork()
            task = self._next_task()
        except StopIteration:
            self.close()
            raise
        except BaseException:  # Ctrl-C, worker_init_fn, a fork: must not wait for a hung dataset
            self._end(DROP_WAIT_S)
            raise
        if isinstance(task, Exception):  # the pass continues: after a timeout the caller may wait again
            try:
                raise task
            finally:
                del task  # its traceback holds this frame
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

    def _next_task(self) -> BatchTask | Exception:
        """Return the next batch, loaded, or the error in its place. Raises StopIteration after the last batch."""
        if self._workers is None:
            self._draw()
        pending = self._pending
        if not self._open:
            raise StopIteration
        if not pending:
            error, self._sampler_error = self._sampler_error, None
            if error is not None:
                return error
            self._order.end()
            raise StopIteration
        task = pending[0]
        if self._workers is None:
            task.run()
        elif not self._wait(self._workers, task):
            return RuntimeError(
                f"DataLoader timed out after {self._loader.timeout} seconds; it waits for {task.under_way()}. "
                "Raise timeout=, or see what the dataset waits for"
            )
        if not self._open:  # closed by another thread: the batch may never be done
            raise StopIteration
        pending.popleft()
        if self._workers is not None:
            self._draw()
        return task

    def _wait(self, workers: WorkerThreads, task: BatchTask) -> bool:
        if task.done:
            return workers.wait(task, None)
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
            self._submit(draw, self._step)
            self._step += 1

    def _submit(self, draw: Draw, step: int) -> None:
        task = BatchTask(self._fetcher, draw, step=step, pin=self._pin)
        self._pending.append(task)
        if self._workers is not None:
            self._workers.submit(task)

    def _employ(self) -> None:
        """Start the threads. Persistent threads belong to the loader, others end with the pass."""
        self._workers = workers = self._start_workers()
        owned = None if self._loader.persistent_workers else workers
        self._finalizer = weakref.finalize(self, _drop, self._fetcher, owned)

    def _end(self, timeout_s: float | None) -> None:
        self._open = False
        self._fetcher.cancelled = True
        self._pending = deque()  # a new deque: the consumer's thread may be using the old one
        if self._workers is None:
            return
        self._finalizer.detach()
        self._workers.cancelled()
        if not self._loader.persistent_workers or self._workers.failed:
            self._workers.close(timeout_s)

    def _go_on_after_fork(self) -> None:
        if self._workers is None or not self._workers.foreign:
            return
        if isinstance(self._loader.dataset, IterableDataset):
            raise UsageError(
                "this process was forked in mid-epoch from the one whose thread reads the iterable dataset, and cannot "
                "go on from there; begin a pass of its own with iter(loader)"
            )
        self._finalizer.detach()
        self._employ()
        pending, self._pending = self._pending, deque()
        for task in pending:
            self._submit(task.draw, task.step)


def _drop(fetcher: Fetcher, workers: WorkerThreads | None) -> None:
    """End a pass that is no longer referenced."""
    fetcher.cancelled = True
    if workers is not None:
        workers.close(DROP_WAIT_S)
