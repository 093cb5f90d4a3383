"""`fit_budget`: the largest budget that the device's memory holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from headrace.device.memory_search import RunStep, Search
from headrace.errors import BudgetError, UsageError
from headrace.memory.agreement import Outcome, outcomes_of_all
from headrace.memory.device_memory import DeviceMemory, memory_of
from headrace.memory.kept import Stateful, kept
from headrace.memory.report import Fit, FittedBudget, Shape


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
    """The largest budget at which a training step stays within the device's memory, less a margin. Call it before
    training.

    `step(samples, height, width)` for `shapes`, which gives a budget of pixels, or `step(samples, length)` for
    `lengths`, which gives one of tokens, runs one whole training step on made-up data: forward, backward, optimizer.
    Give the shapes at the ends of what will come: the largest, the longest. It is run for two steps that do not count
    and then at growing sizes; a line fitted to the peaks of memory leads to the largest, which then has run, in every
    shape.

    `restore` the models and optimizers of the step, whose states are put back afterwards. While it runs they exchange
        nothing with other ranks; nor may the step itself.
    `device` whose memory it is about; the current GPU where torch sees one, else the CPU
    `margin` the share of the memory that stays free, of 0 … 1
    `most` the largest budget to look at, in pixels or tokens
    `rank_multiple` is Budget's
    `memory` replaces what measures the device

    In a process group every rank must call it, and all get the least of what they found.

    Raises BudgetError where a single sample does not fit, here or on another rank; what the step raises, if that is not
    that memory ran out; UsageError for arguments.
    """
    sizes = _sizes(shapes, lengths)
    if not 0 <= margin < 1:
        raise UsageError(f"margin: expected a share of 0 … 1, got {margin!r}")
    if most is not None and most < 1:
        raise UsageError(f"most: expected pixels or tokens of at least 1, got {most!r}")
    place = _device(device)
    search = Search(step, memory_of(place) if memory is None else memory, margin=margin, most=most)
    cost, fit = _agreed(search, sizes, restore, place)
    if shapes is None:
        return FittedBudget(tokens=cost, rank_multiple=rank_multiple, fit=fit)
    return FittedBudget(pixels=cost, rank_multiple=rank_multiple, fit=fit)


def _agreed(
    search: Search, sizes: Sequence[Shape], restore: Sequence[Stateful], device: torch.device
) -> tuple[int, Fit]:
    """A rank that fails tells the others first: they wait for it."""
    try:
        with kept(restore, device):
            cost, fit = search.run(sizes)
    except Exception as error:
        outcomes_of_all(Outcome(None, f"{type(error).__name__}: {error}"))
        raise
    outcomes = outcomes_of_all(Outcome(cost, ""))
    costs = [one.cost for one in outcomes if one.cost is not None]
    for rank, one in enumerate(outcomes):
        if one.cost is None:
            raise BudgetError(f"expected a budget of every rank, got none of rank {rank}: {one.why}")
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
