"""Rows of parquet files, local or in stores; only requested columns are read.

For an object, read the footer from its tail, and then the column chunks needed, several at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.data.manifest.manifest_columns import BATCH_ROWS
from headrace.data.manifest.packed_column import PageUnits
from headrace.data.manifest.parquet_pages import (
    CODECS,
    PLAIN_ENCODINGS,
    InvalidPageError,
    offset_index_spans,
    read_offset_index,
)
from headrace.data.manifest.typed_rows import DAMAGED, TypedPart
from headrace.data.storage.open_file import FilePath, FileStream, open_path, unreadable
from headrace.data.storage.strings import Ints
from headrace.errors import EmptyDatasetError, HeadraceError
from headrace.system import default_threads, work_through

_BATCH_BYTES = 16 << 20
_BUFFER_BYTES = 1 << 20
"""Bytes read of each column at a time; without it, or with pre_buffer, pyarrow buffers a whole row group."""
_TAIL_BYTES = 64 << 10
"""Size of pyarrow's first read of a footer."""
_AHEAD_BYTES = 256 << 20
"""Limit on column chunks of an object in memory, except for a single larger row group."""
_REQUESTS_AT_ONCE = 16
_LOOKED_AT, _LOOKED_AT_BYTES = 4, 4 << 10
"""Pages per file, and bytes of each, hashed to identify content among files of the same sizes."""
_GAP_BYTES = 128 << 10
"""Largest gap between two chunks that is read rather than skipped with a second request."""

Span = tuple[int, int]
"""First byte of a range in the file, and its end (exclusive)."""


