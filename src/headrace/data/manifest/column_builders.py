"""Build the arrays of columns, batch by batch, in the format in which they are cached."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.data.manifest.manifest_columns import ManifestColumns, ManifestSource, find_key, load_manifest_columns
from headrace.data.storage.file_writing import SpilledArray, SpillFile
from headrace.data.storage.safetensors import ArrayContent, mapped_arrays
from headrace.data.storage.strings import StringColumn

MAX_CLASSES = 1 << 16
_MAX_CLASS_BYTES = 8 << 20
_NO_CLASS = -1


def column_builder(type: pa.DataType, scratch: SpillFile) -> NumberBuilder | TextBuilder | ListBuilder:
    """Return the builder of a column of that type: its `kind`, and its `arrays` by name."""
    if pa.types.is_string(type):
        return TextBuilder(scratch)
    return ListBuilder(type.value_type, scratch) if pa.types.is_list(type) else NumberBuilder(type, scratch)


class NumberBuilder:
    """Builder of a column of numbers: `values`, with NaN for null."""

    kind = "value"

    def __init__(self, type: pa.DataType, scratch: SpillFile) -> None:
        self.arrays = {"values": SpilledArray(scratch, type.to_pandas_dtype())}

    def add(self, array: pa.Array) -> None:
        self.arrays["values"].append(array.to_numpy(zero_copy_only=False))


class StringsBuilder:
    """Builder of strings: `blob` and `offsets`; null becomes empty."""

    def __init__(self, scratch: SpillFile) -> None:
        self.arrays = {"blob": SpilledArray(scratch, np.uint8), "offsets": SpilledArray(scratch, np.uint64)}
        self.arrays["offsets"].append(np.zeros(1, np.uint64))

    def add(self, array: pa.StringArray) -> None:
        """Add the bytes and offsets of strings, without a copy unless there are nulls."""
        if array.null_count:
            array = pc.fill_null(array, "")
        _, bounds, blob = array.buffers()
        if not len(array) or bounds is None:
            return
        offsets = np.frombuffer(bounds, np.int32)[array.offset : array.offset + len(array) + 1]
        held = np.empty(0, np.uint8) if blob is None else np.frombuffer(blob, np.uint8)
        begin = np.uint64(len(self.arrays["blob"]))
        self.arrays["offsets"].append((offsets[1:] - offsets[0]).astype(np.uint64) + begin)
        self.arrays["blob"].append(held[offsets[0] : offsets[-1]])


class TextBuilder(StringsBuilder):
    """Builder of a text column: strings, and `labels` if there are at most `MAX_CLASSES` distinct texts.

    A label is the text's index in `classes`, the sorted distinct texts; -1 for an empty text.
    """

    kind = "text"

    def __init__(self, scratch: SpillFile) -> None:
        super().__init__(scratch)
        self._scratch = scratch
        self._codes: SpilledArray | None = SpilledArray(scratch, np.int32)
        """Each text's number in order of first appearance."""
        self._code_of: dict[bytes, int] = {}
        self._class_bytes = 0

    def add(self, array: pa.StringArray) -> None:
        super().add(array)
        if self._codes is not None:
            encoded = pc.fill_null(array, "").dictionary_encode()
            codes = [self._code(text) for text in encoded.dictionary.cast(pa.binary()).to_pylist()]
            self._codes.append(np.array(codes, np.int32)[encoded.indices.to_numpy()])
            if len(self._code_of) > MAX_CLASSES or self._class_bytes > _MAX_CLASS_BYTES:
                self._codes = None
                self._code_of.clear()

    def labels(self) -> dict[str, ArrayContent]:
        """Return the arrays of labels and of classes; empty if there are too many distinct texts."""
        if self._codes is None or not self._code_of:
            return {}
        texts = sorted(self._code_of)
        rank_of = np.empty(len(texts) + 1, np.int32)
        rank_of[[self._code_of[text] for text in texts]] = np.arange(len(texts))
        rank_of[_NO_CLASS] = _NO_CLASS
        ranked = SpilledArray(self._scratch, np.int32)
        for codes in self._codes.pieces():
            ranked.append(rank_of[codes])
        classes = StringColumn.from_list(texts)
        return {"labels": ranked, "classes.blob": classes.blob, "classes.offsets": classes.offsets}

    def _code(self, text: bytes) -> int:
        if not text:
            return _NO_CLASS
        if text not in self._code_of:
            self._code_of[text] = len(self._code_of)
            self._class_bytes += len(text)
        return self._code_of[text]


class ListBuilder:
    """Builder of a column of lists: `offsets` and concatenated `items`, or `items.blob` and `items.offsets`."""

    kind = "list"

    def __init__(self, item: pa.DataType, scratch: SpillFile) -> None:
        self._items = StringsBuilder(scratch) if pa.types.is_string(item) else NumberBuilder(item, scratch)
        items = {"items" if name == "values" else f"items.{name}": each for name, each in self._items.arrays.items()}
        self.arrays = {"offsets": SpilledArray(scratch, np.uint64), **items}
        self.arrays["offsets"].append(np.zeros(1, np.uint64))
        self._count = 0

    def add(self, array: pa.ListArray) -> None:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        self.arrays["offsets"].append(self._count + np.cumsum(lengths, dtype=np.uint64))
        self._count += int(lengths.sum())
        self._items.add(pc.list_flatten(array))


def build_columns(source: ManifestSource, *, scratch_in: str | None) -> tuple[dict[str, ArrayContent], str]:
    """Return the arrays of the columns, and an outline with all else.

    The arrays grow in a file in the folder `scratch_in`, or in the temporary folder. Raises DatasetError, ReadError,
    UsageError for an unknown column, and UnwritableError for the folder.
    """
    schema = source.schema()
    scratch = SpillFile(scratch_in)
    builders = {field.name: column_builder(field.type, scratch) for field in schema}
    for batch in source.batches():
        for builder, array in zip(builders.values(), batch.columns, strict=True):
            builder.add(array)
    pa.default_memory_pool().release_unused()  # training does not use this memory
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
    arrays: dict[str, ArrayContent] = {}
    for number, builder in enumerate(builders.values()):
        held = builder.arrays | (builder.labels() if isinstance(builder, TextBuilder) else {})
        arrays |= {f"column.{number}.{name}": array for name, array in held.items()}
    # The identity of the samples covers each column's name, kind and content.
    columns = [
        [name, builder.kind, *(array.digest() for array in builder.arrays.values())]
        for name, builder in sorted(builders.items())
    ]
    known = json.dumps(["headrace manifest 1", outline["rows"], key, columns])
    digest = hashlib.blake2b(known.encode(), digest_size=16).hexdigest()
    return arrays, json.dumps(outline | {"digest": digest})


def columns_in_memory(source: ManifestSource) -> ManifestColumns:
    """Return the columns of uncached rows. Raises as `build_columns` does."""
    contents, outline = build_columns(source, scratch_in=None)
    return load_manifest_columns(mapped_arrays(contents), outline)
