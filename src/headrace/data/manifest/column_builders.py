"""Grow the arrays of columns, batch by batch, in the form in which they are cached."""

from __future__ import annotations

import hashlib
import json
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.data.manifest.manifest_columns import ManifestColumns, ManifestSource, find_key, load_manifest_columns
from headrace.data.storage.file_writing import SpilledArray, SpillFile
from headrace.data.storage.safetensors import ArrayContent, mapped_arrays
from headrace.data.storage.strings import StringColumn

Named: TypeAlias = dict[str, ArrayContent]
"""Arrays by the names that `load_manifest_columns` finds them by."""

MAX_CLASSES = 1 << 16
_MAX_CLASS_BYTES = 8 << 20
_NO_CLASS = -1


def column_builder(type: pa.DataType, scratch: SpillFile) -> NumberBuilder | TextBuilder | ListBuilder:
    """Return the builder of a column of that type: its `kind`, its `arrays`, and the `digests` of what it holds."""
    if pa.types.is_string(type):
        return TextBuilder(scratch)
    return ListBuilder(type.value_type, scratch) if pa.types.is_list(type) else NumberBuilder(type, scratch)


class NumberBuilder:
    """Builder of a column of numbers: `values`, where a null is NaN."""

    kind = "value"

    def __init__(self, type: pa.DataType, scratch: SpillFile) -> None:
        self._values = SpilledArray(scratch, type.to_pandas_dtype())

    def add(self, array: pa.Array) -> None:
        self._values.append(array.to_numpy(zero_copy_only=False))

    def arrays(self) -> Named:
        return {"values": self._values}

    def digests(self) -> list[str]:
        return [self._values.digest()]


class StringsBuilder:
    """Builder of strings: `blob` and `offsets`; a null is empty."""

    def __init__(self, scratch: SpillFile) -> None:
        self._blob = SpilledArray(scratch, np.uint8)
        self._offsets = SpilledArray(scratch, np.uint64)
        self._offsets.append(np.zeros(1, np.uint64))

    def add(self, array: pa.StringArray) -> None:
        blob, offsets = _blob_and_offsets(array)
        self._offsets.append(offsets[1:] + np.uint64(len(self._blob)))
        self._blob.append(blob)

    def arrays(self) -> Named:
        return {"blob": self._blob, "offsets": self._offsets}

    def digests(self) -> list[str]:
        return [self._blob.digest(), self._offsets.digest()]


class TextBuilder:
    """Builder of a column of texts: strings, and `labels` where at most `MAX_CLASSES` differ.

    A label is the text's place among `classes`, the different texts in sorted order; -1 for an empty one.
    """

    kind = "text"

    def __init__(self, scratch: SpillFile) -> None:
        self._scratch = scratch
        self._strings = StringsBuilder(scratch)
        self._codes: SpilledArray | None = SpilledArray(scratch, np.int32)
        self._code_of: dict[bytes, int] = {}
        self._class_bytes = 0

    def add(self, array: pa.StringArray) -> None:
        self._strings.add(array)
        if self._codes is not None:
            self._codes.append(self._encoded(pc.fill_null(array, "")))
            if len(self._code_of) > MAX_CLASSES or self._class_bytes > _MAX_CLASS_BYTES:
                self._codes = None
                self._code_of.clear()

    def arrays(self) -> Named:
        arrays = self._strings.arrays()
        if self._codes is not None and self._code_of:
            classes = StringColumn.from_list(sorted(self._code_of))
            arrays |= {"labels": self._ranked(), "classes.blob": classes.blob, "classes.offsets": classes.offsets}
        return arrays

    def digests(self) -> list[str]:
        return self._strings.digests()

    def _encoded(self, array: pa.StringArray) -> npt.NDArray[np.int32]:
        """Return each text's number in order of first appearance."""
        encoded = array.dictionary_encode()
        codes = [self._code(text) for text in encoded.dictionary.cast(pa.binary()).to_pylist()]
        indices: npt.NDArray[np.int32] = encoded.indices.to_numpy()
        return np.array(codes, np.int32)[indices]

    def _code(self, text: bytes) -> int:
        if not text:
            return _NO_CLASS
        if text not in self._code_of:
            self._code_of[text] = len(self._code_of)
            self._class_bytes += len(text)
        return self._code_of[text]

    def _ranked(self) -> SpilledArray:
        assert self._codes is not None
        rank_of = np.empty(len(self._code_of) + 1, np.int32)
        rank_of[[self._code_of[text] for text in sorted(self._code_of)]] = np.arange(len(self._code_of))
        rank_of[_NO_CLASS] = _NO_CLASS
        ranked = SpilledArray(self._scratch, np.int32)
        for codes in self._codes.pieces():
            ranked.append(rank_of[codes])
        return ranked


