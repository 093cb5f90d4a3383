"""Frame of boxes, points and outlines: the displayed image, or its stored pixels before the EXIF orientation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.data import SIDEWAYS, Dataset, picture_orientation, stated_columns
from headrace.errors import DatasetError
from headrace.fields import Spatial

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


MIRRORS = (2, 3, 6, 7), (3, 4, 7, 8)
"""Orientations whose last step is a mirroring along x, y (core/jpeg/orientation.hpp)."""
TRANSPOSED = np.array([0, 5, 8, 7, 6, 1, 4, 3, 2])
"""Orientations that also swap rows and columns of what each orientation displays (core/jpeg/orientation.hpp)."""


class Frames:
    """Frames that a dataset's own widths and heights state, of the field of pixels that views are drawn from.

    Annotations of an image whose stated size is the displayed one are used unchanged, and so are a square's.
    Where the stated size is that of the stored pixels only, they turn with the image.
    """

    def __init__(
        self, dataset: Dataset, image: tuple[str, Spatial, str], read: Callable[[int], bytes], limits: Limits
    ) -> None:
        """`read` returns the undecoded bytes of a sample's image."""
        self._dataset, self._read, self._limits = dataset, read, limits
        self._name, self._field, self._column = image
        self._stated = stated_columns(dataset, self._column)[::-1]

    def turns(self, samples: Ints, sizes: NDArray[np.int32]) -> Ints:
        """Return the EXIF orientation by which each sample's annotations turn, 1 for those used unchanged.

        `sizes` are the (width, height) of the images as they are read. Raises DatasetError for a stated size that is
        neither the displayed nor the stored one.
        """
        turns = np.ones(len(samples), np.int64)
        if not self._stated:
            return turns
        ids = samples if self._dataset.base_ids is None else self._dataset.base_ids[samples]
        stated = np.stack([column.take(ids) for column in self._stated], axis=1)
        states = (stated > 0).all(axis=1)  # a table may have gaps
        for row in np.flatnonzero(states & (stated != sizes).any(axis=1)).tolist():
            turns[row] = self._turn(int(samples[row]), stated[row].tolist(), sizes[row].tolist())
        return turns

    def _turn(self, sample: int, stated: list[Any], size: list[int]) -> int:
        if self._field.exif and stated == size[::-1]:
            orientation = picture_orientation(self._read(sample), self._limits)
            if orientation in SIDEWAYS:
                return orientation
        place, _ = self._dataset.where(self._column, sample)
        raise DatasetError(
            f"field {self._name!r}, sample {self._dataset.key(sample)!r} ({place}): expected {stated[0]} x {stated[1]} "
            f"(width x height), as the dataset's columns say, got an image of {size[0]} x {size[1]}: nothing tells "
            "which pixels its annotations are of. Correct columns width and height, leave both out, or leave the "
            "sample out by select()"
        )


def turned_points(points: Floats, turns: Ints, sizes: NDArray[np.int32]) -> Floats:
    """Return points [M, K, 2] of stored images after turns by orientations [M] to images of `sizes` [M, 2]."""
    sideways = np.isin(turns, SIDEWAYS)[:, None, None]
    swapped = np.where(sideways, points[..., ::-1], points)
    return np.where(_mirrored(turns)[:, None], sizes[:, None] - swapped, swapped)


def turned_boxes(boxes: Floats, turns: Ints, sizes: NDArray[np.int32]) -> Floats:
    """Return boxes [M, 4] as xyxy, turned like points."""
    corners = turned_points(boxes.reshape(-1, 2, 2), turns, sizes)
    return np.where(_mirrored(turns)[:, None], corners[:, ::-1], corners).reshape(-1, 4)


def _mirrored(turns: Ints) -> NDArray[np.bool_]:
    """Return bool [M, 2]: True if the turn ends with a mirroring along x, y."""
    return np.stack([np.isin(turns, each) for each in MIRRORS], axis=1)
