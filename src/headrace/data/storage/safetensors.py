"""Named arrays in a safetensors file, mapped, and verified before use.

The library's numpy reader (https://huggingface.co/docs/safetensors) copies every array. Mapped arrays let forked
processes share pages, and opening them is free. Files are untrusted: everything is verified before use.

An extra array, `checksums`, holds a CRC-32 of each CHECKED_BLOCK_BYTES of the bytes after it. The metadata holds the
CRC-32 of that array, and of the header itself.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, BinaryIO, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from headrace._core import CHECKED_BLOCK_BYTES, BlockChecks, BlockSums
from headrace.data.storage.file_writing import SpilledArray, scratch_file
from headrace.data.storage.open_file import OpenFile
from headrace.data.storage.strings import Ints, StoredArray, StoredStrings, StringColumn, Strings

T = TypeVar("T")

Arrays = dict[str, npt.NDArray[Any]]

_DTYPES = {
    "BOOL": "|b1",
    "I8": "<i1",
    "U8": "<u1",
    "I16": "<i2",
    "U16": "<u2",
    "F16": "<f2",
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
_CHECKSUMS = "checksums"
_BLANK = "00000000"
_BEGINNING = b'{"__metadata__": {"checksum": "'
"""Start of each header: its own checksum follows, in eight digits, which count as `_BLANK`."""
_CHECKED_AT_ONCE = 1 << 14
"""Entries per check: few enough for temporary arrays to fit in the CPU cache."""


class InvalidFileError(Exception):
    """File that this module did not write, or with unexpected content."""


class DamagedFileError(InvalidFileError):
    """File that differs from what this module wrote: checksums do not match, or it is cut short."""


class UncheckedFileError(InvalidFileError):
    """File without checksums, from earlier versions."""

    def __init__(self, format: str | None) -> None:
        super().__init__("it has no checksums")
        self.format = format
        """Format stated in the metadata."""


ArrayContent: TypeAlias = npt.NDArray[Any] | SpilledArray


def write_arrays(file: BinaryIO, arrays: Mapping[str, ArrayContent], metadata: Mapping[str, str]) -> None:
    """Write one-dimensional little-endian arrays, and their checksums, from the start of an empty file."""
    # Wide items first, after a header padded to 8 bytes: every mapped array is aligned.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    blocks = -(-sum(array.nbytes for array in arrays.values()) // CHECKED_BLOCK_BYTES)
    checksums = np.zeros(blocks + blocks % 2, "<u4")  # padded to 8 bytes, for the arrays after it
    entries = {_CHECKSUMS: _entry(checksums, 0)}
    at = checksums.nbytes
    for name in names:
        entries[name] = _entry(arrays[name], at)
        at += arrays[name].nbytes
    file.write(_header(entries, metadata, _BLANK) + checksums.tobytes())
    summing = BlockSums()
    for name in names:
        for piece in _pieces(arrays[name]):
            plain = np.ascontiguousarray(piece)
            summing.add(plain.reshape(-1).view(np.uint8))
            file.write(plain.data)
    checksums[:blocks] = summing.sums()
    file.seek(0)
    file.write(_header(entries, metadata, _crc(checksums.tobytes())) + checksums.tobytes())


def _entry(array: ArrayContent, at: int) -> dict[str, Any]:
    return {"dtype": _NAMES[array.dtype], "shape": [len(array)], "data_offsets": [at, at + array.nbytes]}


def _header(entries: Mapping[str, Any], metadata: Mapping[str, str], checksums: str) -> bytes:
    """Return the header, prefixed with its length."""
    known = {"checksum": _BLANK, _CHECKSUMS: checksums, **metadata}
    text = json.dumps({"__metadata__": known, **entries}).encode()
    text += b" " * (-len(text) % 8)
    return _signed(struct.pack("<Q", len(text)) + text)


def _signed(header: bytes) -> bytes:
    """Return a header, prefixed with its length, with its checksum filled in."""
    at = 8 + len(_BEGINNING)
    after = header[at + len(_BLANK) :]
    return header[:at] + _crc(header[:at] + _BLANK.encode() + after).encode() + after


def _crc(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


class MappedArrays(dict[str, npt.NDArray[Any]]):
    """Arrays mapped read-only from a file, and the file itself for readers that do not map."""

    def __init__(
        self,
        arrays: Mapping[str, npt.NDArray[Any]],
        file: OpenFile,
        at: Mapping[str, int],
        checks: BlockChecks | None = None,
    ) -> None:
        super().__init__(arrays)
        self.file = file
        self.at = at
        """First byte of each array in `file`."""
        self.checks = checks
        """Checksums; None: all arrays are verified, or this process has just written the file."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.values())

    def check_all(self) -> None:
        """Verify all bytes of all arrays, once. Raises DamagedFileError, ReadError."""
        for name in self:
            self.check(name)
        self.checks = None

    def check(self, name: str) -> None:
        """Verify the bytes of one array that are not verified yet. Raises as `check_all` does."""
        self.check_bytes(self.at[name], self.at[name] + self[name].nbytes)

    def check_bytes(self, start: int, stop: int) -> None:
        """Verify these bytes of the file. Raises as `check_all` does."""
        checks = self.checks
        if checks is None:
            return
        try:
            self.file.read_by(lambda descriptor: checks.check(descriptor, start, stop))
        except ValueError as error:
            raise DamagedFileError(str(error)) from error


