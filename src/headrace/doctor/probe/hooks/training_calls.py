"""Collective calls of torch.distributed that the training thread waits for."""

from __future__ import annotations

import functools
import sys
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..training.steps import COLLECTIVE
from ..training.training import now
from ..windows.agreement import ranks
from .compiler import compiling

if TYPE_CHECKING:
    from ..probe import Probe
    from ..training.training import Training

NAMES = (
    "all_reduce",
    "all_reduce_coalesced",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "monitored_barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)


def install(probe: Probe, torch: ModuleType) -> None:
    """Hooks torch.distributed, and the module that its functions come from, whose own calls of them are then inner ones
    of a call that is counted. FSDP and DDP call others, which do not wait."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    probe.training.world_size = lambda: distributed.get_world_size() if distributed.is_initialized() else 1
    probe.training.ranks = lambda: ranks(torch)
    origin = sys.modules["torch.distributed.distributed_c10d"]
    for name in NAMES:
        if not hasattr(origin, name):
            continue
        hooked = _hooked(probe.training, compiling(torch), name)
        probe.patches.replace(origin, name, hooked)
        probe.patches.replace(distributed, name, partial(_same, getattr(origin, name)))


def _same(hooked: Callable[..., Any], _: Any) -> Callable[..., Any]:
    return hooked


def _hooked(
    training: Training, is_compiling: Callable[[], bool], name: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            is_inner = not training.is_here() or training.steps.is_within(COLLECTIVE)
            if is_inner or kwargs.get("async_op") or not training.enter(COLLECTIVE):
                return original(*args, **kwargs)
            start = now()
            try:
                return original(*args, **kwargs)
            finally:
                training.leave()
                training.collective(name, start, _bytes(args))

        return collective

    return make


def _bytes(args: tuple[Any, ...]) -> int | None:
    """Of the first tensor, or list of tensors, among a call's arguments."""
    for value in args[:1]:
        tensors = value if isinstance(value, (list, tuple)) else [value]
        sizes = [tensor.nbytes for tensor in tensors if hasattr(tensor, "nbytes")]
        return sum(sizes) if sizes else None
    return None
