"""What one run left to simulate: the work of its batches and steps, free of what they waited for."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from headrace.doctor.predict.assumed import receive_us, shared_us
from headrace.doctor.predict.columns import BatchColumns, Stages, StepColumns
from headrace.doctor.predict.fit import Fit
from headrace.doctor.predict.setup import Setup
from headrace.doctor.predict.work import PassCosts

EVEN = 0.25
"""Of a worker, below which what batches wait beside computing is no reason for one more."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """The rank that waits for data the longest, and the loader that it waits for. Times are microseconds."""

    pid: int
    loader: int
    """Its number in `Trainer.loaders`."""
    setup: Setup
    """As the run was."""
    observed_us: float
    """Mean measured step."""
    batches_a_step: float
    batches: BatchColumns
    first_batch: Stages
    """What the first one of a worker takes more, in one row."""
    steps: StepColumns
    passes: PassCosts
    draw: float
    """To draw a batch's indices and hand them out."""
    team: int
    """Threads of the trainer that compute a step together."""
    first: int
    """The number in its pass of the first batch that a measured step received."""
    replay_us: float | None
    """Mean step on batches that were kept; None where nothing was replayed."""
    batch_bytes: float
    """Of the tensors of a batch, as the trainer receives it; 0 where that was not seen."""
    fit: Fit
    assumed: frozenset[str]
    """What was not measured in this run, and had to be assumed: `sending` between processes and `start-up` of workers,
    where there were none; `cores` of the training thread."""

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

    def cores_of_work_at(self, step_us: float) -> float:
        """Cores that its workers, its training thread and what helps them would keep busy at that step time."""
        return (self.making_cpu_us + self.training_cpu_us) / step_us

    def sharing_us(self) -> float:
        """Return the added CPU time of a step's batches, if workers wrote them into shared memory and the trainer
        mapped them; assumed by their size, and 0 where workers do so already."""
        if self.setup.workers:
            return 0.0
        return (shared_us(self.batch_bytes) + receive_us(self.batch_bytes)) * self.batches_a_step

    def lower_bound_us(self) -> float:
        """Return the CPU time of a step's batches and its training on all cores: no number of workers gives a shorter
        step. 0 where the cores are not known."""
        cores = self.setup.cores
        return 0.0 if not cores else (self.making_cpu_us + self.sharing_us() + self.training_cpu_us) / cores

    def most_workers(self) -> int | None:
        """Return how many workers keep all cores busy by making batches alone: more than cores only as far as they
        wait, for storage say, while others compute. None where the cores are not known."""
        cores, batches = self.setup.cores, self.batches
        if cores is None:
            return None
        computing = float(batches.compute.mean()) * self.setup.worker_threads
        wall = float(batches.compute.mean() + batches.wait.mean())
        return ceil(cores * wall / computing - EVEN) if computing > 0 else None

    def capacity(self) -> float | None:
        """Cores that are there for it: its share of what affinity and quota allow; None where that is not known."""
        return self.setup.cores

    def floor_us(self) -> float:
        """Mean step that waits for no data: of the replay window where there was one, else of the observed steps
        without their waits."""
        if self.replay_us is not None:
            return self.replay_us
        own = self.steps.compute + self.steps.wait
        return float(np.maximum(own, self.steps.device).mean())
