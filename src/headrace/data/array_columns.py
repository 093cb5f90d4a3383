"""Columns of arrays [N, …] in files: lists of numbers for fields of values, `.npy` files for fields of pixels.

The core reads a row where it lies, after a header that is the same for all rows: neither side makes an object per row.
"""

from __future__ import annotations

import io
import math
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from headrace.data.byte_columns import MemoryFile, RowFiles
from headrace.data.columns import ByteColumn, BytesInMemory, ColumnPart, ListColumn
from headrace.data.location import ColumnFiles, Location
from headrace.data.storage.strings import Ints
from headrace.data.table import content_sample
from headrace.errors import DatasetError, UsageError

Layout: TypeAlias = Literal["NHWC", "NCHW"]
"""Order of the dimensions of images: samples, height, width, channels."""

_CHANNELS = (1, 3)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ArrayColumn(ListColumn):
    """Column with one row of an array [N, H, …] per sample, which lies in C order in a file."""

    file: MemoryFile | str
    """File in memory, or the absolute path of a file."""
    first: int
    """First byte of the array in the file."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of each sample's array."""
        return (len(self.items) // (len(self.offsets) - 1), *self.items.shape[1:])  # type: ignore[union-attr]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.items.dtype  # type: ignore[union-attr]  # numbers

    @property
    def holds_pictures(self) -> bool:
        """True if the rows fit a PNG: uint8 of 1 or 3 channels, or uint16 of one."""
        shape, most = self.row_shape, 3 if self.dtype == np.uint8 else 1
        channels = [1] if len(shape) == 2 else [each for each in (shape[0], shape[2]) if each in _CHANNELS]
        return len(shape) in (2, 3) and bool(channels) and self.dtype in (np.uint8, np.uint16) and max(channels) <= most

    @cached_property
    def as_bytes(self) -> ByteColumn:
        header = npy_header(self.row_shape, self.dtype)
        rows = _ArrayRows if isinstance(self.file, str) else _RowsInMemory
        return rows(RowFiles.of([self.file]), self.first, math.prod(self.row_shape) * self.dtype.itemsize, header, self)

    def parts(self) -> Iterator[ColumnPart]:
        """Yield shape, type and content; of a file, a sample of the content."""
        shape = (len(self.offsets) - 1, *self.row_shape)
        yield np.array(shape), "<i8"
        yield np.frombuffer(self.dtype.str.encode(), np.uint8), "<u1"
        if isinstance(self.file, str):
            yield np.frombuffer(repr(content_sample(shape[0], self.as_bytes)).encode(), np.uint8), "<u1"
        else:
            yield np.asarray(self.items).reshape(-1).view(np.uint8), "<u1"

    def __reduce__(self) -> tuple[Any, ...]:
        shape = (len(self.offsets) - 1, *self.row_shape)
        return array_in_file, (self.file, self.first, self.dtype, shape, self.classes)


@dataclass(frozen=True, eq=False, repr=False)
class _ArrayRows(ByteColumn):
    """Rows of an array as `.npy` files, each of which is a header and the row's bytes in the file."""

    files: ColumnFiles
    first: int
    row_bytes: int
    header: npt.NDArray[np.uint8]
    """[1, k]"""
    column: ArrayColumn

    def locate(self, ids: Ints) -> Location:
        number, length = np.zeros(len(ids), np.int64), np.full(len(ids), self.row_bytes, np.int64)
        return Location(
            number, self.first + ids * self.row_bytes, length, None, prefix=self.header.repeat(len(ids), axis=0)
        )

    def stored_bytes(self, ids: Ints) -> Ints:
        return np.full(len(ids), self.header.size + self.row_bytes, np.int64)

    def parts(self) -> Iterator[ColumnPart]:
        return self.column.parts()


class _RowsInMemory(_ArrayRows, BytesInMemory):
    """Rows of an array that no file has."""


def npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[np.uint8]:
    """Return uint8[1, k]: the header of an `.npy` file."""
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    return np.frombuffer(file.getvalue(), np.uint8)[None]


def array_in_file(
    file: MemoryFile | str,
    first: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    classes: tuple[str, ...] | None = None,
) -> ArrayColumn:
    """Return the column of an array of at least 3 dimensions, mapped from byte `first` of a file.

    Raises DatasetError if the file is missing or too short.
    """
    count, rows, *rest = shape
    size = math.prod(shape)
    if isinstance(file, MemoryFile):
        flat = file.mapped()[first : first + size * dtype.itemsize].view(dtype)
    else:
        try:
            flat = np.asarray(np.memmap(file, dtype, "r", first, (size,))) if size else np.empty(0, dtype)
        except (OSError, ValueError) as error:
            size *= dtype.itemsize
            raise DatasetError(
                f"{file}: expected {size:,} bytes of values from byte {first:,}, got: {error}. Write it again"
            ) from error
    offsets = np.arange(count + 1, dtype=np.uint64) * np.uint64(rows)
    return ArrayColumn(offsets, flat.reshape(count * rows, *rest), classes, file=file, first=first)


def array_in_memory(array: npt.NDArray[Any]) -> ArrayColumn:
    """Return the column of an array of at least 3 dimensions: mapped if it is from a file, read-only, else copied."""
    place = _place_of(array)
    if place is not None:
        return array_in_file(*place, array.dtype, array.shape)
    file = MemoryFile()
    file.put(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data)
    return array_in_file(file, 0, array.dtype.newbyteorder("<"), array.shape)


def _place_of(array: npt.NDArray[Any]) -> tuple[str, int] | None:
    """Return the path of the file that a read-only array is mapped from, and its first byte; None for other arrays."""
    if not isinstance(array, np.memmap) or array.flags.writeable or not array.flags.c_contiguous or not array.size:
        return None
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, mmap.mmap) or array.filename is None:
        return None
    before = array.ctypes.data - np.frombuffer(base, np.uint8).ctypes.data
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY  # of the mapping
    return os.path.abspath(array.filename), start + before


def with_channels_last(name: str, array: npt.NDArray[Any], layout: Layout | None) -> npt.NDArray[Any]:
    """Return an array of images in a layout that its shape shows: unchanged, unless both layouts fit.

    Raises UsageError if both fit and `layout` is None, or if the stated layout does not fit.
    """
    if array.ndim != 4 or array.dtype != np.uint8:
        return array
    fitting = [each for each, at in (("NHWC", 3), ("NCHW", 1)) if array.shape[at] in _CHANNELS]
    if (layout is None and len(fitting) == 2) or (layout is not None and fitting and layout not in fitting):
        raise UsageError(
            f"column {name!r}: expected images of 1 or 3 channels in layout {' or '.join(fitting)}, got "
            f"{list(array.shape)} and layout={layout!r}. State the layout with hr.open(…, layout={fitting[-1]!r})"
        )
    return np.moveaxis(array, 1, -1) if layout == "NCHW" and len(fitting) == 2 else array
