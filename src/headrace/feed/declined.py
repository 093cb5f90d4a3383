"""What the core leaves to libraries, field by field: bytes to plain pixels, which then take the core's views."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.data import array_files
from headrace.data.pillow_file import picture_size
from headrace.feed import pillow
from headrace.fields import Image, Mask, Normals, Spatial


def decode(data: bytes, field: Spatial, limits: Limits) -> NDArray[np.generic]:
    """[H, W, C] of uint8, uint16 or float32, as the file holds it; of uint8 for an Image.

    Whether it is what the field asks for the core says. Raises ValueError (with what was expected) for what cannot be
    decoded, TooLargeError beyond `limits`, and UsageError where a library is not installed.
    """
    if isinstance(field, Image):
        return pillow.decode(data, field, limits)
    values = array_files.read(data, limits) if array_files.holds_array(data) else pillow.read(data, limits)
    return _laid_out(values, channels=3 if isinstance(field, Normals) else 1, whole=isinstance(field, Mask))


def size(data: bytes, field: Spatial, limits: Limits) -> tuple[int, int]:
    """Return (width, height) from the header; (0, 0) where there is none that can be read within `limits`."""
    if isinstance(field, Image) or not array_files.holds_array(data):
        return picture_size(data, exif=isinstance(field, Image) and field.exif, limits=limits)
    return array_files.array_size(data)


def _laid_out(values: NDArray[np.generic], *, channels: int, whole: bool) -> NDArray[np.generic]:
    """[H, W, C] of a type that the core takes, from [H, W], [H, W, C] or [C, H, W]. `whole`: numbers that must stay
    what they are, since they name things."""
    if array_files.is_planar(values.shape, channels):
        values = np.moveaxis(values, 0, -1)
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3 or values.shape[2] not in (1, 3) or 0 in values.shape:
        raise ValueError(f"expected an array [H, W] or [H, W, {channels}], got {list(values.shape)}")
    if values.dtype in (np.uint8, np.uint16):
        return np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    if values.dtype.kind not in "iufb":
        raise ValueError(f"expected numbers, got an array of {values.dtype}")
    if whole:
        return _as_uint16(values)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which is not valid
        return np.ascontiguousarray(values, dtype=np.float32)


def _as_uint16(values: NDArray[np.generic]) -> NDArray[np.uint16]:
    low, high = values.min(), values.max()
    if values.dtype.kind == "f" or low < 0 or high > np.iinfo(np.uint16).max:
        raise ValueError(f"expected a mask of whole numbers from 0 to 65535, got {values.dtype} from {low} to {high}")
    return np.ascontiguousarray(values, dtype=np.uint16)
