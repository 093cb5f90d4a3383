"""Two ranks under DistributedDataParallel on gloo, for scripts with planted faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from planted import train
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


class Weight(torch.nn.Module):
    """One number, whatever the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, batch: Any) -> torch.Tensor:
        return self.weight * 2


def train_together(batches: Callable[[int], DataLoader[Any]], *, seconds: float | Callable[[Any], float]) -> None:
    """`batches` gives a rank's own; both ranks do the same number of steps."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    train(batches(rank), seconds=seconds, model=DistributedDataParallel(Weight()))
    torch.distributed.destroy_process_group()
