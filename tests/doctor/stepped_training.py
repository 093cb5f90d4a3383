"""A second simulation of a training, which moves a clock on by small steps and looks at everybody at each: slow, plain,
and written without a look at the first. One pass without an end; batches arrive as they are sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.doctor.simulate.work import BatchWork, FeedSetup, StepWork

EPSILON = 1e-9


@dataclass
class Phase:
    """Something that takes time. It may need a core."""

    left: float
    needs_core: bool


@dataclass
class Actor:
    """Does its phases one after another."""

    phases: deque[Phase] = field(default_factory=deque)

    def add(self, left: float, needs_core: bool) -> None:
        self.phases.append(Phase(left, needs_core))

    @property
    def current(self) -> Phase | None:
        while self.phases and self.phases[0].left <= EPSILON:
            self.phases.popleft()
        return self.phases[0] if self.phases else None


class SteppedTraining:
    """Runs until so many steps have ended: `ends` are their times."""

    def __init__(self, setup: FeedSetup, batches: Sequence[BatchWork], steps: Sequence[StepWork], tick: float) -> None:
        self.setup, self.batches, self.steps, self.tick = setup, batches, steps, tick
        self.now = 0.0
        self.ends: list[float] = []
        self.trainer = Actor()
        self.workers = [Actor() for _ in range(setup.workers)]
        self.making: list[int | None] = [None] * setup.workers
        self.queues: list[deque[int]] = [deque() for _ in range(setup.workers)]
        self.senders: list[tuple[Actor, int]] = []
        self.pipe: list[int] = []
        self.unpickling: int | None = None
        self.held: list[int] = []
        self.owner: dict[int, int] = {}
        self.outstanding = [0] * setup.workers
        self.handed_out = self.turn = self.received = 0
        self.is_asking = True
        self.arrived_at = -1.0
        self.has_tie = False
        """Whether two batches arrived at one moment: who came first is then a matter of taste."""
        for _ in range(setup.workers * setup.prefetch):
            self.hand_out()

    def run(self, steps: int) -> list[float]:
        while len(self.ends) < steps:
            while self.change():
                pass
            self.pass_time()
        return self.ends[:steps]

    def actors(self) -> list[Actor]:
        return [self.trainer, *self.workers, *(sender for sender, _ in self.senders)]

    def pass_time(self) -> None:
        running = [phase for actor in self.actors() if (phase := actor.current) is not None]
        computing = sum(phase.needs_core for phase in running) + self.setup.others
        cores = float("inf") if self.setup.cores is None else self.setup.cores
        speed = 1.0 if computing <= cores else cores / computing
        for phase in running:
            phase.left -= self.tick * (speed if phase.needs_core else 1.0)
        self.now += self.tick

    def change(self) -> bool:
        """Whether anything happened that takes no time."""
        return self.worker_changes() or self.sender_arrives() or self.trainer_changes()

    def worker_changes(self) -> bool:
        for place, worker in enumerate(self.workers):
            if worker.current is not None:
                continue
            made = self.making[place]
            if made is not None:
                self.making[place] = None
                sender = Actor()
                sender.add(self.work(made).serialise, True)
                self.senders.append((sender, made))
                return True
            if self.queues[place]:
                index = self.making[place] = self.queues[place].popleft()
                worker.add(self.work(index).wait, False)
                worker.add(self.work(index).compute, True)
                return True
        return False

    def sender_arrives(self) -> bool:
        for entry in self.senders:
            if entry[0].current is None:
                self.senders.remove(entry)
                self.pipe.append(entry[1])
                self.has_tie |= self.arrived_at == self.now
                self.arrived_at = self.now
                return True
        return False

    def trainer_changes(self) -> bool:
        if self.trainer.current is not None:
            return False
        if self.unpickling is not None:
            self.held.append(self.unpickling)
            self.unpickling = None
            return True
        if not self.is_asking:
            self.ends.append(self.now)
            self.is_asking = True
            return True
        wanted = self.wanted()
        if wanted is not None:
            self.take(wanted)
            return True
        if self.pipe:
            self.unpickling = self.pipe.pop(0)
            self.trainer.add(self.work(self.unpickling).receive, True)
            return True
        return False

    def wanted(self) -> int | None:
        if self.setup.in_order:
            return self.received if self.received in self.held else None
        return self.held[0] if self.held else None

    def take(self, index: int) -> None:
        self.held.remove(index)
        self.outstanding[self.owner[index]] -= 1
        self.received += 1
        self.hand_out()
        step = self.steps[len(self.ends) % len(self.steps)]
        self.trainer.add(step.compute, True)
        self.trainer.add(step.wait, False)
        self.is_asking = False

    def hand_out(self) -> None:
        place = self.turn % self.setup.workers
        while not self.setup.in_order and self.outstanding[place] >= self.setup.prefetch:
            self.turn += 1
            place = self.turn % self.setup.workers
        self.turn += 1
        self.queues[place].append(self.handed_out)
        self.owner[self.handed_out] = place
        self.outstanding[place] += 1
        self.handed_out += 1

    def work(self, index: int) -> BatchWork:
        return self.batches[index % len(self.batches)]
