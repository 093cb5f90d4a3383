"""Rows of parquet files, local or in stores; only requested columns are read.

For an object, read the footer from its tail, and then the column chunks needed, several at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

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
    PageSpan,
    offset_index_spans,
    read_offset_index,
)
from headrace.data.manifest.typed_rows import DAMAGED, TypedPart
from headrace.data.storage.open_file import FilePath, FileStream, ReadableFile, open_path, unreadable
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
        self._metadata: pq.FileMetaData | None = None
        self._size = open_path(path).size()
        self._end = self._tail()
        with self._open(self._end) as file:
            self.schema = file.schema_arrow
            self._metadata = file.metadata
            self.rows = file.metadata.num_rows
            self.groups: int = file.metadata.num_row_groups
            # Small batches, so that wide rows fit in memory, too.
            total = sum(file.metadata.row_group(number).total_byte_size for number in range(self.groups))
            self._batch_rows = max(1, min(BATCH_ROWS, _BATCH_BYTES * self.rows // max(1, total)))
            if not self.rows:
                raise EmptyDatasetError(f"{self.name}: expected a row a sample, got none. Check the path")

    @property
    def is_remote(self) -> bool:
        """True for an object in a store."""
        return not isinstance(self.path, str)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, with these columns only."""
        for groups in self._rounds(columns):
            yield from self._read(groups, columns)

    def group(self, number: int, column: str) -> Iterator[pa.Array]:
        return (batch.column(column) for batch in self._read([number], [column]))

    def groups_at_once(self, column: str) -> int:
        """Return how many row groups of a column may be decoded at once; row groups of an object are held in memory."""
        if not self.is_remote:
            return default_threads()
        most = max(
            (stop - start for number in range(self.groups) for start, stop in self._spans(number, [column])), default=1
        )
        return max(1, min(_REQUESTS_AT_ONCE, _AHEAD_BYTES // max(1, most)))

    def column_bytes(self, column: str) -> int:
        """Return an estimate of the size of a column's values, from the file's metadata."""
        return sum(
            chunk.total_uncompressed_size for number in range(self.groups) for chunk in self._chunks(number, [column])
        )

    def page_units(self, column: str) -> PageUnits | None:
        """Return the units of a column of bytes; None if its values must be decoded in advance.

        Decoding in advance is needed for nulls that may stand for files, repeated values, and encodings and
        compressions that `unpack_pages` does not read. It is also needed for chunks over 256 MB without a page index.
        Raises DatasetError for a damaged footer.
        """
        assert self._metadata is not None
        leaf = f"{column}.bytes" if pa.types.is_struct(self.schema.field(column).type) else column
        places = [n for n in range(len(self._metadata.schema)) if self._metadata.schema.column(n).path == leaf]
        if len(places) != 1:
            return None
        schema = self._metadata.schema.column(places[0])
        if schema.physical_type != "BYTE_ARRAY" or schema.max_repetition_level:
            return None
        chunks = [self._metadata.row_group(number).column(places[0]) for number in range(self.groups)]
        if not all(_unpackable(chunk, expects_files=leaf != column) for chunk in chunks):
            return None
        try:
            spans = self._pages_of(chunks, places[0])
        except InvalidPageError as error:
            raise self.damaged(error) from error
        if max((stop - start for pages in spans for start, stop, _ in pages), default=0) > _AHEAD_BYTES:
            return None
        kinds = [(CODECS.index(chunk.compression), schema.max_definition_level) for chunk in chunks]
        table = [(*page, *kind) for pages, kind in zip(spans, kinds, strict=True) for page in pages]
        start, stop, rows, codec, level = np.array(table, np.int64).reshape(-1, 5).T
        return PageUnits(start, stop, rows, codec.astype(np.int32), level.astype(np.int32), self._hashes(start, stop))

    def _pages_of(self, chunks: Sequence[pq.ColumnChunkMetaData], place: int) -> list[list[tuple[int, int, int]]]:
        """Return the first byte, end and rows of each chunk's units: its pages, or the whole chunk."""
        wholes = [(*chunk_span(chunk), chunk.num_values) for chunk in chunks]
        indexed = [chunk.has_offset_index and not chunk.has_dictionary_page for chunk in chunks]
        places = offset_index_spans(memoryview(self._footer())) if any(indexed) else []
        spans = [places[number][place] if known else None for number, known in enumerate(indexed)]
        read = iter(self._read_all([(span[0], span[0] + span[1]) for span in spans if span is not None]))
        found = []
        for whole, span in zip(wholes, spans, strict=True):
            pages = [whole] if span is None else _page_spans(read_offset_index(memoryview(next(read))), whole)
            if not all(0 < start < stop <= self._size for start, stop, _ in pages):
                raise InvalidPageError(f"pages lie beyond the {self._size:,} bytes of the file")
            found.append([page for page in pages if page[2]])
        return found

    def _footer(self) -> bytes:
        size = int.from_bytes(self._read_all([(self._size - 8, self._size - 4)])[0], "little")
        return self._read_all([(max(0, self._size - 8 - size), self._size - 8)])[0]

    def _read_all(self, spans: Sequence[Span]) -> list[bytes]:
        """Return the content of ranges, from the tail that was read before if it contains them."""
        known, tail = self._end[0] if self._end else (self._size, b"")
        missing = [span for span in spans if span[0] < known]
        read = dict(read_spans(open_path(self.path), missing)) if missing else {}
        return [read[start] if start < known else tail[start - known : stop - known] for start, stop in spans]

    def _hashes(self, start: Ints, stop: Ints) -> npt.NDArray[np.uint64]:
        """Return hashes of bytes in the middle of a few pages, since images of one size have pages of equal sizes."""
        hashes = np.zeros(len(start), np.uint64)
        looked_at = np.unique(np.linspace(0, len(start) - 1, _LOOKED_AT).astype(np.int64))
        middle = [int(start[page] + stop[page]) // 2 for page in looked_at]
        ends = [min(int(stop[page]), at + _LOOKED_AT_BYTES) for page, at in zip(looked_at, middle, strict=True)]
        for page, data in zip(looked_at, self._read_all(list(zip(middle, ends, strict=True))), strict=True):
            hashes[page] = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
        return hashes

    def _chunks(self, number: int, columns: Sequence[str]) -> Iterator[pq.ColumnChunkMetaData]:
        """Yield the column chunks of these columns, nested ones included, in one row group."""
        assert self._metadata is not None
        group = self._metadata.row_group(number)
        for place in range(group.num_columns):
            chunk = group.column(place)
            if any(chunk.path_in_schema == name or chunk.path_in_schema.startswith(f"{name}.") for name in columns):
                yield chunk

    def _spans(self, number: int, columns: Sequence[str]) -> list[Span]:
        """Return the ranges of the chunks of these columns in one row group, with close ones merged."""
        spans: list[Span] = []
        for start, stop in sorted(chunk_span(chunk) for chunk in self._chunks(number, columns)):
            if spans and start - spans[-1][1] <= _GAP_BYTES:
                spans[-1] = spans[-1][0], max(stop, spans[-1][1])
            else:
                spans.append((start, stop))
        return spans

    def _rounds(self, columns: Sequence[str]) -> Iterator[list[int]]:
        """Yield the row groups to read together: all of a local file, else as many as fit in memory."""
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
        """Return the end of an object with its footer; empty for a local file."""
        if isinstance(self.path, str):
            return []
        file = self.path.open()
        begin = max(0, self._size - _TAIL_BYTES)
        return [(begin, file.read(begin, _TAIL_BYTES))]

    @contextmanager
    def _open(self, ahead: Sequence[tuple[int, bytes]]) -> Iterator[pq.ParquetFile]:
        try:
            if isinstance(self.path, str):
                source = pa.OSFile(self.path)
            else:
                source = pa.PythonFile(FileStream(self.path.open(), ahead), mode="r")
            with source as file:  # opened here: a failing ParquetFile would leak it
                yield pq.ParquetFile(file, metadata=self._metadata, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        except HeadraceError:
            raise
        except DAMAGED as error:
            raise self.damaged(error) from error
        except OSError as error:
            # Decoding the metadata also raises OSError, without an errno.
            raise self.damaged(error) if error.errno is None else unreadable(self.name, error) from error


def _unpackable(chunk: pq.ColumnChunkMetaData, *, expects_files: bool) -> bool:
    """Return True if a chunk's values can be located in its pages. `expects_files`: a null may stand for a file."""
    known = chunk.compression in CODECS and PLAIN_ENCODINGS.issuperset(chunk.encodings)
    nulls = chunk.statistics.null_count if chunk.is_stats_set and chunk.statistics.has_null_count else None
    return known and (not expects_files or nulls == 0)


def _page_spans(pages: Sequence[PageSpan], whole: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """Return the first byte, end and rows of each page of a chunk. Raises InvalidPageError for inconsistent pages."""
    first = [page.first_row for page in pages] + [whole[2]]
    rows = [stop - start for start, stop in pairwise(first)]
    if first[0] or min(rows, default=0) < 0:
        raise InvalidPageError("the rows of pages do not follow each other")
    if any(page.start < whole[0] or page.start + page.bytes > whole[1] for page in pages):
        raise InvalidPageError("pages lie outside their column")
    return [(page.start, page.start + page.bytes, count) for page, count in zip(pages, rows, strict=True)]


def chunk_span(chunk: pq.ColumnChunkMetaData) -> Span:
    """Return the range of a column chunk, from its dictionary, if any, to the end of its last page."""
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
