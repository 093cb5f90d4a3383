"""Text manifests: `.csv`, `.tsv`, `.txt` and `.jsonl`, validated while reading."""

from __future__ import annotations

import codecs
import csv
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.csv as arrow_csv

from headrace.data.manifest.manifest_columns import BATCH_BYTES, BATCH_ROWS, MAX_COLUMNS, distinct_names
from headrace.data.sources.file_kind import is_image_name
from headrace.data.storage.open_file import FilePath, file_name, open_stream, unreadable
from headrace.errors import DatasetError, EmptyDatasetError, HeadraceError

NamedColumns: TypeAlias = Iterable[tuple[str, Any]]
"""Columns of a batch of rows by name: arrays of texts, or lists of JSON values."""

MAX_LINE_BYTES = 8 << 20
"""Longer lines are refused, to bound memory for any file."""

READ_BYTES = 1 << 20
"""Buffer size over `CheckedText`, since each read has a cost."""
_UTF8_MARK = codecs.BOM_UTF8
_MARK_BYTES = 4
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, which starts with the same two bytes
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


class CheckedText(io.RawIOBase):
    """Bytes of a text manifest, validated while reading: UTF-8, no NUL bytes, lines of bounded length.

    A UTF-8 byte-order mark is skipped. Reading raises DatasetError, with the line number, for invalid text, and
    ReadError.
    """

    def __init__(self, path: FilePath, *, after: str = "") -> None:
        """Open the file at `path`. Reads return `after` behind its end, unchecked."""
        super().__init__()
        self._after = io.BytesIO(after.encode())
        self._name = file_name(path)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._unfinished = 0  # bytes of the incomplete line at the end of the last block
        self.line_ends = 0
        self._start = io.BytesIO()
        try:
            self._file = open_stream(path)
        except HeadraceError:
            raise
        except OSError as error:
            raise unreadable(self._name, error) from error
        try:
            self._begin()
        except BaseException:
            self._file.close()
            raise

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the io module hands a memoryview
        try:
            count = self._start.readinto(buffer) or self._file.readinto(buffer)
        except HeadraceError:
            raise
        except OSError as error:
            raise unreadable(self._name, error) from error
        assert count is not None, "no file on a disk is non-blocking"
        self._check(bytes(buffer[:count]))
        return count or self._after.readinto(buffer)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    @property
    def lines(self) -> int:
        """Number of lines read so far, including a last line without a line end."""
        return self.line_ends + (self._unfinished > 0)

    def _begin(self) -> None:
        start = self._file.read(_MARK_BYTES) or b""
        for mark, encoding in _OTHER_MARKS.items():
            if start.startswith(mark):
                raise DatasetError(
                    f"{self._name}: expected UTF-8, got {encoding} (its byte-order mark). Convert it: "
                    f"iconv -f {encoding} -t UTF-8 {self._name}"
                )
        self._start.write(start.removeprefix(_UTF8_MARK))
        self._start.seek(0)

    def _check(self, block: bytes) -> None:
        """Validate the next block; an empty one marks the end of the file."""
        if b"\0" in block:
            line = self._line_of(block, block.index(b"\0"))
            raise DatasetError(f"{self._name} line {line}: expected text, got a NUL byte. Is it UTF-16, or binary?")
        pending = self._decoder.getstate()[0]
        try:
            if pending or not block or not block.isascii():
                self._decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            at = max(0, error.start - len(pending))
            raise DatasetError(
                f"{self._name} line {self._line_of(block, at)}: expected UTF-8, got the byte "
                f"0x{error.object[error.start]:02x}. Convert it, if it is Latin 1 for example: "
                f"iconv -f LATIN1 -t UTF-8 {self._name}"
            ) from None
        first, last = block.find(b"\n"), block.rfind(b"\n")
        if self._unfinished + (first if first >= 0 else len(block)) > MAX_LINE_BYTES:
            raise DatasetError(
                f"{self._name} line {self.line_ends + 1}: expected at most {MAX_LINE_BYTES:,} bytes a line, got more. "
                f"Is it a manifest?"
            )
        self.line_ends += block.count(b"\n")
        self._unfinished = len(block) - last - 1 if last >= 0 else self._unfinished + len(block)

    def _line_of(self, block: bytes, at: int) -> int:
        return self.line_ends + block.count(b"\n", 0, at) + 1


_BLOCK_BYTES = MAX_LINE_BYTES + (1 << 20)
"""Bytes parsed at a time. A row, which may span several lines, has to fit."""
_MARK = "\x1f"
_SHOWN_CHARACTERS = 60


