"""`.parquet`: typed columns, as pyarrow reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.data.manifest.source import BATCH_ROWS
from headrace.data.manifest.typed_rows import DAMAGED
from headrace.errors import DatasetError, EmptyDatasetError, ReadError

_BATCH_BYTES = 16 << 20
_BUFFER_BYTES = 1 << 20
"""Read at a time of each column; otherwise, or with pre_buffer, pyarrow holds all of a row group's."""


class ParquetRows:
    """The rows of a parquet file: a `TypedPart`, whose values of bytes are decoded by row groups."""

    def __init__(self, path: str, *, called: str | None = None) -> None:
        """Raises DatasetError, ReadError. `called`: what messages call it; None: by its name."""
        self.path = path
        self.name = os.path.basename(path) if called is None else called
        with self._open() as file:
            self.schema: pa.Schema = file.schema_arrow
            self.rows: int = file.metadata.num_rows
            self.groups: int = file.metadata.num_row_groups
            self._batch_rows = _batch_rows(file.metadata)
            if not self.rows:
                raise EmptyDatasetError(f"{self.name}: expected a row a sample, got none. Check the path")

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, with these columns alone."""
        with self._open() as file:
            yield from file.iter_batches(batch_size=self._batch_rows, columns=list(columns))

    def group(self, number: int, column: str) -> Iterator[pa.Array]:
        """Yield the values of one column in one row group."""
        with self._open() as file:
            for batch in file.iter_batches(batch_size=self._batch_rows, columns=[column], row_groups=[number]):
                yield batch.column(column)

    def column_bytes(self, column: str) -> int:
        """Return about how many bytes the values of a column have, by what the file says of it."""
        inside = f"{column}."
        with self._open() as file:
            groups = (file.metadata.row_group(number) for number in range(self.groups))
            chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
            return sum(
                chunk.total_uncompressed_size
                for chunk in chunks
                if chunk.path_in_schema == column or chunk.path_in_schema.startswith(inside)
            )

    @contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        try:
            with pa.OSFile(self.path) as file:  # its own: a ParquetFile that cannot be made would leave it open
                yield pq.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        except DAMAGED as error:
            raise self.damaged(error) from error
        except OSError as error:
            # Also what the decoder of its metadata raises, then without a number.
            raise self.damaged(error) if error.errno is None else self._unreadable(error) from error

    def damaged(self, error: Exception) -> DatasetError:
        """Return what to say of content that pyarrow could not read."""
        why = " ".join(str(error).split())
        return DatasetError(f"{self.name}: expected a parquet file, got one that cannot be read: {why}")

    def _unreadable(self, error: OSError) -> ReadError:
        return ReadError(f"{self.name}: could not be read: {error.strerror}; check its permissions and the disk")


def _batch_rows(metadata: pq.FileMetaData) -> int:
    """Few enough that wide rows fit in memory, too."""
    total: int = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    rows: int = _BATCH_BYTES * metadata.num_rows // max(1, total)
    return max(1, min(BATCH_ROWS, rows))
