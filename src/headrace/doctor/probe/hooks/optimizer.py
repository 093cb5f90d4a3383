"""Optimizers: when each takes a step. A step of training ends with the last of them."""

from __future__ import annotations

import sys
from threading import get_ident
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..resting import NOBODY
from ..training.steps import CLOSURE, OPTIMIZER
from ..training.training import Training
from .compiler import compiling

if TYPE_CHECKING:
    from ..probe import Probe


def install(probe: Probe, torch: ModuleType) -> None:
    """Registers torch's hooks for every optimizer."""
    training = probe.training
    probe.last.add(training.finish)
    optimizer = sys.modules[torch.optim.Optimizer.__module__]
    if not hasattr(optimizer, "register_optimizer_step_pre_hook"):
        training.say("engine", "This torch has no hooks for all optimizers (2.0 has); no steps were seen.")
        return
    begins, ends = hooks(training, compiling(torch))
    probe.at_detach(optimizer.register_optimizer_step_pre_hook(begins).remove)
    probe.at_detach(optimizer.register_optimizer_step_post_hook(ends).remove)


def hooks(training: Training, is_compiling: Callable[[], bool]) -> tuple[Callable[..., Any], Callable[..., None]]:
    """What to call before and after a step of any optimizer.

    A compiler that traces an optimizer's step traces these as well. It must find nothing in them: such a step runs
    without hooks.
    """

    def begins(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        if training.resting != NOBODY or is_compiling():
            return None
        try:
            return _with_closure(training, args, kwargs) if training.optimizer_begins(optimizer) else None
        except Exception as error:
            training.fail("optimizer", error)
            return None

    def ends(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_compiling():
            return
        try:
            if training.resting == get_ident():
                training.rests.optimizer_stepped()
            elif training.is_here() and training.steps.is_within(OPTIMIZER):
                training.optimizer_ends(optimizer)
        except Exception as error:
            training.fail("optimizer", error)

    return begins, ends


def _with_closure(training: Training, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
    """The arguments with a closure that is not counted as the optimizer's own time; None where there is none."""
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": _outside(training, kwargs["closure"])}
    if len(args) > 1 and callable(args[1]):
        return (args[0], _outside(training, args[1]), *args[2:]), kwargs
    return None


def _outside(training: Training, closure: Callable[[], Any]) -> Callable[[], Any]:
    def outside() -> Any:
        is_counted = training.enter(CLOSURE)
        try:
            return closure()
        finally:
            if is_counted:
                training.leave()

    return outside
