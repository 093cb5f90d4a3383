"""Which reader reads which manifest."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ..file_kind import kind_of
from .delimited_text import DelimitedText
from .json_lines import JsonLines
from .lines_text import LinesText
from .parquet_rows import ParquetRows
from .source import ManifestSource
from .untyped import Untyped

Columns = Sequence[str] | None

_READERS: dict[str, Callable[[str, Columns], ManifestSource]] = {
    ".csv": lambda path, columns: Untyped(DelimitedText(path, delimiter=",", columns=columns)),
    ".tsv": lambda path, columns: Untyped(DelimitedText(path, delimiter="\t", columns=columns)),
    ".txt": lambda path, columns: Untyped(LinesText(path, columns=columns)),
    ".jsonl": lambda path, columns: JsonLines(path, columns=columns),
    ".odgt": lambda path, columns: JsonLines(path, columns=columns),
    ".parquet": lambda path, columns: ParquetRows(path, columns=columns),
}


def read_manifest(path: str, columns: Columns) -> ManifestSource:
    """The rows of the manifest at `path`. Raises DatasetError, ReadError, UsageError."""
    is_parquet = os.path.isfile(path) and kind_of(path).kind == "parquet"  # a pipe has no bytes to spare
    suffix = ".parquet" if is_parquet else os.path.splitext(path)[1].lower()
    return _READERS[suffix](path, columns)
