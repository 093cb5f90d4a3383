"""One rank's training: the training thread, which takes batches and steps, and its device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.doctor.predict.setup import Setup
from headrace.doctor.predict.work import Work
from headrace.doctor.simulate.engine import Behaviour, Engine, compute, team, wait
from headrace.doctor.simulate.pipeline import Workers

LEAD = 1
"""Steps that the training thread gets ahead of its device before something makes it wait: reading a loss, say."""


@dataclass(frozen=True)
class Simulated:
    ends: list[float]
    """When each step ended, the simulation's beginning being 0."""
    others_cores: float
    """That other programs kept busy meanwhile, on average."""


def simulated(setup: Setup, work: Work, *, first: int = 0, steps: int) -> Simulated:
    """So many steps. `first` is the number of the first batch in its pass; a pass that is under way begins with all its
    workers idle and its queue empty."""
    engine = Engine(setup.cores, setup.others)
    training = _Training(engine, setup, work, first, steps)
    engine.run(engine.start(training.run()))
    return Simulated(training.ends, engine.others_us / engine.now if engine.now else 0.0)


class _Training:
    """The training thread."""

    def __init__(self, engine: Engine, setup: Setup, work: Work, first: int, steps: int) -> None:
        self._engine = engine
        self._setup = setup
        self._work = work
        self._steps = steps
        self._batch = first
        self._device_ends: deque[float] = deque([0.0] * LEAD, LEAD)
        self.ends: list[float] = []
        self._loader = Workers(engine, setup, work) if setup.workers else _Here(setup, work)

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
        """The next batch; that of the next pass, where this one's have all been taken."""
        if self._setup.pass_batches is not None and self._batch >= self._setup.pass_batches:
            yield from self._loader.end()
            self._batch = 0
            yield from self._loader.begin(0)
        yield from self._loader.get()
        self._batch += 1

    def _launch(self, device: float) -> Behaviour:
        """The device begins once it is done with the step before; the thread goes on, if it is not too far ahead."""
        now, behind = self._engine.now, self._device_ends[0]
        self._device_ends.append(max(self._device_ends[-1], now) + device)
        yield wait(behind - now)


class _Here:
    """The training thread makes its batches itself."""

    def __init__(self, setup: Setup, work: Work) -> None:
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
