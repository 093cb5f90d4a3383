"""Arrow files: rows, and the ranges of values in binary columns."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types

from headrace.data.byte_columns import ByteRanges
from headrace.data.location import ABSENT
from headrace.data.manifest.typed_rows import TypedPart, bytes_and_paths, items_and_counts
from headrace.data.storage.open_file import FilePath, StoredPath, unreadable
from headrace.data.storage.strings import Ints, StringColumn
from headrace.errors import DatasetError

_FILE_MAGIC = b"ARROW1"


class ArrowFile(TypedPart):
    """File in Arrow's file or stream format, memory-mapped: the buffers of its batches are ranges of the file.

    The file is untrusted, and pyarrow follows any offset, so all offsets are validated first.
    """

    advice = ". Save the dataset again"
    groups = 1

    def __init__(self, path: FilePath, name: str) -> None:
        """Map the file at `path`, called `name` in messages. Raises ReadError, or DatasetError for a damaged file."""
        self.path = path
        self.name = name
        self._in_place: list[pa.RecordBatch] | None = None
        self._is_stream = True
        try:
            with pa.memory_map(os.fsencode(path) if isinstance(path, str) else self._copied(path)) as mapped:
                self._bytes = mapped.read_buffer()
            self._is_stream = self._bytes[: len(_FILE_MAGIC)].to_pybytes() != _FILE_MAGIC
            self.schema = self._reader().schema
            first = next((batch for batch in self._raw() if len(batch)), None)
            buffers = [] if first is None else [buffer for column in first.columns for buffer in column.buffers()]
            self.is_compressed = any(each is not None and each.size and self._begin(each) is None for each in buffers)
            """True if values are outside the mapped file, judged by the first batch."""
            if not self.is_compressed:
                self._in_place = list(self._checked())
            self.rows = sum(len(batch) for batch in self._in_place or self._checked())
        except OSError as error:
            # pyarrow also raises OSError for missing bytes, without an errno.
            raise self.damaged(error) if error.errno is None else unreadable(self.name, error) from error
        except (pa.ArrowException, UnicodeDecodeError) as error:  # from the content or the column names
            raise self.damaged(error) from error

    def __len__(self) -> int:
        return self.rows

    def _copied(self, path: StoredPath) -> bytes:
        """Return the path of a copy of an object, which lives as long as `self`."""
        self._copy = path.open()
        return self._copy.path

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, with these columns only. Raises DatasetError."""
        try:
            for batch in self._checked() if self._in_place is None else self._in_place:
                yield batch.select(list(columns))
        except pa.ArrowException as error:
            raise self.damaged(error) from error

    def values(self, column: str) -> ByteRanges:
        """Return the file ranges of the values of a column that `is_bytes`.

        Raises DatasetError if the values have no ranges, since the file is compressed or they are not contiguous.
        """
        return ByteRanges.join([self._values(batch.column(column)) for batch in self._in_place or () if len(batch)])

    def group(self, number: int, column: str) -> Iterator[pa.Array]:
        """Yield the values of one column, for values that are not in place."""
        return (batch.column(column) for batch in self.batches([column]))

    def groups_at_once(self, _: str) -> int:
        """Return how many groups may be decoded at once; a file is one group."""
        return self.groups

    def column_bytes(self, column: str) -> int:
        """Return an estimate of the size of a column's values: the size of the file."""
        return int(self._bytes.size)

    def holds_in_place(self, column: str) -> bool:
        """Return True if `values` can locate the values of a column that `is_bytes`."""
        kind = self.schema.field(column).type
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            kind = kind.value_type
        if types.is_struct(kind):
            kind = kind.field(kind.get_field_index("bytes")).type
        return not self.is_compressed and not types.is_binary_view(kind)

    def _reader(self) -> pa.RecordBatchReader | pa.RecordBatchFileReader:
        return pa.ipc.open_stream(self._bytes) if self._is_stream else pa.ipc.open_file(self._bytes)

    def _raw(self) -> Iterator[pa.RecordBatch]:
        reader = self._reader()
        return iter(reader) if self._is_stream else map(reader.get_batch, range(reader.num_record_batches))

    def _checked(self) -> Iterator[pa.RecordBatch]:
        for batch in self._raw():
            batch.validate(full=True)  # checks the offsets of binary columns without reading their bytes
            yield batch

    def _begin(self, buffer: pa.Buffer) -> int | None:
        """Return a buffer's first byte in the file; None if the buffer is outside it."""
        begin: int = buffer.address - self._bytes.address
        return begin if 0 <= begin <= self._bytes.size - buffer.size else None

    def _values(self, array: pa.Array) -> ByteRanges:
        data, found = ranges_of(array)
        begin: int | None = 0
        if data is not None and (used := int((found.offset + np.maximum(found.length, 0)).max(initial=0))):
            begin = self._begin(data.slice(0, used))
        if begin is None:
            raise DatasetError(
                f"{self.name}: expected plain columns of bytes, got compressed ones, which cannot be read in place. "
                f"Save the dataset without compression (datasets' save_to_disk does)"
            )
        return found.moved(begin)

    @property
    def expected(self) -> str:  # type: ignore[override]  # which form it is shows as it is opened
        return f"expected a file in Arrow's {'stream' if self._is_stream else 'file'} format, got otherwise"


def value_ranges(array: pa.Array) -> tuple[pa.Buffer | None, Ints, Ints]:
    """Return the data buffer of a binary array, and each value's offset and length in it."""
    if not len(array):  # an empty array may lack offsets
        return None, np.empty(0, np.int64), np.empty(0, np.int64)
    wide = types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64 if wide else np.int32)[array.offset : array.offset + len(array) + 1]
    length = np.diff(bounds).astype(np.int64)
    if array.null_count:
        length[np.asarray(array.is_null())] = ABSENT
    return data, bounds[:-1].astype(np.int64), length


def ranges_of(array: pa.Array) -> tuple[pa.Buffer | None, ByteRanges]:
    """Return the data buffer of a column that `is_bytes`, and the ranges of its values there."""
    items, counts = items_and_counts(array)
    values, paths = bytes_and_paths(items)
    data, offset, length = value_ranges(values)
    return data, ByteRanges(offset, length, _path_strings(paths), counts)


def _path_strings(paths: pa.StringArray | None) -> StringColumn | None:
    """Return the texts of an array without nulls as a `StringColumn`."""
    return None if paths is None else StringColumn.from_list(paths.to_pylist())


def common_schema(files: Sequence[ArrowFile]) -> pa.Schema:
    """Return the columns that all files share (at least one file).

    Raises DatasetError if the files differ, or a column name is repeated.
    """
    first, *others = files
    for file in others:
        if not file.schema.equals(first.schema):
            raise DatasetError(f"{file.path}: expected the columns of {first.path}, got others. Save the dataset again")
    for name, columns in Counter(first.schema.names).items():
        if columns > 1:
            raise DatasetError(
                f"{first.path}: expected column names that differ, got {name!r} {columns} times. Rename the columns "
                f"and save the dataset again"
            )
    return first.schema
