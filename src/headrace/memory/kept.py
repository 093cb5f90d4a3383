"""The state of a user's models and optimizers, left as it was found."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch
import torch.distributed as group
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Stateful(Protocol):
    """What models, optimizers, schedules and scalers of torch are."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object: ...


@contextmanager
def kept(objects: Sequence[Stateful], device: torch.device) -> Iterator[None]:
    """Their states, and torch's random state, are afterwards what they were; gradients are cleared.

    The copies lie in the host's memory.
    """
    states = [_copied(one.state_dict()) for one in objects]
    devices = [device.index or 0] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices), _apart(objects):
            yield
    finally:
        for one, state in zip(objects, states, strict=True):
            one.load_state_dict(state)
            if isinstance(one, nn.Module):
                one.zero_grad(set_to_none=True)


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        copied = copy.copy(value)  # a module's holds more than its items: the versions of its layers
        copied.update((key, _copied(item)) for key, item in value.items())
        return copied
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return copy.deepcopy(value)


@contextmanager
def _apart(objects: Sequence[Stateful]) -> Iterator[None]:
    """The models exchange nothing with other ranks, which may be at another size, or out of memory, in that step."""
    modules = [module for one in objects if isinstance(one, nn.Module) for module in one.modules()]
    wrapped = [module for module in modules if isinstance(module, DistributedDataParallel)]
    synced = [module for module in modules if isinstance(module, nn.SyncBatchNorm)]
    with ExitStack() as stack:
        for model in wrapped:
            stack.callback(setattr, model, "require_forward_param_sync", model.require_forward_param_sync)
            stack.enter_context(model.no_sync())
            model.require_forward_param_sync = False
        if synced and group.is_initialized():
            alone, _ = group.new_subgroups(group_size=1)
            stack.callback(group.destroy_process_group, alone)
            for layer in synced:
                stack.callback(setattr, layer, "process_group", layer.process_group)
                layer.process_group = alone
        yield
