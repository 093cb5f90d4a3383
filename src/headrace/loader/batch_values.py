"""Values of a batch: arrays and tensors alike, their memory layout, and nested fields under flat names."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset
from headrace.plan import BatchPlan

SMALL_BYTES = 4096
"""Size below which arrays are copied instead of getting their own memory; less than a page."""

_NUMBERS = "biufc"
"""Kinds of numpy dtypes that store their values in the array itself."""


@dataclass(frozen=True)
class PlainArray:
    """Numbers on the CPU; `tensor` is the name of torch's dtype if they belong to a tensor."""

    array: NDArray[Any]
    tensor: str | None

    @classmethod
    def of(cls, value: object) -> PlainArray | None:
        """Share the value's memory; return None unless it holds plain numbers (not sparse, no gradient, …)."""
        if type(value) is np.ndarray:
            return cls(value, None) if value.dtype.kind in _NUMBERS and value.dtype.isnative else None
        torch = sys.modules.get("torch")
        return _plain_tensor(value, torch) if torch is not None and isinstance(value, torch.Tensor) else None

    def restore(self) -> Any:
        """Return the array, or a tensor over it."""
        if self.tensor is None:
            return self.array
        import torch

        tensor, dtype = torch.from_numpy(self.array), getattr(torch, self.tensor)
        return tensor if tensor.dtype is dtype else tensor.view(dtype)


def _plain_tensor(value: Any, torch: Any) -> PlainArray | None:
    if (
        value.device.type != "cpu"
        or value.layout is not torch.strided
        or value.requires_grad
        or value.is_quantized
        or value.is_nested
        or value.is_conj()
        or value.is_neg()
        or not _stacks_as_tensor(value, torch)
    ):
        return None
    # A subclass (torchvision's Image) lasts only for the sample: batches are stacked to plain tensors.
    value = value.as_subclass(torch.Tensor)
    name = str(value.dtype).removeprefix("torch.")
    try:
        return PlainArray(value.numpy(), name)
    except TypeError:  # a type that numpy lacks, such as bfloat16
        return PlainArray(value.view({1: torch.uint8, 2: torch.int16}[value.element_size()]).numpy(), name)


_stacked: dict[type, bool] = {}


def _stacks_as_tensor(value: Any, torch: Any) -> bool:
    """Return True if a stack of such values is a plain tensor. Each class is tried once."""
    kind = type(value)
    if kind is torch.Tensor:
        return True
    if kind not in _stacked:
        _stacked[kind] = type(torch.stack([value])) is torch.Tensor
    return _stacked[kind]


def memory_order(strides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions from the largest stride to the smallest."""
    return tuple(sorted(range(len(strides)), key=lambda dimension: -abs(strides[dimension])))


@dataclass(frozen=True)
class RowLayout:
    """Layout of a field's rows in memory: row after row, without gaps, dimensions in `order`."""

    dtype: str
    shape: tuple[int, ...]
    """Shape of one row."""
    order: tuple[int, ...]
    tensor: str | None

    @classmethod
    def of(cls, row: PlainArray) -> RowLayout:
        return cls(row.array.dtype.str, row.array.shape, memory_order(row.array.strides), row.tensor)

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def fits(self, row: PlainArray) -> bool:
        """Return True if a row has this type and shape; its memory order may differ."""
        array = row.array
        return array.shape == self.shape and array.dtype.str == self.dtype and row.tensor == self.tensor

    def batch(self, memory: NDArray[np.uint8], count: int) -> PlainArray:
        """Return an array [count, *shape] over the first bytes of `memory`."""
        lying = memory[: count * self.row_bytes].view(self.dtype).reshape(count, *(self.shape[d] for d in self.order))
        back = np.argsort(self.order) + 1
        return PlainArray(lying.transpose(0, *back), self.tensor)


_BETWEEN = "\0"
"""Separator that occurs in no name of a dataset or a user."""


def part_name(field: str, part: str) -> str:
    """Return the flat name of a field's part."""
    return f"{field}{_BETWEEN}{part}"


def shown(name: Any) -> Any:
    """Return a flat name in the form for messages; a name that `map` returned may be any object."""
    return name.replace(_BETWEEN, ".") if isinstance(name, str) else name


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in the user's form: parts in a dict under their field's name."""
    fields: dict[str, Any] = {}
    for name, value in flat.items():
        field, between, part = name.partition(_BETWEEN)
        if between:
            fields.setdefault(field, {})[part] = value
        else:
            fields[name] = value
    return fields


def flattened(fields: Mapping[str, Any], of_parts: Collection[str]) -> dict[str, Any]:
    """Undo `nested` for the fields named in `of_parts`; other dicts are ordinary values."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if name in of_parts and isinstance(value, dict) and all(isinstance(part, str) for part in value):
            flat |= {part_name(name, part): each for part, each in value.items()}
        else:
            flat[name] = value
    return flat


def fields_of_parts(flat: Iterable[str]) -> set[str]:
    """Return the names of the fields that have parts."""
    return {name.partition(_BETWEEN)[0] for name in flat if _BETWEEN in name}


@dataclass
class BatchRows:
    """Rows of one rank's batch. Arrays are [N].

    `samples` are positions in the dataset, `positions` are positions in the epoch. `passes` gives a repeated sample
    other draws than before. A replacement changes `samples` and `passes` in place.
    """

    dataset: Dataset
    plan: BatchPlan
    key: int
    """Key of the epoch's random numbers."""
    samples: NDArray[np.int64]
    passes: NDArray[np.uint32]
    positions: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, rows: slice | list[int]) -> BatchRows:
        return replace(self, samples=self.samples[rows], passes=self.passes[rows], positions=self.positions[rows])

    @property
    def base_ids(self) -> NDArray[np.int64]:
        """Ids of the samples before any selection."""
        ids = self.dataset.base_ids
        return self.samples if ids is None else ids[self.samples]

    @property
    def draw_ids(self) -> NDArray[np.int64]:
        """Keys of random draws: a sample that a selection repeats gets other draws each time."""
        return self.dataset.draw_ids(self.samples)

    def name(self, row: int) -> str:
        """Return a row's sample, epoch and position as text for an error."""
        key, position = self.dataset.key(int(self.samples[row])), int(self.positions[row])
        return f"sample {key!r}, epoch {self.plan.epoch}, position {position}"
