"""Work that one run recorded, free of waiting, and the setups that it is simulated in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
FORK_US = 15_000.0
"""Time of the training thread to fork one worker from a process that has loaded torch."""
BEGIN_US = 20_000.0
"""Time until a worker's loop runs."""
SHUT_DOWN_US = 20_000.0
"""Time of the training thread to wait for the end of one worker."""
RECEIVE_US = 800.0
"""Time to ask the worker for the shared memory of a batch of a few tensors, and to open it."""
SHARED_BYTES_PER_US = 800.0
"""Written by a worker into shared memory: 0.8 GB/s, since each batch has pages that the kernel has yet to find and to
clear."""
MAPPED_BYTES_PER_US = 3_000.0
"""Mapped by the training thread that receives them, and given back."""
PIN_BYTES_PER_US = 4_000.0
"""Copying into pinned memory: 4 GB/s, page faults and all."""
USUAL_HELP = 0.7
"""Share of their CPU time in a step that threads which help with it usually need once they sleep while they wait."""
EVEN = 0.25
"""Part of a worker, below which batches that wait while others compute are no reason for one more."""


@dataclass(frozen=True)
class StageChange:
    """Factors of one stage's time in a batch: `cpu` where a thread computes, `wait` where it waits."""

    cpu: float = 1.0
    wait: float = 1.0

    def scaled(self, left: float) -> StageChange:
        """Return the change that leaves so much of what this one leaves."""
        return StageChange(self.cpu * left, self.wait * left)


@dataclass(frozen=True)
class NativeFeed:
    """Loader of native threads in place of the DataLoader, as a trial measured it."""

    batch_us: tuple[float, ...]
    """Times between its batches where nothing else ran, in order."""
    cpu_us: float
    """CPU time of a batch, of all its threads."""
    prefetch: int
    """Batches that lie ready at most."""
    stretch: float = 1.0
    """Factor of the simulated step, by what the trial measured alongside a stand-in of the training."""
    error: float = 0.0
    """Standard error of that, as a logarithm."""
    asleep: NativeFeed | None = None
    """The same alongside a training whose threads sleep while they wait; None where that was not measured."""

    @property
    def mean_us(self) -> float:
        return sum(self.batch_us) / len(self.batch_us)

    @property
    def threads(self) -> float:
        """Threads that compute at once while a batch is made, at least 1."""
        return max(self.cpu_us / self.mean_us, 1.0)


@dataclass(frozen=True)
class FeedSetup:
    """Setup in which a training is fed.

    `RecordedRun.setup` is the present one; `dataclasses.replace` gives a what-if. Only what differs from the present
    one is taken to have changed.
    """

    workers: int
    """Worker processes; 0 where the trainer makes its batches itself."""
    prefetch: int
    """Batches in flight for each worker: DataLoader's `prefetch_factor`."""
    persistent: bool
    """Whether workers live on between passes."""
    pinned: bool
    """Whether a thread of the trainer unpickles and pins batches as they come."""
    in_order: bool
    cores: float | None
    """Cores that this rank and its workers may use at once; None where no machine facts tell, which counts as
    enough."""
    others: float
    """Cores of these that other programs kept busy: they go on, and the scheduler is fair to all."""
    worker_threads: float
    """Threads of a worker that compute at once while it makes a batch, as its CPU time tells; at least 1."""
    pass_batches: int | None
    """Batches of one pass over the loader; None where none ended, and then none begins again."""
    stages: Mapping[str, StageChange] = field(default_factory=dict)
    """Changes by `category:label`, which counts first, or by `category` for all of it."""
    sent_bytes: float = 1.0
    """Bytes of a batch between processes, of the present ones: pickling, unpickling and pinning follow them."""
    start_up: float = 1.0
    """Time that workers take to start, of the present one."""
    pin_us: float | None = None
    """Time to pin a batch where the present setup does not; None for what pinning takes at memory's speed."""
    off_step_us: float = 0.0
    """Time that copies and casts on a side stream take off each batch in the training thread."""
    step: float = 1.0
    """The training thread's and the device's own time in a step, of the present one."""
    storage: float | None = None
    """Batches a second that storage gives all workers together, at most; None for no such limit."""
    feed: NativeFeed | None = None
    """Loader that makes the batches in place of workers."""
    helpers: float = 1.0
    """CPU time of the threads that help with a step, of the present one."""
    spins: bool = True
    """Whether these keep their cores while they have nothing to do."""

    def asleep(self, helping: float = USUAL_HELP, factor: float = 1.0) -> FeedSetup:
        """Return the setup in which the threads that help with a step sleep while they wait.

        They need `helping` of their time in a step, and none outside of it; the step takes `factor` of its time.
        """
        feed = self.feed if self.feed is None or self.feed.asleep is None else self.feed.asleep
        helpers, step = self.helpers * helping, self.step * factor
        return replace(self, spins=False, helpers=helpers, step=step, feed=feed)


