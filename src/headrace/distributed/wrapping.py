"""A model on one of several ranks: gradients averaged over them, and over micro-batches."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel


def wrap(
    model: nn.Module,
    *,
    device: torch.device,
    world_size: int,
    sync_batchnorm: bool,
    find_unused_parameters: bool,
    tell: bool,
) -> nn.Module:
    """See Ranks.wrap. `tell` is True on the rank that warns for all."""
    model = model.to(device)
    if world_size == 1:
        return model
    if sync_batchnorm:
        model = _with_sync_batchnorm(model, device, tell)
    return DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        find_unused_parameters=find_unused_parameters,
    )


def _with_sync_batchnorm(model: nn.Module, device: torch.device, tell: bool) -> nn.Module:
    if device.type == "cuda":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return converted
    # torch converts on the CPU, too, but the first forward pass in training raises ValueError.
    if tell and any(isinstance(module, _BatchNorm) for module in model.modules()):
        warnings.warn(
            "torch has SyncBatchNorm on GPUs only: on the CPU each rank normalises by its own batch; pass "
            "sync_batchnorm=False to say that this is meant",
            stacklevel=4,
        )
    return model


def no_sync(model: nn.Module, *, unless: bool) -> AbstractContextManager[object]:
    """See Ranks.no_sync."""
    if unless or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()
