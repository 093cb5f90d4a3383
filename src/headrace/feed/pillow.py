"""Decodes by Pillow what the core declines (WebP, GIF, TIFF, CMYK JPEG, EXIF-turned images, …) to plain pixels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.data.pillow_file import TooLargeError, open_picture
from headrace.fields import Image

if TYPE_CHECKING:
    import PIL.Image

Pixels = TypeVar("Pixels")


def decode(data: bytes, image: Image, limits: Limits) -> NDArray[np.uint8]:
    """uint8 [H, W, 3] for mode "RGB", [H, W, 1] for "L"; of an animation the first frame.

    Raises ValueError (with what was expected) for what Pillow cannot decode or what is beyond `max_pixels`.
    """
    import PIL.ImageOps

    def pixels_of(opened: PIL.Image.Image) -> NDArray[np.uint8]:
        picture = PIL.ImageOps.exif_transpose(opened) if image.exif else opened
        pixels = np.asarray(_eight_bit(picture).convert(image.mode))
        return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1))

    return _decoded(data, limits, pixels_of)


def read_colors(data: bytes, image: Image, limits: Limits) -> NDArray[np.generic]:
    """[H, W, C], by its own channels: 16-bit grey as uint16, floats as float32, and colours as bytes, palettes looked
    up, with alpha where the picture has it and `image` has four channels. Raises as `decode` does."""
    import PIL.ImageOps

    def pixels_of(opened: PIL.Image.Image) -> NDArray[np.generic]:
        picture = PIL.ImageOps.exif_transpose(opened) if image.exif else opened
        if picture.mode.startswith("I;16"):
            values: NDArray[np.generic] = np.asarray(picture, np.uint16)
        elif picture.mode == "F":
            values = np.asarray(picture, np.float32)
        elif picture.mode == "I":
            values = _words(np.asarray(picture))
        elif picture.mode in ("L", "LA", "RGB", "RGBA"):
            values = np.asarray(picture)
        elif picture.mode == "1":
            values = np.asarray(picture.convert("L"))
        else:
            alpha = image.channel_count == 4 and (picture.mode == "PA" or "transparency" in picture.info)
            values = np.asarray(picture.convert("RGBA" if alpha else "RGB"))
        return np.ascontiguousarray(values.reshape(*values.shape[:2], -1))

    return _decoded(data, limits, pixels_of)


def _words(values: NDArray[np.generic]) -> NDArray[np.uint16]:
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 0xFFFF:
        raise ValueError(f"expected values from 0 to 65535, got 32-bit ones from {low} to {high}")
    return values.astype(np.uint16)


def read(data: bytes, limits: Limits) -> NDArray[np.generic]:
    """The values as they are, [H, W] or [H, W, C]: palette indices, 16-bit grey, floats; 1-bit grey as 0 and 255.

    Raises as `decode` does.
    """

    def values_of(opened: PIL.Image.Image) -> NDArray[np.generic]:
        return np.asarray(opened.convert("L") if opened.mode == "1" else opened)

    return _decoded(data, limits, values_of)


def _decoded(data: bytes, limits: Limits, take: Callable[[PIL.Image.Image], Pixels]) -> Pixels:
    import PIL.Image

    try:
        with open_picture(data) as opened:
            if opened.width * opened.height > limits.max_pixels:
                raise TooLargeError(
                    f"{opened.format} of {opened.width}x{opened.height} pixels, more than "
                    f"max_pixels={limits.max_pixels}"
                )
            return take(opened)
    except (MemoryError, TooLargeError):
        raise
    except PIL.Image.DecompressionBombError as error:
        raise TooLargeError(
            f"{error}: more than twice PIL.Image.MAX_IMAGE_PIXELS, which Pillow holds beside "
            f"max_pixels={limits.max_pixels}"
        ) from error
    except PIL.UnidentifiedImageError as error:  # its text holds an address of memory
        raise ValueError(
            f"expected an image, got bytes of no format that Pillow knows; first: {_begin(data)}"
        ) from error
    except Exception as error:  # Pillow's plugins raise anything (struct.error, EOFError, …) at damaged bytes
        raise ValueError(
            f"expected an image, got bytes that Pillow cannot decode ({error}); first: {_begin(data)}"
        ) from error


def _begin(data: bytes) -> str:
    return data[:8].hex(" ")


def _eight_bit(picture: PIL.Image.Image) -> PIL.Image.Image:
    """16-bit grey by its high byte, as the core does; Pillow's own conversion would clip."""
    import PIL.Image

    if not picture.mode.startswith("I;16"):
        return picture
    return PIL.Image.fromarray((np.asarray(picture, np.uint16) >> 8).astype(np.uint8))
