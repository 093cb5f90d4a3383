"""Files that hold an array and not a picture: `.npy`, `.npz` and EXR. Nothing in them is run: no pickles."""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.errors import UsageError
from headrace.feed.pillow import TooLargeError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NPY, _ZIP, _EXR = b"\x93NUMPY", b"PK\x03\x04", b"v/1\x01"

Header = tuple[tuple[int, ...], bool, "np.dtype[Any]"]
"""Shape, whether the first index changes fastest, and type."""


def holds_array(data: bytes) -> bool:
    """By its first bytes."""
    return data.startswith((_NPY, _ZIP, _EXR))


def read(data: bytes, limits: Limits) -> NDArray[np.generic]:
    """The array: [H, W] for an EXR of one channel, [H, W, 3] for one of red, green and blue, else as it was saved.

    Raises ValueError for a damaged file or several arrays, TooLargeError beyond `max_pixels`, UsageError where OpenEXR
    is not installed.
    """
    if data.startswith(_EXR):
        return _read_exr(data, limits)
    content = _only_member(data, limits) if data.startswith(_ZIP) else data
    return _read_npy(content, limits)


def shape(data: bytes) -> tuple[int, ...] | None:
    """Of the array, from the header; None where that cannot be read."""
    try:
        if data.startswith(_EXR):
            return _exr_size(_open_exr(data, header_only=True))
        return _header(io.BytesIO(_only_member(data, Limits()) if data.startswith(_ZIP) else data))[0]
    except (ValueError, RuntimeError):
        return None


def _header(file: io.BytesIO) -> Header:
    """Raises ValueError. Leaves the file where the values begin."""
    version = npy.read_magic(file)
    if version == (1, 0):
        return npy.read_array_header_1_0(file)
    if version == (2, 0):
        return npy.read_array_header_2_0(file)
    raise ValueError(f"expected an array of format 1.0 or 2.0, got {version[0]}.{version[1]}")


def _read_npy(data: bytes, limits: Limits) -> NDArray[np.generic]:
    file = io.BytesIO(data)
    try:
        shape, fortran, dtype = _header(file)
    except ValueError as error:
        raise ValueError(f"expected an array of numpy's, got a header that cannot be read ({error})") from error
    if dtype.hasobject:
        raise ValueError("expected numbers, got an array of Python objects, which are never unpickled")
    _check_pixels(shape, limits)
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


def _check_pixels(shape: tuple[int, ...], limits: Limits) -> None:
    if math.prod(shape) > 3 * limits.max_pixels:
        raise TooLargeError(f"an array of {list(shape)}, more than max_pixels={limits.max_pixels} of three channels")


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
        _check_pixels(_exr_size(_open_exr(data, header_only=True)), limits)
        channels: Mapping[str, Any] = _open_exr(data, header_only=False).channels()
    except (UsageError, TooLargeError):
        raise
    except Exception as error:  # the library raises RuntimeError, ValueError and its own at damaged bytes
        raise ValueError(f"expected an EXR, got bytes that OpenEXR cannot decode ({error})") from error
    if len(channels) != 1:
        names = ", ".join(sorted(channels))
        raise ValueError(f"expected an EXR of one channel, or of R, G and B, got {names}")
    values: NDArray[np.generic] = next(iter(channels.values())).pixels
    return values
