"""Bytes that a caller holds, as columns that are read in place: lists, object arrays and Arrow data."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from headrace.data.byte_columns import BytesLike
from headrace.data.columns import BytesInMemory, ColumnPart
from headrace.data.location import ABSENT, ColumnFiles, HeldParts, Location
from headrace.data.sources.arrow_tables import arrow_table, table_kind
from headrace.data.storage.open_file import ReadableFile
from headrace.data.storage.strings import Ints, StringColumn
from headrace.errors import EmptyDatasetError, UsageError

_NAME = b"memory"
_FILES = ColumnFiles("/", StringColumn.from_list([_NAME]), archives=True)
_NOTHING = np.empty(0, np.uint8)


class _HeldBytes(ReadableFile):
    """One buffer as an open file."""

    path = _NAME

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        return self._data[offset : offset + length].tobytes()


@dataclass(frozen=True, eq=False, repr=False)
class BorrowedColumn(BytesInMemory):
    """Column of bytes in buffers of the caller, which must not change while the column is in use."""

    names_content: ClassVar[bool] = True

    buffers: Sequence[npt.NDArray[np.uint8]]
    buffer_of: Ints
    """Index in `buffers` of each sample's bytes."""
    offset: Ints
    length: Ints
    """`ABSENT` for a sample without the member."""
    files: ColumnFiles = _FILES

    @classmethod
    def of_items(cls, name: str, items: Sequence[Any]) -> BorrowedColumn:
        """Return a column over buffers, one a sample; None for no member. Raises UsageError for other items."""
        other = next((row for row, item in enumerate(items) if not (item is None or isinstance(item, BytesLike))), None)
        if other is not None:
            raise UsageError(
                f"column {name!r}, item {other:,}: expected bytes, as others are, got a {type(items[other]).__name__}"
            )
        buffers = [_NOTHING if item is None else _array_of(item) for item in items]
        length = [ABSENT if item is None else len(buffer) for item, buffer in zip(items, buffers, strict=True)]
        return cls(buffers, np.arange(len(items)), np.zeros(len(items), np.int64), np.array(length, np.int64))

    @classmethod
    def of_chunks(cls, chunks: Sequence[tuple[Any, Ints, Ints]]) -> BorrowedColumn:
        """Return a column over (data buffer or None, offsets, lengths) of the chunks of an Arrow array."""
        buffers = [_NOTHING if data is None else np.frombuffer(data, np.uint8) for data, _, _ in chunks]
        nothing = [np.empty(0, np.int64)]
        offset = np.concatenate(nothing + [offset for _, offset, _ in chunks])
        length = np.concatenate(nothing + [length for _, _, length in chunks])
        return cls(buffers, np.repeat(np.arange(len(chunks)), [len(each) for _, each, _ in chunks]), offset, length)

    def locate(self, ids: Ints) -> Location:
        used, held_in = np.unique(self.buffer_of[ids], return_inverse=True)
        held = HeldParts([self.buffers[number] for number in used.tolist()], [0] * len(used), held_in, [])
        return Location(np.zeros(len(ids), np.int64), self.offset[ids], self.length[ids], None, held=held)

    def open(self, at: Location, row: int = 0) -> ReadableFile:
        assert at.held is not None, "every location of this column has its buffers"
        return _HeldBytes(np.asarray(at.held.data[int(at.held.part_of[row])]))

    def parts(self) -> Iterator[ColumnPart]:
        yield self.length, "<i8"
        for at, start, size in zip(self.buffer_of.tolist(), self.offset.tolist(), self.length.tolist(), strict=True):
            yield self.buffers[at][start : start + max(size, 0)], "<u1"


def borrow_bytes(items: Any) -> Mapping[str, Any]:
    """Return items in memory as columns, with their bytes as `BorrowedColumn`s; other columns are unchanged.

    `items` is a list or object array of bytes, a binary Arrow array (column `image`), a list of dicts, a mapping of
    columns, or a table of pandas, polars or pyarrow. Raises UsageError for anything else.
    """
    columns = _columns_of(items)
    return {name: _borrowed(name, values) for name, values in columns.items()}


def _columns_of(items: Any) -> Mapping[str, Any]:
    if _is_arrow(items):
        return {"image": items}
    if table_kind(items) is not None:
        table = arrow_table(items)
        return {name: table.column(name) for name in table.schema.names}
    if isinstance(items, Mapping):
        if any(isinstance(values, str | os.PathLike) for values in items.values()):
            raise UsageError(f"items: expected columns in memory, got {items!r}; a Loader reads files")
        return items
    listed = items.tolist() if isinstance(items, np.ndarray) and items.ndim == 1 else items
    if not isinstance(listed, list | tuple):
        raise UsageError(
            f"items: expected a list of bytes or of dicts, columns, a table or an Arrow array, got a "
            f"{type(items).__name__}"
        )
    if not listed:
        raise EmptyDatasetError("items: expected at least one, got none")
    if not all(isinstance(item, Mapping) for item in listed):
        return {"image": listed}
    names = dict.fromkeys(name for item in listed for name in item)
    return {name: [item.get(name) for item in listed] for name in names}


def _borrowed(name: str, values: Any) -> Any:
    if _is_arrow(values):
        return _of_arrow(name, values)
    items = values.tolist() if isinstance(values, np.ndarray) and values.dtype == object else values
    if not isinstance(items, list | tuple):
        return values
    first = next((item for item in items if item is not None), None)
    return BorrowedColumn.of_items(name, items) if isinstance(first, BytesLike | None) else values


def _of_arrow(name: str, values: Any) -> Any:
    """Return a binary array, or structs with bytes, as a borrowed column; any other array unchanged."""
    from headrace.data.manifest.arrow_files import value_ranges
    from headrace.data.manifest.typed_rows import bytes_and_paths, is_bytes, is_list

    if not is_bytes(values.type) or is_list(values.type):
        return values
    chunks = [bytes_and_paths(chunk) for chunk in getattr(values, "chunks", [values])]
    if any(paths is not None for _, paths in chunks):
        raise UsageError(
            f"column {name!r}: expected bytes in each item, got paths alone in some; read those files first"
        )
    return BorrowedColumn.of_chunks([value_ranges(chunk) for chunk, _ in chunks])


def _is_arrow(values: object) -> bool:
    pyarrow: Any = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(values, pyarrow.Array | pyarrow.ChunkedArray)


def _array_of(item: BytesLike) -> npt.NDArray[np.uint8]:
    contiguous = item if not isinstance(item, memoryview) or item.contiguous else bytes(item)
    return np.frombuffer(contiguous, np.uint8)