@dataclass(frozen=True)
class StageColumns:
    """One stage of making batches."""

    compute: Column
    wait: Column


Stages = Mapping[str, StageColumns]
"""Columns by `category:label`."""


def changed_stages(stages: Stages, changes: Mapping[str, StageChange]) -> Stages:
    """Apply the changes of a setup: that of a stage, else of its category."""
    found = {}
    for name, stage in stages.items():
        change = changes.get(name) or changes.get(name.partition(":")[0]) or StageChange()
        found[name] = replace(stage, compute=stage.compute * change.cpu, wait=stage.wait * change.wait)
    return found


@dataclass(frozen=True)
class BatchColumns:
    """Batches that measured steps received, in that order; the first ones of new workers left out."""

    stages: Stages
    """`compute` is wall time, which several threads may have made shorter."""
    serialise: Column
    receive: Column
    held: Column
    """Time for which receiving waits for the batch's worker, which is at the next one."""
    pin: Column

    def __len__(self) -> int:
        return len(self.serialise)

    @property
    def compute(self) -> Column:
        """Wall time of computing, in one thread, or in as many as computed at once."""
        return sum((stage.compute for stage in self.stages.values()), np.zeros(len(self)))

    @property
    def wait(self) -> Column:
        return sum((stage.wait for stage in self.stages.values()), np.zeros(len(self)))

    def changed(self, changes: Mapping[str, StageChange]) -> BatchColumns:
        """Apply the changes of a setup. A worker that computes for a shorter time is waited for as much shorter."""
        after = replace(self, stages=changed_stages(self.stages, changes))
        before_us, after_us = self.compute.mean(), after.compute.mean()
        return replace(after, held=self.held * (after_us / before_us if before_us > 0 else 1.0))


@dataclass(frozen=True)
class StepColumns:
    """Measured steps, in order, without what they waited for."""

    gets: NDArray[np.int64]
    compute: Column
    wait: Column
    device: Column

    def __len__(self) -> int:
        return len(self.gets)


@dataclass(frozen=True)
class BatchWork:
    """One batch: made, sent, received."""

    wait: float
    """Time in which its maker waits for storage and needs no core."""
    compute: float
    """Time of the thread that makes it, or of several at once; writing its tensors into shared memory included."""
    serialise: float
    receive: float
    """Unpickling it, and pinning where that is done by the same thread."""
    held: float
    """More, while its worker makes another one: that must answer for each tensor."""
    pin: float


@dataclass(frozen=True)
class StepWork:
    """One optimizer step, without what it waits for. It is spread evenly over its batches."""

    gets: int
    compute: float
    wait: float
    """Time that it waits for the device, or whatever else needs no core."""
    device: float
    """Time of the device, where it runs on while the training thread goes ahead; else 0."""


@dataclass(frozen=True)
class PassCosts:
    """Costs of the beginning and the end of a pass."""

    fork: float
    """Time of the training thread for each worker that it starts."""
    begin: float
    """Time from a worker's start until it takes up its first batch."""
    resume: float
    """Time of the training thread to resume persistent workers."""
    shut_down: float
    """Time of the training thread for each worker that ends."""
    first_wait: float
    first_compute: float
    """More than usual, of the first batch that a worker makes in its life."""
    iterates: bool
    """Whether that is so of the first one in each pass."""


@dataclass(frozen=True)
class SimulatedWork:
    """Batches are taken in a circle, in the order of their indices; steps, too."""

    batches: Sequence[BatchWork]
    steps: Sequence[StepWork]
    passes: PassCosts
    draw: float
    """Time to draw a batch's indices and hand them out, in the training thread."""
    team: int
    """Threads that compute a step together; each waits for the others after every small part of it."""
    helpers: float = 1.0
    """Share of its CPU time that they need but for the first; below 1 where they sleep in place of spinning."""
    spin: float = 0.0
    """CPU time in which they spin after each step."""

    def batch(self, number: int) -> BatchWork:
        return self.batches[number % len(self.batches)]


