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
"""Positions permuted per call: single positions cost 10 µs per sample, 1,024 at a time 0.1 µs."""


class PlannedBatchSampler(PlannedSampler[list[int]]):
    """Base of batch samplers: yields this rank's part of each global batch, which is never empty.

    torch cannot collate an empty list. If a short batch has fewer samples than ranks, the remaining ranks repeat one of
    the batch's samples, counted in `repeated`.
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
        """Repeated samples per epoch, over all ranks. Low is good."""
        return self._batches.repeated + self._batches.empty_parts

    def _steps_from(self, samples: int) -> int:
        return self._batches.steps - samples // self._batches.global_batch

    def _samples_after(self, samples: int, steps: int) -> int:
        return samples + steps * self._batches.global_batch

    def _draw(self, epoch: int, samples: int) -> Iterator[list[int]]:
        for step in range(samples // self._batches.global_batch, self._batches.steps):
            yield self._batches.batch(epoch, step).samples.tolist() or self._stand_in(epoch, step)

    def _stand_in(self, epoch: int, step: int) -> list[int]:
        """Return the sample at the start of this rank's empty part."""
        samples = self._of_all_ranks.batch(epoch, step).samples
        return [int(samples[self.rank * len(samples) // self.world_size])]

    @cached_property
    def _of_all_ranks(self) -> UniformPlan | ShapedPlan:
        plan = self._batches
        if isinstance(plan, UniformPlan):
            return replace(plan, batch_size=plan.global_batch, world_size=1, rank=0)
        return replace(plan, world_size=1, rank=0)

    def _resume(self, state: State) -> tuple[int, int]:
        # StatefulDataLoader saves the end of an epoch, and resumes a pass with no steps left.
        found = resume(state, self._batches, dataset=self._dataset, core="", past_end=True)
        return found.epoch, found.step * self._batches.global_batch


class ResumableBatchSampler(PlannedBatchSampler):
    """Batch sampler for `DataLoader(batch_sampler=…)` that resumes at any step, at any world size.

    `data`       the dataset, or its length
    `batch_size` samples per rank; the global batch is `batch_size * world_size`
    `shuffle`, `seed`  determine the order, together with the epoch
    `order`      "global": over the whole dataset; "windowed", or a `Windowed(block_samples=…)`: in windows of blocks of
                 neighbours, for a dataset that reads neighbours together, such as rows of remote files
    `remainder`  the last samples: "short" batch, split evenly over the ranks; "drop"; or "wrap" (fill up from the
                 epoch's start)
    `rank`, `world_size`  default: from torch.distributed if initialized, else from the launcher's variables (torchrun,
                 Lightning, MPI, SLURM), else 0 and 1

    Each step yields this rank's part of the global batch as a list of dataset positions. Global batches do not depend
    on the world size, and a state resumes at any world size that divides the global batch. Raises UsageError for
    invalid arguments.
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
        # Only the length of a user's dataset is known.
        super().__init__(plan, dataset=f"{length} samples", place=place)


class BucketBatchSampler(PlannedBatchSampler):
    """Batch sampler for `DataLoader(batch_sampler=…)` with all samples of a global batch from one bucket.

    `buckets`    one value per sample of the dataset, such as a (height, width) tuple or a length class: samples with
                 equal values share a bucket. A list of hashable values, or an array or tensor of shape [length] or
                 [length, n]
    `batch_size` samples per rank; the global batch is `batch_size * world_size`
    `shuffle`, `seed`  determine, together with the epoch, the members of batches and the order of batches over all
                 buckets; without `shuffle`, batches are ordered by their first samples
    `remainder`  the last samples of each bucket: "short" batch, split evenly over the ranks; "drop", which skips
                 buckets smaller than the global batch; or "wrap" (fill up from the bucket's start)
    `rank`, `world_size`  default: from torch.distributed if initialized, else from the launcher's variables (torchrun,
                 Lightning, MPI, SLURM), else 0 and 1

    All ranks have the same bucket at every step, without communication. A state resumes at any world size that divides
    the global batch. Raises UsageError for invalid arguments.
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
    """Sampler for `DataLoader(batch_size=…, sampler=…)` that yields every world_size-th sample to this rank.

    The samples consumed by all ranks are a prefix of the epoch, so a state resumes at any world size and batch size. At
    any world size with the same global batch, a step has the same samples over all ranks.

    `remainder` is "wrap" or "drop": the sampler does not know the batch boundaries, and only equal numbers of samples
    keep the ranks in step. Other arguments and errors: as for ResumableBatchSampler.
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
    # Tensors hash by identity, so every sample would be its own bucket. Objects with `__array__` are skipped: [0] of a
    # pandas Series, for example, may be a label lookup.
    if not hasattr(buckets, "__array__") and len(buckets) > 0 and isinstance(buckets[0], torch.Tensor):
        raise UsageError("buckets: expected hashable values, got a list of tensors; pass torch.stack(buckets)")
    return buckets
