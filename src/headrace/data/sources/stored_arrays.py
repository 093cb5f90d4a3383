"""Arrays in files as columns: `.npy`, `.npz` and HDF5, whose names of arrays are the columns.

Arrays of images stay in their file if their bytes lie there in order. Compressed arrays, and those in chunks, are
unpacked once, into the cache folder: unpacking on access would unpack a chunk for each sample of a shuffled epoch.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from headrace.data.array_columns import (
    ArrayColumn,
    Layout,
    array_in_file,
    array_in_memory,
    npy_header,
    with_channels_last,
)
from headrace.data.byte_columns import BytesLike, MemoryFile
from headrace.data.class_names import names_text
from headrace.data.sources.memory_samples import table_of_columns
from headrace.data.storage.file_writing import UnwritableError, finish_partial_file
from headrace.data.storage.sidecar import build_cached, identify_rows, sidecar_places
from headrace.data.table import PathRoot, SampleTable
from headrace.errors import DatasetError, HeadraceError, UsageError, warn_caller

_CACHED_FROM_BYTES = 1 << 20
"""Smaller arrays are unpacked at each opening, to avoid an extra file for each."""
_PIECE_BYTES = 4 << 20
_LOCAL_HEADER = struct.Struct("<26xHH")
"""Local header of a zip's member: lengths of its name and of its extra field."""

Pieces = Iterator[BytesLike]


@dataclass(frozen=True)
class _StoredArray:
    """Array of a file, which is not read yet."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    first: int | None
    """First byte in the file; None if the bytes do not lie there in C order without compression."""
    pieces: Callable[[], Pieces]
    """Function that yields the bytes in C order."""
    read: Callable[[], Any]
    """Function that returns all values."""


def open_arrays(
    path: str, columns: Sequence[str] | None, *, root: PathRoot, cache: str | None, layout: Layout | None
) -> SampleTable:
    """Return one sample per row of the arrays in the file at `path`; `columns` selects arrays by name.

    Raises DatasetError for a damaged file or Python objects, UsageError for arrays of unequal lengths or a name that
    the file does not have, and if HDF5 is read without h5py.
    """
    with _reading(path), _arrays(path) as arrays:
        names = [name for name, each in arrays.items() if each.shape] if columns is None else list(columns)
        for name in names:
            if name not in arrays:
                raise UsageError(f"columns: expected names of arrays ({names_text(list(arrays))}), got {name!r}")
        if len({arrays[name].shape[:1] for name in names}) > 1:
            shapes = ", ".join(f"{name} {list(arrays[name].shape)}" for name in names)
            raise UsageError(
                f"{path}: expected arrays of one length, got {shapes}. Select those of one split with columns=[…]"
            )
        values = {name: _column(path, name, arrays[name], cache, layout) for name in names}
    return replace(table_of_columns(values, None, root=root), source=f"{os.path.basename(path)}")


def npy_column(path: str, layout: Layout | None) -> Any:
    """Return the column of an `.npy`: an array in the file, or its values. Raises DatasetError."""
    with _reading(path), _npy_arrays(path) as arrays:
        return _column(path, "image", arrays["image"], None, layout)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Raise DatasetError for what NumPy, zipfile and h5py raise for damaged files."""
    try:
        yield
    except HeadraceError:
        raise
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise DatasetError(f"{path}: expected arrays, got a damaged file: {error}. Write it again") from error


def _column(path: str, name: str, array: _StoredArray, cache: str | None, layout: Layout | None) -> Any:
    if array.dtype.hasobject or array.dtype.kind not in "biuf" or len(array.shape) < 3:
        return array.read()
    column = _in_file(path, name, array, cache)
    values: npt.NDArray[Any] = np.asarray(column.items).reshape(array.shape)
    turned = with_channels_last(name, values, layout)
    return column if turned is values else array_in_memory(turned)


def _in_file(path: str, name: str, array: _StoredArray, cache: str | None) -> ArrayColumn:
    if array.first is not None:
        return array_in_file(path, array.first, array.dtype, array.shape)
    if math.prod(array.shape) * array.dtype.itemsize >= _CACHED_FROM_BYTES:
        try:
            return _unpacked(path, name, array, cache)
        except UnwritableError as error:
            warn_caller(f"{path}: {name!r} is unpacked into memory ({error}). Name a writable folder as cache=")
    file = MemoryFile()
    for piece in _pieces(path, array):
        file.put(piece)
    return array_in_file(file, 0, array.dtype, array.shape)


def _pieces(path: str, array: _StoredArray) -> Pieces:
    """Yield the array's bytes. A failed read is a DatasetError, also while another file is written."""
    with _reading(path):
        yield from array.pieces()