class DelimitedText:
    """Rows of delimited text, as in RFC 4180.

    `columns`: names of the fields. If the first line contains all of them, it is a header anyway, and they select from
    it. If only the second line names an image in some field, the first is a header too, and these names replace it.
    None: the first line is a header.
    """

    def __init__(self, path: FilePath, name: str, *, delimiter: str, columns: Sequence[str] | None) -> None:
        """Read the first row. Raises DatasetError, ReadError."""
        self._path = path
        self.name = name
        self._delimiter = delimiter
        self.rows = self._lines = 0
        with closing(self._rows_and_lines()) as rows:
            first, line = next(rows, (None, 0))
            second, _ = next(rows, ([], 0))
        if first is None:
            raise EmptyDatasetError(f"{self.name}: expected a row a sample, got an empty file. Check the path")
        if not first:
            raise DatasetError(
                f"{self.name} line {line}: expected fields of at most {csv.field_size_limit():,} characters in the "
                f"first row, got more. Is a quote never closed?"
            )
        has_names = columns is None or set(columns) <= set(first)
        self._has_header = has_names or _is_header(first, second)
        self._fields = list(columns or ())
        if has_names:  # a column without a name, such as pandas' index, gets its number as name
            named = [field or f"column {number}" for number, field in enumerate(first, 1)]
            self._fields = distinct_names(self.name, named)
        self.columns = self._fields if columns is None else list(columns)
        if len(self._fields) != len(first):
            raise DatasetError(
                f"{self.name} line 1: expected {len(self._fields)} fields, one for each of {self._fields}, got "
                f"{len(first)}: {_shown(self._delimiter.join(first))}. Name all of them with columns="
            )

    def batches(self, names: Sequence[str] | None = None) -> Iterator[NamedColumns]:
        self.rows = 0
        header, taken = int(self._has_header), self.columns if names is None else list(names)
        with closing(CheckedText(self._path, after=f"\n{self._delimiter.join(self._last_row)}\n")) as text:
            # Buffered, since each read makes a block, and reads of the raw file may return few bytes.
            for batch in self._but_last(self._parsed(io.BufferedReader(text, READ_BYTES))):
                batch, header = batch.slice(header), 0
                self.rows += len(batch)
                if len(batch):
                    yield zip(taken, batch.select(taken).columns, strict=True)
            self._lines = text.lines
        if not self.rows:
            raise EmptyDatasetError(
                f"{self.name}: expected a row a sample, got a header and no row after it. Check the path"
            )

    @property
    def first_line(self) -> int | None:
        return 1 + self._has_header if self._lines == self.rows + self._has_header else None

    def _parsed(self, text: io.BufferedIOBase) -> Iterator[pa.RecordBatch]:
        ragged: list[arrow_csv.InvalidRow] = []

        def refuse(row: arrow_csv.InvalidRow) -> str:
            ragged.append(row)
            return "error"

        try:
            yield from arrow_csv.open_csv(
                text,
                # With threads, the parser cannot report which row is ragged.
                read_options=arrow_csv.ReadOptions(
                    block_size=_BLOCK_BYTES, column_names=self._fields, use_threads=False
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=refuse
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(self._fields, pa.string()), strings_can_be_null=False, check_utf8=False
                ),
            )
        except pa.ArrowInvalid as error:
            if ragged:
                row = ragged[0]
                hint = " A field that holds the delimiter, a quote or a line end goes in quotes" * ('"' in row.text)
                raise DatasetError(
                    f"{self.name} line {self._line_of(row.number - 1):,}: expected {row.expected_columns} fields as in "
                    f"the first line, got {row.actual_columns}: {_shown(row.text)}.{hint}"
                ) from None
            if "straddl" in str(error):
                raise self._open_quote(None) from None
            raise DatasetError(f"{self.name}: could not be read: {error}") from error

    @property
    def _last_row(self) -> list[str]:
        return [_MARK] * len(self._fields)

    def _but_last(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all rows except the end mark. If the mark is missing, an open quote has swallowed it."""
        held = next(batches)
        for batch in batches:
            yield held
            held = batch
        last = held.slice(len(held) - 1)
        if [column[0].as_py() for column in last.columns] != self._last_row:
            raise self._open_quote(self.rows + len(held) - (self._has_header and not self.rows))
        yield held.slice(0, len(held) - 1)

    def _open_quote(self, row: int | None) -> DatasetError:
        return DatasetError(
            f"{self.name} line {self._line_of(row):,}: expected every quote to be closed within {MAX_LINE_BYTES:,} "
            f"bytes, got one that is open for longer, or to the end. Close it, or write it twice inside quotes"
        )

    def _line_of(self, row: int | None) -> int:
        """Return the line in which a row begins, counted from 0 with the header; None: the last row."""
        found = 1
        with closing(self._rows_and_lines()) as rows:
            for number, (_, line) in enumerate(rows):
                found = line
                if number == row:
                    break
        return found

    def _rows_and_lines(self) -> Generator[tuple[list[str], int], None, None]:
        """Yield each row, and the line in which it begins, as Python's csv module parses them.

        A row with a field that is too long for the csv module is yielded empty, as the last row.
        """
        with closing(CheckedText(self._path)) as text:
            lines = io.TextIOWrapper(io.BufferedReader(text, READ_BYTES), encoding="utf-8", newline="")
            rows = csv.reader(lines, delimiter=self._delimiter)
            ended = 0
            try:
                for row in rows:
                    if row:
                        yield row, ended + 1
                    ended = rows.line_num
            except csv.Error:
                yield [], ended + 1


def _is_header(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return True if some field names an image in the second row but not in the first."""
    return len(first) == len(second) and any(
        is_image_name(os.fsencode(value)) and not os.path.splitext(name)[1]
        for name, value in zip(first, second, strict=True)
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


class _LinedText(ABC):
    """Text with one row per line; blank lines are skipped."""

    def __init__(self, path: FilePath, name: str) -> None:
        self._path = path
        self.name = name
        self.rows = self._lines = 0

    @property
    def first_line(self) -> int | None:
        return 1 if self._lines == self.rows else None

    @abstractmethod
    def _parsed(self, number: int, line: bytes) -> Any:
        """Return the row in the non-blank line `number`, counted from 1."""

    def _rows(self, expected: str) -> Iterator[list[Any]]:
        """Yield rows in batches that bound memory. Raises EmptyDatasetError; `expected` is part of the message."""
        self.rows = 0
        batch: list[Any] = []
        left = BATCH_BYTES
        with closing(CheckedText(self._path)) as text:
            for number, line in enumerate(io.BufferedReader(text, READ_BYTES), 1):
                if line.isspace():
                    continue
                batch.append(self._parsed(number, line))
                self.rows += 1
                left -= len(line)
                if len(batch) == BATCH_ROWS or left <= 0:
                    yield batch
                    batch, left = [], BATCH_BYTES
            self._lines = text.lines
        if batch:
            yield batch
        if not self.rows:
            raise EmptyDatasetError(f"{self.name}: expected {expected}, got no line. Check the path")


class LinesText(_LinedText):
    """Rows of a text with fields separated by blanks, without quotes; blank lines are skipped.

    `columns`: names of the fields. With one name, a line is one field, blanks included. None: the one field is `image`,
    and a line with blanks in it is refused, since the names of its fields are unknown.
    """

    def __init__(self, path: FilePath, name: str, *, columns: Sequence[str] | None) -> None:
        super().__init__(path, name)
        self._guessed = columns is None
        self.columns = ["image"] if columns is None else list(columns)

    def batches(self, names: Sequence[str] | None = None) -> Iterator[NamedColumns]:
        for batch in self._rows("a sample a line"):
            fields = dict(zip(self.columns, zip(*batch, strict=True), strict=True))
            yield ((name, pa.array(fields[name], pa.string())) for name in names or self.columns)

    def _parsed(self, number: int, line: bytes) -> Sequence[bytes]:
        fields, expected = line.split(), len(self.columns)
        if expected == 1 and not (self._guessed and len(fields) > 1):
            return (line.strip(),)
        if len(fields) == expected:
            return fields
        got = f"{len(fields)} fields, such as {fields[0].decode()[:60]!r}"
        if self._guessed:
            raise DatasetError(
                f"{self.name} line {number:,}: expected one path a line, got {got}. Name the fields with "
                f"columns=['image', …], or pass columns=['image'] if the blanks belong to the path"
            )
        raise DatasetError(
            f"{self.name} line {number:,}: expected {expected} fields between blanks, one for each of "
            f"columns={self.columns}, got {got}"
        )


class JsonText(_LinedText):
    """Rows of JSON objects, one per line; blank lines are skipped. Missing keys are null."""

    columns = None
    """Names of the columns; None: all keys, known only after reading."""

    def __init__(self, path: FilePath, name: str) -> None:
        super().__init__(path, name)
        self._decode = msgspec.json.Decoder(dict[str, Any]).decode

    def batches(self, names: Sequence[str] | None = None) -> Iterator[NamedColumns]:
        for rows in self._rows("a JSON object a line"):
            found = names
            if found is None:
                found = list(dict.fromkeys(name for row in rows for name in row))
                if len(found) > MAX_COLUMNS:
                    distinct_names(self.name, found)
            yield ((name, [row.get(name) for row in rows]) for name in found)

    def _parsed(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            return self._decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise DatasetError(
                f"{self.name} line {number:,}: expected a JSON object, such as "
                f'{{"image": "a.jpg", "label": 3}}, got {line[:60]!r}: {error}'
            ) from None
