"""`.parquet`: typed columns, as pyarrow reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import DatasetError, EmptyDatasetError, ReadError
from .arrow_columns import IntegerRange, converted, held_as, holds_bytes, needs_range
from .column_names import chosen
from .source import BATCH_ROWS

_BATCH_BYTES = 16 << 20
_BUFFER_BYTES = 1 << 20
"""Read at a time of each column; otherwise, or with pre_buffer, pyarrow holds all of a row group's."""


_DAMAGED = (pa.ArrowException, UnicodeDecodeError)
"""What pyarrow raises of a file's content; the latter of texts that become Python's, such as names of columns."""


class ParquetRows:
    """The rows of a parquet file; `columns` picks some."""

    first_line = None

    def __init__(self, path: str, *, columns: Sequence[str] | None) -> None:
        """Raises DatasetError, ReadError, and UsageError for a column that is not there."""
        self._path = path
        self._name = os.path.basename(path)
        with self._open() as file:
            self._file_schema = file.schema_arrow
            names: list[str] = self._file_schema.names
            self._batch_rows = _batch_rows(file.metadata)
            if not file.metadata.num_rows:
                raise EmptyDatasetError(f"{self._name}: expected a row a sample, got none. Check the path")
        self._columns = chosen(self._name, names, columns)
        for name in self._columns:
            if holds_bytes(self._file_schema.field(name).type):
                raise self._bytes_inside(name)
        self._schema: pa.Schema | None = None

    def schema(self) -> pa.Schema:
        if self._schema is None:
            fields = [self._file_schema.field(name) for name in self._columns]
            ranges = {field.name: IntegerRange() for field in fields if needs_range(field.type)}
            for batch in self._read(list(ranges)) if ranges else ():
                for name, seen in ranges.items():
                    seen.see(batch.column(name))
            self._schema = pa.schema([(f.name, held_as(f.type, ranges.get(f.name))) for f in fields])
        return self._schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        for batch in self._read(self._columns):
            try:
                yield pa.record_batch(
                    [converted(batch.column(field.name), field.type) for field in schema], schema=schema
                )
            except _DAMAGED as error:
                raise self._damaged(error) from error

    def _read(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with self._open() as file:
            yield from file.iter_batches(batch_size=self._batch_rows, columns=columns)

    @contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        try:
            with pa.OSFile(self._path) as file:  # its own: a ParquetFile that cannot be made would leave it open
                yield pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        except _DAMAGED as error:
            raise self._damaged(error) from error
        except OSError as error:
            # Also what the decoder of its metadata raises, then without a number.
            raise self._damaged(error) if error.errno is None else self._unreadable(error) from error

    def _damaged(self, error: Exception) -> DatasetError:
        why = " ".join(str(error).split())
        return DatasetError(f"{self._name}: expected a parquet file, got one that cannot be read: {why}")

    def _unreadable(self, error: OSError) -> ReadError:
        return ReadError(f"{self._name}: could not be read: {error.strerror}; check its permissions and the disk")

    def _bytes_inside(self, name: str) -> DatasetError:
        others = [other for other in self._columns if not holds_bytes(self._file_schema.field(other).type)]
        return DatasetError(
            f"{self._name}: expected columns of paths and values, got bytes in {name!r} "
            f"({self._file_schema.field(name).type}), as Hugging Face's datasets keep images. Make a dataset of it, "
            f"datasets.load_dataset('parquet', data_files={self._name!r}).save_to_disk('FOLDER'), and open that"
            + (f"; or leave the column out: columns={others}" if others else "")
        )


def _batch_rows(metadata: pq.FileMetaData) -> int:
    """Few enough that wide rows fit in memory, too."""
    total: int = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    rows: int = _BATCH_BYTES * metadata.num_rows // max(1, total)
    return max(1, min(BATCH_ROWS, rows))
