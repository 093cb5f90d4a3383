"""Array files: `.npy`, `.npz`, EXR and TIFFs beyond 8 bits. No pickles."""

from __future__ import annotations

import io
import math
import re
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.data.pillow_images import ORIENTATION, SIDEWAYS, TooLargeError, open_picture, turned
from headrace.errors import UsageError

if TYPE_CHECKING:
    import tifffile

Found = TypeVar("Found")

_NPY, _ZIP, _EXR = b"\x93NUMPY", b"PK\x03\x04", b"v/1\x01"
_TIFF_BEGINNINGS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""First bytes of TIFF and BigTIFF, in either byte order."""
_BYTE_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
_BITS_PER_SAMPLE = 258
_CHANNELS = (1, 3)
"""Channel counts that fields have."""

_PLAIN = re.compile(
    rb"\{'descr': '(?P<type>[<>|=](?:b1|[iu][1248]|f[248]))', 'fortran_order': (?P<fortran>True|False), "
    rb"'shape': \((?P<shape>\d{1,9},(?: ?\d{1,9},?){0,3})\), \} *\n"
)
_MOST_HEADER_BYTES = 10_000
_evaluating = threading.Lock()

Header = tuple[tuple[int, ...], bool, "np.dtype[Any]"]
"""Shape, True for Fortran order, and dtype."""


def holds_array(data: bytes) -> bool:
    """Return True if the first bytes match an array file."""
    return data.startswith((_NPY, _ZIP, _EXR))


def read_array(data: bytes, limits: Limits, *, channels: int = 3) -> NDArray[np.generic]:
    """Return the array: [H, W] for an EXR of one channel, [H, W, 3] for an RGB EXR, else the saved shape.

    Raises ValueError for a damaged file or several arrays, TooLargeError beyond `max_pixels` of `channels` channels,
    and UsageError if OpenEXR is not installed.
    """
    if data.startswith(_EXR):
        return _read_exr(data, limits)
    content = _only_member(data, limits) if data.startswith(_ZIP) else data
    return _read_npy(content, limits, channels)


def read_numbers(data: bytes, limits: Limits) -> NDArray[np.generic]:
    """Return the array of an `.npy`, or of an `.npz` with one array, as saved. Raises as `read_array` does."""
    if not data.startswith((_NPY, _ZIP)):
        raise ValueError(f"expected an .npy, or an .npz of one array, got bytes that begin with {data[:8]!r}")
    return read_array(data, limits)


def array_size(data: bytes, channels: int | None = None) -> tuple[int, int]:
    """Return (width, height) from the header; (0, 0) for an unreadable header or an array that is not an image.

    `channels` is the expected number of channels, if not one or three.
    """
    try:
        shape = _shape(data)
    except (ValueError, RuntimeError):
        return 0, 0
    if len(shape) not in (2, 3):
        return 0, 0
    if channels is None:
        planar = any(is_planar(shape, each) for each in _CHANNELS)
    else:
        planar = len(shape) == 3 and shape[2] != channels and shape[0] == channels
    height, width = shape[1:] if planar else shape[:2]
    return width, height


def is_planar(shape: tuple[int, ...], channels: int) -> bool:
    """Return True if an array with `channels` channels has the shape [C, H, W]."""
    return len(shape) == 3 and shape[0] == channels and shape[2] not in _CHANNELS


def _shape(data: bytes) -> tuple[int, ...]:
    if data.startswith(_EXR):
        return _exr_size(_open_exr(data, header_only=True))
    return _header(io.BytesIO(_only_member(data, Limits()) if data.startswith(_ZIP) else data))[0]


def _header(file: io.BytesIO) -> Header:
    """Read the header and leave the file at the first value. Raises ValueError."""
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"expected an array of format 1.0 or 2.0, got {version[0]}.{version[1]}")
    found = _plain_header(file, version[0])
    if found is None:
        with _evaluating:
            found = npy.read_array_header_1_0(file) if version == (1, 0) else npy.read_array_header_2_0(file)
    return found


def _plain_header(file: io.BytesIO, version: int) -> Header | None:
    """Parse a header as numpy writes it; return None, with the file rewound, for any other header.

    numpy evaluates headers with `ast`, which is slow. Up to Python 3.12.1 it also fails if two threads do so at once
    (CPython issue 106905).
    """
    start = file.tell()
    length = struct.Struct("<H" if version == 1 else "<I")
    text = file.read(length.size)
    if len(text) == length.size:
        text = file.read(min(length.unpack(text)[0], _MOST_HEADER_BYTES))
    found = _PLAIN.fullmatch(text)
    if found is None:
        file.seek(start)
        return None
    sides = tuple(int(side) for side in found["shape"].split(b",") if side.strip())
    return sides, found["fortran"] == b"True", np.dtype(found["type"].decode())


def _read_npy(data: bytes, limits: Limits, channels: int) -> NDArray[np.generic]:
    file = io.BytesIO(data)
    try:
        shape, fortran, dtype = _header(file)
    except ValueError as error:
        raise ValueError(f"expected an array of numpy's, got a header that cannot be read ({error})") from error
    if dtype.hasobject:
        raise ValueError("expected numbers, got an array of Python objects, which are never unpickled")
    check_pixels(shape, limits, channels)
    count, rest = math.prod(shape), len(data) - file.tell()
    if count * dtype.itemsize > rest:
        raise ValueError(f"expected {count * dtype.itemsize:,} bytes of values, got {rest:,}: the file is cut short")
    values = np.frombuffer(data, dtype, count, file.tell())
    return values.reshape(shape, order="F" if fortran else "C")


def _only_member(data: bytes, limits: Limits) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) != 1:
                names = ", ".join(member.filename for member in members[:8])
                raise ValueError(f"expected an .npz of one array, got {len(members)}: {names}")
            if members[0].file_size > limits.max_file_bytes:
                raise TooLargeError(
                    f"an array of {members[0].file_size:,} bytes, more than max_file_bytes={limits.max_file_bytes}"
                )
            return archive.read(members[0])
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error) as error:
        raise ValueError(f"expected an .npz, got a zip that cannot be read ({error})") from error


def check_pixels(shape: tuple[int, ...], limits: Limits, channels: int = 3) -> None:
    """Raise TooLargeError for more values than `max_pixels` pixels of `channels` channels (at least three)."""
    most = max(3, channels)
    if math.prod(shape) > most * limits.max_pixels:
        raise TooLargeError(f"an array of {list(shape)}, more than max_pixels={limits.max_pixels} of {most} channels")


def _open_exr(data: bytes, *, header_only: bool) -> Any:
    try:
        import OpenEXR
    except ImportError as error:
        raise UsageError("reading EXR needs OpenEXR: pip install OpenEXR") from error
    return OpenEXR.File(io.BytesIO(data), header_only=header_only, num_threads=0)


def _exr_size(file: Any) -> tuple[int, int]:
    (left, top), (right, bottom) = file.header()["dataWindow"]
    return int(bottom) - int(top) + 1, int(right) - int(left) + 1


def _read_exr(data: bytes, limits: Limits) -> NDArray[np.generic]:
    try:
        header = _open_exr(data, header_only=True)
        names = [channel.name for part in header.parts for channel in part.header["channels"]]
        check_pixels((*_exr_size(header), len(names)), limits)
        channels: Mapping[str, Any] = {} if len(names) > 3 else _open_exr(data, header_only=False).channels()
    except (UsageError, TooLargeError):
        raise
    except Exception as error:  # OpenEXR raises RuntimeError, ValueError and its own errors for damaged bytes
        raise ValueError(f"expected an EXR, got bytes that OpenEXR cannot decode ({error})") from error
    if len(channels) != 1:
        some = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        raise ValueError(f"expected an EXR of one channel, or of R, G and B, got {some}")
    values: NDArray[np.generic] = next(iter(channels.values())).pixels
    return values


def is_tiff(data: bytes) -> bool:
    """Return True if the first bytes match a TIFF."""
    return data.startswith(_TIFF_BEGINNINGS)


def is_byte_tiff(data: bytes, limits: Limits) -> bool:
    """Return True if Pillow opens the TIFF without loss: it has at most 8 bits per channel."""
    try:
        with open_picture(data, limits, ["TIFF"]) as opened:
            bits: Any = opened.tag_v2.get(_BITS_PER_SAMPLE, (1,))  # type: ignore[attr-defined]  # of a TIFF
            return opened.mode in _BYTE_MODES and max(bits if isinstance(bits, tuple) else (bits,)) <= 8
    except MemoryError:
        raise
    except Exception:  # Pillow's plugins raise any exception for unknown or damaged bytes
        return False


def tiff_size(data: bytes) -> tuple[int, int]:
    """Return (width, height) of the first page; (0, 0) if it cannot be read."""

    def size_of(page: tifffile.TiffPage) -> tuple[int, int]:
        width, height = int(page.imagewidth), int(page.imagelength)
        return (height, width) if page.tags.valueof(ORIENTATION) in SIDEWAYS else (width, height)

    try:
        return _of_tiff_page(data, size_of)
    except ValueError:
        return 0, 0


def read_tiff(data: bytes, limits: Limits) -> NDArray[np.generic]:
    """Return the values of the first page as [H, W] or [H, W, C], for any planar layout of the file.

    The page is turned by its orientation, as Pillow always turns a TIFF.

    Raises ValueError for data that cannot be decoded, TooLargeError beyond `limits`, and UsageError without tifffile.
    """

    def values_of(page: tifffile.TiffPage) -> NDArray[np.generic]:
        bands = int(page.samplesperpixel)
        check_pixels((int(page.imagelength), int(page.imagewidth), bands), limits, bands)
        if len(data) < page.nbytes and page.compression == 1:
            raise ValueError(f"expected {page.nbytes:,} bytes of values, got a file of {len(data):,}")
        values = np.asarray(page.asarray())
        planar = values.ndim == 3 and page.axes.startswith("S")
        return turned(np.moveaxis(values, 0, -1) if planar else values, page.tags.valueof(ORIENTATION, 1))

    return _of_tiff_page(data, values_of)


def _of_tiff_page(data: bytes, take: Callable[[tifffile.TiffPage], Found]) -> Found:
    try:
        import tifffile
    except ImportError as error:
        raise UsageError("reading a TIFF of other than 8-bit colour needs tifffile: pip install tifffile") from error
    try:
        with tifffile.TiffFile(io.BytesIO(data)) as file:
            return take(file.pages.first)
    except (MemoryError, TooLargeError):
        raise
    except Exception as error:  # tifffile raises its own errors, struct.error, IndexError, … for damaged bytes
        raise ValueError(f"expected a TIFF, got bytes that tifffile cannot decode ({error})") from error
