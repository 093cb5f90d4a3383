"""Rows of one shard of another loader: the ranges of its columns, and their values."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib import format as npy
from PIL import Image

from headrace.data.byte_columns import ByteRanges, MemoryFile, RowFiles, ValuesFile
from headrace.data.columns import RangeColumn, numbers_in_ranges
from headrace.data.location import ABSENT
from headrace.data.manifest.manifest_columns import BATCH_BYTES, BATCH_ROWS
from headrace.data.manifest.typed_rows import DAMAGED, TypedPart
from headrace.data.remote.bulk_reads import read_in_bulk
from headrace.data.remote.remote_file import ObjectPath
from headrace.data.sources.shard_formats import ARRAY_TYPES, ShardColumn
from headrace.data.storage.open_file import OpenFile, ReadableFile, open_path, unreadable
from headrace.data.storage.strings import Ints
from headrace.errors import DatasetError
from headrace.system import default_threads

_GROUP_ROWS = 256
_MOST_SIDES = 64
_MDS_TYPES = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32",
              34: "float32", 64: "uint64", 65: "int64", 66: "float64"}  # fmt: skip
"""Types of arrays by MDS's number."""
_IMAGE_HEADER = struct.Struct("<III")
"""Width, height, and the length of the mode's name."""


class ShardRows(TypedPart):
    """Rows of an uncompressed shard, local, in memory or in a store.

    The shard is untrusted: offsets and sizes are validated before anything is read by them.
    """

    expected = "expected values of the encodings in the index, got others"
    advice = ". Copy the shard again, or write it again"

    def __init__(self, file: ValuesFile, name: str, columns: Sequence[ShardColumn], rows: int) -> None:
        """Take the file, its name in messages, its columns in their order there, and its number of rows."""
        self.name, self.rows = name, rows
        self.schema = pa.schema([(column.name, _type(column)) for column in columns])
        self._file, self._columns = file, columns
        self._at = {column.name: number for number, column in enumerate(columns)}
        self._numbers: dict[str, pa.Array] = {}
        """Columns of numbers that were read, since `TypedRows` reads them twice."""

    # --- ranges ---

    def ranges(self, name: str) -> ByteRanges:
        """Return the ranges of a column's values in the file. Raises DatasetError, ReadError."""
        number = self._at[name]
        sizes = self._sizes
        offset = self._bounds[:-1] + self._header_bytes + sum(sizes[:number], np.zeros(self.rows, np.int64))
        return ByteRanges(offset, np.broadcast_to(sizes[number], self.rows).astype(np.int64))

    @cached_property
    def _bounds(self) -> Ints:
        """First byte of each row, and the end of the last."""
        count = self.rows + 2
        file = self._open()
        size = file.size()
        head = file.read(0, min(4 * count, size))
        numbers = np.frombuffer(head[: len(head) // 4 * 4], "<u4").astype(np.int64)
        if len(numbers) < count or numbers[0] != self.rows:
            raise self._fault(f"expected a table of {self.rows:,} rows, got {numbers[:1].tolist()} in {size:,} bytes")
        bounds = numbers[1:]
        if bounds[-1] > size or bounds[0] < 4 * count or (np.diff(bounds) < 0).any():
            raise self._fault(
                f"expected rows from byte {4 * count:,} to {size:,}, got {int(bounds.min()):,} to "
                f"{int(bounds.max()):,} in its table"
            )
        return bounds

    @property
    def _header_bytes(self) -> int:
        return 4 * sum(column.is_stated for column in self._columns)

    @cached_property
    def _sizes(self) -> list[Any]:
        """Bytes of each column's values: an int, or one per row."""
        rows = np.diff(self._bounds) - self._header_bytes
        if (rows < 0).any():
            raise self._fault(f"expected {self._header_bytes} bytes of sizes or more in each row, got fewer")
        sizes: list[Any] = [column.size for column in self._columns]
        varying = [number for number, size in enumerate(sizes) if size is None]
        if len(varying) == 1:  # what the others leave, without a look at the rows
            sizes[varying[0]] = rows - sum(size for size in sizes if size is not None)
        elif varying:
            stated = [number for number, column in enumerate(self._columns) if column.is_stated]
            length = np.full(self.rows, self._header_bytes, np.int64)
            table = self._take(self._bounds[:-1], length).view("<u4").reshape(self.rows, len(stated))
            for place, number in enumerate(stated):
                known, sizes[number] = sizes[number], table[:, place].astype(np.int64)
                if known is not None and (sizes[number] != known).any():
                    raise self._fault(
                        f"expected {known} bytes in the column {self._columns[number].name!r}, got others"
                    )
        wrong = np.flatnonzero((np.min(np.broadcast_arrays(*sizes, rows), axis=0) < 0) | (sum(sizes) != rows))
        if len(wrong):
            row = int(wrong[0])
            raise self._fault(f"expected {int(rows[row]):,} bytes of columns in row {row:,}, got other sizes there")
        return sizes

    # --- values ---

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, with these columns only. Raises DatasetError, ReadError."""
        ranges = [(self._columns[self._at[name]], self.ranges(name)) for name in columns]
        for column, each in ranges:
            if column.kind == "number" and column.name not in self._numbers:
                self._numbers[column.name] = self._array(column, each)
        mean = max(1, sum(int(each.length.sum()) for _, each in ranges) // self.rows)
        step = min(BATCH_ROWS, max(1, BATCH_BYTES // mean))
        for start in range(0, self.rows, step):
            part = np.arange(start, min(start + step, self.rows))
            yield pa.record_batch(
                [
                    self._numbers[column.name].slice(start, len(part))
                    if column.kind == "number"
                    else self._array(column, each.take(part))
                    for column, each in ranges
                ],
                list(columns),
            )

    @property
    def groups(self) -> int:
        return -(-self.rows // _GROUP_ROWS)

    def groups_at_once(self, _: str) -> int:
        """Return how many groups may be converted at once."""
        return default_threads()

    def column_bytes(self, column: str) -> int:
        """Return the size of a column's values in the shard."""
        return int(self.ranges(column.partition("\0")[0]).length.sum())

    def group(self, number: int, column: str) -> Iterator[pa.Array]:
        """Yield the values of one column in a group of rows, as files: images as PNG, arrays as .npy.

        A variant of the column's cached values may follow its name, after a NUL.
        """
        name = column.partition("\0")[0]
        rows = np.arange(number * _GROUP_ROWS, min((number + 1) * _GROUP_ROWS, self.rows))
        yield self._array(self._columns[self._at[name]], self.ranges(name).take(rows))

    def _array(self, column: ShardColumn, ranges: ByteRanges) -> pa.Array:
        data = self._take(ranges.offset, ranges.length)
        bounds = np.concatenate([[0], np.cumsum(ranges.length)])
        try:
            if column.kind in ("text", "digits"):
                offsets = pa.py_buffer(bounds.astype(np.int32))
                texts = pa.StringArray.from_buffers(len(ranges.length), offsets, pa.py_buffer(data))
                texts.validate(full=True)
                return texts.cast(_type(column))
            if column.kind in ("number", "list"):
                numbers = data != 0 if column.dtype == "bool" else data.view(np.dtype(column.dtype).newbyteorder("<"))
                if column.kind == "number":
                    return pa.array(numbers)
                if (ranges.length % numbers.itemsize).any():
                    raise ValueError(f"bytes that are no whole number of {column.dtype}")
                return pa.ListArray.from_arrays((bounds // numbers.itemsize).astype(np.int32), pa.array(numbers))
            convert = _png_of_pixels if column.kind == "image" else _npy_of(column)
            values = [convert(data[start:stop].tobytes()) for start, stop in pairwise(bounds.tolist())]
            return pa.array(values, pa.binary())
        except (*DAMAGED, ValueError, LookupError, OverflowError, OSError, struct.error) as error:
            raise self.damaged(ValueError(f"column {column.name!r}: {error}")) from error

    # --- bytes ---

    def _open(self) -> ReadableFile:
        return OpenFile(self._file.path) if isinstance(self._file, MemoryFile) else open_path(self._file)

    @cached_property
    def _mapped(self) -> npt.NDArray[np.uint8]:
        path = self._file.path if isinstance(self._file, MemoryFile) else os.fsencode(str(self._file))
        try:
            return np.memmap(os.fsdecode(path), np.uint8, "r")
        except OSError as error:
            raise unreadable(self.name, error) from error

    def _take(self, offset: Ints, length: Ints) -> npt.NDArray[np.uint8]:
        """Return the bytes of ranges within the file, joined."""
        if not isinstance(self._file, ObjectPath):
            return np.asarray(self._mapped[numbers_in_ranges(offset, length)])
        size = np.where(length > 0, length, ABSENT)
        column = RangeColumn(RowFiles.of([self._file]), np.zeros(len(offset), np.int32), offset, size, None)
        pieces = []
        with read_in_bulk(column.files, column.locate, len(offset)) as blocks:
            for block in blocks:
                rows = zip(offset[block.positions].tolist(), size[block.positions].tolist(), block.parts, strict=True)
                pieces += [
                    part.over(self._open()).read(start, count) for start, count, part in rows if part is not None
                ]
        data = np.frombuffer(b"".join(pieces), np.uint8)
        if len(data) != length.sum():
            raise self._fault(f"expected {int(length.sum()):,} bytes of values, got {len(data):,}")
        return data

    def _fault(self, why: str) -> DatasetError:
        return DatasetError(f"{self.name}: {why}: the shard is damaged, or not that of its index{self.advice}")


def _type(column: ShardColumn) -> pa.DataType:
    """Return the type of a column's values in batches."""
    if column.kind == "text":
        return pa.string()
    if column.kind in ("number", "digits", "list"):
        number = pa.from_numpy_dtype(column.dtype)
        return pa.list_(number) if column.kind == "list" else number
    return pa.binary()


def _png_of_pixels(data: bytes) -> bytes:
    """Return raw pixels, after width, height and Pillow's mode, as a PNG. Raises ValueError, OSError."""
    width, height, length = _IMAGE_HEADER.unpack_from(data)
    begin = _IMAGE_HEADER.size + length
    mode = data[_IMAGE_HEADER.size : begin].decode()
    if width * height > len(data) * 8:
        raise ValueError(f"expected {width} × {height} pixels, got {len(data):,} bytes")
    file = io.BytesIO()
    Image.frombytes(mode, (width, height), data[begin:]).save(file, "PNG", compress_level=1)
    return file.getvalue()


def _npy_of(column: ShardColumn) -> Callable[[bytes], bytes]:
    """Return the function that converts a column's arrays to `.npy`."""

    def convert(data: bytes) -> bytes:
        dtype, shape, begin = column.dtype, column.shape, 0
        if column.encoding.startswith("ndarray"):
            if not dtype:
                dtype, begin = _MDS_TYPES[data[0]], 1
            if shape is None:
                sides, width = data[begin] >> 2, 1 << (data[begin] & 3)
                shape = tuple(np.frombuffer(data, f"<u{width}", sides, begin + 1).tolist())
                begin += 1 + sides * width
        elif shape is None:
            dtype, shape, begin = _litdata_header(data, column.encoding)
        values = np.frombuffer(data[begin:], np.dtype(dtype).newbyteorder("<"))
        file = io.BytesIO()
        npy.write_array(file, values.reshape(shape), allow_pickle=False)
        return file.getvalue()

    return convert


def _litdata_header(data: bytes, encoding: str) -> tuple[str, tuple[int, ...], int]:
    """Return the type and the shape of an array, and its first byte. Raises ValueError, struct.error."""
    order = "<" if encoding == "numpy" else ">"
    number, sides = struct.unpack_from(f"{order}II", data)
    types = ARRAY_TYPES[encoding]
    if number >= len(types) or not types[number] or sides > _MOST_SIDES:
        raise ValueError(f"an array of {sides} sides, and of the type {number} of LitData's {encoding}")
    return types[number], struct.unpack_from(f"{order}{sides}I", data, 8), 8 + 4 * sides
