"""`BucketBatchSampler`: batches of samples that belong together, the same ones on every rank at every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from headrace.compat.samplers.planned_batches import PlannedBatchSampler
from headrace.errors import UsageError
from headrace.plan import BucketMembers, BucketPlan, Remainder
from headrace.system.rank import rank_of_process


class BucketBatchSampler(PlannedBatchSampler):
    """For `DataLoader(batch_sampler=…)`: this rank's part of each global batch, all of whose samples share a bucket.

    `buckets`    one value per sample of the dataset, such as a (height, width) tuple or a class of lengths: samples
                 with equal values share a bucket. A list of hashable values, or an array or tensor of shape [length]
                 or [length, n]
    `batch_size` samples per rank; the global batch is `batch_size * world_size`
    `shuffle`, `seed`  which samples share a batch, and the order of the batches over all buckets, follow from these
                 two and the epoch; without `shuffle`, batches come in the order of their first samples
    `remainder`  the last samples of each bucket: "short" batch, split evenly over the ranks; "drop", under which a
                 bucket smaller than the global batch never comes; or "wrap" (fill up from the bucket's start)
    `rank`, `world_size`  default: those of torch.distributed once it is initialised, else as the launcher's variables
                 have them (torchrun, Lightning, MPI, SLURM), else 0 and 1

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
        parts = BucketMembers.of(_values(buckets))
        plan = BucketPlan(
            buckets=parts,
            batch_size=batch_size,
            world_size=place.world_size,
            rank=place.rank,
            shuffle=shuffle,
            seed=seed,
            remainder=remainder,
        )
        super().__init__(plan, dataset=f"buckets {parts.fingerprint}", place=place)
        self.buckets = len(parts)
        """Number of buckets."""


def _values(buckets: Sequence[Any] | NDArray[Any] | torch.Tensor) -> Sequence[Any] | NDArray[Any]:
    if isinstance(buckets, torch.Tensor):
        return buckets.numpy(force=True)
    # Tensors are hashable, by identity: every sample would be a bucket of its own. Of what has `__array__`, such
    # as a pandas Series, [0] may ask for a label and not a place.
    if not hasattr(buckets, "__array__") and len(buckets) > 0 and isinstance(buckets[0], torch.Tensor):
        raise UsageError("buckets: expected hashable values, got a list of tensors; pass torch.stack(buckets)")
    return buckets
