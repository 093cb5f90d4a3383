"""Work that one run recorded, without waits, and the setups in which it is simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
FORK_US = 15_000.0
"""Time in the training thread to fork one worker from a process that has loaded torch."""
BEGIN_US = 20_000.0
"""Time until a worker's loop runs."""
SHUT_DOWN_US = 20_000.0
"""Time in the training thread to wait for the end of one worker."""
RECEIVE_US = 800.0
"""Time to request and open the shared memory of a batch of a few tensors."""
SHARED_BYTES_PER_US = 800.0
"""Rate at which a worker writes into shared memory: 0.8 GB/s, since the kernel must allocate and clear pages."""
MAPPED_BYTES_PER_US = 3_000.0
"""Rate at which the training thread maps received batches, and unmaps them."""
PIN_BYTES_PER_US = 4_000.0
"""Rate of copying into pinned memory: 4 GB/s, page faults included."""
EVEN = 0.25
"""Fraction of a worker below which waiting for storage does not justify one more."""


@dataclass(frozen=True)
class StageChange:
    """Factors on one stage's time in a batch: `cpu` on computing, `wait` on waiting."""

    cpu: float = 1.0
    wait: float = 1.0

    def scaled(self, left: float) -> StageChange:
        """Return this change followed by a factor of `left` on both."""
        return StageChange(self.cpu * left, self.wait * left)


@dataclass(frozen=True)
class NativeFeed:
    """Loader with native threads in place of the DataLoader, as measured in a trial."""

    batch_us: tuple[float, ...]
    """Intervals between its batches with nothing else running, in order."""
    cpu_us: float
    """CPU time per batch, over all its threads."""
    prefetch: int
    """Maximum number of batches ready."""
    stretch: float = 1.0
    """Factor on the simulated step, from the trial alongside simulated training."""
    error: float = 0.0
    """Standard error of the factor, as a logarithm."""

    @property
    def mean_us(self) -> float:
        return sum(self.batch_us) / len(self.batch_us)

    @property
    def threads(self) -> float:
        """Threads that compute at once while a batch is produced, at least 1."""
        return max(self.cpu_us / self.mean_us, 1.0)


@dataclass(frozen=True)
class FeedSetup:
    """Setup of a training, `RecordedRun.setup` the present one; a field counts as changed if it differs from it."""

    workers: int
    """Worker processes; 0 if the trainer produces its batches itself."""
    prefetch: int
    """Batches in flight per worker: DataLoader's `prefetch_factor`."""
    persistent: bool
    """True if workers persist between passes."""
    pinned: bool
    """True if a thread of the trainer unpickles and pins arriving batches."""
    in_order: bool
    cores: float | None
    """Cores available to this rank and its workers; None if unknown, which counts as enough."""
    others: float
    """Cores of these that other programs used. They continue, and the scheduler is fair."""
    worker_threads: float
    """Threads of a worker that compute at once during a batch, by its CPU time; at least 1."""
    pass_batches: int | None
    """Batches per pass over the loader; None if no pass ended, and then none begins again."""
    stages: Mapping[str, StageChange] = field(default_factory=dict)
    """Changes by `category:label`, which takes precedence, or by `category`."""
    sent_bytes: float = 1.0
    """Factor on the bytes of a batch sent between processes, and so on pickling, unpickling and pinning."""
    off_step_us: float = 0.0
    """Time per batch in the training thread saved by copies and casts on a side stream."""
    step: float = 1.0
    """Factor on the training thread's and the device's own time in a step."""
    storage: float | None = None
    """Maximum batches per second from storage for all workers together; None for no limit."""
    feed: NativeFeed | None = None
    """Loader that produces the batches in place of workers."""


@dataclass(frozen=True)
class StageColumns:
    compute: Column
    wait: Column


Stages = Mapping[str, StageColumns]


def changed_stages(stages: Stages, changes: Mapping[str, StageChange]) -> Stages:
    """Apply the changes of a setup, of a stage or else of its category."""
    found = {}
    for name, stage in stages.items():
        change = changes.get(name) or changes.get(name.partition(":")[0]) or StageChange()
        found[name] = replace(stage, compute=stage.compute * change.cpu, wait=stage.wait * change.wait)
    return found


@dataclass(frozen=True)
class BatchColumns:
    """Batches that measured steps received, in order, without the first batches of new workers."""

    stages: Stages
    """Columns of each stage. `compute` is wall time, possibly shortened by several threads."""
    serialise: Column
    receive: Column
    held: Column
    """Extra receiving time while the batch's worker is busy with its next batch."""
    pin: Column

    def __len__(self) -> int:
        return len(self.serialise)

    @property
    def compute(self) -> Column:
        """Wall time of computing, in one thread or several at once."""
        return sum((stage.compute for stage in self.stages.values()), np.zeros(len(self)))

    @property
    def wait(self) -> Column:
        return sum((stage.wait for stage in self.stages.values()), np.zeros(len(self)))

    def changed(self, changes: Mapping[str, StageChange]) -> BatchColumns:
        """Apply the changes of a setup. Waits for a computing worker scale with its computing time."""
        after = replace(self, stages=changed_stages(self.stages, changes))
        before_us, after_us = self.compute.mean(), after.compute.mean()
        return replace(after, held=self.held * (after_us / before_us if before_us > 0 else 1.0))


