"""Decodes by Pillow what the core declines (WebP, GIF, TIFF, CMYK JPEG, EXIF-turned images, …) to plain pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.data.pillow_images import TooLargeError, apart_formats, open_picture
from headrace.fields import Image

if TYPE_CHECKING:
    import PIL.Image

OWN, OWN_ALPHA = "own", "own, with alpha"
"""Modes of a PictureForm beside Pillow's: the picture's channels, as `read_colors` has them."""


@dataclass(frozen=True)
class PictureForm:
    """What is to become of an image."""

    mode: str | None
    """As `Image.convert` has it; None: the values as they are."""
    exif: bool


def decode(data: bytes, image: Image, limits: Limits) -> NDArray[np.uint8]:
    """uint8 [H, W, 3] for mode "RGB", [H, W, 1] for "L"; of an animation the first frame.

    Raises ValueError (with what was expected) for what Pillow cannot decode, TooLargeError for what is beyond `limits`.
    """
    pixels = _decoded(data, PictureForm(image.mode, image.exif), limits)
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1), np.uint8)


def read_colors(data: bytes, image: Image, limits: Limits) -> NDArray[np.generic]:
    """Return [H, W, C] of the picture's own channels. Raises as `decode` does.

    16-bit grey is uint16, floats are float32, and colours bytes, palettes looked up, with alpha where the picture has
    it and `image` has four channels.
    """
    values = _decoded(data, PictureForm(OWN_ALPHA if image.channel_count == 4 else OWN, image.exif), limits)
    return np.ascontiguousarray(values.reshape(*values.shape[:2], -1))


def _own_channels(picture: PIL.Image.Image, *, alpha: bool) -> NDArray[np.generic]:
    if picture.mode.startswith("I;16"):
        return np.asarray(picture, np.uint16)
    if picture.mode == "F":
        return np.asarray(picture, np.float32)
    if picture.mode == "I":
        return _words(np.asarray(picture))
    if picture.mode in ("L", "LA", "RGB", "RGBA"):
        return np.asarray(picture)
    if picture.mode == "1":
        return np.asarray(picture.convert("L"))
    has_alpha = picture.mode == "PA" or "transparency" in picture.info
    return np.asarray(picture.convert("RGBA" if alpha and has_alpha else "RGB"))


def _words(values: NDArray[np.generic]) -> NDArray[np.uint16]:
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 0xFFFF:
        raise ValueError(f"expected values from 0 to 65535, got 32-bit ones from {low} to {high}")
    return values.astype(np.uint16)


def read(data: bytes, limits: Limits) -> NDArray[np.generic]:
    """The values as they are, [H, W] or [H, W, C]: palette indices, 16-bit grey, floats; 1-bit grey as 0 and 255.

    Raises as `decode` does.
    """
    return _decoded(data, PictureForm(None, False), limits)


def _decoded(data: bytes, form: PictureForm, limits: Limits) -> NDArray[np.generic]:
    apart = apart_formats(data, limits)
    if apart:
        from headrace.loader.decoding.pillow import decode_apart  # which few need

        return decode_apart(data, form, apart, limits)
    return decode_here(data, form, limits)


def decode_here(
    data: bytes, form: PictureForm, limits: Limits, formats: Sequence[str] | None = None
) -> NDArray[np.generic]:
    """Decode the image in this thread. Raises as `decode` does, and MemoryError."""
    import PIL.Image

    try:
        with open_picture(data, limits, formats) as opened:
            return _taken(opened, form)
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


def _taken(opened: PIL.Image.Image, form: PictureForm) -> NDArray[np.generic]:
    import PIL.ImageOps

    if form.mode is None:
        return np.asarray(opened.convert("L") if opened.mode == "1" else opened)
    picture = PIL.ImageOps.exif_transpose(opened) if form.exif else opened
    if form.mode in (OWN, OWN_ALPHA):
        return _own_channels(picture, alpha=form.mode == OWN_ALPHA)
    return np.asarray(_eight_bit(picture).convert(form.mode))


def _begin(data: bytes) -> str:
    return data[:8].hex(" ")


def _eight_bit(picture: PIL.Image.Image) -> PIL.Image.Image:
    """16-bit grey by its high byte, as the core does; Pillow's own conversion would clip."""
    import PIL.Image

    if not picture.mode.startswith("I;16"):
        return picture
    return PIL.Image.fromarray((np.asarray(picture, np.uint16) >> 8).astype(np.uint8))
