"""Sizes of a dataset's images, as plans ask for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_ASPECT = 250
"""An image more than so many times as long as it is wide counts as one of unknown size: it must not set the shape of a
batch, nor what a budget bears."""


@dataclass(frozen=True, eq=False)
class ImageSizes:
    """By position in the dataset."""

    known: NDArray[np.int32]
    """(height, width), int32[N, 2]; 0 0 where it is not known."""

    def __call__(self, positions: NDArray[np.int64]) -> NDArray[np.int32]:
        sizes = self.known[positions]
        height, width = sizes.T
        sizes[np.maximum(height, width) // MOST_ASPECT > np.minimum(height, width)] = 0
        return sizes