@dataclass(frozen=True)
class StepColumns:
    """Measured steps in order, without waits for batches."""

    gets: NDArray[np.int64]
    compute: Column
    wait: Column
    device: Column

    def __len__(self) -> int:
        return len(self.gets)


@dataclass(frozen=True)
class BatchWork:
    """Work on one batch: produced, sent, received."""

    wait: float
    """Time in which its producer waits for storage and needs no core."""
    compute: float
    """Wall time of the producing threads, including writes of its tensors into shared memory."""
    serialise: float
    receive: float
    """Unpickling, and pinning if done by the same thread."""
    held: float
    """Extra time while its worker produces another batch, since the worker must answer for each tensor."""
    pin: float


@dataclass(frozen=True)
class StepWork:
    """Work of one optimizer step without waits for batches, spread evenly over its batches."""

    gets: int
    compute: float
    wait: float
    """Time waiting for the device, or anything else that needs no core."""
    device: float
    """Device time if the training thread can run ahead; else 0."""


@dataclass(frozen=True)
class PassCosts:
    """Costs of the beginning and the end of a pass."""

    fork: float
    """Time in the training thread per worker started."""
    begin: float
    """Time from a worker's start until it takes up its first batch."""
    resume: float
    """Time in the training thread to resume persistent workers."""
    shut_down: float
    """Time in the training thread per worker that ends."""
    first_wait: float
    first_compute: float
    """Extra time of the first batch in a worker's life."""
    iterates: bool
    """True if this also applies to the first batch of each pass."""


@dataclass(frozen=True)
class SimulatedWork:
    """Work of a run, repeated cyclically: batches in index order, and steps."""

    batches: Sequence[BatchWork]
    steps: Sequence[StepWork]
    passes: PassCosts
    draw: float
    """Time in the training thread to draw a batch's indices and send them."""
    team: int
    """Threads that compute a step together, waiting for each other after every small part of it."""

    def batch(self, number: int) -> BatchWork:
        return self.batches[number % len(self.batches)]


PASSES = PassCosts(FORK_US, BEGIN_US, 1_000.0, SHUT_DOWN_US, 0.0, 0.0, False)


def shared_us(batch_bytes: float) -> float:
    """Return the extra production time of a batch over the training thread, which reuses the same memory."""
    return batch_bytes / SHARED_BYTES_PER_US


def receive_us(batch_bytes: float) -> float:
    return RECEIVE_US + batch_bytes / MAPPED_BYTES_PER_US


@dataclass(frozen=True)
class SimulationFit:
    """Corrections of the simulated bottleneck only, since a run shows no errors in what is not its bottleneck."""

    making: float
    """Factor on the work of batches."""
    computing: float
    """Factor on the work of steps."""
    start_up: float
    """Factor on the start-up and shut-down time of workers."""
    rest: float
    """Factor on the simulated step that remains."""
    gap: float
    """Logarithm of observed over simulated step, before all corrections."""


UNFITTED = SimulationFit(1.0, 1.0, 1.0, 1.0, 0.0)


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """Recorded work of the rank with the longest data stall, and of the loader it waits for. Times are microseconds."""

    setup: FeedSetup
    observed_us: float
    """Mean measured step."""
    batches_a_step: float
    batches: BatchColumns
    first_batch: Stages
    """Extra work of a worker's first batch, in one row."""
    steps: StepColumns
    passes: PassCosts
    draw: float
    """Time in the training thread to draw a batch's indices and send them."""
    team: int
    """Threads of the trainer that compute a step together."""
    first: int
    """Number in its pass of the first batch received by a measured step."""
    replay_us: float | None
    """Mean step on cached batches; None without a replay."""
    batch_bytes: float
    """Bytes of a batch's tensors as received by the trainer; 0 if unknown."""
    fit: SimulationFit
    assumed: frozenset[str]
    """Assumed figures: `sending` and `start-up` of workers without workers; `cores` of the training thread."""

    @property
    def making_cpu_us(self) -> float:
        """CPU time of a step's batches, over all threads that produce them."""
        batches = self.batches
        each = batches.compute * self.setup.worker_threads + batches.serialise + batches.receive + batches.pin
        return float(each.mean()) * self.batches_a_step

    def sharing_us(self) -> float:
        """Return the assumed extra CPU time if workers wrote a step's batches into shared memory; 0 if they do."""
        if self.setup.workers:
            return 0.0
        return (shared_us(self.batch_bytes) + receive_us(self.batch_bytes)) * self.batches_a_step

    def most_workers(self) -> int | None:
        """Return the workers that keep all cores busy: more than the cores as far as they wait; None if unknown."""
        cores, batches = self.setup.cores, self.batches
        if cores is None:
            return None
        computing = float(batches.compute.mean()) * self.setup.worker_threads
        wall = float(batches.compute.mean() + batches.wait.mean())
        return ceil(cores * wall / computing - EVEN) if computing > 0 else None

    def unhindered_us(self) -> float:
        """Return the mean step without data stalls: the replay window's, or that of the steps without their waits."""
        if self.replay_us is not None:
            return self.replay_us
        own = self.steps.compute + self.steps.wait
        return float(np.maximum(own, self.steps.device).mean())
