"""What the probe costs the user's run, and the rules that keep it small."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any, Callable

from .evidence_file import BLOCK, left_out
from .stages import Stages, Totals

if TYPE_CHECKING:
    from .training.training import TrainingObserver


# -- from doctor/probe/cost.py: What the hooks cost the training thread, and how the price of a call is found.


def nothing(*_: Any) -> None:
    """Stands for what a hook calls."""


def price_ns(hooked: Callable[[], Any], plain: Callable[[], Any] = nothing, calls: int = 25, rounds: int = 3) -> float:
    """Nanoseconds that one call of `hooked` costs more than one of `plain`: the least of `rounds`, since whatever
    disturbs a round only adds to it."""
    return max(0.0, least_ns(hooked, calls, rounds) - least_ns(plain, calls, rounds))


class TrainingCost:
    """Hooks add to it what they see of themselves between two readings of the clock: in a run that sleeps, or waits for
    a device, between them they find the CPU's caches cold and take ten times what they take in a loop."""

    def __init__(self) -> None:
        self.measured_ns = 0
        self.conversions = 0
        """Calls of `Tensor.to` and `Tensor.cuda`, most of which copy nothing to the device, and which come by the
        hundred: two readings of the clock would cost as much again."""
        self.price_conversion: Callable[[], float] = lambda: 0.0
        """How to find what one costs, in ns; set by the hook."""
        self._conversion_ns: float | None = None

    def since(self, begun: int) -> None:
        """Something of ours ran from then, by time.monotonic_ns(), until now."""
        self.measured_ns += time.monotonic_ns() - begun

    def leave_out(self, begun: int) -> None:
        """What ran from then until now was a wait for others, and will be counted with what it is a part of."""
        self.measured_ns -= time.monotonic_ns() - begun

    def take(self) -> int:
        """Nanoseconds since the last call."""
        total = max(self.measured_ns, 0)  # what was left out may yet have to be counted
        self.measured_ns -= total
        conversions, self.conversions = self.conversions, 0
        if conversions and self._conversion_ns is None:
            self._conversion_ns = self.price_conversion()
        return total + round(conversions * (self._conversion_ns or 0.0))

    def forget(self) -> None:
        """What was spent so far was another process's."""
        self.conversions = self.measured_ns = 0


def least_ns(call: Callable[[], Any], calls: int, rounds: int = 4) -> float:
    """Of one call, in the least of `rounds`."""
    least = float("inf")
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        least = min(least, (time.perf_counter_ns() - start) / calls)
    return least


# -- from doctor/probe/stage_cost.py: What the probe itself costs the processes that make batches.


PRICED_CALLS = 16
"""Of a hook, in each round of finding its price."""


class ProductionCost:
    """Time of the hooks of stages is their number by the price of one, measured once in each process, since a clock
    read around each would cost as much again; rarer work is measured as it is."""

    def __init__(self, price_sample: Callable[[], int] = lambda: 0) -> None:
        """`price_sample` gives what timing a sample by itself costs in all."""
        self._price_sample = price_sample
        self._price: tuple[int, int] | None = None
        self.total_ns = 0

    def add_hooks(self, totals: Totals, samples: int, together: int = 0) -> None:
        """Of a batch of which so many samples were timed, and so many more together, which count as a call each."""
        stage, sample = self._prices()
        self.total_ns += stage * (sum(total[0] for total in totals.values()) - together) + sample * samples

    def samples_ns(self, samples: int) -> int:
        """What timing so many samples one by one costs."""
        return sum(self._prices()) * samples

    def _prices(self) -> tuple[int, int]:
        if self._price is None:
            stage = price_of_a_stage_ns()
            self._price = stage, max(0, self._price_sample() - stage)
        return self._price

    def add_ns(self, spent: int) -> None:
        """What was seen to be spent."""
        self.total_ns += spent

    def add_since(self, thread_time_ns: int) -> None:
        self.total_ns += time.thread_time_ns() - thread_time_ns


def price_of_a_stage_ns() -> int:
    """Entered and left."""
    stages = Stages(raise_)
    stages.categories.update({0: "getitem", 1: "other"})
    stages.open()

    def stage() -> None:
        entered = stages.enter(1)
        if entered is not None:
            entered.leave()

    return int(least_ns(stage, PRICED_CALLS))


def raise_(error: Exception) -> None:
    raise error


# -- from doctor/probe/pace.py: Which batches are timed sample by sample.


MOST_SAMPLE_SHARE = 0.02
"""Of the time of making batches, that timing samples one by one may take."""
FIRST_BATCHES = 20
"""Batches that are in any case: of a short run, all."""
MOST_BETWEEN = 500
"""Batches: however short samples are, some are timed one by one."""


