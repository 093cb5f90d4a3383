"""Fields of pixels as the core takes them, and the parts of a batch that each becomes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError
from headrace.fields import Depth, Image, Mask, Normals, Spatial
from headrace.fields.dense import MOST_FINITE

VALID = "_valid"
"""A depth field's mask of validity has its name and this."""

_NUMPY = {
    "bool": np.bool_, "uint8": np.uint8, "uint16": np.uint16, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "float32": np.float32, "float16": np.float16, "bfloat16": np.uint16,
}  # fmt: skip

_NO_PLACE = np.iinfo(np.int64).min
"""A value of a mask that the batch has no value for (core/dense/mask_target.hpp)."""

Options = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """One array of the batch: [N, H, W] without channels, else [N, channels, H, W]."""

    name: str
    dtype: str
    channels: int | None
    channels_last: bool = False

    @property
    def numpy_dtype(self) -> type[np.generic]:
        """bfloat16, which numpy has not, as the integers of its bits."""
        return _NUMPY[self.dtype]

    def nbytes(self, size: tuple[int, int]) -> int:
        """Of one sample."""
        return math.prod(size) * (self.channels or 1) * np.dtype(self.numpy_dtype).itemsize

    def shape(self, count: int, size: tuple[int, int]) -> tuple[int, ...]:
        """As it lies in memory."""
        if self.channels is None:
            return count, *size
        return (count, *size, self.channels) if self.channels_last else (count, self.channels, *size)


def parts_of(name: str, field: Spatial) -> list[Part]:
    """What the core writes for a field: first its values."""
    if isinstance(field, Image):
        return [Part(name, field.dtype, field.channel_count, field.channels_last)]
    if isinstance(field, Mask):
        return [Part(name, field.dtype, None)]
    if isinstance(field, Normals):
        return [Part(name, field.dtype, 3, channels_last=True)]
    valid = [Part(name + VALID, "bool", 1)] if field.valid else []
    return [Part(name, field.dtype, 1), *valid]


def core_options(field: Spatial, fill: tuple[int, ...]) -> Options:
    """The part of the core's description that is the same for every batch. `fill`: the view's, for pictures."""
    if isinstance(field, Image):
        return _wide_options(field, fill) if field.wide else image_options(field, fill)
    if isinstance(field, Mask):
        mask = (np.dtype(field.dtype).itemsize, field.ignore, _mask_table(field))
        return {**_NEAREST, "content": "mask", "mask": mask}
    if isinstance(field, Normals):
        half = {"subtract": [127.5] * 3, "divide": [127.5] * 3}
        return {**_NEAREST, **half, "channels": 3, "dtype": field.dtype, "content": "normals"}
    return {**_NEAREST, "content": "depth", "depth": _depth_numbers(field)}


def image_options(image: Image, fill: tuple[int, ...]) -> Options:
    """Of a picture (core/resample/target.hpp)."""
    subtract, divide = [0.0, 0.0, 0.0], [255.0, 255.0, 255.0]
    if image.normalize is not None:
        repeats = 3 // image.channel_count  # the core takes three of grey, too
        subtract = [255 * mean for mean in image.normalize.mean] * repeats
        divide = [255 * std for std in image.normalize.std] * repeats
    return {
        "channels": image.channel_count,
        "dtype": image.dtype,
        "planar": not image.channels_last,
        "subtract": subtract,
        "divide": divide,
        "fill": list(fill) * 3 if len(fill) == 1 else list(fill),
        "filter": image.filter,
        "dct_scaling": image.dct_scaling,
        "orient": image.exif,
        "shrink_to": image.shrink_to or 0,
    }


def _wide_options(image: Image, fill: tuple[int, ...]) -> Options:
    """Return those of a picture whose values bytes do not hold (core/dense/wide_sampler.hpp)."""
    count, normalize = image.channel_count, image.normalize
    if len(fill) not in (1, count):
        raise UsageError(
            f"view: expected fill= to be one number, or one for each of the {count} channels of an image, got {fill}"
        )
    shares = [each / 255 for each in (fill * count if len(fill) == 1 else fill)]
    mean = [0.0] * count if normalize is None else [float(each) for each in normalize.mean]
    std = [1.0] * count if normalize is None else [float(each) for each in normalize.std]
    plain = image_options(Image(filter=image.filter, channels_last=image.channels_last, exif=image.exif), (0,))
    return plain | {"dtype": image.dtype, "content": "wide", "wide": (mean, std, shares)}


_NEAREST = image_options(Image(mode="L", filter="nearest", dct_scaling=False), (0,))
"""What the core asks of every field, with what does not matter to fields that are no pictures."""


def _mask_table(field: Mask) -> NDArray[np.int64]:
    """int64[65536]: what becomes of each value that a mask can have."""
    most = np.iinfo(field.dtype).max
    table = np.arange(1 << 16)
    table[table > most] = _NO_PLACE
    if isinstance(field.remap, Mapping):
        for old, new in field.remap.items():
            table[old] = new
    elif isinstance(field.remap, Sequence):
        table[:] = _NO_PLACE
        table[: len(field.remap)] = field.remap
    return table


def _depth_numbers(field: Depth) -> tuple[Any, ...]:
    """As core/bindings/image_options.hpp has them."""
    # What the batch's type cannot hold would be infinite, and is not valid; what is normalised becomes small first.
    beyond = math.inf if field.normalize is not None else math.nextafter(MOST_FINITE[field.dtype], math.inf)
    near = -beyond if field.near is None else max(field.near, -beyond)
    far = beyond if field.far is None else min(field.far, beyond)
    quantiles = None
    if field.normalize is not None:
        q = field.normalize
        quantiles = (q.low, q.high, *q.range, q.clip)
    invalid = float(np.float32(field.invalid))  # as a file of floats holds it, such as -9999.9
    return field.dtype, field.scale, invalid, near, far, quantiles
