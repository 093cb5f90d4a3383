"""What the core leaves to libraries, field by field: bytes to plain pixels, which then take the core's views."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.data import array_files, tiff_file
from headrace.data.pillow_images import picture_size
from headrace.feed import pillow
from headrace.fields import Image, Mask, Normals, Spatial


def decode(data: bytes, field: Spatial, limits: Limits) -> NDArray[np.generic]:
    """[H, W, C] of uint8, uint16 or float32, as the file holds it; of uint8 for an Image of bytes.

    Whether it is what the field asks for the core says. Raises ValueError (with what was expected) for what cannot be
    decoded, TooLargeError beyond `limits`, and UsageError where a library is not installed.
    """
    if isinstance(field, Image):
        return wide_pixels(data, field, limits) if field.wide else pillow.decode(data, field, limits)
    values = array_files.read(data, limits) if array_files.holds_array(data) else pillow.read(data, limits)
    return _laid_out(values, channels=3 if isinstance(field, Normals) else 1, whole=isinstance(field, Mask))


def size(data: bytes, field: Spatial, limits: Limits) -> tuple[int, int]:
    """Return (width, height) from the header; (0, 0) where there is none that can be read within `limits`."""
    wide = isinstance(field, Image) and field.wide
    if array_files.holds_array(data) and (wide or not isinstance(field, Image)):
        return array_files.array_size(data, field.channel_count if isinstance(field, Image) else None)
    found = picture_size(data, exif=isinstance(field, Image) and field.exif, limits=limits)
    by_bands = wide and found == (0, 0) and tiff_file.is_tiff(data) and "TIFF" in limits.formats
    return tiff_file.size(data) if by_bands else found


def is_narrowed(data: bytes, field: Spatial, limits: Limits) -> bool:
    """Tell whether a library makes 8 bits of more, because the field is of bytes."""
    if not isinstance(field, Image) or field.wide:
        return False
    return tiff_file.is_tiff(data) and not tiff_file.is_of_bytes(data, limits)


def wide_pixels(data: bytes, field: Image, limits: Limits) -> NDArray[np.generic]:
    """Return [H, W, C] of uint8, uint16 or float32, of as many channels as the file has. Raises as `decode` does."""
    count = field.channel_count
    if array_files.holds_array(data):
        return _bands(array_files.read(data, limits, channels=count), count)
    if tiff_file.is_tiff(data) and "TIFF" in limits.formats and not tiff_file.is_of_bytes(data, limits):
        return _bands(tiff_file.read(data, limits), count)
    return pillow.read_colors(data, field, limits)


def _bands(values: NDArray[np.generic], count: int) -> NDArray[np.generic]:
    """Return an array's own channels, which are to be as many."""
    if values.ndim == 2:
        values = values[:, :, None]
    elif values.ndim == 3 and values.shape[2] != count and values.shape[0] == count:
        values = np.moveaxis(values, 0, -1)
    if values.ndim != 3 or values.shape[2] != count or 0 in values.shape:
        raise ValueError(
            f"expected an array [H, W, {count}] or [{count}, H, W], got {list(values.shape)}; name as many as it has "
            "with channels="
        )
    if values.dtype.kind == "b":
        values = values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(values, dtype=np.float32)
    if values.dtype.kind == "u" and values.itemsize <= 2:
        return np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    raise ValueError(
        f"expected an image of uint8, uint16 or floats, got an array of {values.dtype}; save it as one of these"
    )


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
