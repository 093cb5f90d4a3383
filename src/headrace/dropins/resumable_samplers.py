"""`ResumableSampler`, `ResumableBatchSampler` and `BucketBatchSampler` for torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import torch
from numpy.typing import NDArray

from headrace.dropins.sampler_position import PlannedSampler
from headrace.errors import UsageError
from headrace.plan import (
    ListedMembers,
    Order,
    Remainder,
    SamplePlan,
    ShapedPlan,
    ShuffleOrder,
    State,
    UniformPlan,
    bucket_plan,
    resume,
    resume_samples,
    windowed_of,
)
from headrace.system import ProcessRank, rank_of_process

SAMPLES_AT_ONCE = 1024
"""Positions that are permuted together: one at a time costs 10 µs a sample, 1,024 at a time 0.1."""


class PlannedBatchSampler(PlannedSampler[list[int]]):
    """Base of the samplers of whole batches: it yields this rank's part of each global batch, never an empty one.

    torch cannot collate an empty list. Where a short batch has fewer samples than there are ranks, the ranks left
    without one take one of the batch's samples once more; `repeated` counts these.
    """

    def __init__(self, plan: UniformPlan | ShapedPlan, *, dataset: str, place: ProcessRank) -> None:
        super().__init__(plan, dataset=dataset, place=place)
        self._batches = plan

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
        """Return the sample at which this rank's empty part would begin."""
        samples = self._of_all_ranks.batch(epoch, step).samples
        return [int(samples[self.rank * len(samples) // self.world_size])]

    @cached_property
    def _of_all_ranks(self) -> UniformPlan | ShapedPlan:
        plan = self._batches
        if isinstance(plan, UniformPlan):
            return replace(plan, batch_size=plan.global_batch, world_size=1, rank=0)
        return replace(plan, world_size=1, rank=0)

    def _resume(self, state: State) -> tuple[int, int]:
        # StatefulDataLoader saves an epoch's end as such: it resumes the pass that has nothing left.
        found = resume(state, self._batches, dataset=self._dataset, core="", past_end=True)
        return found.epoch, found.step * self._batches.global_batch


class ResumableBatchSampler(PlannedBatchSampler):
    """Batch sampler for `DataLoader(batch_sampler=…)` that resumes at any step, at any world size.

    `data`       the dataset, or its length
    `batch_size` samples per rank; the global batch is `batch_size * world_size`
    `shuffle`, `seed`  each epoch's order follows from these two and the epoch
    `order`      "global": over the whole dataset; "windowed", or a `Windowed(block_samples=…)`: in windows of blocks of
                 neighbours, for a dataset that reads these together, such as rows of remote files
    `remainder`  the last samples: "short" batch, split evenly over the ranks; "drop"; or "wrap" (fill up from the
                 epoch's start)
    `rank`, `world_size`  default: those of torch.distributed once it is initialised, else those in the launcher's
                 variables (torchrun, Lightning, MPI, SLURM), else 0 and 1

    Each step yields this rank's part of the global batch, as a list of dataset positions. Global batches do not depend
    on the world size, and a state resumes on any that divides the global batch. Raises UsageError for arguments that
    do not fit.
    """

    def __init__(
        self,
        data: Sized | int,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        order: ShuffleOrder = "global",
        remainder: Remainder = "short",
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        windowed = windowed_of(order)
        if windowed is not None:
            windowed.check(shuffle=shuffle, grouped_by=None, replaces=None)
        length = data if isinstance(data, int) else len(data)
        place = rank_of_process(rank, world_size)
        plan = UniformPlan(
            length=length,
            batch_size=batch_size,
            world_size=place.world_size,
            rank=place.rank,
            shuffle=shuffle,
            seed=seed,
            remainder=remainder,
            window=None if windowed is None else windowed.resolve_samples(),
        )
        # Of a dataset that is the user's own, only its length is known.
        super().__init__(plan, dataset=f"{length} samples", place=place)


class BucketBatchSampler(PlannedBatchSampler):
    """Batch sampler for `DataLoader(batch_sampler=…)`: all samples of a global batch share a bucket.

    `buckets`    one value per sample of the dataset, such as a (height, width) tuple or a class of lengths: samples
                 with equal values share a bucket. A list of hashable values, or an array or tensor of shape [length]
                 or [length, n]
    `batch_size` samples per rank; the global batch is `batch_size * world_size`
    `shuffle`, `seed`  which samples share a batch, and the order of the batches over all buckets, follow from these
                 two and the epoch; without `shuffle`, batches come in the order of their first samples
    `remainder`  the last samples of each bucket: "short" batch, split evenly over the ranks; "drop", under which a
                 bucket smaller than the global batch never comes; or "wrap" (fill up from the bucket's start)
    `rank`, `world_size`  default: those of torch.distributed once it is initialised, else those in the launcher's
                 variables (torchrun, Lightning, MPI, SLURM), else 0 and 1

    Every rank has the same bucket at every step, without asking the others. A state resumes on any world size that
    divides the global batch. Raises UsageError for arguments that do not fit.
    """

    def __init__(
        self,
        buckets: Sequence[Any] | NDArray[Any] | torch.Tensor,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        remainder: Remainder = "short",
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        place = rank_of_process(rank, world_size)
        members = ListedMembers.of(_values(buckets))
        order = Order(world_size=place.world_size, rank=place.rank, shuffle=shuffle, seed=seed, remainder=remainder)
        plan = bucket_plan(members, order, batch_size=batch_size)
        super().__init__(plan, dataset=f"buckets {members.digest}", place=place)
        self.buckets = len(members.counts)
        """Number of buckets."""


class ResumableSampler(PlannedSampler[int]):
    """Sampler for `DataLoader(batch_size=…, sampler=…)`: this rank's samples, every world_size-th of the order.

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
        super().__init__(plan, dataset=f"{length} samples", place=place)
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


def _values(buckets: Sequence[Any] | NDArray[Any] | torch.Tensor) -> Sequence[Any] | NDArray[Any]:
    if isinstance(buckets, torch.Tensor):
        return buckets.numpy(force=True)
    # Tensors are hashable, by identity: every sample would be a bucket of its own. For objects with `__array__`, such
    # as a pandas Series, [0] may ask for a label and not a place.
    if not hasattr(buckets, "__array__") and len(buckets) > 0 and isinstance(buckets[0], torch.Tensor):
        raise UsageError("buckets: expected hashable values, got a list of tensors; pass torch.stack(buckets)")
    return buckets
