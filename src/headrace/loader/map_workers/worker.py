"""Worker process: it takes rows, calls the user's `map`, and writes results into the batch."""

from __future__ import annotations

import gc
import os
import pickle
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError
from headrace.loader import user_functions
from headrace.loader.batch_memory import MappedBlocks, SharedFile
from headrace.loader.batch_values import SMALL_BYTES, PlainArray, RowLayout, shown
from headrace.loader.decoding.detection import PerSample
from headrace.loader.map_workers.messages import (
    IMMUTABLE,
    Done,
    MapCounters,
    MapFailure,
    MapWork,
    PlaceRequest,
    ResultPlaces,
    counter_bytes,
    dumps,
)
from headrace.loader.recipe import Output, SampleMap
from headrace.loader.user_functions import ValuePlace
from headrace.system import close_in_forks

LEAVE_S = 5.0
"""Time that a call of the user's map may still take once the parent has ended or closed the pass."""


@dataclass(frozen=True)
class WorkerSetup:
    """Arguments that a worker starts with."""

    index: int
    count: int
    """Number of workers."""
    function: SampleMap
    output: Output
    file: SharedFile | None
    """Shared file; None if fields and results travel through the connection."""
    most_batches: int
    """Maximum number of batches in flight."""
    seed: int
    """Seed of Python's, numpy's and torch's global random sources, which forked workers would share otherwise."""


def run(setup: WorkerSetup, connection: Connection) -> None:
    """Map what the parent sends until it sends no more."""
    close_in_forks(connection)  # a child of the user's code would hide this process's end
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the inherited handler, which may save the training state, too
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    gc.freeze()  # the parent's objects are neither scanned, which would copy their pages, nor finalised here
    _prepare_libraries(setup.seed)
    with suppress(PassEnded):
        MapWorker(setup, connection).work()


def _prepare_libraries(seed: int) -> None:
    """Seed global random sources, and limit libraries to one thread.

    There are as many workers as cores, and neither OpenMP's nor OpenCV's threads survive a fork. OpenCV set to one
    thread joins its threads, which never ends; set to 0 it runs without threads and joins none.
    """
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)
    torch, cv2 = sys.modules.get("torch"), sys.modules.get("cv2")
    if torch is not None:
        torch.set_num_threads(1)
        torch.default_generator.manual_seed(seed)
    if cv2 is not None:
        cv2.setNumThreads(0)


class PassEnded(Exception):  # noqa: N818  # how a worker ends, no error
    """Signal that the parent no longer listens."""


