"""Types of columns that texts and JSON objects do not state: found by reading all rows."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headrace.data.manifest.manifest_columns import (
    MAX_COLUMNS,
    SourceRows,
    batched,
    choose_names,
    distinct_names,
    expect_columns,
)
from headrace.data.manifest.text_files import READ_BYTES, CheckedText, DelimitedText, LinesText
from headrace.errors import DatasetError, EmptyDatasetError

_INT64 = range(-(2**63), 2**63)
_EXACT_IN_FLOAT = 2**53


class JsonValues:
    """Types of the JSON values of one column that were seen so far."""

    def __init__(self) -> None:
        self._types: set[type] = set()
        self._item_types: set[type] = set()
        self._count = 0
        self._widest = 0

    def see(self, value: Any) -> None:
        if value is None:
            return
        kind = type(value)
        self._count += 1
        self._types.add(kind)
        if kind is int:
            self._widest = max(self._widest, abs(value))
        elif kind is list:
            for item in value:
                self._item_types.add(type(item))
                if type(item) is int:
                    self._widest = max(self._widest, abs(item))

    def type(self, *, of: int) -> pa.DataType:
        """Return the type of a column of `of` rows: if there are more rows than values, some are null."""
        if self._types == {list}:
            item = _json_number(self._item_types, self._widest)
            if item is None and self._item_types <= {str}:
                item = pa.string()
            return pa.string() if item is None else pa.list_(item)
        missing = self._count < of
        if self._types == {bool}:
            return pa.float64() if missing else pa.bool_()
        number = _json_number(self._types | ({float} if missing else set()), self._widest) if self._types else None
        return pa.string() if number is None else number


def convert_json(values: list[Any], type: pa.DataType) -> pa.Array:
    """Convert values to the type that `JsonValues` found: what has no other becomes text, or the text of its JSON."""
    if pa.types.is_string(type):
        return pa.array([_json_text(value) for value in values], type)
    if pa.types.is_list(type):
        return pa.array([[] if value is None else value for value in values], type)
    return pa.array(values, type)


def _json_number(types: set[type], widest: int) -> pa.DataType | None:
    """Return the type of numbers that no conversion changes, or None."""
    if types == {int}:
        return pa.int64() if widest in _INT64 else None
    if types and types <= {int, float}:
        return pa.float64() if widest <= _EXACT_IN_FLOAT else None
    return None


def _json_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class TextSource(ABC):
    """Part that every `ManifestSource` of text shares: no bytes, no classes, and types found once, by reading all."""

    byte_columns: Sequence[tuple[int, str]] = ()
    classes: Mapping[str, tuple[str, ...]] = {}  # read alone
    skipped: Mapping[str, int] = {}
    _schema: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._find_schema()
        return self._schema

    @abstractmethod
    def _find_schema(self) -> pa.Schema:
        """Read all rows, and return a type for each column that keeps every value."""


Row = dict[str, Any]


class JsonLines(TextSource):
    """Rows of JSON objects, one a line: a column for each key that any of them has, or for each of `columns`.

    What an object lacks is null. Blank lines do not count.
    """

    def __init__(self, files: Iterable[tuple[str, str]], *, columns: Sequence[str] | None) -> None:
        """Read files, given by their paths and their names in messages."""
        self._texts = [_ObjectLines(path, name) for path, name in files]
        self._columns = columns

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        for text in self._texts:
            for rows in text.objects():
                columns = [convert_json([row.get(field.name) for row in rows], field.type) for field in schema]
                yield pa.record_batch(columns, schema=schema)

    @property
    def files(self) -> list[SourceRows]:
        return [SourceRows(text.rows, 1 if text.lines == text.rows else None) for text in self._texts]

    def _find_schema(self) -> pa.Schema:
        seen: dict[str, JsonValues] = {}
        for text in self._texts:
            for row in (row for rows in text.objects() for row in rows):
                for name, value in row.items():
                    if name not in seen:
                        seen[name] = JsonValues()
                        if len(seen) > MAX_COLUMNS:
                            distinct_names(text.name, list(seen))
                    seen[name].see(value)
        names = choose_names(self._texts[0].name, list(seen), self._columns)
        total = sum(text.rows for text in self._texts)
        return pa.schema([(name, seen[name].type(of=total)) for name in names])


class _ObjectLines:
    """One file of objects."""

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self.name = name
        self.rows = self.lines = 0

    def objects(self) -> Iterator[list[Row]]:
        self.rows = 0
        with closing(CheckedText(self._path)) as text:
            for batch in batched(self._decoded(io.BufferedReader(text, READ_BYTES))):
                self.rows += len(batch)
                yield batch
            self.lines = text.lines
        if not self.rows:
            raise EmptyDatasetError(f"{self.name}: expected a JSON object a line, got no line. Check the path")

    def _decoded(self, lines: io.BufferedReader) -> Iterator[tuple[Row, int]]:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        for number, line in enumerate(lines, 1):
            if not line.isspace():
                try:
                    yield decode(line), len(line)
                except (msgspec.DecodeError, RecursionError) as error:
                    raise DatasetError(
                        f"{self.name} line {number:,}: expected a JSON object, such as "
                        f'{{"image": "a.jpg", "label": 3}}, got {line[:60]!r}: {error}'
                    ) from None


_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"  # 18 digits always fit
_FLOAT = r"^[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$|^[+-]?(inf|Inf|INF)$"
_BEYOND_FLOAT = r"^[+-]?[0-9]{16,}$"
_TRUE, _FALSE = pa.array(["true", "True", "TRUE"]), pa.array(["false", "False", "FALSE"])
_MISSING = pa.array(csv.ConvertOptions().null_values)
"""The empty text, NA, nan, null and the like."""


@dataclass
class NumberTexts:
    """Types that the texts of one column may have, by those seen so far.

    A column is one of numbers only if every entry is. So that nothing is lost, digits behind a leading zero (007) are a
    name, and so are more digits than a float holds where some entries are no integers or missing.
    """

    integers: bool = True
    floats: bool = True
    truths: bool = True
    beyond_float: bool = False
    missing: bool = False
    any: bool = False

    def see(self, texts: pa.StringArray) -> None:
        if not (self.integers or self.floats or self.truths):
            return
        words = pc.ascii_trim_whitespace(texts)
        missing = pc.is_in(words, _MISSING)
        words = words.filter(pc.invert(missing))
        self.missing |= len(words) < len(texts)
        if not len(words):
            return
        self.any = True
        self.integers = self.integers and _all_match(words, _INTEGER)
        self.floats = self.floats and _all_match(words, _FLOAT)
        self.truths = self.truths and pc.all(pc.or_(pc.is_in(words, _TRUE), pc.is_in(words, _FALSE))).as_py()
        if self.floats:
            self.beyond_float |= pc.any(pc.match_substring_regex(words, _BEYOND_FLOAT)).as_py()

    def type(self) -> pa.DataType:
        if not self.any:
            return pa.string()
        if self.integers and not self.missing:
            return pa.int64()
        if self.floats and not self.beyond_float:
            return pa.float64()
        if self.truths:
            return pa.float64() if self.missing else pa.bool_()
        return pa.string()


def convert_texts(texts: pa.StringArray, type: pa.DataType) -> pa.Array:
    """Convert texts to the type that `NumberTexts` found."""
    if pa.types.is_string(type):
        return texts
    words = pc.ascii_trim_whitespace(texts)
    words = pc.if_else(pc.is_in(words, _MISSING), pa.scalar(None, pa.string()), words)
    words = pc.if_else(pc.is_in(words, _TRUE), "1", pc.if_else(pc.is_in(words, _FALSE), "0", words))
    return words.cast(type)


def _all_match(words: pa.StringArray, pattern: str) -> bool:
    found: bool = pc.all(pc.match_substring_regex(words, pattern)).as_py()
    return found


class UntypedRows(TextSource):
    """`ManifestSource` of the rows of text files, one file after another, whose types are found by reading all."""

    def __init__(self, texts: Sequence[DelimitedText | LinesText]) -> None:
        """Raise DatasetError where the files have other columns."""
        self._texts = texts
        first, *others = texts
        for other in others:
            place = f"{other.name} line 1"
            expect_columns(first.name, first.columns, place, other.columns, missing="Write it", extra="Remove it")

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        for batch in self._batches():
            columns = [convert_texts(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.record_batch(columns, schema=schema)

    @property
    def files(self) -> list[SourceRows]:
        return [SourceRows(text.rows, text.first_line) for text in self._texts]

    def _batches(self) -> Iterator[pa.RecordBatch]:
        names = list(self._texts[0].columns)
        return (batch.select(names) for text in self._texts for batch in text.texts())

    def _find_schema(self) -> pa.Schema:
        seen: dict[str, NumberTexts] = {}
        for batch in self._batches():
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                seen.setdefault(name, NumberTexts()).see(column)
        return pa.schema([(name, numbers.type()) for name, numbers in seen.items()])
