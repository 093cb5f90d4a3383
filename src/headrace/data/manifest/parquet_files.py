"""Parquet files, on this machine or in stores: their rows, of which only the columns that are asked for are read.

Of an object the footer is read by its tail, and then the column chunks that are needed, several at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.data.manifest.manifest_columns import BATCH_ROWS
from headrace.data.manifest.typed_rows import DAMAGED, TypedPart
from headrace.data.storage.open_file import FilePath, FileStream, ReadableFile, unreadable
from headrace.errors import EmptyDatasetError, HeadraceError
from headrace.system import default_threads, work_through

_BATCH_BYTES = 16 << 20
_BUFFER_BYTES = 1 << 20
"""Bytes read at a time of each column; else, or with pre_buffer, pyarrow holds those of a whole row group."""
_TAIL_BYTES = 64 << 10
"""What pyarrow asks for first of a footer."""
_AHEAD_BYTES = 256 << 20
"""Bytes of column chunks of an object in memory at once, but for a row group that has more."""
_REQUESTS_AT_ONCE = 16
_GAP_BYTES = 128 << 10
"""Bytes between two chunks that are read rather than left out by a second request."""

Span = tuple[int, int]
"""First byte of a range in the file, and the one after its last."""


class ParquetRows(TypedPart):
    """Rows of a parquet file, whose binary values are decoded by row groups."""

    expected = "expected a parquet file, got one that cannot be read"

    def __init__(self, path: FilePath, name: str) -> None:
        """Open the file at `path`, called `name` in messages. Raises DatasetError, ReadError."""
        self.path = path
        self.name = name
        self._metadata: pq.FileMetaData | None = None
        with self._open(self._tail()) as file:
            self.schema = file.schema_arrow
            self._metadata = file.metadata
            self.rows = file.metadata.num_rows
            self.groups: int = file.metadata.num_row_groups
            # Few enough that wide ones fit in memory, too.
            total = sum(file.metadata.row_group(number).total_byte_size for number in range(self.groups))
            self._batch_rows = max(1, min(BATCH_ROWS, _BATCH_BYTES * self.rows // max(1, total)))
            if not self.rows:
                raise EmptyDatasetError(f"{self.name}: expected a row a sample, got none. Check the path")

    @property
    def is_remote(self) -> bool:
        """True for an object in a store."""
        return not isinstance(self.path, str)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, with these columns alone."""
        for groups in self._rounds(columns):
            yield from self._read(groups, columns)

    def group(self, number: int, column: str) -> Iterator[pa.Array]:
        """Yield the values of one column in one row group."""
        return (batch.column(column) for batch in self._read([number], [column]))

    def groups_at_once(self, column: str) -> int:
        """Return how many row groups of a column may be decoded at once: those of an object lie in memory."""
        if not self.is_remote:
            return default_threads()
        most = max(
            (stop - start for number in range(self.groups) for start, stop in self._spans(number, [column])), default=1
        )
        return max(1, min(_REQUESTS_AT_ONCE, _AHEAD_BYTES // max(1, most)))

    def column_bytes(self, column: str) -> int:
        """Return about how many bytes the values of a column have, by the file's metadata."""
        return sum(
            chunk.total_uncompressed_size for number in range(self.groups) for chunk in self._chunks(number, [column])
        )

    def _chunks(self, number: int, columns: Sequence[str]) -> Iterator[pq.ColumnChunkMetaData]:
        """Yield the column chunks of these columns, or of what is inside them, in one row group."""
        assert self._metadata is not None
        group = self._metadata.row_group(number)
        for place in range(group.num_columns):
            chunk = group.column(place)
            if any(chunk.path_in_schema == name or chunk.path_in_schema.startswith(f"{name}.") for name in columns):
                yield chunk

    def _spans(self, number: int, columns: Sequence[str]) -> list[Span]:
        """Return where the chunks of these columns lie in one row group, those close to each other together."""
        spans: list[Span] = []
        for start, stop in sorted(chunk_span(chunk) for chunk in self._chunks(number, columns)):
            if spans and start - spans[-1][1] <= _GAP_BYTES:
                spans[-1] = spans[-1][0], max(stop, spans[-1][1])
            else:
                spans.append((start, stop))
        return spans

    def _rounds(self, columns: Sequence[str]) -> Iterator[list[int]]:
        """Yield the numbers of row groups that are read together: all of a local file, as many as memory has room."""
        if not self.is_remote:
            yield list(range(self.groups))
            return
        groups: list[int] = []
        size = 0
        for number in range(self.groups):
            own = sum(stop - start for start, stop in self._spans(number, columns))
            if groups and size + own > _AHEAD_BYTES:
                yield groups
                groups, size = [], 0
            groups.append(number)
            size += own
        yield groups

    def _read(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        ahead: list[tuple[int, bytes]] = []
        if not isinstance(self.path, str):
            ahead = read_spans(self.path.open(), [span for number in groups for span in self._spans(number, columns)])
        with self._open(ahead) as file:
            yield from file.iter_batches(batch_size=self._batch_rows, columns=list(columns), row_groups=list(groups))

    def _tail(self) -> list[tuple[int, bytes]]:
        """Return the end of an object, where the footer is; nothing of a local file."""
        if isinstance(self.path, str):
            return []
        file = self.path.open()
        begin = max(0, file.size() - _TAIL_BYTES)
        return [(begin, file.read(begin, _TAIL_BYTES))]

    @contextmanager
    def _open(self, ahead: Sequence[tuple[int, bytes]]) -> Iterator[pq.ParquetFile]:
        try:
            if isinstance(self.path, str):
                source = pa.OSFile(self.path)
            else:
                source = pa.PythonFile(FileStream(self.path.open(), ahead), mode="r")
            with source as file:  # its own: a ParquetFile that cannot be made would leave it open
                yield pq.ParquetFile(file, metadata=self._metadata, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        except HeadraceError:
            raise
        except DAMAGED as error:
            raise self.damaged(error) from error
        except OSError as error:
            # Also what the decoder of its metadata raises, then without a number.
            raise self.damaged(error) if error.errno is None else unreadable(self.name, error) from error


def chunk_span(chunk: pq.ColumnChunkMetaData) -> Span:
    """Return where a column chunk lies: from its dictionary, if it has one, to the end of its last page."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def read_spans(file: ReadableFile, spans: Sequence[Span]) -> list[tuple[int, bytes]]:
    """Return the first byte and the content of each range, several read at once. Raises ReadError."""
    found: dict[int, bytes] = {}

    def read(span: Span) -> None:
        found[span[0]] = file.read(span[0], span[1] - span[0])

    work_through(spans, read, name="read-columns", threads=max(1, min(_REQUESTS_AT_ONCE, len(spans))))
    return sorted(found.items())
