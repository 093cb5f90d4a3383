"""Arrow files as rows that columns are built from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from .arrow_file import ArrowFile
from .manifest.arrow_columns import IntegerRange, converted, held_as, needs_range


class ArrowRows:
    """A `ManifestSource`: the rows of files of one schema, one file after another; of their columns, `names`."""

    first_line = None

    def __init__(self, files: Sequence[ArrowFile], names: Sequence[str]) -> None:
        self._files = files
        self._fields = [files[0].schema.field(name) for name in names]
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

    def _batches(self) -> Iterator[pa.RecordBatch]:
        return (batch for file in self._files for batch in file.batches)
