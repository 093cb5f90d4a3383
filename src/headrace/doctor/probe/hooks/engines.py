"""Ways to train in which steps or devices are not what torch's own hooks show."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ..probe import Probe


def watch_data_parallel(probe: Probe, module: ModuleType) -> None:
    """torch.nn.parallel.data_parallel: one process, one thread a device, and the model copied to each at every step."""

    def hooked(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(parallel: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(parallel, *args, **kwargs)
            devices = len(getattr(parallel, "device_ids", ()))
            if devices > 1:
                probe.training.say("data-parallel", f"nn.DataParallel spreads each batch over {devices} devices.")

        return __init__

    probe.patches.replace(module.DataParallel, "__init__", hooked)


def watch_deepspeed(probe: Probe, engine: ModuleType) -> None:
    """deepspeed.runtime.engine: its `step()` may step the optimizer once for each group of parameters, and at a
    micro-batch that is not the last of its step does not step at all."""
    training = probe.training

    def hooked(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                is_counted = self.is_gradient_accumulation_boundary() and training.optimizer_begins(self)
            except Exception as error:
                training.fail("DeepSpeedEngine.step", error)
                is_counted = False
            try:
                return original(self, *args, **kwargs)
            finally:
                if is_counted:
                    training.optimizer_ends(self)

        return step

    probe.patches.replace(engine.DeepSpeedEngine, "step", hooked)


def watch_end(probe: Probe, torch: ModuleType) -> None:
    """At the end: says why no steps were seen, and that functions were compiled."""
    training = probe.training
    before = _compiled_graphs()

    def say() -> None:
        if training.passes and not training.steps_seen and training.backwards_seen:
            training.say("engine", _UNSEEN_STEPS)
        elif training.passes and not training.steps_seen:
            training.say("no-optimizer", "No optimizer took a step: each batch counts as a step.")
        graphs = _compiled_graphs() - before
        if graphs:
            training.say("compile", f"torch.compile made {graphs} graphs while the run was observed.")

    training.at_finish.append(say)


_UNSEEN_STEPS = (
    "Backward passes ran, but no optimizer's step() was seen: it is part of a compiled function, or of an engine with "
    "an optimizer of its own. Each batch counts as a step."
)


def _compiled_graphs() -> int:
    utils = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else int(utils.counters["stats"]["unique_graphs"])