PASSES = PassCosts(FORK_US, BEGIN_US, 1_000.0, SHUT_DOWN_US, 0.0, 0.0, False)


def shared_us(batch_bytes: float) -> float:
    """Return what a batch takes longer to make than in the training thread, which uses the same memory again."""
    return batch_bytes / SHARED_BYTES_PER_US


def receive_us(batch_bytes: float) -> float:
    return RECEIVE_US + batch_bytes / MAPPED_BYTES_PER_US


@dataclass(frozen=True)
class SimulationFit:
    """Corrections of the simulation of the present setup, put down to what limited it.

    A loader that is waited for tells nothing of errors in the steps, and steps that never wait tell nothing of errors
    in the loader.
    """

    making: float
    """Factor of the work of batches."""
    computing: float
    """Factor of the work of steps."""
    start_up: float
    """Factor of the time that workers take to start and to end."""
    rest: float
    """Factor of the simulated step, for what is left then."""
    gap: float
    """Logarithm of the observed step by the simulated one, before all that."""


UNFITTED = SimulationFit(1.0, 1.0, 1.0, 1.0, 0.0)


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """The rank that waits for data the longest, and the loader that it waits for. Times are microseconds."""

    setup: FeedSetup
    """Setup of the recorded run."""
    observed_us: float
    """Mean measured step."""
    batches_a_step: float
    batches: BatchColumns
    first_batch: Stages
    """Work that the first batch of a worker takes more, in one row."""
    steps: StepColumns
    passes: PassCosts
    draw: float
    """Time to draw a batch's indices and hand them out, in the training thread."""
    team: int
    """Threads of the trainer that compute a step together."""
    spin: float
    """CPU time a step in which the others of these spin while the training thread waits for data."""
    first: int
    """The number in its pass of the first batch that a measured step received."""
    replay_us: float | None
    """Mean step on cached batches; None where nothing was replayed."""
    batch_bytes: float
    """Bytes of a batch's tensors, as the trainer receives it; 0 where that was not seen."""
    fit: SimulationFit
    assumed: frozenset[str]
    """Figures that were not measured in this run, and had to be assumed: `sending` between processes and `start-up` of
    workers, where there were none; `cores` of the training thread."""

    @property
    def making_cpu_us(self) -> float:
        """CPU time of a step's batches, of all threads that help with them."""
        batches = self.batches
        each = batches.compute * self.setup.worker_threads + batches.serialise + batches.receive + batches.pin
        return float(each.mean()) * self.batches_a_step

    @property
    def training_cpu_us(self) -> float:
        """CPU time of a step itself."""
        return float(self.steps.compute.mean()) * self.team

    def sharing_us(self) -> float:
        """Return the added CPU time of a step's batches, if workers wrote them into shared memory.

        It is assumed by their size, the mapping in the trainer included, and 0 where workers do so already.
        """
        if self.setup.workers:
            return 0.0
        return (shared_us(self.batch_bytes) + receive_us(self.batch_bytes)) * self.batches_a_step

    def lower_bound_us(self) -> float:
        """Return the CPU time of a step's batches and its training on all cores; 0 where the cores are not known.

        No number of workers gives a shorter step.
        """
        cores = self.setup.cores
        return 0.0 if not cores else (self.making_cpu_us + self.sharing_us() + self.training_cpu_us) / cores

    def most_workers(self) -> int | None:
        """Return how many workers keep all cores busy by making batches alone; None where the cores are not known.

        They are more than cores only as far as they wait, for storage say, while others compute.
        """
        cores, batches = self.setup.cores, self.batches
        if cores is None:
            return None
        computing = float(batches.compute.mean()) * self.setup.worker_threads
        wall = float(batches.compute.mean() + batches.wait.mean())
        return ceil(cores * wall / computing - EVEN) if computing > 0 else None

    def unhindered_us(self) -> float:
        """Return the mean step that waits for no data.

        It is that of the replay window where there was one, else of the observed steps without their waits.
        """
        if self.replay_us is not None:
            return self.replay_us
        own = self.steps.compute + self.steps.wait
        return float(np.maximum(own, self.steps.device).mean())
