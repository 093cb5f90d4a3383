"""Which modules are hooked, by what. A hook's file is named after what it hooks."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Callable

from . import backward, collectives, compiler, cuda, dataloader, engines, handoffs, lifecycle, optimizer, ranges, scaler

if TYPE_CHECKING:
    from ..probe import Probe

HOOKS: list[tuple[str, Callable[[Probe, ModuleType], None]]] = [
    ("torch", lifecycle.watch_torch),
    ("torch", optimizer.install),
    ("torch", cuda.install),
    ("torch", ranges.install),
    ("torch", engines.watch_end),
    ("torch", compiler.install),
    ("torch", backward.install),
    ("torch", collectives.install),
    ("torch.utils.data.dataloader", dataloader.install),
    ("torch.amp.grad_scaler", scaler.install),
    ("torch.cuda.amp.grad_scaler", scaler.install),
    ("torch.nn.parallel.data_parallel", engines.watch_data_parallel),
    ("deepspeed.runtime.engine", engines.watch_deepspeed),
    ("queue", handoffs.watch_queues),
    ("headrace.device.prefetcher", handoffs.watch_prefetcher),
    ("multiprocessing.util", lifecycle.watch_children),
]
"""A module's name, and what to call with it once it has been imported, in this order."""
