"""The user's Python: `map` a sample, `batch_map` a batch, each with a random source of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from headrace.errors import UsageError
from headrace.feed.recipe import Batch, Output, Sample

_MAP, _BATCH_MAP = 1, 2


def sample_rng(key: int, *, base_id: int, pass_: int) -> np.random.Generator:
    """The random source of one sample in one epoch. The same on every rank, thread and resume."""
    return np.random.Generator(_philox((key, _MAP), (0, 0, base_id, pass_)))


def batch_rng(key: int, *, step: int, rank: int) -> np.random.Generator:
    """The random source of one rank's batch in one epoch. Another world size has other batches, so other draws."""
    return np.random.Generator(_philox((key, _BATCH_MAP), (0, 0, step, rank)))


def _philox(key: tuple[int, int], counter: tuple[int, int, int, int]) -> np.random.Philox:
    """A list of large ints would pass through float64, and lose bits."""
    return np.random.Philox(key=np.array(key, np.uint64), counter=np.array(counter, np.uint64))


def take_row(batch: Batch, row: int) -> Sample:
    """One sample of a batch. Arrays and tensors are views of the batch's memory."""
    return {name: values[row] for name, values in batch.items()}


def collate(samples: list[Sample], output: Output) -> Batch:
    """Stacks what `map` returned: arrays and tensors by their shape, numbers as one array, all else as lists."""
    names = list(samples[0]) if isinstance(samples[0], dict) else None
    for row, sample in enumerate(samples):
        if not isinstance(sample, dict) or list(sample) != names:
            fields = "a dict of fields" if names is None else f"a dict with the fields {names}"
            got = list(sample) if isinstance(sample, dict) else repr(type(sample).__name__)
            raise UsageError(f"map: expected {fields} for every sample, got {got} at row {row} of a batch")
    assert names is not None
    return {name: _join([sample[name] for sample in samples], name, output) for name in names}


def _join(values: list[Any], name: str, output: Output) -> Any:
    first = values[0]
    if output == "torch":
        import torch

        if isinstance(first, torch.Tensor):
            return _stack(torch.stack, values, name)
        if isinstance(first, np.ndarray):
            return torch.from_numpy(_stack(np.stack, values, name))
        if isinstance(first, bool | int | float | np.number):
            return torch.as_tensor(np.asarray(values))
        return values
    if isinstance(first, np.ndarray):
        return _stack(np.stack, values, name)
    return np.asarray(values) if isinstance(first, bool | int | float | np.number) else values


def _stack(stack: Any, values: Iterable[Any], name: str) -> Any:
    try:
        return stack(list(values))
    except (ValueError, RuntimeError, TypeError) as error:
        shapes = sorted({str(tuple(getattr(value, "shape", ()))) for value in values})
        raise UsageError(
            f"map: expected one shape for field {name!r} in a batch, got {', '.join(shapes)}; return the same shape "
            f"from every call, or something that is no array ({error})"
        ) from error
