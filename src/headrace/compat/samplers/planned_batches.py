"""What the samplers of whole batches share: each rank's part of each global batch, never an empty one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.dropins.sampler_position import PlannedSampler
from headrace.plan import BucketPlan, Plan, State, resume
from headrace.system.rank import ProcessRank


class PlannedBatchSampler(PlannedSampler[list[int]]):
    """Yields lists of dataset positions: this rank's part of each global batch.

    torch cannot collate an empty list, so where a short batch has fewer samples than there are ranks, the ranks that
    it would leave without one take one of the batch's samples once more; `repeated` counts these.
    """

    def __init__(self, plan: Plan | BucketPlan, *, dataset: str, place: ProcessRank) -> None:
        super().__init__(plan, dataset=dataset, place=place)
        self._batches = plan
        self._whole = replace(plan, batch_size=plan.global_batch, world_size=1, rank=0)

    @property
    def batch_size(self) -> int:
        """Samples per rank."""
        return self._batches.batch_size

    @property
    def repeated(self) -> int:
        """Samples that an epoch takes once more, over all ranks. Low is good."""
        return self._batches.repeated + self._batches.empty_parts

    def _steps_from(self, samples: int) -> int:
        return self._batches.steps - samples // self._batches.global_batch

    def _samples_after(self, samples: int, steps: int) -> int:
        return samples + steps * self._batches.global_batch

    def _draw(self, epoch: int, samples: int) -> Iterator[list[int]]:
        for step in range(samples // self._batches.global_batch, self._batches.steps):
            yield self._batches.batch(epoch, step).samples.tolist() or self._stand_in(epoch, step)

    def _stand_in(self, epoch: int, step: int) -> list[int]:
        """The sample at which this rank's empty part would begin."""
        samples = self._whole.batch(epoch, step).samples
        return [int(samples[self.rank * len(samples) // self.world_size])]

    def _resume(self, state: State) -> tuple[int, int]:
        # StatefulDataLoader saves an epoch's end as such: what it resumes is the pass that has nothing left.
        found = resume(state, self._batches, dataset=self._dataset, core="", past_end=True)
        return found.epoch, found.step * self._batches.global_batch
