"""Image headers opened with Pillow, within limits, for formats that the core declines."""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from headrace._core import Limits, exif_orientation

if TYPE_CHECKING:
    import PIL.Image


_QUIET = ("ignore", None, Warning, re.compile(r"PIL\."), 0)
ORIENTATION = 0x0112
"""EXIF tag of the orientation, 1 to 8, which a TIFF has among its own tags."""
_TIFF_SIZE = (256, 257)  # ImageWidth, ImageLength
SIDEWAYS = (5, 6, 7, 8)
"""Orientations that swap width and height."""

MOST_PIXEL_BYTES, _COSTLY = 24, ("BMP", "PPM", "WEBP")
"""Upper bound on memory per pixel for Pillow, its conversions and the array; 16 for formats not in `_COSTLY`.

Measured: WebP 19 to 23, BMP and PPM 20, CMYK JPEG 15, TIFF and GIF 12, TGA 8."""

_DIRECT = frozenset(("AVIF", "BMP", "GIF", "JPEG", "PNG", "PPM", "TGA", "TIFF", "WEBP"))
"""Formats decoded in this process: the file's pixels and bytes bound their time and memory."""
_BEGINNINGS = {
    "AVIF": re.compile(rb"....ftypavi[fs]", re.DOTALL),
    "HEIF": re.compile(rb"....ftyp(hei[cmsx]|hev[cmsx]|mif1|msf1)", re.DOTALL),
    "JPEG2000": re.compile(rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n"),
    "WEBP": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
"""Signatures of formats that a Pillow build may lack, or that a plugin reads."""
_INSTALL = {
    "AVIF": "pip install 'pillow>=11.3'",
    "HEIF": "pip install pillow-heif",
    "JPEG2000": "install a Pillow that was built with OpenJPEG",
    "WEBP": "install a Pillow that was built with libwebp",
}
_CODECS = {"AVIF": "avif", "JPEG2000": "jpg_2000", "WEBP": "webp"}


class TooLargeError(ValueError):
    """Image beyond a limit: `max_pixels`, `max_decode_bytes`, `formats` or `max_decode_s`."""


def open_picture(data: bytes, limits: Limits, formats: Sequence[str] | None = None) -> PIL.Image.Image:
    """Open the header with Pillow, as one of `formats` (None: those in `limits`).

    Raises TooLargeError beyond `max_pixels` or `max_decode_bytes`, before a plugin allocates that much, and for a
    format not in `limits.formats`. Raises ValueError for a format that this Pillow lacks, and any exception of Pillow's
    plugins.
    """
    import PIL.Image

    _quieten()
    _init_plugins(data)
    _expect_small(stated_size(data), "WEBP", limits)
    wanted = [name for name in (formats or limits.formats) if name in PIL.Image.OPEN]
    if not is_tga(data):  # the TGA plugin accepts any data with plausible numbers
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
    """Return the formats that require a separate process for these bytes; empty: none does."""
    _init_plugins(data)
    odd = [name for name in limits.formats if name not in _DIRECT]
    return [name for name in odd if _accepts(name, data)]


def picture_size(data: bytes, *, exif: bool, limits: Limits) -> tuple[int, int]:
    """Return (width, height) from the header; (0, 0) if Pillow cannot read it, or beyond `limits`.

    `exif`: apply the EXIF orientation. Pillow always rotates a TIFF while decoding, and newer versions report the
    rotated size.
    """
    try:
        with open_picture(data, limits) as opened:
            tags = getattr(opened, "tag_v2", None)  # TIFF only
            width, height = opened.size if tags is None else (tags[tag] for tag in _TIFF_SIZE)
            sideways = (exif or tags is not None) and orientation_of(opened) in SIDEWAYS
            return (height, width) if sideways else (width, height)
    except MemoryError:
        raise
    except Exception:  # Pillow's plugins raise any exception (struct.error, EOFError, …) for damaged bytes
        return 0, 0


def orientation_of(opened: PIL.Image.Image) -> int:
    """Return the EXIF orientation, 1 if there is none, or if the metadata is damaged: viewers show such an image."""
    try:
        found = opened.getexif().get(ORIENTATION, 1)
    except MemoryError:
        raise
    except Exception:  # as above
        return 1
    return found if found in range(1, 9) else 1


def picture_orientation(data: bytes, limits: Limits) -> int:
    """Return the EXIF orientation by which the image is decoded, in the core or by Pillow. Raises as `open_picture`."""
    by_core = exif_orientation(data, limits)
    if by_core is not None:
        return by_core
    with open_picture(data, limits) as opened:
        return orientation_of(opened)


def turned(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Return a view of stored pixels [H, W, …] as an EXIF orientation displays them."""
    if orientation in SIDEWAYS:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels[::-1] if orientation in (3, 4, 7, 8) else pixels


def stated_size(data: bytes) -> tuple[int, int]:
    """Return (width, height) of a WebP from its first chunk; (0, 0) for anything else.

    Pillow's plugin allocates two canvases of that size when it opens the file.
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
    """Return True for a TGA, which has no magic: a valid header, with the TGA footer or enough data for the pixels."""
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
    # Run-length encoded, 128 pixels take at least one byte and one pixel.
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
    """Raise TooLargeError for a format not in `limits.formats`, ValueError for one that this Pillow lacks."""
    import PIL.features
    import PIL.Image

    for name, beginning in _BEGINNINGS.items():
        if name in limits.formats and beginning.match(data):
            if name not in PIL.Image.OPEN or (name in _CODECS and not PIL.features.check(_CODECS[name])):
                raise ValueError(f"expected a Pillow that decodes {name}, got {PIL.__version__} without it: "
                                 f"{_INSTALL[name]}")  # fmt: skip
            return
    refused = next((name for name in PIL.Image.OPEN if name not in limits.formats and _accepts(name, data)), None)
    if refused is not None:
        raise TooLargeError(f"{refused}, which is not among formats={limits.formats}")


def _accepts(name: str, data: bytes) -> bool:
    """Return True if the plugin of that name accepts the first bytes; no other plugin code runs.

    EPS is excluded: Pillow passes it to Ghostscript, and an image must never start a program.
    """
    import PIL.Image

    if name == "EPS" or name not in PIL.Image.OPEN:
        return False
    accept = PIL.Image.OPEN[name][1]
    try:
        return accept is not None and accept(data[:16]) is True
    except Exception:  # plugins expect more bytes than there may be
        return False


def _init_plugins(data: bytes) -> None:
    """Load Pillow's plugins, and that of pillow-heif, if it is installed, for its format."""
    import PIL.Image

    PIL.Image.init()
    if "HEIF" not in PIL.Image.OPEN and _BEGINNINGS["HEIF"].match(data):
        with suppress(ImportError):
            import pillow_heif

            pillow_heif.register_heif_opener()


def _quieten() -> None:
    """Ignore Pillow's own warnings (large images, odd EXIF): `max_pixels` decides, and bad samples are counted.

    The filter is permanent and covers only these warnings. `catch_warnings` changes the filters of the whole process;
    threads that exit it out of order would leave them changed.
    """
    if _QUIET not in warnings.filters:
        warnings.filters.insert(0, _QUIET)  # type: ignore[attr-defined]  # typed as a Sequence, documented as a list
