"""torch's `default_collate` into memory that is used again: a fresh batch costs ten times its copy, in page faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate_fn_map

from headrace.feed.memory import ProcessBlocks

WORTHWHILE_BYTES = 1 << 20
"""Below this the C library has memory at hand that it need not ask the kernel for."""


class BatchMemory:
    """Collates as `default_collate` does, with large tensors in blocks that return when the last view of them is gone.

    benchmarks/thread_loader.py shows what it gains. A batch belongs to whoever holds it, for as long as it is held.
    """

    def __init__(self, most_idle: int) -> None:
        """At most `most_idle` blocks are kept for later."""
        self._most_idle = most_idle
        self._blocks = ProcessBlocks(most_idle)

    def collate(self, samples: Sequence[Any]) -> Any:
        """What `default_collate(samples)` gives, in any thread."""
        functions: dict[Any, Callable[..., Any]] = dict(default_collate_fn_map)
        if functions[torch.Tensor] is collate_tensor_fn:  # else the user has one of their own
            functions[torch.Tensor] = self._stack
        return collate(samples, collate_fn_map=functions)

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchMemory, (self._most_idle,)

    def _stack(self, tensors: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
        first = tensors[0]
        if not _is_worthwhile(first, len(tensors)) or not all(_plain(each, first) for each in tensors):
            batch: torch.Tensor = collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)
            return batch
        block = torch.from_numpy(self._blocks.acquire(first.nbytes * len(tensors)))
        return torch.stack(tuple(tensors), out=block.view(first.dtype).view(len(tensors), *first.shape))


def _is_worthwhile(first: torch.Tensor, count: int) -> bool:
    """What is no strided tensor may have no size to ask for; torch has words for it."""
    strided = first.layout is torch.strided and not first.is_nested
    return strided and first.nbytes * count >= WORTHWHILE_BYTES


def _plain(tensor: torch.Tensor, first: torch.Tensor) -> bool:
    """Whether stacking it with `first` is a copy of bytes, one after the other."""
    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.dtype is first.dtype
        and tensor.shape == first.shape
        and tensor.is_contiguous()
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )
