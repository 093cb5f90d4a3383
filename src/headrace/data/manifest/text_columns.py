"""Types of columns in text and JSON files, which do not state them: inferred by reading all rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headrace.data.manifest.manifest_columns import (
    MAX_COLUMNS,
    ManifestSource,
    SourceRows,
    choose_names,
    distinct_names,
    expect_columns,
    number_type,
)
from headrace.data.manifest.text_files import DelimitedText, JsonText, LinesText


class ColumnTypes(ABC):
    """Possible types of one column, given its values so far."""

    @abstractmethod
    def see(self, values: Any) -> None:
        """Narrow the types by the values of a batch of rows."""

    @abstractmethod
    def column_type(self, *, of: int) -> pa.DataType:
        """Return a type that preserves every value of a column of `of` rows; values not seen are null."""

    @staticmethod
    @abstractmethod
    def convert(values: Any, type: pa.DataType) -> pa.Array:
        """Convert values to the inferred type."""


class JsonValues(ColumnTypes):
    """Possible types of JSON values; values without another type become text, or JSON text."""

    def __init__(self) -> None:
        self._types: set[type] = set()
        self._item_types: set[type] = set()
        self._count = 0
        self._widest = 0

    def see(self, values: list[Any]) -> None:
        self._count += len(values) - values.count(None)
        self._types |= set(map(type, values)) - {NoneType}
        self._see_widest(values)
        for value in values if list in self._types else ():
            if type(value) is list:
                self._item_types |= set(map(type, value))
                self._see_widest(value)

    def column_type(self, *, of: int) -> pa.DataType:
        if self._types == {list}:
            item = self._number(self._item_types, missing=False)
            if item is None and self._item_types <= {str}:
                item = pa.string()
            return pa.string() if item is None else pa.list_(item)
        missing = self._count < of
        if self._types == {bool}:
            return pa.float64() if missing else pa.bool_()
        number = self._number(self._types, missing=missing)
        return pa.string() if number is None else number

    @staticmethod
    def convert(values: list[Any], type: pa.DataType) -> pa.Array:
        if pa.types.is_string(type):
            return pa.array([_json_text(value) for value in values], type)
        if pa.types.is_list(type):
            return pa.array([[] if value is None else value for value in values], type)
        return pa.array(values, type)

    def _see_widest(self, values: list[Any]) -> None:
        self._widest = max([self._widest, *(abs(value) for value in values if type(value) is int)])

    def _number(self, types: set[type], *, missing: bool) -> pa.DataType | None:
        """Return the number type that preserves all values, or None."""
        if not types or not types <= {int, float}:
            return None
        return number_type(pa.int64(), exact=types == {int} and not missing, widest=self._widest)


def _json_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"  # 18 digits always fit in int64
_FLOAT = r"^[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(inf|Inf|INF)$"
_BEYOND_FLOAT = r"^[+-]?[0-9]{16,}$"
_TRUE, _FALSE = pa.array(["true", "True", "TRUE"]), pa.array(["false", "False", "FALSE"])
_MISSING = pa.array(csv.ConvertOptions().null_values)
"""Empty text, NA, nan, null and the like."""


class NumberTexts(ColumnTypes):
    """Possible types of texts.

    A column is numeric only if every entry is. To preserve names, digits after a leading zero (007) stay text. So do
    integers beyond float precision in a column that needs floats.
    """

    def __init__(self) -> None:
        self._integers = self._floats = self._truths = True
        self._beyond_float = self._missing = self._any = False

    def see(self, values: pa.StringArray) -> None:
        if not (self._integers or self._floats or self._truths):
            return
        words = pc.ascii_trim_whitespace(values)
        words = words.filter(pc.invert(pc.is_in(words, _MISSING)))
        self._missing |= len(words) < len(values)
        if not len(words):
            return
        self._any = True
        self._integers = self._integers and _all_match(words, _INTEGER)
        self._floats = self._floats and _all_match(words, _FLOAT)
        self._truths = self._truths and pc.all(pc.or_(pc.is_in(words, _TRUE), pc.is_in(words, _FALSE))).as_py()
        if self._floats:
            self._beyond_float |= pc.any(pc.match_substring_regex(words, _BEYOND_FLOAT)).as_py()

    def column_type(self, *, of: int) -> pa.DataType:
        if not self._any:
            return pa.string()
        if self._integers and not self._missing:
            return pa.int64()
        if self._floats and not self._beyond_float:
            return pa.float64()
        if self._truths:
            return pa.float64() if self._missing else pa.bool_()
        return pa.string()

    @staticmethod
    def convert(values: pa.StringArray, type: pa.DataType) -> pa.Array:
        if pa.types.is_string(type):
            return values
        words = pc.ascii_trim_whitespace(values)
        words = pc.if_else(pc.is_in(words, _MISSING), pa.scalar(None, pa.string()), words)
        words = pc.if_else(pc.is_in(words, _TRUE), "1", pc.if_else(pc.is_in(words, _FALSE), "0", words))
        return words.cast(type)


def _all_match(words: pa.StringArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(words, pattern)).as_py())


class UntypedRows(ManifestSource):
    """Concatenated rows of text files; types are inferred once, by reading all rows.

    JSON has a column for each key of any object, or for each of `columns`.
    """

    def __init__(
        self, texts: Sequence[DelimitedText | LinesText | JsonText], *, columns: Sequence[str] | None = None
    ) -> None:
        """Raise DatasetError if the files differ in columns."""
        self._texts = texts
        self._columns = columns
        self._found: pa.Schema | None = None
        self._kind: type[ColumnTypes] = JsonValues if isinstance(texts[0], JsonText) else NumberTexts
        first, *others = texts
        for other in others:
            if first.columns is not None and other.columns is not None:
                place = f"{other.name} line 1"
                expect_columns(first.name, first.columns, place, other.columns, missing="Write it", extra="Remove it")

    def schema(self) -> pa.Schema:
        if self._found is None:
            seen: dict[str, ColumnTypes] = {}
            for text in self._texts:
                for batch in text.batches():
                    for name, values in batch:
                        seen.setdefault(name, self._kind()).see(values)
                    if len(seen) > MAX_COLUMNS:
                        distinct_names(text.name, list(seen))
            first, rows = self._texts[0], sum(text.rows for text in self._texts)
            names = first.columns or choose_names(first.name, list(seen), self._columns)
            self._found = pa.schema([(name, seen[name].column_type(of=rows)) for name in names])
        return self._found

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        for text in self._texts:
            for batch in text.batches(schema.names):
                arrays = [self._kind.convert(values, schema.field(name).type) for name, values in batch]
                yield pa.record_batch(arrays, schema=schema)

    @property
    def files(self) -> list[SourceRows]:
        return [SourceRows(text.rows, text.first_line) for text in self._texts]
