"""Manifests of plain text, in which every field is a text: which columns are numbers is found by reading them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from headrace.data.manifest.number_texts import NumberTexts, converted
from headrace.data.manifest.source import SourceRows, TextOnly
from headrace.errors import DatasetError


class TextRows(Protocol):
    """Rows of texts: every column of every batch is one of strings."""

    name: str
    """Of the file, as messages call it."""
    rows: int
    """Read by the last `texts`, once it has ended."""

    @property
    def columns(self) -> Sequence[str]: ...
    def texts(self) -> Iterator[pa.RecordBatch]: ...
    @property
    def first_line(self) -> int | None: ...


class Untyped(TextOnly):
    """`TextRows` as a `ManifestSource`: those of several files, one file after another."""

    def __init__(self, texts: Sequence[TextRows]) -> None:
        """Raises DatasetError where the files have other columns."""
        self._texts = texts
        self._schema: pa.Schema | None = None
        first, *others = texts
        for other in others:
            _expect_alike(first, other)

    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._find_schema()
        return self._schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        for batch in self._batches():
            columns = [converted(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
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


def _expect_alike(first: TextRows, other: TextRows) -> None:
    for name in first.columns:
        if name not in other.columns:
            raise DatasetError(
                f"{other.name} line 1: expected the columns of {first.name}, got none called {name!r}. Write it, or "
                f"take what all have with columns="
            )
    for name in other.columns:
        if name not in first.columns:
            raise DatasetError(
                f"{other.name} line 1: expected the columns of {first.name}, got another, {name!r}. Remove it, or take "
                f"what all have with columns="
            )
