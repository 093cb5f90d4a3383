"""Arrays and tensors alike: plain ones as numpy sees them, and how their values lie in memory."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALL_BYTES = 4096
"""An array of fewer bytes, less than a page, is copied rather than handed around in memory of its own."""

_NUMBERS = "biufc"
"""Kinds of numpy's types whose values are all in the array itself."""


@dataclass(frozen=True)
class Plain:
    """Numbers on the CPU. `tensor` names torch's type where they are a tensor's."""

    array: NDArray[Any]
    tensor: str | None

    @classmethod
    def of(cls, value: object) -> Plain | None:
        """Shares the value's memory. None for anything that is more than its numbers: sparse, with a gradient, …"""
        if type(value) is np.ndarray:
            return cls(value, None) if value.dtype.kind in _NUMBERS and value.dtype.isnative else None
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            return None
        return _plain_tensor(value, torch)

    def restore(self) -> Any:
        """The array, or the tensor over it."""
        return self.array if self.tensor is None else _tensor(self.array, self.tensor)


def _plain_tensor(value: Any, torch: Any) -> Plain | None:
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
    # A subclass's own view of itself (torchvision's Image) ends with the sample: batches are stacked to plain tensors.
    value = value.as_subclass(torch.Tensor)
    name = str(value.dtype).removeprefix("torch.")
    try:
        return Plain(value.numpy(), name)
    except TypeError:  # a type that numpy has not, such as bfloat16
        return Plain(value.view({1: torch.uint8, 2: torch.int16}[value.element_size()]).numpy(), name)


_stacked: dict[type, bool] = {}


def _stacks_as_tensor(value: Any, torch: Any) -> bool:
    """Whether a batch of such values is a plain tensor. Asked of each class once."""
    kind = type(value)
    if kind is torch.Tensor:
        return True
    if kind not in _stacked:
        _stacked[kind] = type(torch.stack([value])) is torch.Tensor
    return _stacked[kind]


def _tensor(array: NDArray[Any], dtype: str) -> Any:
    import torch

    tensor = torch.from_numpy(array)
    kind = getattr(torch, dtype)
    return tensor if tensor.dtype is kind else tensor.view(kind)


def memory_order(strides: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions from the one of the largest steps in memory to that of the smallest."""
    return tuple(sorted(range(len(strides)), key=lambda dimension: -abs(strides[dimension])))


@dataclass(frozen=True)
class Layout:
    """How each row of a batch's field lies in memory: row after row, without gaps, dimensions in `order`."""

    dtype: str
    shape: tuple[int, ...]
    """Of one row."""
    order: tuple[int, ...]
    tensor: str | None

    @classmethod
    def of(cls, row: Plain) -> Layout:
        return cls(row.array.dtype.str, row.array.shape, memory_order(row.array.strides), row.tensor)

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def fits(self, row: Plain) -> bool:
        """Whether a row has this type and shape; the order of its memory may be another."""
        array = row.array
        return array.shape == self.shape and array.dtype.str == self.dtype and row.tensor == self.tensor

    def batch(self, memory: NDArray[np.uint8], count: int) -> Plain:
        """[count, *shape] over the first bytes of `memory`."""
        lying = memory[: count * self.row_bytes].view(self.dtype).reshape(count, *(self.shape[d] for d in self.order))
        back = np.argsort(self.order) + 1
        return Plain(lying.transpose(0, *back), self.tensor)
