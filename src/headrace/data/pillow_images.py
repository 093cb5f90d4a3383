"""Image headers opened by Pillow, within limits: the formats that the core declines."""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace._core import Limits

if TYPE_CHECKING:
    import PIL.Image


_QUIET = ("ignore", None, Warning, re.compile(r"PIL\."), 0)
_ORIENTATION = 0x0112  # EXIF
_TIFF_SIZE = (256, 257)  # ImageWidth, ImageLength
_SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange width and height

MOST_PIXEL_BYTES, _COSTLY = 24, ("BMP", "PPM", "WEBP")
"""Most memory per pixel that Pillow, its conversions and the array take; 16 suffice for formats other than these.

Measured: WebP 19 to 23, BMP and PPM 20, CMYK JPEG 15, TIFF and GIF 12, TGA 8.
"""

_DIRECT = frozenset(("AVIF", "BMP", "GIF", "JPEG", "PNG", "PPM", "TGA", "TIFF", "WEBP"))
"""Decoded where they are asked for: their time and memory are bounded by the pixels and the bytes of the file."""
_BEGINNINGS = {
    "AVIF": re.compile(rb"....ftypavi[fs]", re.DOTALL),
    "JPEG2000": re.compile(rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n"),
    "WEBP": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
"""Formats that a Pillow may lack."""
_INSTALL = {
    "AVIF": "pip install 'pillow>=11.3'",
    "JPEG2000": "install a Pillow that was built with OpenJPEG",
    "WEBP": "install a Pillow that was built with libwebp",
}
_CODECS = {"AVIF": "avif", "JPEG2000": "jpg_2000", "WEBP": "webp"}


class TooLargeError(ValueError):
    """An image beyond a limit: `max_pixels`, `formats` or `max_decode_s`."""


def open_picture(data: bytes, limits: Limits, formats: Sequence[str] | None = None) -> PIL.Image.Image:
    """Open the header by Pillow, as one of `formats` (None: those of `limits`).

    Raises TooLargeError beyond `max_pixels` or `max_decode_bytes`, before a plugin makes anything of that size, and for
    a format that `limits.formats` leaves out; ValueError for one that this Pillow lacks; and what Pillow's plugins
    raise, which is anything.
    """
    import PIL.Image

    _quieten()
    PIL.Image.init()
    _expect_small(stated_size(data), "WEBP", limits)
    wanted = [name for name in (formats or limits.formats) if name in PIL.Image.OPEN]
    if not is_tga(data):  # whose plugin takes whatever begins with fitting numbers
        wanted = [name for name in wanted if name != "TGA"]
    try:
        opened = PIL.Image.open(io.BytesIO(data), formats=wanted)
    except PIL.UnidentifiedImageError:
        _expect_known(data, limits)
        raise
    try:
        _expect_small(opened.size, opened.format or "image", limits)
    except TooLargeError:
        opened.close()
        raise
    return opened


def apart_formats(data: bytes, limits: Limits) -> list[str]:
    """Return the formats for which these bytes are decoded in a separate process; none: in this one."""
    import PIL.Image

    PIL.Image.init()
    odd = [name for name in limits.formats if name not in _DIRECT]
    return [name for name in odd if _accepts(name, data)]


def picture_size(data: bytes, *, exif: bool, limits: Limits) -> tuple[int, int]:
    """Return (width, height) from the header; (0, 0) where Pillow finds none, or it is beyond `limits`.

    `exif`: turned as its EXIF orientation says. Pillow turns a TIFF as it decodes it, whoever asks, and newer versions
    state the size that it then has.
    """
    try:
        with open_picture(data, limits) as opened:
            tags = getattr(opened, "tag_v2", None)  # a TIFF's
            width, height = opened.size if tags is None else (tags[tag] for tag in _TIFF_SIZE)
            turned = (exif or tags is not None) and opened.getexif().get(_ORIENTATION, 1) in _SIDEWAYS
            return (height, width) if turned else (width, height)
    except MemoryError:
        raise
    except Exception:  # Pillow's plugins raise anything (struct.error, EOFError, …) at damaged bytes
        return 0, 0


def stated_size(data: bytes) -> tuple[int, int]:
    """Return (width, height) of a WebP, by its first chunk; (0, 0) for anything else.

    Pillow's plugin makes two canvases of that size as it opens the file.
    https://developers.google.com/speed/webp/docs/riff_container
    """
    if not _BEGINNINGS["WEBP"].match(data) or len(data) < 30:
        return 0, 0
    match data[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def is_tga(data: bytes) -> bool:
    """Tell whether bytes are a TGA, which has no magic: by its footer, or by a header that fits the file's length."""
    if len(data) < 18:
        return False
    colour_map, kind, first, entries, entry_bits = struct.unpack_from("<xBBHHB", data)
    width, height, depth, flags = struct.unpack_from("<12xHHBB", data)
    mapped = kind in (1, 9)
    if kind not in (1, 2, 3, 9, 10, 11) or not width or not height or flags & 0xC0:
        return False
    if colour_map != mapped or (mapped and (entry_bits not in (15, 16, 24, 32) or not 0 < entries <= 256 - first)):
        return False
    if depth not in ({1: (8,), 2: (15, 16, 24, 32), 3: (1, 8, 16)}[kind & 7]):
        return False
    if data[-18:] == b"TRUEVISION-XFILE.\0":
        return True
    # Packed, a run of 128 pixels takes a byte and a pixel.
    pixel_bytes = (depth + 7) // 8
    least: int = -(-width * height // 128) * (1 + pixel_bytes) if kind >= 9 else (width * depth + 7) // 8 * height
    before: int = 18 + data[0] + (entries * ((entry_bits + 7) // 8) if mapped else 0)
    return len(data) >= before + least


def _expect_small(size: tuple[int, int], kind: str, limits: Limits) -> None:
    width, height = size
    if width * height > limits.max_pixels:
        raise TooLargeError(f"{kind} of {width}x{height} pixels, more than max_pixels={limits.max_pixels}")
    needed = width * height * (MOST_PIXEL_BYTES if kind in _COSTLY else 16)
    if needed > limits.max_decode_bytes:
        raise TooLargeError(
            f"{kind} of {width}x{height} pixels, whose decoding takes up to {needed} bytes, more than "
            f"max_decode_bytes={limits.max_decode_bytes}"
        )


def _expect_known(data: bytes, limits: Limits) -> None:
    """Raise TooLargeError for a format that the limits leave out, ValueError for one that this Pillow lacks."""
    import PIL.features
    import PIL.Image

    for name, beginning in _BEGINNINGS.items():
        if name in limits.formats and beginning.match(data):
            if name not in PIL.Image.OPEN or not PIL.features.check(_CODECS[name]):
                raise ValueError(f"expected a Pillow that decodes {name}, got {PIL.__version__} without it: "
                                 f"{_INSTALL[name]}")  # fmt: skip
            return
    refused = next((name for name in PIL.Image.OPEN if name not in limits.formats and _accepts(name, data)), None)
    if refused is not None:
        raise TooLargeError(f"{refused}, which is not among formats={limits.formats}")


def _accepts(name: str, data: bytes) -> bool:
    """Tell whether the plugin of that name knows its format by the first bytes; nothing else of it runs.

    EPS stays out: Pillow hands it to Ghostscript, and a program must not run because an image says so.
    """
    import PIL.Image

    if name == "EPS" or name not in PIL.Image.OPEN:
        return False
    accept = PIL.Image.OPEN[name][1]
    try:
        return accept is not None and accept(data[:16]) is True
    except Exception:  # they are made for more bytes than these may be
        return False


def _quieten() -> None:
    """Ignore Pillow's own warnings (large images, odd EXIF): `max_pixels` decides, and bad samples are counted.

    For good, and only those: `catch_warnings` changes the whole process's filters, and threads that leave it out of
    order would leave them changed.
    """
    if _QUIET not in warnings.filters:
        warnings.filters.insert(0, _QUIET)  # type: ignore[attr-defined]  # typed as a Sequence, documented as a list
