"""Backward passes, and with several ranks the moment at which a rank's own gradients are done."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..training.steps import BACKWARD
from .compiler import compiling

if TYPE_CHECKING:
    from ..probe import Probe
    from ..training.training import Training


def install(probe: Probe, torch: ModuleType) -> None:
    """Hooks torch.autograd.backward, which Tensor.backward calls."""
    training = probe.training
    autograd = torch.autograd
    is_compiling = compiling(torch)

    def hooked(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(tensors, *args, **kwargs)
            if training.seek is not None and training.is_here():
                training.seek()
            if not training.enter(BACKWARD, "b"):
                return original(tensors, *args, **kwargs)
            stamp = _stamped(training, autograd, tensors) if training.is_stamped else None
            try:
                return original(tensors, *args, **kwargs)
            finally:
                training.leave("c")
                if stamp is not None:
                    stamp.remove()

        return backward

    probe.hook(torch, "autograd.backward", hooked, "backward passes were")


def _stamped(training: Training, autograd: ModuleType, tensors: Any) -> Any | None:
    """A hook on the root of the graph, which queues a callback for when all gradients are done. Callbacks run in the
    order in which they were queued, and DistributedDataParallel queues the one that waits for the other ranks later,
    when its last bucket is full."""
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    if getattr(compiled, "compiled_autograd_enabled", False):
        return None  # it traces what hooks do
    root = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors

    def queue(_: Any) -> None:
        autograd.Variable._execution_engine.queue_callback(training.gradients_ready)

    try:
        return root.register_hook(queue) if root.requires_grad else None
    except Exception as error:
        training.fail("backward", error)
        return None
