"""Decodes by Pillow what the core declines (WebP, GIF, TIFF, CMYK JPEG, EXIF-turned images, …) to plain pixels."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.fields import Image

if TYPE_CHECKING:
    import PIL.Image

_ORIENTATION = 0x0112  # EXIF
_SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange width and height


def decode(data: bytes, image: Image, limits: Limits) -> NDArray[np.uint8]:
    """uint8 [H, W, 3] for mode "RGB", [H, W, 1] for "L"; of an animation the first frame.

    Raises ValueError (with what was expected) for what Pillow cannot decode or what is beyond `max_pixels`.
    """
    import PIL.Image
    import PIL.ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's bomb and EXIF warnings: our own limit below decides
        try:
            with PIL.Image.open(io.BytesIO(data)) as opened:
                if opened.width * opened.height > limits.max_pixels:
                    raise TooLargeError(
                        f"{opened.format} of {opened.width}x{opened.height} pixels, more than "
                        f"max_pixels={limits.max_pixels}"
                    )
                picture = PIL.ImageOps.exif_transpose(opened) if image.exif else opened
                pixels = np.asarray(_eight_bit(picture).convert(image.mode))
        except (MemoryError, TooLargeError):
            raise
        except Exception as error:  # Pillow's plugins raise anything (struct.error, EOFError, …) at damaged bytes
            begins = data[:8].hex(" ")
            raise ValueError(
                f"expected an image, got bytes that Pillow cannot decode ({error}); first: {begins}"
            ) from error
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1))


def size(data: bytes, image: Image) -> tuple[int, int]:
    """(width, height) from the header; (0, 0) where Pillow finds none."""
    import PIL.Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with PIL.Image.open(io.BytesIO(data)) as opened:
                turned = image.exif and opened.getexif().get(_ORIENTATION, 1) in _SIDEWAYS
                return (opened.height, opened.width) if turned else (opened.width, opened.height)
        except MemoryError:
            raise
        except Exception:  # as in `decode`
            return 0, 0


class TooLargeError(ValueError):
    """Beyond `max_pixels`."""


def _eight_bit(picture: PIL.Image.Image) -> PIL.Image.Image:
    """16-bit grey by its high byte, as the core does; Pillow's own conversion would clip."""
    import PIL.Image

    if not picture.mode.startswith("I;16"):
        return picture
    return PIL.Image.fromarray((np.asarray(picture, np.uint16) >> 8).astype(np.uint8))
