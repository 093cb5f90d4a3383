"""What one source of a mixture makes in one of the mixture's epochs, as the plan that its feed runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.plan import order_old
from headrace.plan.epoch_plan import EpochPlan
from headrace.plan.mixture import Mixture
from headrace.plan.order import BatchPlan, Remainder
from headrace.plan.replacement import FIRST_REPLACEMENT_PASS


@dataclass(frozen=True)
class SourceBatches:
    """A source's own batches, epoch after epoch of its own, numbered through from its first: those below `steps`."""

    plan: EpochPlan
    steps: int

    @property
    def length(self) -> int:
        return self.plan.length

    @property
    def batch_size(self) -> int:
        return self.plan.batch_size

    @property
    def world_size(self) -> int:
        return self.plan.world_size

    @property
    def rank(self) -> int:
        return self.plan.rank

    @property
    def shuffle(self) -> bool:
        return self.plan.shuffle

    @property
    def seed(self) -> int:
        return self.plan.seed

    @property
    def remainder(self) -> Remainder:
        return self.plan.remainder

    @property
    def global_batch(self) -> int:
        return self.plan.global_batch

    @property
    def grouping(self) -> str:
        return self.plan.grouping

    @property
    def left_out(self) -> int:
        """Samples that each of the source's own epochs leaves out. Low is good."""
        return self.plan.left_out

    @property
    def repeated(self) -> int:
        """Samples that each of the source's own epochs takes once more. Low is good."""
        return self.plan.repeated

    @property
    def empty_parts(self) -> int:
        return self.plan.empty_parts

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """This rank's part of the source's batch number `step`, whose `epoch` and `step` are the source's own."""
        return self.plan.batch(*divmod(step, self.plan.steps))

    def key(self, epoch: int) -> int:
        return self.plan.key(epoch)

    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        return self.plan.replacement(epoch, position, attempt)


@dataclass(frozen=True)
class SourceSamples(SourceBatches):
    """A source's samples in each of the mixture's batches: those of position q are number q mod length of the source's
    own epoch q // length. A batch that holds none of them has an empty part.

    Positions count through all epochs. Views are drawn by the mixture's epoch, and by the source's own as the pass, so
    a sample that comes again gets another one, also within a batch.
    """

    mixture: Mixture
    source: int

    @property
    def left_out(self) -> int:
        return 0

    @property
    def repeated(self) -> int:
        return 0

    @property
    def empty_parts(self) -> int:
        return 0

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """This rank's samples of the source in the mixture's batch at `step` of `epoch`."""
        first = (epoch * self.steps + step) * self.global_batch + self.rank * self.batch_size
        edges = self.mixture.before(np.array([first, first + self.batch_size], np.int64))
        positions = np.arange(*edges[:, self.source], dtype=np.int64)
        epochs, within = np.divmod(positions, self.length)
        samples = np.empty_like(positions)
        for each in np.unique(epochs).tolist():
            rows = epochs == each
            samples[rows] = order_old.samples_at(
                within[rows], length=self.length, shuffle=self.shuffle, seed=self.seed, epoch=each
            )
        passes = (epochs % FIRST_REPLACEMENT_PASS).astype(np.uint32)
        return BatchPlan(epoch, step, samples, passes, positions)