class ParquetRows(TypedPart):
    """Rows of a parquet file; binary values are decoded by row group."""

    expected = "expected a parquet file, got one that cannot be read"

    def __init__(self, path: FilePath, name: str) -> None:
        """Open the file at `path`, called `name` in messages. Raises DatasetError, ReadError."""
        self.path = path
        self.name = name
        file = open_path(path)
        self._size = file.size()
        begin = max(0, self._size - _TAIL_BYTES)
        self._tail = begin, file.read(begin, _TAIL_BYTES)
        with self._reading():
            self._metadata = pq.read_metadata(pa.PythonFile(FileStream(file, [self._tail]), mode="r"))
            self.schema = self._metadata.schema.to_arrow_schema()
        self.rows = self._metadata.num_rows
        if not self.rows:
            raise EmptyDatasetError(f"{self.name}: expected a row a sample, got none. Check the path")
        self._groups = [self._metadata.row_group(number) for number in range(self._metadata.num_row_groups)]
        # Small batches, so that wide rows fit in memory, too.
        total = sum(group.total_byte_size for group in self._groups)
        self._batch_rows = max(1, min(BATCH_ROWS, _BATCH_BYTES * self.rows // max(1, total)))

    @property
    def groups(self) -> int:
        """Number of row groups."""
        return len(self._groups)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, with these columns only."""
        numbers = range(self.groups)
        at_once = self.groups if isinstance(self.path, str) else self._held_at_once(columns)
        for first in range(0, self.groups, max(1, at_once)):
            yield from self._read(numbers[first : first + at_once], columns)

    def group(self, number: int, column: str) -> Iterator[pa.Array]:
        return (batch.column(column) for batch in self._read([number], [column]))

    def groups_at_once(self, column: str) -> int:
        """Return how many row groups of a column may be decoded at once."""
        return default_threads() if isinstance(self.path, str) else self._held_at_once([column])

    def column_bytes(self, column: str) -> int:
        """Return an estimate of the size of a column's values, from the file's metadata."""
        return sum(chunk.total_uncompressed_size for group in self._groups for chunk in _chunks(group, [column]))

    def page_units(self, column: str) -> PageUnits | None:
        """Return the units of a column of bytes; None if its values must be decoded in advance.

        Decoding in advance is needed for nulls that may stand for files, repeated values, and encodings and
        compressions that `unpack_pages` does not read. It is also needed for chunks over 256 MB without a page index.
        Raises DatasetError for a damaged footer.
        """
        is_struct = pa.types.is_struct(self.schema.field(column).type)
        leaf = f"{column}.bytes" if is_struct else column
        leaves = [self._metadata.schema.column(place) for place in range(len(self._metadata.schema))]
        places = [place for place, each in enumerate(leaves) if each.path == leaf]
        if len(places) != 1:
            return None
        schema = leaves[places[0]]
        if schema.physical_type != "BYTE_ARRAY" or schema.max_repetition_level:
            return None
        chunks = [group.column(places[0]) for group in self._groups]
        if not all(_unpackable(chunk, expects_files=is_struct) for chunk in chunks):
            return None
        try:
            pages = self._pages(chunks, places[0])
        except InvalidPageError as error:
            raise self.damaged(error) from error
        codecs = [CODECS.index(chunk.compression) for chunk in chunks]
        table = [(*page, codec) for codec, each in zip(codecs, pages, strict=True) for page in each]
        start, stop, rows, codec = np.array(table, np.int64).reshape(-1, 4).T
        if int((stop - start).max(initial=0)) > _AHEAD_BYTES:
            return None
        levels = np.full(len(rows), schema.max_definition_level, np.int32)
        return PageUnits(start, stop, rows, codec.astype(np.int32), levels, self._hashes(start, stop))

    def _pages(self, chunks: Sequence[pq.ColumnChunkMetaData], place: int) -> list[list[tuple[int, int, int]]]:
        """Return the first byte, end and rows of each chunk's units: its pages, or the whole chunk."""
        found = [[(*chunk_span(chunk), chunk.num_values)] for chunk in chunks]
        if any(chunk.has_offset_index and not chunk.has_dictionary_page for chunk in chunks):
            size = int.from_bytes(self._read_all([(self._size - 8, self._size - 4)])[0], "little")
            footer = self._read_all([(max(0, self._size - 8 - size), self._size - 8)])[0]
            spans = dict(enumerate(offset_index_spans(memoryview(footer), place)))
            indexed = {at: span for at, span in spans.items() if span and not chunks[at].has_dictionary_page}
            for at, index in zip(indexed, self._read_all(list(indexed.values())), strict=True):
                found[at] = read_offset_index(memoryview(index), found[at][0])
        if not all(0 < start < stop <= self._size for pages in found for start, stop, _ in pages):
            raise InvalidPageError(f"pages lie beyond the {self._size:,} bytes of the file")
        return [[page for page in pages if page[2]] for pages in found]

    def _hashes(self, start: Ints, stop: Ints) -> npt.NDArray[np.uint64]:
        """Return hashes of bytes in the middle of a few pages, since images of one size have pages of equal sizes."""
        hashes = np.zeros(len(start), np.uint64)
        looked_at = np.unique(np.linspace(0, len(start) - 1, _LOOKED_AT).astype(np.int64))
        middle = (start + stop)[looked_at] // 2
        ends = np.minimum(stop[looked_at], middle + _LOOKED_AT_BYTES)
        parts = self._read_all(list(zip(middle.tolist(), ends.tolist(), strict=True)))
        for page, data in zip(looked_at, parts, strict=True):
            hashes[page] = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
        return hashes

    def _held_at_once(self, columns: Sequence[str]) -> int:
        """Return how many row groups of an object fit in memory."""
        most = max(sum(stop - start for start, stop in _spans(group, columns)) for group in self._groups)
        return max(1, min(_REQUESTS_AT_ONCE, _AHEAD_BYTES // max(1, most)))

    def _read(self, groups: Sequence[int], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._reading():
            if isinstance(self.path, str):
                source = pa.OSFile(self.path)
            else:
                spans = [span for number in groups for span in _spans(self._groups[number], columns)]
                ahead = [(start, data) for (start, _), data in zip(spans, self._read_all(spans), strict=True)]
                source = pa.PythonFile(FileStream(self.path.open(), ahead), mode="r")
            with source:  # opened here: a failing ParquetFile would leak it
                file = pq.ParquetFile(source, metadata=self._metadata, buffer_size=_BUFFER_BYTES, pre_buffer=False)
                yield from file.iter_batches(self._batch_rows, list(groups), list(columns))

    def _read_all(self, spans: Sequence[Span]) -> list[bytes]:
        """Return the content of ranges, several read at once, or taken from the file's tail. Raises ReadError."""
        file, (begin, tail) = open_path(self.path), self._tail
        found: dict[Span, bytes] = {}

        def read(span: Span) -> None:
            start, stop = span
            found[span] = tail[start - begin : stop - begin] if start >= begin else file.read(start, stop - start)

        work_through(spans, read, name="read-columns", threads=max(1, min(_REQUESTS_AT_ONCE, len(spans))))
        return [found[span] for span in spans]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except HeadraceError:
            raise
        except DAMAGED as error:
            raise self.damaged(error) from error
        except OSError as error:
            # Decoding the metadata also raises OSError, without an errno.
            raise self.damaged(error) if error.errno is None else unreadable(self.name, error) from error


def chunk_span(chunk: pq.ColumnChunkMetaData) -> Span:
    """Return the range of a column chunk, from its dictionary, if any, to the end of its last page."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def _unpackable(chunk: pq.ColumnChunkMetaData, *, expects_files: bool) -> bool:
    """Return True if a chunk's values can be located in its pages. `expects_files`: a null may stand for a file."""
    known = chunk.compression in CODECS and PLAIN_ENCODINGS.issuperset(chunk.encodings)
    nulls = chunk.statistics.null_count if chunk.is_stats_set and chunk.statistics.has_null_count else None
    return known and (not expects_files or nulls == 0)


def _chunks(group: pq.RowGroupMetaData, columns: Sequence[str]) -> Iterator[pq.ColumnChunkMetaData]:
    """Yield the column chunks of these columns, nested ones included."""
    for place in range(group.num_columns):
        chunk = group.column(place)
        if any(chunk.path_in_schema == name or chunk.path_in_schema.startswith(f"{name}.") for name in columns):
            yield chunk


def _spans(group: pq.RowGroupMetaData, columns: Sequence[str]) -> list[Span]:
    """Return the ranges of the chunks of these columns, with close ones merged."""
    spans: list[Span] = []
    for start, stop in sorted(chunk_span(chunk) for chunk in _chunks(group, columns)):
        if spans and start - spans[-1][1] <= _GAP_BYTES:
            spans[-1] = spans[-1][0], max(stop, spans[-1][1])
        else:
            spans.append((start, stop))
    return spans
