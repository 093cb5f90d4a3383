"""`fit_budget`: the largest budget at which a training step fits in the device's memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
import torch.distributed as group
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headrace.device.memory import DeviceMemory, memory_of
from headrace.device.memory_search import BatchSearch, BudgetFit, FittedBudget, RunStep, Shape
from headrace.errors import BudgetError, UsageError
from headrace.foreign_arguments import known_arguments


class Stateful(Protocol):
    """Interface of torch's models, optimizers, schedules and scalers."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object: ...


@contextmanager
def kept_state(objects: Sequence[Stateful], device: torch.device) -> Iterator[None]:
    """Restore the objects' states, and torch's random state, afterwards, and clear gradients.

    The copies are in the host's memory.
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
        copied = copy.copy(value)  # a module's dict has more than its items: the versions of its layers
        copied.update((key, _copied(item)) for key, item in value.items())
        return copied
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return copy.deepcopy(value)


@contextmanager
def _apart(objects: Sequence[Stateful]) -> Iterator[None]:
    """Stop models from exchanging with other ranks, which may be at another size, or out of memory, in that step."""
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


def outcomes_of_all_ranks(cost: int | None, why: str) -> list[tuple[int | None, str]]:
    """Gather the ranks' results in rank order: a cost, or None and the reason. Alone without a group."""
    if not (group.is_available() and group.is_initialized()):
        return [(cost, why)]
    found: list[Any] = [None] * group.get_world_size()
    group.all_gather_object(found, (cost, why))
    return found


@known_arguments("fit_budget")
def fit_budget(
    step: RunStep,
    *,
    shapes: Sequence[tuple[int, int]] | None = None,
    lengths: Sequence[int] | None = None,
    restore: Sequence[Stateful] = (),
    device: str | torch.device | None = None,
    margin: float = 0.1,
    most: int | None = None,
    rank_multiple: int | None = None,
    memory: DeviceMemory | None = None,
) -> FittedBudget:
    """Find the largest budget at which a training step stays within the device's memory, less a margin.

    Call it before training.

    `step` runs one whole training step on made-up data: forward, backward, optimizer. With `shapes` it is called as
    `step(samples, height, width)`, for a budget of pixels; with `lengths` as `step(samples, length)`, for tokens. Give
    the extreme shapes of the data: the largest, the longest. The search runs two uncounted steps, then steps of growing
    sizes. A line fitted to the peaks of memory leads to the largest size, which has then run in every shape.

    `restore` the models and optimizers of the step, whose states are restored afterwards. While it runs they exchange
        nothing with other ranks; nor may the step itself.
    `device` the measured device; default: the current GPU if torch sees one, else the CPU
    `margin` the share of the memory that stays free, in 0 … 1
    `most` the largest budget to try, in pixels or tokens
    `rank_multiple` is Budget's
    `memory` replaces the meter of the device

    In a process group every rank must call it, and all get the minimum of the ranks' results.

    Raises BudgetError if a single sample does not fit, here or on another rank; errors of the step other than lack of
    memory; UsageError for invalid arguments.
    """
    sizes = _sizes(shapes, lengths)
    if not 0 <= margin < 1:
        raise UsageError(f"margin: expected a share of 0 … 1, got {margin!r}")
    if most is not None and most < 1:
        raise UsageError(f"most: expected pixels or tokens of at least 1, got {most!r}")
    place = _device(device)
    search = BatchSearch(step, memory_of(place) if memory is None else memory, margin=margin, most=most)
    cost, fit = _agreed(search, sizes, restore, place)
    if shapes is None:
        return FittedBudget(tokens=cost, rank_multiple=rank_multiple, fit=fit)
    return FittedBudget(pixels=cost, rank_multiple=rank_multiple, fit=fit)


def _agreed(
    search: BatchSearch, sizes: Sequence[Shape], restore: Sequence[Stateful], device: torch.device
) -> tuple[int, BudgetFit]:
    """Return the minimum of the ranks' results. A rank that fails first informs the others, which wait for it."""
    try:
        with kept_state(restore, device):
            cost, fit = search.run(sizes)
    except Exception as error:
        outcomes_of_all_ranks(None, f"{type(error).__name__}: {error}")
        raise
    costs = []
    for rank, (found, why) in enumerate(outcomes_of_all_ranks(cost, "")):
        if found is None:
            raise BudgetError(f"expected a budget of every rank, got none of rank {rank}: {why}")
        costs.append(found)
    return min(costs), replace(fit, ranks=tuple(costs))


def _sizes(shapes: Sequence[tuple[int, int]] | None, lengths: Sequence[int] | None) -> list[Shape]:
    if (shapes is None) == (lengths is None):
        raise UsageError("expected either shapes=[(height, width), …] or lengths=[…], got both or none")
    sizes: list[Shape] = [(length,) for length in lengths] if lengths is not None else [*map(tuple, shapes or ())]
    wanted = 2 if lengths is None else 1
    if not sizes or any(
        len(size) != wanted or any(type(side) is not int or side < 1 for side in size) for size in sizes
    ):
        what = "shapes: expected (height, width) pairs" if lengths is None else "lengths: expected ints"
        raise UsageError(f"{what} of at least 1, got {shapes if lengths is None else lengths!r}")
    return sorted(set(sizes))


def _device(device: str | torch.device | None) -> torch.device:
    found = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device is None else device)
    if found.type == "cuda" and found.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return found