class ListBuilder:
    """Builder of a column of lists: `offsets` and all `items` on end, or `items.blob` and `items.offsets`."""

    kind = "list"

    def __init__(self, item: pa.DataType, scratch: SpillFile) -> None:
        self._offsets = SpilledArray(scratch, np.uint64)
        self._offsets.append(np.zeros(1, np.uint64))
        self._items = StringsBuilder(scratch) if pa.types.is_string(item) else NumberBuilder(item, scratch)
        self._count = 0

    def add(self, array: pa.ListArray) -> None:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        self._offsets.append(self._count + np.cumsum(lengths, dtype=np.uint64))
        self._count += int(lengths.sum())
        self._items.add(pc.list_flatten(array))

    def arrays(self) -> Named:
        items = self._items.arrays()
        named = {"items": items["values"]} if "values" in items else {f"items.{name}": a for name, a in items.items()}
        return {"offsets": self._offsets, **named}

    def digests(self) -> list[str]:
        return [self._offsets.digest(), *self._items.digests()]


def _blob_and_offsets(array: pa.StringArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
    """Return the bytes and offsets of strings, without a copy unless there are nulls."""
    if array.null_count:
        array = pc.fill_null(array, "")
    _, bounds, blob = array.buffers()
    if not len(array) or bounds is None:
        return np.empty(0, np.uint8), np.zeros(1, np.uint64)
    offsets = np.frombuffer(bounds, np.int32)[array.offset : array.offset + len(array) + 1]
    bytes_ = np.empty(0, np.uint8) if blob is None else np.frombuffer(blob, np.uint8)
    return bytes_[offsets[0] : offsets[-1]], (offsets - offsets[0]).astype(np.uint64)


def build_columns(source: ManifestSource, *, scratch_in: str | None) -> tuple[dict[str, ArrayContent], str]:
    """Return the arrays of the columns, and an outline of all else.

    The arrays grow in a file in the folder `scratch_in`, or where temporary files go. Raises DatasetError,
    ReadError, UsageError for an unknown column, and UnwritableError for the folder.
    """
    schema = source.schema()
    scratch = SpillFile(scratch_in)
    builders = {field.name: column_builder(field.type, scratch) for field in schema}
    for batch in source.batches():
        for builder, array in zip(builders.values(), batch.columns, strict=True):
            builder.add(array)
    pa.default_memory_pool().release_unused()  # no use to the training that follows
    kinds = {name: builder.kind for name, builder in builders.items()}
    key = find_key(kinds, of_texts=not source.byte_columns)
    outline = {
        "rows": sum(file.rows for file in source.files),
        "columns": [list(column) for column in kinds.items()],
        "key": None if key is None else list(kinds).index(key),
        "files": [list(file) for file in source.files],
        "bytes": [list(column) for column in source.byte_columns],
        "classes": {name: list(classes) for name, classes in source.classes.items()},
        "skipped": dict(source.skipped),
    }
    arrays = {
        f"column.{number}.{name}": array
        for number, builder in enumerate(builders.values())
        for name, array in builder.arrays().items()
    }
    # Identity of the samples: what each column is called, is and holds.
    columns = [[name, builder.kind, *builder.digests()] for name, builder in sorted(builders.items())]
    known = json.dumps(["headrace manifest 1", outline["rows"], key, columns])
    digest = hashlib.blake2b(known.encode(), digest_size=16).hexdigest()
    return arrays, json.dumps(outline | {"digest": digest})


def columns_in_memory(source: ManifestSource) -> ManifestColumns:
    """Return the columns of rows that are not cached. Raises as `build_columns` does."""
    contents, outline = build_columns(source, scratch_in=None)
    return load_manifest_columns(mapped_arrays(contents), outline)
