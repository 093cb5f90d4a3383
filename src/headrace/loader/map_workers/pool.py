"""`MapWorkers`: the worker processes of one pass, and the batches that they map."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import MapWorkerError
from headrace.loader import user_functions
from headrace.loader.batch_memory import SharedBlocks, SharedFile
from headrace.loader.batch_values import SMALL_BYTES, PlainArray, RowLayout
from headrace.loader.map_stage import Deliver, MapStage
from headrace.loader.map_workers.messages import (
    Begun,
    Copied,
    Done,
    MapCounters,
    MapFailure,
    MapWork,
    PlaceRequest,
    ResultPlaces,
    counter_bytes,
    dumps,
    loads_rows,
    send,
    share,
)
from headrace.loader.map_workers.processes import WorkerProcess, check_may_start, context_of
from headrace.loader.map_workers.worker import LEAVE_S, WorkerSetup
from headrace.loader.recipe import Recipe
from headrace.loader.user_functions import DecodedBatch
from headrace.system import Closed

Shapes: TypeAlias = tuple[Any, ...]


@dataclass
class InFlightBatch:
    """Batch in flight. `waiting` are workers with an unfinished part; `keep` holds the memory that they read."""

    decoded: DecodedBatch
    waiting: set[int]
    keep: list[Any] = field(default_factory=list)
    places: ResultPlaces = field(default_factory=dict)
    _failures: list[MapFailure] = field(default_factory=list)
    _rows: dict[int, Any] = field(default_factory=dict)
    _blocks: dict[str, NDArray[np.uint8]] = field(default_factory=dict)

    @property
    def shapes(self) -> Shapes:
        """Shapes of a row of each field. Batches of equal shapes are expected to give results of equal layouts."""
        return tuple(tuple(getattr(value, "shape", ()))[1:] for value in self.decoded.batch.values())

    @property
    def blocks(self) -> int:
        """Number of the batch's blocks of shared memory, inputs and results."""
        return len(self.keep) + len(self._blocks)

    def add_places(self, layouts: dict[str, RowLayout], memory: SharedBlocks) -> None:
        """Allocate memory for fields that have none. The first requested layout is the field's layout."""
        for name, layout in layouts.items():
            if name not in self.places:
                self._blocks[name], offset = memory.place(layout.row_bytes * len(self.decoded))
                self.places[name] = layout, offset

    def work(self, number: int, fields: dict[str, Any], rows: tuple[int, ...] | None = None) -> bytes:
        """Return the message to the workers that map all rows, or to the worker that maps these `rows`."""
        decoded = self.decoded
        key, passes = decoded.rows.key, decoded.rows.passes
        return dumps(MapWork(number, len(decoded), rows, key, decoded.draw_ids, passes, fields, self.places))

    def add(self, worker: int, done: Done) -> None:
        """Add a worker's part. Raises UsageError for values that cannot be restored here."""
        self.waiting.discard(worker)
        if done.rows:
            self._rows.update(loads_rows(done.rows))
        if done.failure is not None:
            self._failures.append(done.failure)

    def mapped(self) -> tuple[list[Any], dict[str, Any]]:
        """Return each row's values, and the fields that are complete in place, once all workers are done.

        Raises the exception of the first row that failed. All rows before it were mapped, so the error is the same for
        any number of workers.
        """
        if self._failures:
            failure = min(self._failures, key=lambda failure: failure.row)
            error = failure.restore()
            error.add_note(f"in map=, {self.decoded.rows.name(failure.row)}")
            error.add_note(f"In the map worker:\n{failure.traceback}")
            raise error
        count = len(self.decoded)
        placed = {name: self.places[name][0].batch(block, count).restore() for name, block in self._blocks.items()}
        return [self._rows[row] for row in range(count)], placed


