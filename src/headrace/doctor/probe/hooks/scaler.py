"""GradScaler: the steps that it skips."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..training.training import now

if TYPE_CHECKING:
    from ..probe import Probe


def install(probe: Probe, grad_scaler: ModuleType) -> None:
    """Hooks torch.amp.grad_scaler, or torch.cuda.amp.grad_scaler before torch 2.3. A skipped step is one in which the
    scaler calls no optimizer."""
    training = probe.training
    its = grad_scaler.GradScaler
    if "_maybe_opt_step" not in vars(its) and hasattr(its, "_maybe_opt_step"):  # the other module's, which is hooked
        return

    def hooked(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def _maybe_opt_step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            seen = training.steps_seen
            start = now()
            result = original(scaler, optimizer, *args, **kwargs)
            if training.steps_seen == seen and training.is_here():
                try:
                    training.skipped(optimizer, start)
                except Exception as error:
                    training.fail("GradScaler.step", error)
            return result

        return _maybe_opt_step

    probe.hook(grad_scaler, "GradScaler._maybe_opt_step", hooked, "steps that it skips were")
