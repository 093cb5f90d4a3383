"""One rank's training: the training thread, its device, and DataLoader's worker processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from .engine import PARKED, Behaviour, Engine, SimulatedProcess, compute, team, wait
from .work import BatchWork, FeedSetup, SimulatedWork

LEAD = 1
"""Steps that the training thread gets ahead of its device before something makes it wait: reading a loss, say."""


class SimulatedWorkers:
    """The loader's side in the training thread. Batches are numbered through all passes."""

    def __init__(self, engine: Engine, setup: FeedSetup, work: SimulatedWork) -> None:
        self._engine = engine
        self._setup = setup
        self._work = work
        self._storage = _Storage(engine, setup.storage)
        self._workers: list[_Worker] = []
        self._turn = 0
        self._sent = self._taken = self._last = 0
        self._arrived: deque[int] = deque()
        """Batches in the pipe, in the order in which they came."""
        self._ready: dict[int, None] = {}
        """Unpickled, and pinned where they are pinned; in that order."""
        self._owners: dict[int, _Worker] = {}
        self._training: SimulatedProcess | None = None
        self._pinning: SimulatedProcess | None = None

    def begin(self, first: int) -> Behaviour:
        """Simulate `iter()`: workers are started, or told to go on, and given as much as may be in flight.

        In a pass that is under way they have been there for long.
        """
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
        """Simulate the `next()` that finds no more batch."""
        if not self._setup.persistent:
            yield compute(self._work.passes.shut_down * len(self._workers))
            self._workers = []

    def get(self) -> Behaviour:
        """Simulate `next()`."""
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
        """Take note that a worker has put a batch into the pipe."""
        self._arrived.append(number)
        self._engine.wake(self._pinning if self._setup.pinned else self._training)

    def batch(self, number: int) -> BatchWork:
        return self._work.batches[number % len(self._work.batches)]

    def _next(self) -> int | None:
        """Return the batch that can be returned now, if any."""
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
        """Simulate the trainer's thread that unpickles and pins what comes."""
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
        """Return the worker to give a batch to.

        There is always one with room: as many are in flight as all may have together, less the one just received.
        """
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
        self,
        loader: SimulatedWorkers,
        engine: Engine,
        work: SimulatedWork,
        setup: FeedSetup,
        storage: _Storage,
        is_new: bool,
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
        self.process: SimulatedProcess | None = None
        self.tasks = 0

    def give(self, number: int) -> None:
        """Give it one more batch to make."""
        self.tasks += 1
        self._given.append(number)
        self._engine.wake(self.process)

    @property
    def is_making(self) -> bool:
        """Or is about to, at this moment."""
        return self._is_busy or bool(self._given)

    def begin_pass(self) -> None:
        """Begin one more pass."""
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
    """Storage that all workers read from: each read takes its own time, and together they get no more than its rate."""

    def __init__(self, engine: Engine, rate: float | None) -> None:
        self._engine = engine
        self._each = 0.0 if rate is None else 1e6 / rate
        self._free = 0.0

    def until_read(self, wait_us: float) -> float:
        """Return how long a read takes that begins now."""
        if self._each == 0.0:
            return wait_us
        self._free = max(self._free, self._engine.now) + self._each
        return max(wait_us, self._free - self._engine.now)


@dataclass(frozen=True)
class SimulatedSteps:
    ends: list[float]
    """End of each step, counted from the simulation's beginning."""
    others_cores: float
    """Mean cores that other programs kept busy meanwhile."""


def simulated(setup: FeedSetup, work: SimulatedWork, *, first: int = 0, steps: int) -> SimulatedSteps:
    """Simulate so many steps.

    `first` is the number of the first batch in its pass. A pass that is under way begins with all its workers idle and
    its queue empty.
    """
    engine = Engine(setup.cores, setup.others)
    training = _Training(engine, setup, work, first, steps)
    engine.run(engine.start(training.run()))
    return SimulatedSteps(training.ends, engine.others_us / engine.now if engine.now else 0.0)


class _Training:
    """The training thread."""

    def __init__(self, engine: Engine, setup: FeedSetup, work: SimulatedWork, first: int, steps: int) -> None:
        self._engine = engine
        self._setup = setup
        self._work = work
        self._steps = steps
        self._batch = first
        self._device_ends: deque[float] = deque([0.0] * LEAD, LEAD)
        self.ends: list[float] = []
        self._loader = SimulatedWorkers(engine, setup, work) if setup.workers else _Here(setup, work)

    def run(self) -> Behaviour:
        yield from self._loader.begin(self._batch)
        for number in range(self._steps):
            yield from self._step(number)
            self.ends.append(max(self._engine.now, self._device_ends[-1]))

    def _step(self, number: int) -> Behaviour:
        step = self._work.steps[number % len(self._work.steps)]
        parts = max(step.gets, 1)
        for part in range(parts):
            if part < step.gets:
                yield from self._get()
            yield team(step.compute / parts, self._work.team) if self._work.team > 1 else compute(step.compute / parts)
            yield wait(step.wait / parts)
        if step.device:
            yield from self._launch(step.device)

    def _get(self) -> Behaviour:
        """Take the next batch; that of the next pass, where this one's have all been taken."""
        if self._setup.pass_batches is not None and self._batch >= self._setup.pass_batches:
            yield from self._loader.end()
            self._batch = 0
            yield from self._loader.begin(0)
        yield from self._loader.get()
        self._batch += 1

    def _launch(self, device: float) -> Behaviour:
        """Launch a step on the device, which begins it after the one before; wait where it is too far behind."""
        now, behind = self._engine.now, self._device_ends[0]
        self._device_ends.append(max(self._device_ends[-1], now) + device)
        yield wait(behind - now)


class _Here:
    """The training thread makes its batches itself."""

    def __init__(self, setup: FeedSetup, work: SimulatedWork) -> None:
        self._work = work
        self._threads = setup.worker_threads
        self._taken = 0
        self._is_first = False

    def begin(self, first: int) -> Iterator[tuple[str, float, float]]:
        self._is_first = first == 0 and self._work.passes.iterates
        return iter(())

    def end(self) -> Iterator[tuple[str, float, float]]:
        return iter(())

    def get(self) -> Behaviour:
        batch = self._work.batches[self._taken % len(self._work.batches)]
        self._taken += 1
        passes, is_first, self._is_first = self._work.passes, self._is_first, False
        yield compute(self._work.draw)
        yield wait(batch.wait + (passes.first_wait if is_first else 0.0))
        yield compute(batch.compute + (passes.first_compute if is_first else 0.0), self._threads)
        yield compute(batch.pin)
