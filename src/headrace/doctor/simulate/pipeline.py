"""DataLoader's iterator over worker processes: who is given which batch when, and when the trainer has it.

The rules are those of `torch.utils.data.dataloader._MultiProcessingDataLoaderIter`: `workers × prefetch` batches are in
flight; an index is handed out when a batch is received, to the workers in turn, or, where order does not matter, to the
next one in turn that has room.
"""

from __future__ import annotations

from collections import deque

from headrace.doctor.predict.setup import Setup
from headrace.doctor.predict.work import BatchWork, Work
from headrace.doctor.simulate.engine import PARKED, Behaviour, Engine, Process, compute, wait


class Workers:
    """The loader's side in the training thread. Batches are numbered through all passes."""

    def __init__(self, engine: Engine, setup: Setup, work: Work) -> None:
        self._engine = engine
        self._setup = setup
        self._work = work
        self._storage = _Storage(engine, setup.storage)
        self._workers: list[_Worker] = []
        self._turn = 0
        self._sent = self._taken = self._last = 0
        self._arrived: deque[int] = deque()
        """In the pipe, in the order in which they came."""
        self._ready: dict[int, None] = {}
        """Unpickled, and pinned where they are pinned; in that order."""
        self._owners: dict[int, _Worker] = {}
        self._training: Process | None = None
        self._pinning: Process | None = None

    def begin(self, first: int) -> Behaviour:
        """`iter()`: workers are started, or told to go on, and given as much as may be in flight. Of a pass that is
        under way they have been there for long."""
        self._training = self._engine.current
        batches = self._setup.pass_batches
        self._last = self._sent + (1 << 62 if batches is None else batches - first)
        self._turn = 0
        if self._workers:
            yield compute(self._work.passes.resume)
            for worker in self._workers:
                worker.begin_pass()
        else:
            yield from self._start(is_new=first == 0)
        for _ in range(self._setup.workers * self._setup.prefetch):
            yield from self._send()

    def end(self) -> Behaviour:
        """The `next()` that finds no more batch."""
        if not self._setup.persistent:
            yield compute(self._work.passes.shut_down * len(self._workers))
            self._workers = []

    def get(self) -> Behaviour:
        """`next()`."""
        while (number := self._next()) is None:
            if self._arrived and not self._setup.pinned:
                yield from self._receive()
            else:
                yield PARKED
        del self._ready[number]
        self._taken += 1
        self._owners.pop(number).tasks -= 1
        yield from self._send()

    def delivered(self, number: int) -> None:
        """A worker has put it into the pipe."""
        self._arrived.append(number)
        self._engine.wake(self._pinning if self._setup.pinned else self._training)

    def batch(self, number: int) -> BatchWork:
        return self._work.batches[number % len(self._work.batches)]

    def _next(self) -> int | None:
        """The batch that can be returned now, if any."""
        if self._setup.in_order:
            return self._taken if self._taken in self._ready else None
        return next(iter(self._ready), None)

    def _receive(self) -> Behaviour:
        number = self._arrived.popleft()
        batch = self.batch(number)
        yield compute(batch.receive)
        if self._owners[number].is_making:
            yield wait(batch.held)
        yield compute(batch.pin)
        self._ready[number] = None

    def _pin(self) -> Behaviour:
        """The trainer's thread that unpickles and pins what comes."""
        while True:
            if self._arrived:
                yield from self._receive()
                self._engine.wake(self._training)
            else:
                yield PARKED

    def _start(self, is_new: bool) -> Behaviour:
        passes, setup = self._work.passes, self._setup
        for _ in range(setup.workers):
            yield compute(passes.fork if is_new else 0.0)
            worker = _Worker(self, self._engine, self._work, setup, self._storage, is_new)
            self._workers.append(worker)
            worker.process = self._engine.start(worker.run())
        if setup.pinned and self._pinning is None:
            self._pinning = self._engine.start(self._pin())

    def _send(self) -> Behaviour:
        if self._sent >= self._last:
            return
        yield compute(self._work.draw)
        worker = self._whose_turn()
        self._owners[self._sent] = worker
        worker.give(self._sent)
        self._sent += 1

    def _whose_turn(self) -> _Worker:
        """There is always one with room: as many are in flight as all may have together, less the one just received."""
        count = len(self._workers)
        for _ in range(count):
            worker = self._workers[self._turn % count]
            self._turn += 1
            if self._setup.in_order or worker.tasks < self._setup.prefetch:
                break
        return worker


class _Worker:
    """One worker process. Its queue's feeder thread sends a batch while the next one is made."""

    def __init__(
        self, loader: Workers, engine: Engine, work: Work, setup: Setup, storage: _Storage, is_new: bool
    ) -> None:
        self._loader = loader
        self._engine = engine
        self._work = work
        self._work = work
        self._threads = setup.worker_threads
        self._storage = storage
        self._is_new = is_new
        self._is_first = is_new
        """Whether its next batch is the first one."""
        self._is_busy = False
        self._given: deque[int] = deque()
        self.process: Process | None = None
        self.tasks = 0

    def give(self, number: int) -> None:
        """One more batch to make."""
        self.tasks += 1
        self._given.append(number)
        self._engine.wake(self.process)

    @property
    def is_making(self) -> bool:
        """Or is about to, at this moment."""
        return self._is_busy or bool(self._given)

    def begin_pass(self) -> None:
        """One more."""
        self._is_first = self._work.passes.iterates

    def run(self) -> Behaviour:
        if self._is_new:
            yield compute(self._work.passes.begin)
        while True:
            while not self._given:
                yield PARKED
            yield from self._make(self._given.popleft())

    def _make(self, number: int) -> Behaviour:
        batch, passes = self._loader.batch(number), self._work.passes
        is_first, self._is_first = self._is_first, False
        self._is_busy = True
        yield wait(self._storage.until_read(batch.wait + (passes.first_wait if is_first else 0.0)))
        yield compute(batch.compute + (passes.first_compute if is_first else 0.0), self._threads)
        self._is_busy = False
        self._engine.start(self._feed(number, batch))

    def _feed(self, number: int, batch: BatchWork) -> Behaviour:
        yield compute(batch.serialise)
        self._loader.delivered(number)


class _Storage:
    """What all workers read from: each read takes its own time, and together they get no more than its rate."""

    def __init__(self, engine: Engine, rate: float | None) -> None:
        self._engine = engine
        self._each = 0.0 if rate is None else 1e6 / rate
        self._free = 0.0

    def until_read(self, wait_us: float) -> float:
        """How long a read takes that begins now."""
        if self._each == 0.0:
            return wait_us
        self._free = max(self._free, self._engine.now) + self._each
        return max(wait_us, self._free - self._engine.now)
