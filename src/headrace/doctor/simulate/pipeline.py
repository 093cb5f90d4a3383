"""One rank's training: the training thread, its device, and DataLoader's worker processes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from headrace.doctor.simulate.engine import PARKED, Behaviour, Engine, SimulatedProcess, compute, team, wait
from headrace.doctor.simulate.work import BatchWork, FeedSetup, NativeFeed, SimulatedWork

LEAD = 1
"""Steps that the training thread can run ahead of its device before it waits, for example to read a loss."""


class SimulatedWorkers:
    """The loader's side in the training thread. Batches are numbered across all passes."""

    def __init__(self, engine: Engine, setup: FeedSetup, work: SimulatedWork) -> None:
        self.engine = engine
        self.setup = setup
        self.work = work
        self._read_until = 0.0
        """Time at which storage is free to read the next batch."""
        self._workers: list[_Worker] = []
        self._turn = 0
        self._sent = self._taken = self._last = 0
        self._arrived: deque[int] = deque()
        """Batches in the pipe, in order of arrival."""
        self._ready: dict[int, None] = {}
        """Batches unpickled, and pinned if required, in that order."""
        self._owners: dict[int, _Worker] = {}
        self._training: SimulatedProcess | None = None
        self._pinning: SimulatedProcess | None = None

    def begin(self, first: int) -> Behaviour:
        """Simulate `iter()`: workers start or resume (or have run for long), and receive all batches in flight."""
        self._training = self.engine.current
        setup, passes = self.setup, self.work.passes
        self._last = self._sent + (1 << 62 if setup.pass_batches is None else setup.pass_batches - first)
        self._turn = 0
        if self._workers:
            yield compute(passes.resume)
            for worker in self._workers:
                worker.is_first = passes.iterates
        else:
            for _ in range(setup.workers):
                yield compute(passes.fork if first == 0 else 0.0)
                worker = _Worker(self, is_new=first == 0)
                self._workers.append(worker)
                worker.process = self.engine.start(worker.run())
            if setup.pinned and self._pinning is None:
                self._pinning = self.engine.start(self._pin())
        for _ in range(setup.workers * setup.prefetch):
            yield from self._send()

    def end(self) -> Behaviour:
        if not self.setup.persistent:
            yield compute(self.work.passes.shut_down * len(self._workers))
            self._workers = []

    def get(self) -> Behaviour:
        while (number := self._next()) is None:
            if self._arrived and not self.setup.pinned:
                yield from self._receive()
            else:
                yield PARKED
        del self._ready[number]
        self._taken += 1
        self._owners.pop(number).tasks -= 1
        yield from self._send()

    def delivered(self, number: int) -> None:
        """Note that a worker has put a batch into the pipe."""
        self._arrived.append(number)
        self.engine.wake(self._pinning if self.setup.pinned else self._training)

    def read_us(self, wait_us: float) -> float:
        """Return the time of a read that begins now: its own time, bounded by the total rate of storage."""
        if self.setup.storage is None:
            return wait_us
        self._read_until = max(self._read_until, self.engine.now) + 1e6 / self.setup.storage
        return max(wait_us, self._read_until - self.engine.now)

    def _next(self) -> int | None:
        """Return the batch that can be delivered now, if any."""
        if self.setup.in_order:
            return self._taken if self._taken in self._ready else None
        return next(iter(self._ready), None)

    def _receive(self) -> Behaviour:
        number = self._arrived.popleft()
        batch, owner = self.work.batch(number), self._owners[number]
        yield compute(batch.receive)
        if owner.is_busy or owner.given:
            yield wait(batch.held)
        yield compute(batch.pin)
        self._ready[number] = None

    def _pin(self) -> Behaviour:
        """Simulate the trainer's thread that unpickles and pins arriving batches."""
        while True:
            if self._arrived:
                yield from self._receive()
                self.engine.wake(self._training)
            else:
                yield PARKED

    def _send(self) -> Behaviour:
        """Assign a batch to the next worker in turn with room, which one always has after a batch was received."""
        if self._sent >= self._last:
            return
        yield compute(self.work.draw)
        count = len(self._workers)
        for _ in range(count):
            worker = self._workers[self._turn % count]
            self._turn += 1
            if self.setup.in_order or worker.tasks < self.setup.prefetch:
                break
        self._owners[self._sent] = worker
        worker.tasks += 1
        worker.given.append(self._sent)
        self.engine.wake(worker.process)
        self._sent += 1


