"""Named arrays in one file, in the safetensors format (https://huggingface.co/docs/safetensors).

Written and parsed here because the library's numpy reader copies every array; these are mapped, so forked processes
share their pages and opening costs nothing. Files are untrusted: everything is checked before it is used.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from .open_file import OpenFile
from .scratch_file import no_room, scratch_file

Arrays = dict[str, npt.NDArray[Any]]

_DTYPES = {
    "BOOL": "|b1",
    "U8": "<u1",
    "I32": "<i4",
    "U32": "<u4",
    "F32": "<f4",
    "I64": "<i8",
    "U64": "<u8",
    "F64": "<f8",
}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_MAX_HEADER_BYTES = 1 << 20
_IN_MEMORY_BYTES = 8 << 20


class InvalidFileError(Exception):
    """The file is not what this module writes."""


class Growing(Protocol):
    """An array that is longer than memory should have to be."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """The array in order, a part at a time."""
        ...


Content: TypeAlias = npt.NDArray[Any] | Growing


def write(file: BinaryIO, arrays: Mapping[str, Content], metadata: Mapping[str, str]) -> None:
    """Writes one-dimensional little-endian arrays."""
    # Wide items first, after a header padded to 8 bytes: every array is aligned when it is mapped.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    for name in names:
        array = arrays[name]
        header[name] = {"dtype": _NAMES[array.dtype], "shape": [len(array)], "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for name in names:
        for piece in _pieces(arrays[name]):
            file.write(np.ascontiguousarray(piece).data)


class Mapped(dict[str, npt.NDArray[Any]]):
    """Arrays mapped from a file, read-only, and the file itself, for who would rather read than map."""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]], file: OpenFile, at: Mapping[str, int]) -> None:
        super().__init__(arrays)
        self.file = file
        self.at = at
        """The byte in `file` at which each array begins."""


def read(path: str) -> tuple[Mapped, dict[str, str]]:
    """The arrays in the file at `path`, and its metadata. Raises InvalidFileError, or OSError."""
    file = OpenFile(os.fsencode(path))
    header, start = _read_header(file)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InvalidFileError("metadata is not a map of strings")
    whole = file.read_by(lambda descriptor: mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    data = np.ndarray(len(whole), np.uint8, whole)[start:]
    arrays = {name: _array(entry, data) for name, entry in header.items()}
    return Mapped(arrays, file, {name: start + header[name]["data_offsets"][0] for name in arrays}), metadata


def mapped(contents: Mapping[str, Content]) -> Arrays:
    """What `read` would give of these in a file: out of an unnamed one, unless they are few. Raises DatasetError."""
    if sum(content.nbytes for content in contents.values()) <= _IN_MEMORY_BYTES:
        return {name: np.concatenate([np.empty(0, c.dtype), *_pieces(c)]) for name, c in contents.items()}
    with scratch_file(None) as scratch:
        try:
            with os.fdopen(scratch.fileno(), "wb", closefd=False) as file:
                write(file, contents, {})
        except OSError as error:
            raise no_room(None, error) from error
        return read(f"/proc/self/fd/{scratch.fileno()}")[0]


def _pieces(content: Content) -> Iterable[npt.NDArray[Any]]:
    return (content,) if isinstance(content, np.ndarray) else content.pieces()


def _read_header(file: OpenFile) -> tuple[dict[str, Any], int]:
    lead = file.read(0, 8)
    size = int.from_bytes(lead, "little")
    if len(lead) < 8 or size > _MAX_HEADER_BYTES:
        raise InvalidFileError(f"expected a header of at most {_MAX_HEADER_BYTES} bytes")
    text = file.read(8, size)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFileError("the header is not JSON") from error
    if len(text) < size or not isinstance(header, dict):
        raise InvalidFileError("the header is not a JSON object")
    return header, 8 + size


def _array(entry: Any, data: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    match entry:
        case {"dtype": str(dtype), "shape": [int(count)], "data_offsets": [int(start), int(stop)]} if dtype in _DTYPES:
            item = np.dtype(_DTYPES[dtype])
            if 0 <= start <= stop <= len(data) and stop - start == count * item.itemsize:
                array = data[start:stop].view(item)
                # Others may write it so. The core reads arrays in place, and a memoryview cannot look into such a one.
                if not array.flags.aligned:
                    raise InvalidFileError("an array is not aligned")
                return array
    raise InvalidFileError("an array does not fit the file")
