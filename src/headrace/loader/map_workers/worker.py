"""A worker process: it takes rows, calls the user's `map`, and writes results into the batch."""

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

from headrace.errors import UsageError
from headrace.loader import user_functions
from headrace.loader.batch_memory import MappedBlocks, SharedFile
from headrace.loader.batch_values import SMALL_BYTES, PlainArray, RowLayout, shown
from headrace.loader.decoding.detection import PerSample
from headrace.loader.map_workers import messages
from headrace.loader.map_workers.messages import (
    IMMUTABLE,
    Begun,
    CountersPlace,
    Done,
    MapCounters,
    MapFailure,
    MapWork,
    PlaceRequest,
    ResultPlace,
    ResultPlaces,
    ToWorker,
)
from headrace.loader.recipe import Output, SampleMap
from headrace.loader.user_functions import ValuePlace
from headrace.system import close_in_forks

LEAVE_S = 5.0
"""Time that a call of the user's map may still take once the parent has ended or closed the pass."""


class Inbox:
    """Messages from the parent, read in a thread, so that its end is noticed in the middle of the user's map."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._work: SimpleQueue[MapWork | None] = SimpleQueue()
        self._places: SimpleQueue[ResultPlaces | None] = SimpleQueue()
        self.ended = False
        threading.Thread(target=self._read, name="headrace-inbox", daemon=True).start()

    def work(self) -> MapWork | None:
        """Return the next batch; None if there will be no more, or nobody wants it."""
        work = self._work.get()
        return None if self.ended else work

    def places(self) -> ResultPlaces | None:
        """Return the places that were asked for; None if nobody will answer."""
        return self._places.get()

    def _read(self) -> None:
        try:
            while True:
                message: ToWorker = pickle.loads(self._connection.recv_bytes())
                if isinstance(message, MapWork):
                    self._work.put(message)
                else:
                    self._places.put(message)
        except (EOFError, OSError):
            self.ended = True
            self._work.put(None)
            self._places.put(None)
        # A killed parent cannot end its workers, and one that hangs in the user's map would outlive it.
        time.sleep(LEAVE_S)
        os._exit(1)


@dataclass(frozen=True)
class WorkerSetup:
    """Arguments that a worker starts with."""

    index: int
    function: SampleMap
    output: Output
    file: SharedFile | None
    """None if fields and results travel through the connection."""
    counters: CountersPlace | None
    seed: int
    """Seed of Python's, numpy's and torch's global random sources, which forked workers would share otherwise."""


def run(setup: WorkerSetup, connection: Connection) -> None:
    """Map what the parent sends until it sends no more."""
    close_in_forks(connection)  # a child of the user's would hide this process's end
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as is a handler that saves the training's state
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    gc.freeze()  # the parent's objects are neither scanned, which would copy their pages, nor finalised here
    _use_one_core()
    _seed_globals(setup.seed)
    with suppress(PassEnded):
        MapWorker(setup, connection).work()


def _use_one_core() -> None:
    """Limit libraries to one thread: there are as many workers as cores, and OpenMP's threads do not survive a fork."""
    torch, cv2 = sys.modules.get("torch"), sys.modules.get("cv2")
    if torch is not None:
        torch.set_num_threads(1)
    if cv2 is not None:
        cv2.setNumThreads(1)