class _Worker:
    """One worker process. Its queue's feeder thread sends a batch while the next one is produced."""

    def __init__(self, loader: SimulatedWorkers, *, is_new: bool) -> None:
        self._loader = loader
        self._is_new = is_new
        self.is_first = is_new
        """True if its next batch is the first one."""
        self.is_busy = False
        self.given: deque[int] = deque()
        self.process: SimulatedProcess | None = None
        self.tasks = 0

    def run(self) -> Behaviour:
        loader, work = self._loader, self._loader.work
        if self._is_new:
            yield compute(work.passes.begin)
        while True:
            while not self.given:
                yield PARKED
            number = self.given.popleft()
            batch = work.batch(number)
            is_first, self.is_first, self.is_busy = self.is_first, False, True
            yield wait(loader.read_us(batch.wait + (work.passes.first_wait if is_first else 0.0)))
            more = work.passes.first_compute if is_first else 0.0
            yield compute(batch.compute + more, loader.setup.worker_threads)
            self.is_busy = False
            loader.engine.start(self._feed(number, batch))

    def _feed(self, number: int, batch: BatchWork) -> Behaviour:
        yield compute(batch.serialise)
        self._loader.delivered(number)


class SimulatedFeed:
    """Loader with native threads that produce one batch after another together, as long as there is room."""

    def __init__(self, engine: Engine, feed: NativeFeed, pass_batches: int | None) -> None:
        self._engine = engine
        self._feed = feed
        self._pass_batches = pass_batches
        self._made = self._last = self._ready = 0
        self._training: SimulatedProcess | None = None
        self._making: SimulatedProcess | None = None

    def begin(self, first: int) -> Behaviour:
        """Simulate `iter()`: a pass begins with an empty queue."""
        self._training = self._engine.current
        self._last = self._made + (1 << 62 if self._pass_batches is None else self._pass_batches - first)
        if self._making is None:
            self._making = self._engine.start(self._make())
        else:
            self._engine.wake(self._making)
        yield compute(0.0)

    def end(self) -> Behaviour:
        yield compute(0.0)

    def get(self) -> Behaviour:
        while not self._ready:
            yield PARKED
        self._ready -= 1
        self._engine.wake(self._making)

    def _make(self) -> Behaviour:
        feed = self._feed
        computing = feed.cpu_us / feed.mean_us / feed.threads
        while True:
            while self._ready >= feed.prefetch or self._made >= self._last:
                yield PARKED
            us = feed.batch_us[self._made % len(feed.batch_us)]
            yield wait(us * (1 - computing))
            yield compute(us * computing, feed.threads)
            self._made += 1
            self._ready += 1
            self._engine.wake(self._training)


@dataclass(frozen=True)
class SimulatedSteps:
    ends: list[float]
    """End of each step since the start of the simulation."""
    others_cores: float
    """Mean cores used by other programs."""


def simulated(setup: FeedSetup, work: SimulatedWork, *, first: int = 0, steps: int) -> SimulatedSteps:
    """Simulate `steps` from batch `first` of a pass. A pass already in progress has an empty queue."""
    engine, ends = Engine(setup.cores, setup.others), list[float]()
    engine.run(engine.start(_train(engine, setup, work, first, steps, ends)))
    return SimulatedSteps(ends, engine.others_us / engine.now if engine.now else 0.0)


def _train(
    engine: Engine, setup: FeedSetup, work: SimulatedWork, first: int, steps: int, ends: list[float]
) -> Behaviour:
    """Simulate the training thread, which appends each step's end to `ends` and waits for a device far behind."""
    loader = _loader(engine, setup, work)
    device_ends: deque[float] = deque([0.0] * LEAD, LEAD)
    batch, made = first, 0
    if loader is not None:
        yield from loader.begin(batch)
    for number in range(steps):
        step = work.steps[number % len(work.steps)]
        parts = max(step.gets, 1)
        for part in range(parts):
            if part < step.gets:
                if setup.pass_batches is not None and batch >= setup.pass_batches:
                    batch = 0
                    if loader is not None:
                        yield from loader.end()
                        yield from loader.begin(batch)
                if loader is not None:
                    yield from loader.get()
                else:
                    yield from _make_here(setup, work, made, is_first=batch == 0 and work.passes.iterates)
                    made += 1
                batch += 1
            us = step.compute / parts  # with its team
            yield compute(us) if work.team <= 1 else team(us, work.team)
            yield wait(step.wait / parts)
        if step.device:
            now, behind = engine.now, device_ends[0]
            device_ends.append(max(device_ends[-1], now) + step.device)
            yield wait(behind - now)
        ends.append(max(engine.now, device_ends[-1]))


def _loader(engine: Engine, setup: FeedSetup, work: SimulatedWork) -> SimulatedWorkers | SimulatedFeed | None:
    """Return the simulated loader, or None if the training thread produces the batches."""
    if setup.feed is not None:
        return SimulatedFeed(engine, setup.feed, setup.pass_batches)
    return SimulatedWorkers(engine, setup, work) if setup.workers else None


def _make_here(setup: FeedSetup, work: SimulatedWork, number: int, *, is_first: bool) -> Behaviour:
    """Simulate a batch that the training thread produces itself."""
    batch, passes = work.batch(number), work.passes
    yield compute(work.draw)
    yield wait(batch.wait + (passes.first_wait if is_first else 0.0))
    yield compute(batch.compute + (passes.first_compute if is_first else 0.0), setup.worker_threads)
    yield compute(batch.pin)