class MapWorkers(MapStage):
    """`map=` in worker processes, rows of several batches in parallel, with the memory that they share.

    One thread puts batches, and another, "headrace-map", collects them in order; any thread may cancel. Call `end` once
    no thread puts batches, and `give_back` once no thread collects them.
    """

    def __init__(self, recipe: Recipe, *, seed: int, deliver: Deliver, failed: Callable[[], None]) -> None:
        """Start the processes. Raises UsageError for a map that cannot be sent, MapWorkerError if a start fails.

        `failed` is called, in the collecting thread, when no more batches are wanted.
        """
        super().__init__(deliver)
        self._output = recipe.output
        self._failed = failed
        self._error: BaseException | None = None
        self._submitted = 0
        self._blocks_a_batch = 1
        self._queue: SimpleQueue[tuple[int, DecodedBatch] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"{recipe.thread_prefix}map", daemon=True)
        file = SharedFile.make()
        self.memory: SharedBlocks | None = None
        self._counters: MapCounters | None = None
        if file is not None:
            self.memory = SharedBlocks(file, most_idle=2 * (recipe.prefetch + 1) * len(recipe.fields))
            block, offset = self.memory.place(counter_bytes(batches=recipe.prefetch, workers=recipe.map_workers))
            assert offset == 0, "it is the file's first block"
            self._counters = MapCounters(block, batches=recipe.prefetch)
            self._counters.reset()
        self._lock = threading.RLock()  # reentrant: the garbage collector may hang up anywhere
        self._hung_up = False
        self.processes: list[WorkerProcess] = []
        self._sending: list[threading.Lock] = []
        self._heard: dict[Connection, WorkerProcess] = {}
        self._lost: set[int] = set()  # workers with a closed connection
        self._in_flight: dict[int, InFlightBatch] = {}
        self._at: dict[int, tuple[int, int]] = {}  # reported by workers without shared memory
        self._expected: tuple[Shapes, dict[str, RowLayout]] | None = None
        self._kept: dict[tuple[int, int], list[Any]] = {}  # memory that a worker's map still refers to, by batch
        try:
            self._start(recipe, seed)
        except BaseException:
            self.end(0)
            self.give_back()
            raise

    def _start(self, recipe: Recipe, seed: int) -> None:
        assert recipe.map is not None, "there is something to run in them"
        check_may_start(recipe.map_workers)
        context, method = context_of(recipe.multiprocessing_context, recipe.map)
        file = None if self.memory is None else self.memory.file
        for index in range(recipe.map_workers):
            setup = WorkerSetup(
                index=index,
                count=recipe.map_workers,
                function=recipe.map,
                output=recipe.output,
                file=file,
                most_batches=recipe.prefetch,
                seed=_core.hash64(seed, index),
            )
            try:
                self.processes.append(WorkerProcess(context, method, setup))
            except OSError as error:
                raise MapWorkerError(
                    f"map_workers: expected to start {recipe.map_workers} processes, got {index} before the system "
                    f"refused: {error.strerror}; use fewer, or raise its limits (ulimit -u, memory, a container's pids)"
                ) from error
            self._sending.append(threading.Lock())
        self._heard = {process.connection: process for process in self.processes}

    def begin(self) -> None:
        """Start collecting."""
        self._thread.start()

    @property
    def held_batches(self) -> int | None:
        # The consumer's blocks are neither this object's own, nor in flight, nor referenced by a worker.
        if self.memory is None:
            return None
        under_way = sum(batch.blocks for batch in list(self._in_flight.values()))
        kept = {number: len(blocks) for (_, number), blocks in list(self._kept.items())}
        return (self.memory.held() - 1 - under_way - sum(kept.values())) // self._blocks_a_batch

    # --- the thread that puts batches ---

    def put(self, decoded: DecodedBatch) -> None:
        number, self._submitted = self._submitted, self._submitted + 1
        if len(decoded):
            self._submit(number, decoded)
        self._queue.put((number, decoded))

    def finish(self) -> None:
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise Closed  # `close` returns the error

    def _submit(self, number: int, decoded: DecodedBatch) -> None:
        batch = InFlightBatch(decoded, {process.index for process in self.processes})
        self._in_flight[number] = batch
        if self.memory is None:
            for process in self.processes:
                rows = range((process.index - number) % len(self.processes), len(decoded), len(self.processes))
                fields = {
                    name: Copied(
                        type(value)(value[row] for row in rows) if isinstance(value, list) else value[list(rows)]
                    )
                    for name, value in decoded.batch.items()
                }
                self._send(process.index, batch.work(number, fields, tuple(rows)))
            return
        assert self._counters is not None, "there is shared memory"
        memory = self.memory
        decoded.batch = {name: share(value, memory) for name, value in decoded.batch.items()}
        if self._expected is not None and self._expected[0] == batch.shapes:
            batch.add_places(self._expected[1], memory)
        self._counters.begin_batch(number)
        work = batch.work(number, {name: send(value, memory, batch.keep) for name, value in decoded.batch.items()})
        for process in self.processes:
            self._send(process.index, work)

    def _send(self, index: int, message: bytes) -> None:
        with suppress(OSError), self._sending[index]:  # `_collect` finds and reports a worker that has ended
            self.processes[index].connection.send_bytes(message)

    # --- the thread that collects ---

    def _run(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                self._finish(*item)
                del item  # frees its memory while this thread waits
                self.python_s = time.thread_time()
        except Closed:
            self._failed()
        except BaseException as error:
            self._error = error
            self._failed()
        finally:
            self._queue = SimpleQueue()  # batches that nobody will deliver

    def _finish(self, number: int, decoded: DecodedBatch) -> None:
        if len(decoded) == 0:
            return self._deliver(decoded, decoded.batch)
        rows, placed = self._collect(number)
        self.meter.add(0.0, 0, decoded.nbytes)
        batch = user_functions.collate(rows, decoded.batch, placed, self._output)
        shared = 0
        for name, value in batch.items():
            plain = PlainArray.of(value)
            if plain is not None and plain.array.nbytes >= SMALL_BYTES:
                shared += 1
            elif plain is not None:  # copied: storing the labels of an epoch must not hold a block per batch
                batch[name] = PlainArray(np.array(plain.array, order="K"), plain.tensor).restore()
        self._blocks_a_batch = max(1, shared)
        return self._deliver(decoded, batch)

    def _collect(self, number: int) -> tuple[list[Any], dict[str, Any]]:
        """Return the result of `InFlightBatch.mapped`, once all workers have finished their part.

        Raises the error of the user's function, MapWorkerError for a worker that ended, and Closed after `cancel`.
        """
        batch = self._in_flight[number]
        while batch.waiting:
            for index in batch.waiting & self._lost:  # lost after its part: the next batch finds it missing
                if self._hung_up:
                    raise Closed
                at, name = self._at.get(index) if self._counters is None else self._counters.at(index), None
                if at is not None and at[0] in self._in_flight:
                    name = self._in_flight[at[0]].decoded.rows.name(at[1])
                raise self.processes[index].ended(name)
            for connection in wait(list(self._heard)):
                self._hear(self._heard[connection])  # type: ignore[index]  # typed as anything with a fileno
        del self._in_flight[number]
        return batch.mapped()

    def _hear(self, process: WorkerProcess) -> None:
        try:
            message: Begun | PlaceRequest | Done = pickle.loads(process.connection.recv_bytes())
        except (EOFError, OSError):
            self._lost.add(process.index)
            del self._heard[process.connection]
            return
        if isinstance(message, tuple):
            self._at[process.index] = message
        elif isinstance(message, PlaceRequest):
            self._give_places(process.index, message)
        else:
            self._take(process.index, message)

    def _give_places(self, index: int, asked: PlaceRequest) -> None:
        assert self.memory is not None, "nothing is placed without shared memory"
        batch = self._in_flight[asked.number]
        batch.add_places(asked.layouts, self.memory)
        self._expected = batch.shapes, {name: layout for name, (layout, _) in batch.places.items()}
        self._send(index, dumps(batch.places))

    def _take(self, index: int, done: Done) -> None:
        batch = self._in_flight[done.number]
        batch.add(index, done)
        self._at.pop(index, None)
        self.meter.add(done.busy_s, done.count, 0)
        if done.kept:
            self._kept[index, done.number] = batch.keep
        for number in done.let_go:
            self._kept.pop((index, number), None)

    # --- the end ---

    def cancel(self) -> None:
        """End each worker after its current row, which ends the collecting thread."""
        with self._lock:
            self._hung_up = True
            for process in self.processes:
                process.hang_up()

    def close(self) -> BaseException | None:
        self._queue.put(None)
        self.end()
        self._thread.join()
        self.give_back()
        error, self._error = self._error, None
        return error

    def end(self, wait_s: float | None = None) -> None:
        """Wait for the workers, and kill those that are not done after `wait_s` (None: `LEAVE_S`)."""
        self.cancel()
        deadline = time.monotonic() + (LEAVE_S if wait_s is None else wait_s)
        for process in self.processes:
            process.end(max(0.0, deadline - time.monotonic()))

    def give_back(self) -> None:
        """Close descriptors and free memory, after `end`. Both may be called again."""
        with self._lock:
            processes, self.processes = self.processes, []
        for process in processes:
            process.give_back()
        self._in_flight.clear()
        self._kept.clear()
        self._counters = None
        if self.memory is not None:
            self.memory.retire()
