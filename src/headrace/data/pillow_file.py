"""Opens by Pillow what the core declines (WebP, GIF, TIFF, CMYK JPEG, …), as far as its header."""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import PIL.Image

_QUIET = ("ignore", None, Warning, re.compile(r"PIL\."), 0)
_ORIENTATION = 0x0112  # EXIF
_SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange width and height


# What Pillow decodes by itself, as far as this Pillow has it. EPS stays out: Pillow hands it to Ghostscript, and a
# program must not run because an image says so.
_FORMATS = [
    "AVIF",
    "BMP",
    "DIB",
    "GIF",
    "ICO",
    "JPEG",
    "JPEG2000",
    "PCX",
    "PNG",
    "PPM",
    "QOI",
    "SGI",
    "TGA",
    "TIFF",
    "WEBP",
]


class TooLargeError(ValueError):
    """Beyond `max_pixels`."""


def open_picture(data: bytes) -> PIL.Image.Image:
    """What Pillow makes of the header. Raises what Pillow's plugins raise, which is anything."""
    import PIL.Image

    _quieten()
    PIL.Image.init()
    return PIL.Image.open(io.BytesIO(data), formats=[name for name in _FORMATS if name in PIL.Image.OPEN])


def picture_size(data: bytes, *, exif: bool) -> tuple[int, int]:
    """(width, height) from the header, turned as its EXIF orientation says where `exif` is True; (0, 0) where Pillow
    finds none."""
    try:
        with open_picture(data) as opened:
            turned = exif and opened.getexif().get(_ORIENTATION, 1) in _SIDEWAYS
            return (opened.height, opened.width) if turned else (opened.width, opened.height)
    except MemoryError:
        raise
    except Exception:  # Pillow's plugins raise anything (struct.error, EOFError, …) at damaged bytes
        return 0, 0


def _quieten() -> None:
    """Ignores Pillow's own warnings (large images, odd EXIF): `max_pixels` decides, and bad samples are counted.

    For good, and only those: `catch_warnings` changes the whole process's filters, and threads that leave it out of
    order would leave them changed.
    """
    if _QUIET not in warnings.filters:
        warnings.filters.insert(0, _QUIET)  # type: ignore[attr-defined]  # typed as a Sequence, documented as a list