def _seed_globals(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(seed)


class PassEnded(Exception):  # noqa: N818  # how a worker ends, no error
    """Signal that nobody listens any more."""


class MapWorker:
    """Loop of a worker: it takes rows of the oldest batch that has any left, and answers each batch with one `Done`."""

    def __init__(self, setup: WorkerSetup, connection: Connection) -> None:
        self._setup = setup
        self._connection = connection
        self._inbox = Inbox(connection)
        self._blocks = None if setup.file is None else MappedBlocks(setup.file)
        self._counters: MapCounters | None = None
        if setup.counters is not None and self._blocks is not None:
            at = setup.counters
            self._counters = MapCounters(at, self._blocks.fresh(at.offset, at.nbytes))
        self._kept: dict[int, list[weakref.ref[Any]]] = {}

    def work(self) -> None:
        while (work := self._inbox.work()) is not None:
            done = self._map(work)  # afterwards nothing here refers to the batch
            self._send(replace(done, kept=self._keeps(work.number), let_go=self._let_go()))

    def _map(self, work: MapWork) -> Done:
        opened = _Opened(work, self._blocks)
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
                failure = messages.failure(row, error)
            busy_s += time.perf_counter() - began
            if failure is not None:
                break
        data, unsuitable = _pickled(rows)
        failure = failure or unsuitable
        if failure is not None and self._counters is not None:
            self._counters.take_all(work.number, work.count)  # workers have all rows before it
        return Done(work.number, len(rows), data, failure, busy_s, kept=False)

    def _rows(self, work: MapWork) -> Iterator[int]:
        counters, index = self._counters, self._setup.index
        if work.rows is not None or counters is None:
            for row in work.rows or ():
                if self._inbox.ended:
                    return
                self._send(Begun(work.number, row))
                yield row
            return
        while not self._inbox.ended and (row := counters.take_row(work.number)) < work.count:
            counters.set_at(index, work.number, row)
            yield row
        counters.set_idle(index)

    def _map_row(self, opened: _Opened, row: int) -> Any:
        work = opened.work
        at = row if work.rows is None else work.rows.index(row)
        rng = user_functions.sample_rng(work.key, draw_id=int(work.draw_ids[row]), pass_=int(work.passes[row]))
        return user_functions.map_row(self._setup.function, opened.fields, at, rng, opened.sees)

    def _place(self, opened: _Opened, row: int, result: Any) -> Any:
        """Write arrays into the mapped batch; return the rest, which travels in `Done`."""
        if self._blocks is None or not isinstance(result, dict):
            return result
        ragged = {name for name, rows in opened.fields.items() if isinstance(rows, PerSample)}
        plain = {
            name: found
            for name, value in result.items()
            if name not in ragged and (found := self._stacked(value)) is not None
        }
        self._ask_for_places(opened, plain)
        for name, found in plain.items():
            field = opened.results.get(name)
            if field is not None and field.fits(found):
                field.write(row, found)
                result[name] = ValuePlace.IN_PLACE
        return result

    def _stacked(self, value: Any) -> PlainArray | None:
        """Return the value as a plain array; None for what the batch will not have as one array."""
        plain = PlainArray.of(value)
        return None if plain is None or (plain.tensor is not None and self._setup.output == "numpy") else plain

    def _ask_for_places(self, opened: _Opened, plain: dict[str, PlainArray]) -> None:
        missing = {
            name: RowLayout.of(found)
            for name, found in plain.items()
            if name not in opened.results and found.array.nbytes * opened.work.count >= SMALL_BYTES
        }
        if not missing:
            return
        self._send(PlaceRequest(opened.work.number, missing))
        answer = self._inbox.places()
        if answer is None:
            raise PassEnded
        opened.add(answer.places)

    def _keeps(self, number: int) -> bool:
        alive = self._kept[number] = [each for each in self._kept[number] if each() is not None]
        if not alive:
            del self._kept[number]
        return bool(alive)

    def _let_go(self) -> tuple[int, ...]:
        gone = tuple(number for number, memory in self._kept.items() if all(each() is None for each in memory))
        for number in gone:
            del self._kept[number]
        return gone

    def _send(self, message: object) -> None:
        try:
            self._connection.send_bytes(messages.dumps(message))
        except OSError as error:
            raise PassEnded from error


class _Opened:
    """Batch as the worker sees it."""

    def __init__(self, work: MapWork, blocks: MappedBlocks | None) -> None:
        self.work = work
        self._blocks = blocks
        self.memory: list[weakref.ref[Any]] = []
        """The arrays that all views of the batch's fields refer to."""
        self.fields = {name: field.open(self) for name, field in work.fields.items()}
        self.results: dict[str, _ResultField] = {}
        self.add(work.places)

    def fresh(self, offset: int, bytes: int) -> Any:
        assert self._blocks is not None, "only what is copied is sent without a shared file"
        block = self._blocks.fresh(offset, bytes)
        self.memory.append(weakref.ref(block))
        return block

    def add(self, places: dict[str, ResultPlace]) -> None:
        for name, place in places.items():
            if name not in self.results and self._blocks is not None:
                memory = self._blocks.fresh(place.offset, place.bytes)
                self.results[name] = _ResultField(place.layout, place.layout.batch(memory, self.work.count))

    def sees(self, name: str, value: Any) -> bool:
        """Tell whether the parent sees the value as the user's function left it."""
        return self.work.fields[name].shared or isinstance(value, IMMUTABLE)


class _ResultField:
    """Field of the mapped batch."""

    def __init__(self, layout: RowLayout, whole: PlainArray) -> None:
        self._layout = layout
        self._rows = whole.array

    def fits(self, row: PlainArray) -> bool:
        return self._layout.fits(row)

    def write(self, row: int, value: PlainArray) -> None:
        np.copyto(self._rows[row, ...], value.array)  # a view, also where a row is one number


def _pickled(rows: dict[int, Any]) -> tuple[bytes, MapFailure | None]:
    """Pickle what map returned, or return an error that names the first row and field that cannot be pickled."""
    try:
        return messages.dumps(rows), None
    except Exception as error:  # whatever the values' own classes raise
        row, field, value = next(_unsuitable(rows))
        where = f" in field {field!r}" if field is not None else ""
        usage = UsageError(
            f"map: expected values that can be pickled, as they come from a process of their own, got "
            f"{type(value).__name__!r}{where} ({error}); return arrays, tensors, numbers, text, or lists and dicts of "
            "these, or use map_workers=0"
        )
        return b"", messages.failure(row, usage)


def _unsuitable(rows: dict[int, Any]) -> Iterator[tuple[int, str | None, Any]]:
    for row, sample in sorted(rows.items()):
        values: dict[str | None, Any] = sample if isinstance(sample, dict) else {None: sample}
        for name, value in values.items():
            try:
                messages.dumps(value)
            except Exception:  # as in `_pickled`
                yield row, None if name is None else shown(name), value
    first = min(rows)
    yield (
        first,
        None,
        rows[first],
    )  # each value alone can be pickled, but not the whole (its names, perhaps)
