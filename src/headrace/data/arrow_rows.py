"""Batches of Arrow's, of files or in memory, as rows that columns are built from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from .manifest.arrow_columns import IntegerRange, converted, held_as, needs_range


class ArrowRows:
    """A `ManifestSource`: the rows of batches of one schema, in order; of their columns, those of `schema`."""

    first_line = None

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterable[pa.RecordBatch]]) -> None:
        """Take the batches that `batches` gives, all of them each time that it is called."""
        self._fields = list(schema)
        self._batches = batches
        self._schema: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        if self._schema is None:
            ranges = {field.name: IntegerRange() for field in self._fields if needs_range(field.type)}
            for batch in self._batches():
                for name, seen in ranges.items():
                    seen.see(batch.column(name))
            self._schema = pa.schema([(f.name, held_as(f.type, ranges.get(f.name))) for f in self._fields])
        return self._schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        for batch in self._batches():
            yield pa.record_batch([converted(batch.column(field.name), field.type) for field in schema], schema=schema)
