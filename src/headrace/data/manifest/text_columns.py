"""`.jsonl` and `.odgt`: a JSON object a line."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import pyarrow as pa

from headrace.data.manifest.checked_text import READ_BYTES, CheckedText
from headrace.data.manifest.column_names import chosen, differing
from headrace.data.manifest.json_values import JsonValues, converted
from headrace.data.manifest.source import MAX_COLUMNS, SourceRows, TextOnly, batched
from headrace.errors import DatasetError, EmptyDatasetError

Row = dict[str, Any]


class JsonLines(TextOnly):
    """The objects of texts, one a line and one text after another, as rows: a column for each key that any of them has,
    or for each of `columns`.

    What an object lacks is null. Lines that are blank do not count.
    """

    def __init__(self, paths: Sequence[str], *, called: Sequence[str], columns: Sequence[str] | None) -> None:
        self._texts = [_ObjectLines(path, name) for path, name in zip(paths, called, strict=True)]
        self._columns = columns
        self._schema: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._find_schema()
        return self._schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        for text in self._texts:
            for rows in text.objects():
                columns = [converted([row.get(field.name) for row in rows], field.type) for field in schema]
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
                            differing(text.name, list(seen))
                    seen[name].see(value)
        names = chosen(self._texts[0].name, list(seen), self._columns)
        total = sum(text.rows for text in self._texts)
        return pa.schema([(name, seen[name].type(of=total)) for name in names])


class _ObjectLines:
    """One text of objects."""

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
