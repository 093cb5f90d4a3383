"""The core's memory as the arrays or tensors of a batch, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.feed.recipe import Recipe
from headrace.fields import Image

_NUMPY = {"uint8": np.uint8, "float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


class Converter:
    """Gives a batch's parts the type that the loader's `output` asks for."""

    def __init__(self, recipe: Recipe) -> None:
        self._torch: Any = None
        if recipe.output == "torch":
            import torch

            self._torch = torch

    def image(self, memory: NDArray[np.uint8], image: Image, count: int, size: tuple[int, int]) -> Any:
        """[N, C, H, W]; the memory returns to its pool when the last reference to it is gone."""
        typed = memory.view(_NUMPY[image.dtype])
        if image.channels_last:
            array = typed.reshape(count, *size, image.channels).transpose(0, 3, 1, 2)
        else:
            array = typed.reshape(count, image.channels, *size)
        if self._torch is None:
            return array
        tensor = self._torch.from_numpy(array)
        return tensor.view(self._torch.bfloat16) if image.dtype == "bfloat16" else tensor

    def values(self, values: NDArray[Any]) -> Any:
        return values if self._torch is None else self._torch.from_numpy(np.ascontiguousarray(values))
