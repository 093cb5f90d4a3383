"""The stages after decoding: `map=` in threads, or nothing, delivery in order, and stages of the whole batch.

`map_workers` has `map=` in processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

from headrace.loader import user_functions
from headrace.loader.batch_memory import BatchMemory
from headrace.loader.batch_mixing import Mixer
from headrace.loader.batch_values import nested
from headrace.loader.recipe import Batch, Output, Recipe, SampleMap
from headrace.loader.stats import StageMeter
from headrace.loader.user_functions import DecodedBatch
from headrace.system import THREAD_PREFIX, Closed

T = TypeVar("T")


class PythonThreads:
    """Threads that run a function for many rows in parallel. They start at the first use."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._cancelled = False

    def each(self, function: Callable[[int], T], rows: Sequence[int]) -> list[T]:
        """Return the function's result for each row, in order. Raises the first error, or Closed once cancelled."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix=f"{THREAD_PREFIX}python")
        if self._cancelled:  # checked after the executor exists: a `cancel` that saw none has set this before
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
            del futures  # a failed future holds its error, whose traceback holds this frame, and so the batch

    def _unless_cancelled(self, function: Callable[[int], T], row: int) -> T:
        """Call the function, unless `cancel` came before it could clear the queue."""
        if self._cancelled:
            raise Closed
        return function(row)

    def cancel(self) -> None:
        """Skip rows that have not begun; `each` raises Closed. Callable from any thread at any time."""
        self._cancelled = True
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for the rows in progress and end the threads."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)


Deliver: TypeAlias = Callable[[DecodedBatch, Batch], None]


class MapStage:
    """Stage that takes batches in order and delivers them in order. This base class has no map.

    The feeding thread owns it.
    """

    python_s = 0.0
    """CPU time of the stage's own threads in this process."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self.meter = StageMeter()
        """Time in the user's function over all threads or processes, its calls, and its input bytes."""

    def put(self, decoded: DecodedBatch) -> None:
        """Take a batch; may wait until it is delivered. Raises the batch's error, or Closed."""
        self._deliver(decoded, decoded.batch)

    def finish(self) -> None:
        """Return once all batches are delivered. Raises the error of a batch."""

    def cancel(self) -> None:
        """Skip rows that have not begun. Callable from any thread at any time."""

    def close(self) -> BaseException | None:
        """End all threads and processes. Return an error that has not been raised, if any."""
        return None

    @property
    def held_batches(self) -> int | None:
        """Batches in memory shared with processes that the consumer holds; None without shared memory."""
        return None


class ThreadedMap(MapStage):
    """`map=` in threads: the rows of one batch in parallel."""

    def __init__(self, function: SampleMap, output: Output, threads: PythonThreads, deliver: Deliver) -> None:
        super().__init__(deliver)
        self._function = function
        self._output = output
        self._threads = threads

    def put(self, decoded: DecodedBatch) -> None:
        if len(decoded) == 0:
            return self._deliver(decoded, decoded.batch)
        rows = self._threads.each(lambda row: self._map_row(decoded, row), range(len(decoded)))
        self.meter.add(sum(busy_s for _, busy_s in rows), len(rows), decoded.nbytes)
        samples = [sample for sample, _ in rows]
        return self._deliver(decoded, user_functions.collate(samples, decoded.batch, {}, self._output))

    def _map_row(self, decoded: DecodedBatch, row: int) -> tuple[Any, float]:
        began = time.perf_counter()
        try:
            sample = user_functions.map_row(
                self._function, decoded.batch, row, decoded.rng(row), untouched=lambda name, value: True
            )
        except Exception as error:
            error.add_note(f"in map=, {decoded.rows.name(row)}")
            raise
        return sample, time.perf_counter() - began


class LastStages:
    """Stages of a whole batch after `map`: nesting of parts, mixing, notes for the device, and `batch_map`."""

    def __init__(self, recipe: Recipe, memory: BatchMemory) -> None:
        self._recipe = recipe
        self.mixer: Mixer | None = None
        if recipe.mixing is not None:
            self.mixer = Mixer(
                recipe.mixing, rank=recipe.plan.rank, output=recipe.output, memory=memory, level=recipe.level
            )

    def run(self, decoded: DecodedBatch, batch: Batch) -> Batch:
        """Return the batch that the consumer gets."""
        batch_map, plan = self._recipe.batch_map, decoded.rows.plan
        batch = nested(batch)
        if self.mixer is not None:
            batch = self.mixer.mix(batch, decoded.rows)
        if self._recipe.colours is not None:
            batch |= self._recipe.colours.notes(batch, decoded.rows)
        if batch_map is not None:
            rng = user_functions.batch_rng(decoded.rows.key, step=plan.step, rank=self._recipe.plan.rank)
            try:
                batch = user_functions.call(lambda: batch_map(batch, rng), "batch_map=")
            except Exception as error:
                error.add_note(f"in batch_map=, epoch {plan.epoch}, step {plan.step}")
                raise
        return batch
