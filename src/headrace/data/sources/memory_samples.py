"""Samples in memory: paths, rows, columns and dicts as a table, without an object per sample.

Numbers and texts become the same columns as in a manifest, bytes a `MemoryColumn`, arrays of numbers a `ListColumn`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.data.array_columns import Layout, array_in_memory, npy_header, with_channels_last
from headrace.data.byte_columns import BytesLike, GrowingBytes, MemoryColumn
from headrace.data.class_names import names_text
from headrace.data.columns import BytesInMemory, BytesListColumn, Column, HeldColumn, ListColumn, offsets_of
from headrace.data.location import ABSENT
from headrace.data.manifest.manifest_columns import find_key, key_strings
from headrace.data.remote.object_columns import holds_addresses
from headrace.data.storage.strings import StringColumn
from headrace.data.table import ManifestOrigin, ManifestRows, PathRoot, SampleTable
from headrace.errors import EmptyDatasetError, UsageError
from headrace.stores import show_address

if TYPE_CHECKING:
    import pyarrow as pa

    NewColumn: TypeAlias = MemoryColumn | BytesListColumn | ListColumn | pa.ChunkedArray
    """Column of values from the user; Arrow arrays become columns together."""


_NUMBERS = "biuf"
_SHOWN_CHARACTERS = 80
_EXPECTED = "numbers, texts, paths, bytes, or lists or arrays of numbers, of texts or of bytes"


def columns_of(values: Mapping[str, Any], layout: Layout | None = None) -> tuple[dict[str, Column], int]:
    """Return columns of the same names, and their number of rows. `layout` is that of images in arrays.

    Raises UsageError for columns of unequal lengths or unsupported values, EmptyDatasetError for no rows.
    """
    made: dict[str, Column] = {}
    arrays: dict[str, pa.ChunkedArray] = {}
    lengths: dict[str, int] = {}
    for name, each in values.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"expected names of columns as texts, got {name!r}")
        column = each if isinstance(each, BytesInMemory | ListColumn) else _column(name, each, layout)
        if isinstance(column, BytesInMemory):
            made[name], lengths[name] = column, len(column.length)
        elif isinstance(column, BytesListColumn | ListColumn):
            made[name], lengths[name] = column, len(column.offsets) - 1
        else:
            arrays[name], lengths[name] = column, len(column)
    (first, rows), *others = lengths.items()
    for name, count in others:
        if count != rows:
            raise UsageError(
                f"expected columns of one length, got {first!r} of {rows:,} rows and {name!r} of {count:,}"
            )
    if not rows:
        raise EmptyDatasetError("expected samples, got columns of no rows")
    held = _held_columns(arrays)
    return {name: made[name] if name in made else held[name] for name in lengths}, rows


def _held_columns(arrays: Mapping[str, pa.ChunkedArray]) -> Mapping[str, HeldColumn]:
    """Return Arrow arrays, of equal non-zero lengths, as the columns that a manifest would have."""
    if not arrays:
        return {}
    import pyarrow as pa

    from headrace.data.manifest.column_builders import columns_in_memory
    from headrace.data.manifest.typed_rows import TableRows, TypedRows

    rows = TableRows("what is in memory", pa.table(dict(arrays)))
    held = columns_in_memory(TypedRows([rows], columns=None)).columns
    for name in arrays:
        if name not in held:
            raise UsageError(f"column {name!r}: expected {_EXPECTED}, got {arrays[name].type}")
    return held


def in_order(name: str, values: Any) -> Sequence[Any] | npt.NDArray[Any]:
    """Return values in positional order; a pandas series would be indexed by its own index.

    Raises UsageError for a set, a mapping or a text.
    """
    if isinstance(values, list | tuple | np.ndarray):
        return values
    _expect_sequence(name, values)
    if hasattr(values, "to_pylist"):  # Arrow
        return list(values.to_pylist())
    return np.asarray(values) if hasattr(values, "__array__") else list(values)


def shown(value: object) -> str:
    """Return a value for a message, cut if long."""
    text = f"{value!r} ({type(value).__name__})" if not isinstance(value, str | int | float | None) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def _column(name: str, values: Any, layout: Layout | None) -> NewColumn:
    if isinstance(values, list | tuple):
        return _of_items(name, values, layout)
    if isinstance(values, np.ndarray):
        return _of_numpy(name, values, layout)
    _expect_sequence(name, values)
    import pyarrow as pa

    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _of_arrow(pa.chunked_array([values]) if isinstance(values, pa.Array) else values)
    if hasattr(values, "__array__"):  # torch tensors, pandas series
        return _of_numpy(name, np.asarray(values), layout)
    return _of_items(name, list(values), layout)


def _expect_sequence(name: str, values: Any) -> None:
    """Raise UsageError for values without a stable order, such as a set, which differs between processes."""
    if isinstance(values, str | bytes | Mapping | Set) or not hasattr(values, "__len__"):
        raise UsageError(f"column {name!r}: expected a list or an array, got {shown(values)}")


def _of_numpy(name: str, array: npt.NDArray[Any], layout: Layout | None) -> NewColumn:
    if array.ndim == 1 and array.dtype.kind not in _NUMBERS:
        return _of_items(name, array.tolist(), layout)
    if array.ndim == 0 or array.dtype.kind not in _NUMBERS:
        raise UsageError(f"column {name!r}: expected {_EXPECTED}, got an array of {array.dtype}, {list(array.shape)}")
    if array.ndim == 1:
        import pyarrow as pa

        return pa.chunked_array([pa.array(array)])
    if array.ndim > 2:
        return array_in_memory(with_channels_last(name, array, layout))
    # Use a read-only array in place: it may be mapped from a file.
    items = np.ascontiguousarray(array) if not array.flags.writeable else array.copy(order="C")
    offsets = np.arange(len(items) + 1, dtype=np.uint64) * np.uint64(items.shape[1])
    return ListColumn(offsets, items.reshape(items.shape[0] * items.shape[1], *items.shape[2:]))


def _of_items(name: str, items: Sequence[Any], layout: Layout | None) -> NewColumn:
    """Return the column that fits the first item that is not None."""
    first = next((item for item in items if item is not None), None)
    if isinstance(first, BytesLike):
        return _of_bytes(name, items)
    if isinstance(first, os.PathLike):
        return _of_arrow_items(name, [os.fspath(item) if isinstance(item, os.PathLike) else item for item in items])
    if isinstance(first, Mapping) and "bytes" in first:
        return _of_files(name, items)
    lists = [item for item in items if isinstance(item, list | tuple)]
    kinds = set(map(type, chain.from_iterable(lists)))
    dicts = chain.from_iterable(lists) if any(issubclass(kind, Mapping) for kind in kinds) else ()
    if any(issubclass(kind, BytesLike) for kind in kinds) or any(
        isinstance(part, Mapping) and part.get("bytes") for part in dicts
    ):
        return _of_bytes_lists(name, items)
    if any(issubclass(kind, os.PathLike) for kind in kinds):
        items = [item if item is None else list(map(os.fspath, item)) for item in items]
    if any(isinstance(part, Mapping) for item in items for part in (item if isinstance(item, list) else [item])):
        texts = []
        for item in items:  # unsupported values become JSON, as in a manifest
            try:
                texts.append(None if item is None else json.dumps(item, ensure_ascii=False))
            except (TypeError, ValueError) as error:
                raise UsageError(f"column {name!r}: expected {_EXPECTED}, got {shown(item)}: {error}") from error
        return _of_arrow_items(name, texts)
    if _is_list(first):
        _expect_each(name, items, _is_list, "a list")
        of_texts = any(isinstance(part, str) for item in items if item is not None for part in item)
        return _of_arrow_items(name, items) if of_texts else _of_arrays(name, items, layout)
    return _of_arrow_items(name, items)


def _is_list(item: Any) -> bool:
    return isinstance(item, list | tuple) or (hasattr(item, "__array__") and bool(getattr(item, "ndim", 0)))


def _expect_each(name: str, items: Sequence[Any], is_fine: Callable[[Any], bool], expected: str) -> None:
    """Raise UsageError for an item, other than None, that is unlike the first."""
    for row, item in enumerate(items):
        if item is not None and not is_fine(item):
            raise UsageError(f"column {name!r}, row {row:,}: expected {expected}, as the first is, got {shown(item)}")


def _of_bytes(name: str, items: Sequence[Any]) -> MemoryColumn:
    _expect_each(name, items, lambda item: isinstance(item, BytesLike), "bytes")
    grown = GrowingBytes()
    for item in items:
        grown.add(item)
    return grown.column()


def _of_bytes_lists(name: str, items: Sequence[Any]) -> BytesListColumn:
    """Return lists of bytes, or of dicts with bytes, as a column; None becomes an empty list."""
    _expect_each(name, items, lambda item: isinstance(item, list | tuple), "a list of images")
    grown = GrowingBytes()
    for row, item in enumerate(items):
        for part in item or ():
            data = part.get("bytes") if isinstance(part, Mapping) else part
            if not isinstance(data, BytesLike):
                raise UsageError(f"column {name!r}, row {row:,}: expected bytes in each item, got {shown(part)}")
            grown.add(data)
    return BytesListColumn(offsets_of([len(item or ()) for item in items]), grown.column())


def _of_files(name: str, items: Sequence[Any]) -> NewColumn:
    """Return the bytes, or else the paths, of dicts with both, such as Hugging Face images."""
    _expect_each(name, items, lambda item: isinstance(item, Mapping), "{'bytes', 'path'}")
    data = [None if item is None else item.get("bytes") for item in items]
    paths = [None if item is None else item.get("path") for item in items]
    if all(each is None for each in data):
        return _of_arrow_items(name, paths)
    for row, (content, path) in enumerate(zip(data, paths, strict=True)):
        if content is None and path is not None:
            raise UsageError(
                f"column {name!r}, row {row:,}: expected bytes, as others have, got the path {path!r} alone. Read the "
                f"file's bytes, or give paths alone"
            )
    return _of_bytes(name, data)


def _of_arrays(name: str, items: Sequence[Any], layout: Layout | None) -> ListColumn | MemoryColumn:
    """Return arrays of numbers that may differ in the first dimension, such as boxes float32[m, 4]."""
    try:
        arrays = [np.asarray([] if item is None else item) for item in items]
    except (ValueError, TypeError) as error:
        raise UsageError(f"column {name!r}: expected {_EXPECTED}, got lists of unequal lengths: {error}") from error
    images = [array for array in arrays if array.ndim in (2, 3) and array.dtype == np.uint8 and array.size]
    if len(images) == len(arrays):
        shapes = {array.shape for array in arrays}
        if len(shapes) == 1:
            return array_in_memory(with_channels_last(name, np.stack(arrays), layout))
        if len({shape[1:] for shape in shapes}) > 1:
            return _of_sizes(name, arrays, layout)
    rest = next((array.shape[1:] for array in arrays if array.size), ())
    for row, array in enumerate(arrays):
        if array.size and (array.shape[1:] != rest or array.dtype.kind not in _NUMBERS):
            raise UsageError(
                f"column {name!r}, row {row:,}: expected an array of numbers {['…', *rest]}, got one of {array.dtype}, "
                f"{list(array.shape)}"
            )
    lengths = [len(array) if array.size else 0 for array in arrays]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint64)
    whole = [array for array in arrays if array.size]
    kind = np.result_type(*whole) if whole else np.dtype(np.float32)
    parts = [array.astype(kind, copy=False) for array in whole]
    return ListColumn(offsets, np.concatenate([np.empty((0, *rest), kind), *parts]))


def _of_sizes(name: str, images: Sequence[npt.NDArray[Any]], layout: Layout | None) -> MemoryColumn:
    """Return images of several sizes as `.npy` files in memory."""
    grown = GrowingBytes()
    for image in images:
        pixels = np.ascontiguousarray(with_channels_last(name, image[None], layout)[0])
        grown.add(npy_header(pixels.shape, pixels.dtype).tobytes() + pixels.tobytes())
    return grown.column()


def _of_arrow_items(name: str, items: Sequence[Any]) -> NewColumn:
    import pyarrow as pa

    try:
        array = pa.array(items)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise UsageError(
            f"column {name!r}: expected {_EXPECTED}, of one kind each, got otherwise: {why}. Give images as paths or "
            f"as the bytes of their files"
        ) from error
    return _of_arrow(pa.chunked_array([array]) if isinstance(array, pa.Array) else array)


def _of_arrow(array: pa.ChunkedArray) -> MemoryColumn | pa.ChunkedArray:
    """Copy binary values to a file in memory; return other values unchanged."""
    import pyarrow as pa
    from pyarrow import types

    kind = array.type
    if not (types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)):
        return array
    from headrace.data.manifest.arrow_files import value_ranges

    grown = GrowingBytes()
    for chunk in array.cast(pa.large_binary()).chunks:
        data, offset, length = value_ranges(chunk)
        held = memoryview(b"" if data is None else data)
        if chunk.null_count:
            for start, size in zip(offset.tolist(), length.tolist(), strict=True):
                grown.add(None if size == ABSENT else held[start : start + size])
        elif len(chunk):
            grown.add_all(held[int(offset[0]) : int(offset[-1] + length[-1])], length)
    return grown.column()


def table_of_paths(paths: Sequence[Any], *, root: PathRoot, source: str) -> SampleTable:
    """Return one sample per path: its file is the `image`, its key the path as given.

    Raises UsageError for anything but a path.
    """
    for place, path in enumerate(paths):
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise UsageError(f"sample {place:,}: expected a path, as the first is, got {shown(path)}")
    names = StringColumn.from_list(map(os.fsencode, paths))
    keys = StringColumn.from_list(map(show_address, names)) if holds_addresses(names) else names
    return SampleTable(source, keys, {"image": root.column(names)}, {}, root=root)


def table_of_rows(rows: Sequence[Any], names: Sequence[str] | None, *, root: PathRoot) -> SampleTable:
    """Return one sample per row, with entries as columns of these names; None: rows are (path, label).

    Raises UsageError for rows of another length, and as `columns_of` does.
    """
    expected = "(path, label)" if names is None else f"({', '.join(names)})"
    count = 2 if names is None else len(names)
    for place, row in enumerate(rows):
        if not isinstance(row, tuple | list) or len(row) != count:
            hint = ". Name its entries with columns=" if names is None and isinstance(row, tuple | list) else ""
            raise UsageError(f"sample {place:,}: expected {expected}, got {shown(row)}{hint}")
    if names is not None:
        return table_of_columns({name: [row[at] for row in rows] for at, name in enumerate(names)}, None, root=root)
    source = f"{len(rows):,} paths and labels in memory"
    table = table_of_paths([path for path, _ in rows], root=root, source=source)
    labels, _ = columns_of({"label": [label for _, label in rows]})
    return replace(table, columns={**table.columns, **labels})


def table_of_columns(
    values: Mapping[str, Any], names: Sequence[str] | None, *, root: PathRoot, layout: Layout | None = None
) -> SampleTable:
    """Return one sample per row of columns of equal length; `names` selects columns.

    Texts name files if a field reads them as paths. Raises as `columns_of` does.
    """
    for name in names or ():
        if name not in values:
            raise UsageError(f"columns: expected names of columns in memory ({names_text(list(values))}), got {name!r}")
    columns, rows = columns_of(values if names is None else {name: values[name] for name in names}, layout)
    source = f"{len(columns):,} columns in memory" if len(columns) > 1 else "a column in memory"
    key = find_key({name: column.kind for name, column in columns.items()}, of_texts=True)
    keys = key_strings(None if key is None else columns[key], rows)
    return SampleTable(
        source, keys, columns, {}, root=root, origin=ManifestOrigin([ManifestRows("the columns in memory", rows, None)])
    )


def table_of_records(
    records: Iterable[Any],
    names: Sequence[str] | None,
    *,
    root: PathRoot,
    length: int | None = None,
    layout: Layout | None = None,
) -> SampleTable:
    """Return one sample per dict of an iterable, which is read to its end. Missing keys become missing values.

    `names` selects columns; `length`: expected number of dicts. Raises UsageError for more, fewer or anything but
    dicts, and as `columns_of` does.
    """
    grown: dict[str, _GrowingColumn] = {}
    count = 0
    for record in records if length is None else islice(records, length + 1):
        if not isinstance(record, Mapping):
            advice = "Give dicts such as {'image': b'…', 'label': 3}"
            if isinstance(record, str | os.PathLike):
                advice = "An iterator gives paths in no order that is the same on each rank: pass sorted(…) of it"
            elif isinstance(record, tuple | list):
                advice += ", or load a Dataset of your own with headrace.ThreadDataLoader"
            raise UsageError(f"sample {count:,}: expected a dict of columns, got {shown(record)}. {advice}")
        if count == length:
            raise UsageError(
                f"length: expected {length:,} samples from the iterable, got more. State how many it gives, or cut it "
                f"with itertools.islice"
            )
        for name in record:
            if name not in grown and (names is None or name in names):
                grown[name] = _GrowingColumn(name, count)
        for name, column in grown.items():
            column.add(record.get(name))
        count += 1
    if length is not None and count < length:
        raise UsageError(
            f"length: expected {length:,} samples from the iterable, got {count:,}. State how many it gives"
        )
    if not count:
        raise EmptyDatasetError("expected samples, got an iterable that gives none")
    table = table_of_columns({name: column.values() for name, column in grown.items()}, names, root=root, layout=layout)
    origin = ManifestOrigin([ManifestRows("the samples in memory", count, None)])
    return replace(table, source=f"{count:,} samples in memory", origin=origin)


class _GrowingColumn:
    """Column that grows value by value: bytes go directly to a file in memory, other values to a list."""

    def __init__(self, name: str, missing: int) -> None:
        """Start with `missing` samples that precede the first one with the column."""
        self._name = name
        self._items: list[Any] = [None] * missing
        self._bytes: GrowingBytes | None = None

    def add(self, value: Any) -> None:
        if self._bytes is None and isinstance(value, BytesLike) and not any(item is not None for item in self._items):
            self._bytes = GrowingBytes()
            for _ in self._items:
                self._bytes.add(None)
        if self._bytes is None:
            self._items.append(value)
        elif value is None or isinstance(value, BytesLike):
            self._bytes.add(value)
        else:
            raise UsageError(
                f"column {self._name!r}, sample {len(self._bytes):,}: expected bytes, as before, got {shown(value)}"
            )

    def values(self) -> Any:
        return self._items if self._bytes is None else self._bytes.column()
