"""Grow the arrays of a column, batch by batch, in the form that it is kept in."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.data.manifest.spill import Scratch, Spill
from headrace.data.storage.safetensors import Growing
from headrace.data.strings import StringColumn

Named: TypeAlias = dict[str, npt.NDArray[Any] | Growing]

MAX_CLASSES = 1 << 16
_MAX_CLASS_BYTES = 8 << 20
_NO_CLASS = -1


class ColumnBuilder(Protocol):
    kind: str
    """As the `kind` of the column that becomes of it."""

    def add(self, array: pa.Array) -> None: ...
    def arrays(self) -> Named:
        """By the names that `kept` finds them by."""
        ...

    def digests(self) -> list[str]:
        """Hashes of the arrays that say what the column holds."""
        ...


def column_builder(type: pa.DataType, scratch: Scratch) -> ColumnBuilder:
    if pa.types.is_string(type):
        return TextBuilder(scratch)
    return ListBuilder(type.value_type, scratch) if pa.types.is_list(type) else NumberBuilder(type, scratch)


class NumberBuilder:
    """`values`; a null is NaN."""

    kind = "value"

    def __init__(self, type: pa.DataType, scratch: Scratch) -> None:
        self._values = Spill(scratch, type.to_pandas_dtype())

    def add(self, array: pa.Array) -> None:
        self._values.append(array.to_numpy(zero_copy_only=False))

    def arrays(self) -> Named:
        return {"values": self._values}

    def digests(self) -> list[str]:
        return [self._values.digest()]


class StringsBuilder:
    """`blob` and `offsets`; a null is empty."""

    def __init__(self, scratch: Scratch) -> None:
        self._blob = Spill(scratch, np.uint8)
        self._offsets = Spill(scratch, np.uint64)
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
    """Strings; where at most `MAX_CLASSES` differ, also `labels`: each one's place among `classes`, which are the
    different ones in sorted order, and -1 for an empty one."""

    kind = "text"

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._strings = StringsBuilder(scratch)
        self._codes: Spill | None = Spill(scratch, np.int32)
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
        """Each text's number in the order in which they were first seen."""
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

    def _ranked(self) -> Spill:
        assert self._codes is not None
        rank_of = np.empty(len(self._code_of) + 1, np.int32)
        rank_of[[self._code_of[text] for text in sorted(self._code_of)]] = np.arange(len(self._code_of))
        rank_of[_NO_CLASS] = _NO_CLASS
        ranked = Spill(self._scratch, np.int32)
        for codes in self._codes.pieces():
            ranked.append(rank_of[codes])
        return ranked


class ListBuilder:
    """`offsets`, and the items of all lists on end: `items`, or `items.blob` and `items.offsets` of strings."""

    kind = "list"

    def __init__(self, item: pa.DataType, scratch: Scratch) -> None:
        self._offsets = Spill(scratch, np.uint64)
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
    """Without a copy, unless there are nulls: what those point at does not count."""
    if array.null_count:
        array = pc.fill_null(array, "")
    _, bounds, blob = array.buffers()
    if not len(array) or bounds is None:
        return np.empty(0, np.uint8), np.zeros(1, np.uint64)
    offsets = np.frombuffer(bounds, np.int32)[array.offset : array.offset + len(array) + 1]
    bytes_ = np.empty(0, np.uint8) if blob is None else np.frombuffer(blob, np.uint8)
    return bytes_[offsets[0] : offsets[-1]], (offsets - offsets[0]).astype(np.uint64)