class MappedFile:
    """File of arrays, or of several concatenated files of arrays, mapped once."""

    def __init__(self, path: str) -> None:
        """Open the file. Raises ReadError."""
        self.file = OpenFile(os.fsencode(path))

    def read(self, at: int = 0, size: int | None = None) -> tuple[MappedArrays, dict[str, str]]:
        """Return the arrays, and the metadata, of the file of `size` bytes at byte `at` of this file.

        The header is verified here, arrays by `MappedArrays.check` or on access. Raises InvalidFileError
        (DamagedFileError, UncheckedFileError), or OSError.
        """
        header, length = _read_header(self.file, at)
        metadata = header.pop("__metadata__")
        if not all(isinstance(value, str) for value in metadata.values()):
            raise InvalidFileError("metadata is not a map of strings")
        start, stop = at + length, None if size is None else at + size
        data = self._data[start:stop]
        arrays = {name: _array(entry, data) for name, entry in header.items()}
        places = {name: start + header[name]["data_offsets"][0] for name in arrays}
        checks = _checks(arrays, places, metadata)
        return MappedArrays(arrays, self.file, places, checks), metadata

    @cached_property
    def _data(self) -> npt.NDArray[np.uint8]:
        whole = self.file.read_by(lambda descriptor: mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        return np.ndarray(len(whole), np.uint8, whole)


def read_arrays(path: str) -> tuple[MappedArrays, dict[str, str]]:
    """Return the arrays in the file at `path`, and its metadata. Raises as `MappedFile.read` does."""
    return MappedFile(path).read()


def verified_arrays(path: str, format: str, of: str) -> Arrays:
    """Return the arrays in the file at `path`, with every byte verified, and this `format` and `of` in its metadata.

    Raises as `MappedFile.read` does.
    """
    arrays, metadata = read_arrays(path)
    if (metadata.get("format"), metadata.get("of")) != (format, of):
        raise InvalidFileError("it is of another content, or version")
    arrays.check_all()
    return dict(arrays)


def _checks(arrays: Arrays, at: dict[str, int], metadata: dict[str, str]) -> BlockChecks:
    """Remove the checksums from `arrays` and `at`, and return them."""
    checksums, begin = arrays.pop(_CHECKSUMS, None), at.pop(_CHECKSUMS, 0)
    metadata.pop("checksum", None)
    if checksums is None or checksums.dtype != np.uint32:
        raise InvalidFileError("there are no checksums")
    if _crc(checksums.tobytes()) != metadata.pop(_CHECKSUMS, None):
        raise DamagedFileError("its checksums do not fit their own")
    begin += checksums.nbytes
    end = max((at[name] + array.nbytes for name, array in arrays.items()), default=begin)
    blocks = -(-(end - begin) // CHECKED_BLOCK_BYTES)
    if begin > min(at.values(), default=begin) or len(checksums) != blocks + blocks % 2:
        raise InvalidFileError("there are not as many checksums as blocks")
    return BlockChecks(np.ascontiguousarray(checksums[:blocks]), begin=begin, end=end)


def mapped_arrays(contents: Mapping[str, ArrayContent]) -> Arrays:
    """Return the arrays as `read_arrays` would, from an unnamed file unless they are small. Raises DatasetError."""
    if sum(content.nbytes for content in contents.values()) <= _IN_MEMORY_BYTES:
        return {name: np.concatenate([np.empty(0, c.dtype), *_pieces(c)]) for name, c in contents.items()}
    with scratch_file(None) as scratch:
        with os.fdopen(scratch, "wb", closefd=False) as file:
            write_arrays(file, contents, {})
        found = read_arrays(f"/proc/self/fd/{scratch}")[0]
    found.checks = None
    return found


def _pieces(content: ArrayContent) -> Iterable[npt.NDArray[Any]]:
    return (content,) if isinstance(content, np.ndarray) else content.pieces()


def _read_header(file: OpenFile, at: int) -> tuple[dict[str, Any], int]:
    """Return the header at byte `at`, and its size in bytes with the length prefix."""
    lead = file.read(at, 8)
    size = int.from_bytes(lead, "little")
    if len(lead) < 8 or size > _MAX_HEADER_BYTES:
        raise DamagedFileError(f"expected a header of at most {_MAX_HEADER_BYTES} bytes")
    text = file.read(at + 8, size)
    if len(text) < size:
        raise DamagedFileError("the header ends early")
    signed = text.startswith(_BEGINNING)
    if signed and _signed(lead + text) != lead + text:
        raise DamagedFileError("the header does not fit its checksum")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError("the header is not JSON") from error
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(metadata, dict):
        raise DamagedFileError("the header is not a JSON object with metadata")
    if not signed:
        said = metadata.get("format")
        raise UncheckedFileError(said if isinstance(said, str) else None)
    return header, 8 + size


def _array(entry: Any, data: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    match entry:
        case {"dtype": str(dtype), "shape": [int(count)], "data_offsets": [int(start), int(stop)]} if dtype in _DTYPES:
            item = np.dtype(_DTYPES[dtype])
            if 0 <= start <= stop <= len(data) and stop - start == count * item.itemsize:
                array = data[start:stop].view(item)
                # Other programs may write unaligned arrays, which the core and memoryviews cannot read in place.
                if not array.flags.aligned:
                    raise InvalidFileError("an array is not aligned")
                return array
    raise InvalidFileError("an array does not fit the file")


def read_outline(text: str, type: type[T]) -> T:
    """Return the JSON outline in an index as a `msgspec.Struct`. Raises InvalidFileError."""
    try:
        return msgspec.convert(json.loads(text), type)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise InvalidFileError(f"the outline has another form ({error})") from error


def checked_array(arrays: Arrays, name: str, dtype: type[np.generic], count: int | None = None) -> npt.NDArray[Any]:
    """Return a verified array of `dtype` with `count` entries (None: any). Raises InvalidFileError."""
    found = _expected(arrays, name, (dtype,), count)
    if isinstance(arrays, MappedArrays):
        arrays.check(name)
    return found


def stored_numbers(
    arrays: Arrays, name: str, dtypes: Sequence[type[np.generic]], count: int | None = None
) -> npt.NDArray[Any] | StoredArray:
    """Return an array of one of `dtypes` with `count` entries, for arrays too long to verify at once.

    An array from a file is verified on access, except its first and last entries. Raises InvalidFileError.
    """
    found = _expected(arrays, name, dtypes, count)
    if not isinstance(arrays, MappedArrays):
        return found
    at = arrays.at[name]
    for start in (at, at + found.nbytes - found.itemsize) if len(found) else ():
        arrays.check_bytes(start, start + found.itemsize)
    return found if arrays.checks is None else StoredArray(found, arrays.file, at=at, checks=arrays.checks)


def _expected(arrays: Arrays, name: str, dtypes: Sequence[type[np.generic]], count: int | None) -> npt.NDArray[Any]:
    found = arrays.get(name)
    if found is None or found.dtype not in dtypes or (count is not None and len(found) != count):
        raise InvalidFileError(f"{name} is missing, or of another type or length")
    return found


def checked_strings(arrays: Arrays, name: str, count: int | None = None) -> StringColumn:
    """Return the strings in `name`.blob and `name`.offsets. Raises InvalidFileError unless offsets divide the blob."""
    blob = checked_array(arrays, f"{name}.blob", np.uint8)
    offsets = checked_array(arrays, f"{name}.offsets", np.uint64, None if count is None else count + 1)
    if not divides(offsets, len(blob)):
        raise InvalidFileError(f"{name}.offsets do not divide {name}.blob")
    return StringColumn(blob, offsets)


def stored_strings(arrays: Arrays, name: str, count: int | None = None) -> Strings:
    """Return strings too many to verify at once: from a file, each is verified on access.

    Raises InvalidFileError.
    """
    if not isinstance(arrays, MappedArrays):
        return checked_strings(arrays, name, count)
    blob = _expected(arrays, f"{name}.blob", (np.uint8,), None)
    offsets = stored_numbers(arrays, f"{name}.offsets", (np.uint64,), None if count is None else count + 1)
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(blob):
        raise InvalidFileError(f"{name}.offsets do not divide {name}.blob")
    return StoredStrings(
        arrays.file,
        blob_at=arrays.at[f"{name}.blob"],
        blob_bytes=len(blob),
        offsets_at=arrays.at[f"{name}.offsets"],
        count=len(offsets) - 1,
        checks=arrays.checks,
    )


def checked_indices(
    arrays: Arrays,
    name: str,
    size: int,
    *,
    count: int | None = None,
    dtype: type[np.signedinteger[Any]] = np.int64,
    first: int = 0,
) -> npt.NDArray[Any]:
    """Return indices from `first` to `size` - 1. Raises InvalidFileError."""
    found = checked_array(arrays, name, dtype, count)
    if len(found) and not (found.min() >= first and found.max() < size):
        raise InvalidFileError(f"{name} is out of range")
    return found


def divides(bounds: npt.NDArray[Any], size: int, *, empty: bool = True) -> bool:
    """Return True if `bounds` ascend from 0 to `size`, and so divide it; `empty`: True if parts may be empty."""
    if not len(bounds) or bounds[0] != 0 or bounds[-1] != size:
        return False
    rises = np.less_equal if empty else np.less
    return all(
        bool(rises(bounds[part], bounds[part.start + 1 : part.stop + 1]).all()) for part in _blocks(len(bounds) - 1)
    )


def ranges_lie_in(offset: Ints, length: Ints, *, first: int, end: int) -> bool:
    """Return True if all byte ranges are in [first, end)."""
    return all(
        bool(ranges_fit(offset[part], length[part], first=first, end=end).all()) for part in _blocks(len(offset))
    )


def ranges_fit(offset: Ints, length: Ints, *, first: int, end: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the byte ranges in [first, end)."""
    # Subtract, since a sum of two large numbers could wrap around.
    fits: npt.NDArray[np.bool_] = (length >= 0) & (length <= end) & (offset >= first) & (offset <= end - length)
    return fits


def _blocks(size: int) -> Iterator[slice]:
    for start in range(0, size, _CHECKED_AT_ONCE):
        yield slice(start, min(start + _CHECKED_AT_ONCE, size))
