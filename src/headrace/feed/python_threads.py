"""Threads for the Python that belongs to one sample: Pillow and the user's `map`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.system.channel import Closed
from headrace.threads import THREAD_PREFIX

T = TypeVar("T")


class PythonThreads:
    """Runs a function for many rows side by side. No thread exists before the first use."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._cancelled = False

    def each(self, function: Callable[[int], T], rows: Sequence[int]) -> list[T]:
        """What `function` returns for each row, in order; raises its first error, or Closed once cancelled."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix=f"{THREAD_PREFIX}python")
        if self._cancelled:  # asked after the executor is there: a `cancel` that saw none has set this before
            raise Closed
        futures = []
        try:
            futures = [self._executor.submit(self._unless_cancelled, function, row) for row in rows]
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            if self._cancelled:
                raise Closed from None
            raise
        finally:
            del futures  # a failed one holds its error, whose traceback holds this frame, and so the batch

    def _unless_cancelled(self, function: Callable[[int], T], row: int) -> T:
        """A thread that is free may take the next row before `cancel` has come to clear them."""
        if self._cancelled:
            raise Closed
        return function(row)

    def cancel(self) -> None:
        """Rows not yet begun are left; `each` raises Closed. From any thread, at any time."""
        self._cancelled = True
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Waits for the rows in progress and ends the threads."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
