"""Manifests of plain text, in which every field is a text: which columns are numbers is found by reading them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from .number_texts import NumberTexts, converted


class TextRows(Protocol):
    """Rows of texts: every column of every batch is one of strings."""

    def texts(self) -> Iterator[pa.RecordBatch]: ...
    @property
    def first_line(self) -> int | None: ...


class Untyped:
    """`TextRows` as a `ManifestSource`."""

    def __init__(self, rows: TextRows) -> None:
        self._rows = rows
        self._schema: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._find_schema()
        return self._schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        for batch in self._rows.texts():
            columns = [converted(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.record_batch(columns, schema=schema)

    @property
    def first_line(self) -> int | None:
        return self._rows.first_line

    def _find_schema(self) -> pa.Schema:
        seen: dict[str, NumberTexts] = {}
        for batch in self._rows.texts():
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                seen.setdefault(name, NumberTexts()).see(column)
        return pa.schema([(name, numbers.type()) for name, numbers in seen.items()])
