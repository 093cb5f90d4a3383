"""The core's memory as the arrays or tensors of a batch, without a copy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.loader.decoding.detection import PerSample
from headrace.loader.decoding.pixels import Part
from headrace.loader.recipe import Recipe


class Converter:
    """Gives a batch's parts the type that the loader's `output` asks for."""

    def __init__(self, recipe: Recipe) -> None:
        self._torch: Any = None
        if recipe.output == "torch":
            import torch

            self._torch = torch

    def pixels(self, memory: NDArray[np.uint8], part: Part, count: int, size: tuple[int, int]) -> Any:
        """A part over the memory's start; it returns to its pool when the last reference to it is gone."""
        shape = part.shape(count, size)
        values = math.prod(shape)
        if self._torch is None:
            array = memory.view(part.numpy_dtype)[:values].reshape(shape)
            return array.transpose(0, 3, 1, 2) if part.channels_last else array
        tensor = self._tensor(memory).view(getattr(self._torch, part.dtype))[:values].view(shape)
        return tensor.permute(0, 3, 1, 2) if part.channels_last else tensor

    def _tensor(self, memory: NDArray[np.uint8]) -> Any:
        """The tensor that pinned memory was allocated as, so that torch's allocator learns of copies from it."""
        return memory.base if isinstance(memory.base, self._torch.Tensor) else self._torch.from_numpy(memory)

    def labels(self, values: NDArray[Any]) -> Any:
        """Numbers as one array, whole ones as int64 whatever they are kept as."""
        return self.values(values if values.dtype.kind == "f" else values.astype(np.int64, copy=False))

    def each(self, values: PerSample) -> PerSample:
        """A list whose arrays have the type; texts stay as they are."""
        if self._torch is None:
            return values
        return PerSample(self.values(value) for value in values)

    def values(self, values: NDArray[Any] | list[Any]) -> Any:
        """Numbers as one array; a list stays as it is."""
        if isinstance(values, list):
            return values
        return values if self._torch is None else self._torch.from_numpy(np.ascontiguousarray(values))
