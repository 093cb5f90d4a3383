"""TIFFs that Pillow would cut to bytes, or does not know: 16-bit colour, floats of several bands, many bands."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.data.array_files import check_pixels
from headrace.data.pillow_images import TooLargeError, open_picture
from headrace.errors import UsageError

if TYPE_CHECKING:
    import tifffile

Found = TypeVar("Found")

_BEGINNINGS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""Of TIFF and BigTIFF, in either byte order."""
_BYTE_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
_BITS_PER_SAMPLE = 258


def is_tiff(data: bytes) -> bool:
    """Tell by its first bytes."""
    return data.startswith(_BEGINNINGS)


def is_of_bytes(data: bytes, limits: Limits) -> bool:
    """Tell whether Pillow opens it, and its samples have no more than the 8 bits that Pillow keeps of colours."""
    try:
        with open_picture(data, limits, ["TIFF"]) as opened:
            bits: Any = opened.tag_v2.get(_BITS_PER_SAMPLE, (1,))  # type: ignore[attr-defined]  # of a TIFF
            return opened.mode in _BYTE_MODES and max(bits if isinstance(bits, tuple) else (bits,)) <= 8
    except MemoryError:
        raise
    except Exception:  # Pillow's plugins raise anything at what they do not know, or at damaged bytes
        return False


def size(data: bytes) -> tuple[int, int]:
    """Return (width, height) of the first page; (0, 0) where there is none that can be read."""
    try:
        return _of_page(data, lambda page: (int(page.imagewidth), int(page.imagelength)))
    except ValueError:
        return 0, 0


def read(data: bytes, limits: Limits) -> NDArray[np.generic]:
    """Return the values of the first page: [H, W], or [H, W, C] whatever way they lie in the file.

    Raises ValueError for what cannot be decoded, TooLargeError beyond `limits`, UsageError without tifffile.
    """

    def values_of(page: tifffile.TiffPage) -> NDArray[np.generic]:
        bands = int(page.samplesperpixel)
        check_pixels((int(page.imagelength), int(page.imagewidth), bands), limits, bands)
        if len(data) < page.nbytes and page.compression == 1:
            raise ValueError(f"expected {page.nbytes:,} bytes of values, got a file of {len(data):,}")
        values = np.asarray(page.asarray())
        planar = values.ndim == 3 and page.axes.startswith("S")
        return np.moveaxis(values, 0, -1) if planar else values

    return _of_page(data, values_of)


def _of_page(data: bytes, take: Callable[[tifffile.TiffPage], Found]) -> Found:
    try:
        import tifffile
    except ImportError as error:
        raise UsageError("reading a TIFF of other than 8-bit colour needs tifffile: pip install tifffile") from error
    try:
        with tifffile.TiffFile(io.BytesIO(data)) as file:
            return take(file.pages.first)
    except (MemoryError, TooLargeError):
        raise
    except Exception as error:  # the library raises its own, struct.error, IndexError, … at damaged bytes
        raise ValueError(f"expected a TIFF, got bytes that tifffile cannot decode ({error})") from error
