"""`.txt`: a path a line, or fields between blanks."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa

from headrace.data.manifest.checked_text import READ_BYTES, CheckedText
from headrace.data.manifest.source import batched
from headrace.errors import DatasetError, EmptyDatasetError

_ONLY_COLUMN = "image"


class LinesText:
    """The rows of a text whose fields lie between blanks, without quotes; lines that are blank do not count.

    `columns`: names of the fields. One name: a line is one field, whatever blanks are in it. None: the one field is
    called `image`, and a line with blanks in it is refused, since nobody said what its fields are.
    """

    def __init__(self, path: str, *, called: str | None = None, columns: Sequence[str] | None) -> None:
        self._path = path
        self.name = os.path.basename(path) if called is None else called
        self._guessed = columns is None
        self.columns = [_ONLY_COLUMN] if columns is None else list(columns)
        self.rows = self._lines = 0

    def texts(self) -> Iterator[pa.RecordBatch]:
        self.rows = 0
        with closing(CheckedText(self._path)) as text:
            for batch in batched(self._split(io.BufferedReader(text, READ_BYTES))):
                self.rows += len(batch)
                fields = zip(*batch, strict=True)
                yield pa.record_batch([pa.array(field, pa.string()) for field in fields], names=self.columns)
            self._lines = text.lines
        if not self.rows:
            raise EmptyDatasetError(f"{self.name}: expected a sample a line, got no line. Check the path")

    @property
    def first_line(self) -> int | None:
        return 1 if self._lines == self.rows else None

    def _split(self, lines: io.BufferedReader) -> Iterator[tuple[Sequence[bytes], int]]:
        expected = len(self.columns)
        for number, line in enumerate(lines, 1):
            fields = line.split()
            if expected == 1 and fields and not (self._guessed and len(fields) > 1):
                yield (line.strip(),), len(line)
            elif len(fields) == expected:
                yield fields, len(line)
            elif fields:
                raise self._unexpected(number, fields)

    def _unexpected(self, number: int, fields: list[bytes]) -> DatasetError:
        got = f"{len(fields)} fields, such as {fields[0].decode()[:60]!r}"
        if self._guessed:
            return DatasetError(
                f"{self.name} line {number:,}: expected one path a line, got {got}. Name the fields with "
                f"columns=['image', …], or pass columns=['image'] if the blanks belong to the path"
            )
        return DatasetError(
            f"{self.name} line {number:,}: expected {len(self.columns)} fields between blanks, one for each of "
            f"columns={self.columns}, got {got}"
        )
