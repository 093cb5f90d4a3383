"""Calls of the user's functions: `map` for a sample and `batch_map` for a batch, each with its own random source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from headrace.errors import UsageError
from headrace.loader.batch_values import BatchRows, fields_of_parts, flattened, memory_order, nested, shown
from headrace.loader.decoding.detection import PerSample
from headrace.loader.recipe import Batch, Output, SampleMap

T = TypeVar("T")

_MAP, _BATCH_MAP = 1, 2


class ValuePlace(Enum):
    """Marker for a value that is already in its final place in the batch."""

    UNTOUCHED = "in the batch that map was given"
    IN_PLACE = "in the memory of the batch to be"


def sample_rng(key: int, *, draw_id: int, pass_: int) -> np.random.Generator:
    """Return the random source of one sample in one epoch, the same on every rank, thread and resume."""
    return np.random.Generator(_philox((key, _MAP), (0, 0, draw_id, pass_)))


def batch_rng(key: int, *, step: int, rank: int) -> np.random.Generator:
    """Return the random source of one rank's batch. Another world size has other batches, and so other draws."""
    return np.random.Generator(_philox((key, _BATCH_MAP), (0, 0, step, rank)))


def _philox(key: tuple[int, int], counter: tuple[int, int, int, int]) -> np.random.Philox:
    """Build the generator from uint64 arrays: a list of large ints would pass through float64 and lose bits."""
    return np.random.Philox(key=np.array(key, np.uint64), counter=np.array(counter, np.uint64))


def call(function: Callable[[], T], stage: str) -> T:
    """Call the user's function. StopIteration would end the consumer's loop silently: raise RuntimeError (PEP 479)."""
    try:
        return function()
    except StopIteration as error:
        raise RuntimeError(f"StopIteration raised in {stage}") from error


def map_row(
    function: SampleMap, batch: Batch, row: int, rng: np.random.Generator, untouched: Callable[[str, Any], bool]
) -> Any:
    """Return the result of `function` for a row, under flat names.

    `ValuePlace.UNTOUCHED` stands for a value that it returned as given, if `untouched` confirms that the batch shows
    writes of `function` to the value.
    """
    given = {name: values[row] for name, values in batch.items()}  # views of the batch's memory
    result = call(lambda: function(nested(given), rng), "map=")
    if not isinstance(result, dict):
        return result
    result = flattened(result, fields_of_parts(given))
    return {
        name: ValuePlace.UNTOUCHED if name in given and value is given[name] and untouched(name, value) else value
        for name, value in result.items()
    }


def collate(samples: list[Any], batch: Batch, placed: Mapping[str, Any], output: Output) -> Batch:
    """Stack the results of `map_row`: arrays and tensors by shape, numbers as one array, other values as lists.

    A field that is complete in `batch` or in `placed` is taken from there.
    """
    names = list(samples[0]) if isinstance(samples[0], dict) else None
    for row, sample in enumerate(samples):
        if not isinstance(sample, dict) or list(sample) != names:
            fields = "a dict of fields" if names is None else f"a dict with the fields {list(map(shown, names))}"
            got = list(map(shown, sample)) if isinstance(sample, dict) else repr(type(sample).__name__)
            raise UsageError(f"map: expected {fields} for every sample, got {got} at row {row} of a batch")
    assert names is not None
    wholes = {ValuePlace.UNTOUCHED: batch, ValuePlace.IN_PLACE: placed}
    collated = {}
    for name in names:
        values = [sample[name] for sample in samples]
        first = values[0]
        if isinstance(first, ValuePlace) and all(value is first for value in values):
            collated[name] = _to_output(wholes[first][name], output)
            continue
        rows = [wholes[each][name][row] if isinstance(each, ValuePlace) else each for row, each in enumerate(values)]
        ragged = isinstance(batch.get(name), PerSample)
        collated[name] = PerSample(_to_output(row, output) for row in rows) if ragged else _join(rows, name, output)
    return collated


def _to_output(whole: Any, output: Output) -> Any:
    if output == "torch" and isinstance(whole, np.ndarray):
        import torch

        return torch.from_numpy(whole)
    return whole


def _join(values: list[Any], name: str, output: Output) -> Any:
    first = values[0]
    if output == "torch":
        import torch

        if isinstance(first, torch.Tensor):
            return _stack(_stack_tensors, values, name)
    if isinstance(first, np.ndarray):
        return _to_output(_stack(np.stack, values, name), output)
    numbers = isinstance(first, bool | int | float | np.number)
    return _to_output(np.asarray(values), output) if numbers else values


def _stack_tensors(tensors: list[Any]) -> Any:
    """Stack like torch.stack, but preserve the first row's memory order.

    Channels-last images stay channels-last, at a seventh of the time that a transposition takes.
    """
    import torch

    if tensors[0].layout is not torch.strided:
        return torch.stack(tensors)
    order = memory_order(tensors[0].stride())
    back = [0] * (len(order) + 1)
    for place, dimension in enumerate(order):
        back[dimension + 1] = place + 1
    return torch.stack([tensor.permute(order) for tensor in tensors]).permute(back)


def _stack(stack: Callable[[list[Any]], Any], values: list[Any], name: str) -> Any:
    try:
        return stack(values)
    except (ValueError, RuntimeError, TypeError) as error:
        shapes = sorted({str(tuple(getattr(value, "shape", ()))) for value in values})
        raise UsageError(
            f"map: expected one shape for field {shown(name)!r} in a batch, got {', '.join(shapes)}; return the same "
            f"shape from every call, or something that is no array ({error})"
        ) from error


@dataclass
class DecodedBatch:
    """Decoded batch on its way through the Python stages."""

    rows: BatchRows
    batch: Batch
    nbytes: int
    """Bytes of the batch's images."""

    def __post_init__(self) -> None:
        self.draw_ids = self.rows.draw_ids

    def __len__(self) -> int:
        return len(self.rows)

    def rng(self, row: int) -> np.random.Generator:
        return sample_rng(self.rows.key, draw_id=int(self.draw_ids[row]), pass_=int(self.rows.passes[row]))
