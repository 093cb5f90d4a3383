"""What a training script holds of the run's ranks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
import torch.distributed
from torch import nn

from headrace.distributed import wrapping
from headrace.distributed.seeds import seed_generators
from headrace.errors import UsageError


@dataclass
class Span:
    """Whether the block of `start()` is still running."""

    ended: bool = False


@dataclass(frozen=True)
class Ranks:
    """This process among the ranks of the run, inside the block of `hr.distributed.start()`.

    `rank` of `world_size`; `local_rank` is its number on this machine; `device` is its GPU, or the CPU. Its methods
    raise UsageError once the block has ended.
    """

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    _span: Span = field(repr=False, compare=False)

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that prints and saves for all."""
        return self.rank == 0

    def wrap(self, model: nn.Module, *, sync_batchnorm: bool = True, find_unused_parameters: bool = False) -> nn.Module:
        """The model on this rank's device, in DistributedDataParallel if there are other ranks.

        Every rank then starts with the parameters and buffers of rank 0. With `sync_batchnorm` BatchNorm layers become
        SyncBatchNorm on GPUs; on the CPU, where torch has none, they stay as they are, with one warning.
        `find_unused_parameters` is DistributedDataParallel's.
        """
        self._expect_running()
        return wrapping.wrap(
            model,
            device=self.device,
            world_size=self.world_size,
            sync_batchnorm=sync_batchnorm,
            find_unused_parameters=find_unused_parameters,
            tell=self.is_first,
        )

    def no_sync(self, model: nn.Module, *, unless: bool = False) -> AbstractContextManager[object]:
        """Within it gradients are added up on this rank and not exchanged, `unless` this is the last micro-batch.

        Forward and backward pass belong inside. Does nothing for a model that is not in DistributedDataParallel.
        """
        self._expect_running()
        return wrapping.no_sync(model, unless=unless)

    def seed(self, seed: int, /) -> None:
        """Seeds torch, numpy and random: the same in every run, and different on every rank."""
        self._expect_running()
        seed_generators(seed, rank=self.rank)

    def barrier(self) -> None:
        """Waits until every rank is here."""
        self._expect_running()
        if self.world_size > 1:
            torch.distributed.barrier(device_ids=[self.device.index] if self.device.type == "cuda" else None)

    def _expect_running(self) -> None:
        if self._span.ended:
            raise UsageError("expected to be used inside `with hr.distributed.start() as ranks:`, got a use after it")
