"""Schedulers of learning rates that raise when they are stepped beyond their end."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ..probe import Probe


def install(probe: Probe, lr_scheduler: ModuleType) -> None:
    """Hooks torch.optim.lr_scheduler. In a run that is only observed none is stepped more often than it would be."""
    if probe.settings.observe:
        return

    def hooked(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(scheduler: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(scheduler, *args, **kwargs)
            probe.training.schedulers.add(scheduler)

        return __init__

    probe.patches.replace(lr_scheduler.OneCycleLR, "__init__", hooked)