def _unpacked(path: str, name: str, array: _StoredArray, cache: str | None) -> ArrayColumn:
    """Return the array in an `.npy` in the cache folder, which one process writes. Raises UnwritableError."""
    variant = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    (place,) = sidecar_places(path, identify_rows(path), cache, variant=f"{variant}.values", beside=False)
    header = npy_header(array.shape, array.dtype).tobytes()
    size = math.prod(array.shape) * array.dtype.itemsize

    def load() -> ArrayColumn | None:
        try:
            with open(place, "rb") as file:
                is_array = file.read(len(header)) == header and os.path.getsize(place) == len(header) + size
        except OSError:
            return None
        return array_in_file(place, len(header), array.dtype, array.shape) if is_array else None

    def write(file: BinaryIO) -> None:
        file.write(header)
        for piece in _pieces(path, array):
            file.write(piece)

    return load() or build_cached(place, load, lambda partial: finish_partial_file(partial, place, write))


def _arrays(path: str) -> AbstractContextManager[Mapping[str, _StoredArray]]:
    with open(path, "rb") as file:
        head = file.read(6)
    opened = _npz_arrays if head.startswith(b"PK") else _npy_arrays if head[1:] == b"NUMPY" else _hdf5_arrays
    return opened(path)


@contextmanager
def _npy_arrays(path: str) -> Iterator[Mapping[str, _StoredArray]]:
    with open(path, "rb") as file:
        shape, fortran, dtype = _npy_header(file)
        first = None if fortran else file.tell()
    read = partial(np.load, path, allow_pickle=False)

    def pieces() -> Pieces:
        yield np.ascontiguousarray(read()).data.cast("B")

    yield {"image": _StoredArray(shape, dtype, first, pieces, read)}


@contextmanager
def _npz_arrays(path: str) -> Iterator[Mapping[str, _StoredArray]]:
    with zipfile.ZipFile(path) as archive:
        members = [each for each in archive.infolist() if each.filename.endswith(".npy")]
        yield {each.filename.removesuffix(".npy"): _npz_array(path, archive, each) for each in members}


def _npz_array(path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> _StoredArray:
    with archive.open(member) as file:
        shape, fortran, dtype = _npy_header(file)
        header = file.tell()
    if math.prod(shape) * dtype.itemsize != member.file_size - header and not dtype.hasobject:
        raise DatasetError(
            f"{path}: expected {list(shape)} of {dtype} in {member.filename}, got {member.file_size:,} bytes. Write it "
            f"again"
        )

    def read() -> npt.NDArray[Any]:
        with archive.open(member) as file:
            values: npt.NDArray[Any] = npy.read_array(file, allow_pickle=False)
            return values

    def pieces() -> Pieces:
        if fortran:
            yield np.ascontiguousarray(read()).data.cast("B")
            return
        with archive.open(member) as file:
            file.read(header)
            while piece := file.read(_PIECE_BYTES):
                yield piece

    first = None
    if member.compress_type == zipfile.ZIP_STORED and not fortran:
        with open(path, "rb") as file:
            file.seek(member.header_offset)
            lengths = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            first = member.header_offset + _LOCAL_HEADER.size + sum(lengths) + header
    return _StoredArray(shape, dtype, first, pieces, read)


def _npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    read = npy.read_array_header_1_0 if npy.read_magic(file)[0] == 1 else npy.read_array_header_2_0
    header: tuple[tuple[int, ...], bool, np.dtype[Any]] = read(file)
    return header


@contextmanager
def _hdf5_arrays(path: str) -> Iterator[Mapping[str, _StoredArray]]:
    try:
        import h5py
    except ImportError as error:
        raise UsageError("reading HDF5 needs h5py: pip install h5py") from error
    with h5py.File(path, "r") as file:
        arrays: dict[str, _StoredArray] = {}

        def add(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                arrays[name] = _hdf5_array(item, text=h5py.check_string_dtype(item.dtype) is not None)

        file.visititems(add)
        yield arrays


def _hdf5_array(data: Any, *, text: bool) -> _StoredArray:
    def read() -> Any:
        if data.dtype.hasobject and not text:  # vectors of bytes, such as encoded images
            return [each.tobytes() if each.dtype == np.uint8 else each for each in data[()]]
        return data.asstr()[()].tolist() if text else data[()]

    def pieces() -> Pieces:
        rows = max(1, _PIECE_BYTES // max(1, data.nbytes // max(1, len(data))))
        step = rows if data.chunks is None else -(-rows // data.chunks[0]) * data.chunks[0]
        for start in range(0, len(data), step):
            yield np.ascontiguousarray(data[start : start + step]).reshape(-1).view(np.uint8).data

    is_plain = data.chunks is None and not data.is_virtual and not data.external
    return _StoredArray(data.shape, data.dtype, data.id.get_offset() if is_plain else None, pieces, read)
