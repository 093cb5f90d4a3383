"""`.jsonl` and `.odgt`: a JSON object a line."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import pyarrow as pa

from ...errors import DatasetError, EmptyDatasetError
from .checked_text import READ_BYTES, CheckedText
from .column_names import chosen, differing
from .json_values import JsonValues, converted
from .source import MAX_COLUMNS, batched

Row = dict[str, Any]


class JsonLines:
    """The objects of a text, one a line, as rows: a column for each key that any of them has, or for each of `columns`.

    What an object lacks is null. Lines that are blank do not count.
    """

    def __init__(self, path: str, *, columns: Sequence[str] | None) -> None:
        self._path = path
        self._name = os.path.basename(path)
        self._columns = columns
        self._schema: pa.Schema | None = None
        self._rows = self._lines = 0

    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._find_schema()
        return self._schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        for rows in self._objects():
            columns = [converted([row.get(field.name) for row in rows], field.type) for field in schema]
            yield pa.record_batch(columns, schema=schema)

    @property
    def first_line(self) -> int | None:
        return 1 if self._lines == self._rows else None

    def _find_schema(self) -> pa.Schema:
        seen: dict[str, JsonValues] = {}
        for rows in self._objects():
            for row in rows:
                for name, value in row.items():
                    if name not in seen:
                        seen[name] = JsonValues()
                        if len(seen) > MAX_COLUMNS:
                            differing(self._name, list(seen))
                    seen[name].see(value)
        names = chosen(self._name, list(seen), self._columns)
        return pa.schema([(name, seen[name].type(of=self._rows)) for name in names])

    def _objects(self) -> Iterator[list[Row]]:
        self._rows = 0
        with closing(CheckedText(self._path)) as text:
            for batch in batched(self._decoded(io.BufferedReader(text, READ_BYTES))):
                self._rows += len(batch)
                yield batch
            self._lines = text.lines
        if not self._rows:
            raise EmptyDatasetError(f"{self._name}: expected a JSON object a line, got no line. Check the path")

    def _decoded(self, lines: io.BufferedReader) -> Iterator[tuple[Row, int]]:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        for number, line in enumerate(lines, 1):
            if not line.isspace():
                try:
                    yield decode(line), len(line)
                except (msgspec.DecodeError, RecursionError) as error:
                    raise DatasetError(
                        f"{self._name} line {number:,}: expected a JSON object, such as "
                        f'{{"image": "a.jpg", "label": 3}}, got {line[:60]!r}: {error}'
                    ) from None