class SampleTimingPace:
    """All are, where that costs little of their making, and as few as keep it little where samples are short: the
    others are timed as a whole. A batch that took long makes the next one be timed by sample again."""

    def __init__(self) -> None:
        self._made = 0
        self._left = 0

    def is_due(self) -> bool:
        """Whether the next batch is to be timed by sample."""
        return self._made < FIRST_BATCHES or self._left <= 0

    def made(self, wall_ns: int, price_ns: int, is_by_sample: bool) -> None:
        """A batch took so long; to time it by sample costs `price_ns`."""
        self._made += 1
        usual = min(MOST_BETWEEN, int(price_ns / (MOST_SAMPLE_SHARE * max(wall_ns, 1))))
        self._left = usual if is_by_sample else min(self._left - 1, usual)


# -- from doctor/probe/rests.py: When a run that is only observed is let alone, so that observing it stays cheap.
# Pure: it is told times.


MOST_STEP_SHARE = 0.01
"""Of a step, that observing may cost,"""
ALWAYS_NS = 100_000
"""and what it may cost at least, however short a step is."""
AIM = 0.2
"""Of that is aimed at: observing costs half as much again as the hooks see of themselves, since the user's code then
finds the caches filled with ours, and what is let pass is not free either (benchmarks/doctor_overhead.py --in-turns).
"""
MOST_HALVINGS = 8


class PauseSchedule:
    """Chooses among blocks of steps as many to observe as keep the cost, spread over all of them, within bounds."""

    def __init__(self) -> None:
        self.halvings = 0
        """Of blocks, 1 in 2 to the power of this is observed."""
        self._cost_ns = 0
        self._walls_ns: list[int] = []

    def observed(self, wall_ns: int) -> None:
        """A step was observed that took so long."""
        self._walls_ns.append(wall_ns)

    def spent(self, cost_ns: int) -> None:
        """On steps that were observed."""
        self._cost_ns += cost_ns

    def after(self, number: int) -> int:
        """How many steps to let pass from step `number` on: whole blocks, where one begins with it."""
        if number % BLOCK or not self._walls_ns:
            return 0
        step, cost = median(self._walls_ns), self._cost_ns / len(self._walls_ns)
        self._walls_ns, self._cost_ns = [], 0
        bound = AIM * max(MOST_STEP_SHARE * step, ALWAYS_NS)
        self.halvings = 0
        while cost > bound * 2**self.halvings and self.halvings < MOST_HALVINGS:
            self.halvings += 1
        return BLOCK * left_out(number // BLOCK, self.halvings)


class Pause:
    """One, under way. Optimizers' steps are counted in it: as many make a step as in the step before it."""

    __slots__ = ("_count", "_optimizers", "first", "optimizers_left", "start")

    def __init__(self, first: int, start: int, count: int, optimizers: int) -> None:
        """Of `count` steps, of which `first` is the number of the first, from `start` on."""
        self.first = first
        self.start = start
        self._count = count
        self._optimizers = optimizers
        self.optimizers_left = count * optimizers

    @property
    def passed(self) -> int:
        """Steps so far."""
        return self._count - -(-self.optimizers_left // self._optimizers)


# -- from doctor/probe/resting.py: The training thread while it is let alone: when it is, and how it goes on.


NOBODY = -1
"""No thread's identity."""


class PausedTraining:
    """While it rests, `Training.thread` is nobody's, so that hooks do nothing, and `Training.resting` is the thread."""

    def __init__(self, training: TrainingObserver) -> None:
        self._training = training
        self._rest: Pause | None = None
        rests = PauseSchedule()
        self.observed, self.spent, self._after = rests.observed, rests.spent, rests.after

    def begin_if_due(self, start: int) -> None:
        """The step that began at `start` is the first of a block."""
        training = self._training
        training.write_steps()
        number = training.steps.number
        count = self._after(number)
        if count:
            self._rest = Pause(number, start, count, max(training.steps.optimizers, 1))
            training.thread, training.resting = NOBODY, training.thread

    def optimizer_stepped(self) -> None:
        """In the training thread, which is at rest."""
        begun = time.monotonic_ns()
        rest = self._rest
        if rest is not None:
            rest.optimizers_left -= 1
            if not rest.optimizers_left:
                self.end()
        self._training.costs.since(begun)

    def end(self) -> None:
        """Goes on with what comes, be it in the middle of a rest."""
        rest, self._rest = self._rest, None
        if rest is None:
            return
        training, end = self._training, time.monotonic_ns()
        training.thread, training.resting = training.resting, NOBODY
        training.steps.resume(rest.first + rest.passed, end)
        if training.marks is not None:
            training.marks.begin()
        clock, cost = training.probe.clock, training.writer.take_cost() // 100
        record = ("rest", rest.first, clock.us(rest.start), clock.us(end), rest.passed, cost)
        training.probe.evidence.write(record)

    def forget(self) -> None:
        self._rest = None