class MapWorker:
    """Loop of a worker: it takes rows of the oldest unfinished batch, and answers each batch with one `Done`.

    A thread reads the parent's messages, so that the parent's end is noticed in the middle of the user's map.
    """

    def __init__(self, setup: WorkerSetup, connection: Connection) -> None:
        self._setup = setup
        self._connection = connection
        self._blocks: MappedBlocks | None = None
        self._counters: MapCounters | None = None
        if setup.file is not None:
            self._blocks = MappedBlocks(setup.file)
            counters = self._blocks.fresh(0, counter_bytes(batches=setup.most_batches, workers=setup.count))
            self._counters = MapCounters(counters, batches=setup.most_batches)
        self._kept: dict[int, list[weakref.ref[Any]]] = {}  # memory of each batch that may still be referenced
        self._work: SimpleQueue[MapWork | None] = SimpleQueue()
        self._places: SimpleQueue[ResultPlaces | None] = SimpleQueue()
        self._ended = False
        threading.Thread(target=self._read, name="headrace-inbox", daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                message: MapWork | ResultPlaces = pickle.loads(self._connection.recv_bytes())
                if isinstance(message, MapWork):
                    self._work.put(message)
                else:
                    self._places.put(message)
        except (EOFError, OSError):
            self._ended = True
            self._work.put(None)
            self._places.put(None)
        # A killed parent cannot end its workers, and a worker that hangs in the user's map would outlive it.
        time.sleep(LEAVE_S)
        os._exit(1)

    def work(self) -> None:
        """Map batches until there are no more, or nobody wants them."""
        while (work := self._work.get()) is not None and not self._ended:
            done = self._map(work)
            number = work.number
            del work  # now nothing here refers to the batch
            gone = tuple(each for each, memory in self._kept.items() if all(alive() is None for alive in memory))
            for each in gone:
                del self._kept[each]
            self._send(replace(done, kept=number in self._kept, let_go=gone))

    def _map(self, work: MapWork) -> Done:
        opened = _OpenBatch(work, self._blocks)
        self._kept[work.number] = opened.memory
        rows: dict[int, Any] = {}
        failure: MapFailure | None = None
        busy_s = 0.0
        for row in self._rows(work):
            began = time.perf_counter()
            try:
                rows[row] = self._place(opened, row, self._map_row(opened, row))
            except PassEnded:
                raise
            except BaseException as error:  # SystemExit too: in a thread it would reach the consumer as well
                failure = MapFailure.of(row, error)
            busy_s += time.perf_counter() - began
            if failure is not None:
                break
        data, unsuitable = _pickled(rows)
        failure = failure or unsuitable
        if failure is not None and self._counters is not None:
            self._counters.take(work.number, work.count)  # workers have all rows before it
        return Done(work.number, len(rows), data, failure, busy_s)

    def _rows(self, work: MapWork) -> Iterator[int]:
        counters, index = self._counters, self._setup.index
        if counters is None:
            for row in work.rows or ():
                if self._ended:
                    return
                self._send((work.number, row))
                yield row
            return
        while not self._ended and (row := counters.take(work.number)) < work.count:
            counters.set_at(index, work.number, row)
            yield row
        counters.set_idle(index)

    def _map_row(self, opened: _OpenBatch, row: int) -> Any:
        work = opened.work
        at = row if work.rows is None else work.rows.index(row)
        rng = user_functions.sample_rng(work.key, draw_id=int(work.draw_ids[row]), pass_=int(work.passes[row]))
        return user_functions.map_row(self._setup.function, opened.fields, at, rng, opened.sees)

    def _place(self, opened: _OpenBatch, row: int, result: Any) -> Any:
        """Write arrays into the mapped batch; return the rest, which travels in `Done`."""
        if self._blocks is None or not isinstance(result, dict):
            return result
        plain: dict[str, PlainArray] = {}
        for name, value in result.items():
            found = None if isinstance(opened.fields.get(name), PerSample) else PlainArray.of(value)
            if found is not None and (found.tensor is None or self._setup.output == "torch"):
                plain[name] = found  # the batch will have it as one array
        missing = {
            name: RowLayout.of(found)
            for name, found in plain.items()
            if name not in opened.results and found.array.nbytes * opened.work.count >= SMALL_BYTES
        }
        if missing:
            self._send(PlaceRequest(opened.work.number, missing))
            answer = self._places.get()
            if answer is None:
                raise PassEnded
            opened.add(answer)
        for name, found in plain.items():
            layout, rows = opened.results.get(name, (None, None))
            if layout is not None and rows is not None and layout.fits(found):
                np.copyto(rows[row, ...], found.array)  # a view, also if a row is a single number
                result[name] = ValuePlace.IN_PLACE
        return result

    def _send(self, message: object) -> None:
        try:
            self._connection.send_bytes(dumps(message))
        except OSError as error:
            raise PassEnded from error


class _OpenBatch:
    """Batch as the worker sees it."""

    def __init__(self, work: MapWork, blocks: MappedBlocks | None) -> None:
        self.work = work
        self._blocks = blocks
        self.memory: list[weakref.ref[Any]] = []
        """Arrays that all views of the batch's fields refer to."""
        self.fields = {name: field.open(self._fresh) for name, field in work.fields.items()}
        self.results: dict[str, tuple[RowLayout, NDArray[Any]]] = {}
        """Layout and all rows of each mapped field that has a place."""
        self.add(work.places)

    def _fresh(self, offset: int, bytes: int) -> Any:
        assert self._blocks is not None, "only what is copied is sent without a shared file"
        block = self._blocks.fresh(offset, bytes)
        self.memory.append(weakref.ref(block))
        return block

    def add(self, places: ResultPlaces) -> None:
        for name, (layout, offset) in places.items():
            if name not in self.results and self._blocks is not None:
                memory = self._blocks.fresh(offset, layout.row_bytes * self.work.count)
                self.results[name] = layout, layout.batch(memory, self.work.count).array

    def sees(self, name: str, value: Any) -> bool:
        """Return True if the parent sees changes of the user's function to the value."""
        return self.work.fields[name].shared or isinstance(value, IMMUTABLE)


def _pickled(rows: dict[int, Any]) -> tuple[bytes, MapFailure | None]:
    """Pickle `map`'s results, or return an error that names the first row and field that cannot be pickled."""
    try:
        return dumps(rows), None
    except Exception as error:  # the values' own classes may raise anything
        row, field, value = next(_unsuitable(rows))
        where = f" in field {field!r}" if field is not None else ""
        usage = UsageError(
            f"map: expected values that can be pickled, as they come from a process of their own, got "
            f"{type(value).__name__!r}{where} ({error}); return arrays, tensors, numbers, text, or lists and dicts of "
            "these, or use map_workers=0"
        )
        return b"", MapFailure.of(row, usage)


def _unsuitable(rows: dict[int, Any]) -> Iterator[tuple[int, str | None, Any]]:
    for row, sample in sorted(rows.items()):
        values: dict[str | None, Any] = sample if isinstance(sample, dict) else {None: sample}
        for name, value in values.items():
            try:
                dumps(value)
            except Exception:  # as in `_pickled`
                yield row, None if name is None else shown(name), value
    # Each value alone can be pickled, but not the whole (its names, perhaps).
    yield min(rows), None, rows[min(rows)]
