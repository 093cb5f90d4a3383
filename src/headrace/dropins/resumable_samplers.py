"""`ResumableSampler` and `ResumableBatchSampler`: a dataset's samples in an order that can be resumed anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Literal

from headrace.compat.samplers.planned_batches import PlannedBatchSampler
from headrace.dropins.sampler_position import PlannedSampler
from headrace.plan import Plan, Remainder, SamplePlan, State, resume_samples
from headrace.system.rank import rank_of_process

SAMPLES_AT_ONCE = 1024
"""Positions that are permuted together: one at a time costs 10 µs a sample, 1,024 at a time 0.1."""


class ResumableBatchSampler(PlannedBatchSampler):
    """For `DataLoader(batch_sampler=…)`: this rank's part of each global batch, as a list of dataset positions.

    `data`       the dataset, or its length
    `batch_size` samples per rank; the global batch is `batch_size * world_size`
    `shuffle`, `seed`  each epoch's order follows from these two and the epoch
    `remainder`  the last samples: "short" batch, split evenly over the ranks; "drop"; or "wrap" (fill up from the
                 epoch's start)
    `rank`, `world_size`  default: those of torch.distributed once it is initialised, else as the launcher's variables
                 have them (torchrun, Lightning, MPI, SLURM), else 0 and 1

    Global batches do not depend on the world size, and a state resumes on any that divides the global batch. Raises
    UsageError for arguments that do not fit.
    """

    def __init__(
        self,
        data: Sized | int,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        remainder: Remainder = "short",
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        length = data if isinstance(data, int) else len(data)
        place = rank_of_process(rank, world_size)
        plan = Plan(
            length=length,
            batch_size=batch_size,
            world_size=place.world_size,
            rank=place.rank,
            shuffle=shuffle,
            seed=seed,
            remainder=remainder,
        )
        super().__init__(plan, dataset=_samples(length), place=place)


class ResumableSampler(PlannedSampler[int]):
    """For `DataLoader(batch_size=…, sampler=…)`: this rank's samples one by one, every world_size-th of the order.

    The samples that all ranks have had are a prefix of the epoch, so a state resumes at any world size and any batch
    size, and each step holds the same samples over all ranks at any world size of one global batch.

    `remainder` is "wrap" or "drop": the sampler cannot know where batches end, and only equal numbers of samples keep
    the ranks in step. Other arguments and errors are those of ResumableBatchSampler.
    """

    def __init__(
        self,
        data: Sized | int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        remainder: Literal["drop", "wrap"] = "wrap",
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        length = data if isinstance(data, int) else len(data)
        place = rank_of_process(rank, world_size)
        plan = SamplePlan(
            length=length, world_size=place.world_size, rank=place.rank, shuffle=shuffle, seed=seed, remainder=remainder
        )
        super().__init__(plan, dataset=_samples(length), place=place)
        self._samples = plan

    def _steps_from(self, samples: int) -> int:
        return self._samples.steps_from(samples)

    def _samples_after(self, samples: int, steps: int) -> int:
        return min(self._samples.length, samples + steps * self.world_size)

    def _draw(self, epoch: int, samples: int) -> Iterator[int]:
        steps = self._steps_from(samples)
        for start in range(0, steps, SAMPLES_AT_ONCE):
            yield from self._samples.samples(epoch, samples, start, min(steps, start + SAMPLES_AT_ONCE)).tolist()

    def _resume(self, state: State) -> tuple[int, int]:
        return resume_samples(state, self._samples, dataset=self._dataset)


def _samples(length: int) -> str:
    """What a state says of the dataset: of one that is the user's own, only its length is known."""
    return f"{length} samples"
