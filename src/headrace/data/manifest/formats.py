"""Which reader reads which files of rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from headrace.data.manifest.source import ManifestSource
from headrace.data.sources.file_kind import TEXT_SUFFIXES
from headrace.data.storage.open_file import OpenFile
from headrace.errors import ReadError, UsageError

TYPED_SUFFIXES = (".parquet", ".arrow", ".feather")
"""Endings of files whose columns have types, and may hold the samples' bytes."""
SUFFIXES = (*TEXT_SUFFIXES, *TYPED_SUFFIXES)
"""Endings of files of rows."""

_PARQUET, _ARROW_FILE, _ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"

Columns = Sequence[str] | None


def format_of(path: str) -> str:
    """Return the ending that says how the file at `path` is read: by its first bytes where they tell, whatever it is
    called."""
    suffix = os.path.splitext(path)[1].lower()
    start = b""
    with suppress(ReadError):  # its reader says why
        start = OpenFile(os.fsencode(path)).read(0, 8) if os.path.isfile(path) else b""
    if start.startswith(_PARQUET):
        return ".parquet"
    if start.startswith(_ARROW_FILE) or (start.startswith(_ARROW_STREAM) and suffix not in _READERS):
        return ".arrow"
    return {".feather": ".arrow", ".odgt": ".jsonl"}.get(suffix, suffix)


def common_format(paths: Sequence[str]) -> str:
    """Return the format of all these files. Raises UsageError where they differ."""
    first = format_of(paths[0])
    for path in paths[1:]:
        if format_of(path) != first:
            raise UsageError(
                f"expected files of one format, got {os.path.basename(paths[0])} ({first}) and "
                f"{os.path.basename(path)} ({format_of(path)}). Open each format by itself"
            )
    return first


def read_manifest(paths: Sequence[str], names: Sequence[str], columns: Columns) -> ManifestSource:
    """Return the rows of these files, one after another; `names` is what messages call them.

    Raises DatasetError, ReadError, UsageError.
    """
    return _READERS[common_format(paths)](paths, names, columns)


def holds_bytes_of_samples(path: str) -> bool:
    """Return whether a file of rows has a column of bytes. Raises DatasetError, ReadError."""
    return bool(read_manifest([path], [os.path.basename(path)], None).byte_columns)


def _delimited(delimiter: str) -> Callable[[Sequence[str], Sequence[str], Columns], ManifestSource]:
    def read(paths: Sequence[str], names: Sequence[str], columns: Columns) -> ManifestSource:
        from headrace.data.manifest.text_files import DelimitedText
        from headrace.data.manifest.untyped import Untyped

        named = zip(paths, names, strict=True)
        return Untyped([DelimitedText(path, called=name, delimiter=delimiter, columns=columns) for path, name in named])

    return read


def _lines(paths: Sequence[str], names: Sequence[str], columns: Columns) -> ManifestSource:
    from headrace.data.manifest.lines_text import LinesText
    from headrace.data.manifest.untyped import Untyped

    return Untyped([LinesText(path, called=name, columns=columns) for path, name in zip(paths, names, strict=True)])


def _json_lines(paths: Sequence[str], names: Sequence[str], columns: Columns) -> ManifestSource:
    from headrace.data.manifest.text_columns import JsonLines

    return JsonLines(paths, called=names, columns=columns)


def _parquet(paths: Sequence[str], names: Sequence[str], columns: Columns) -> ManifestSource:
    from headrace.data.manifest.parquet_rows import ParquetRows
    from headrace.data.manifest.typed_rows import TypedRows

    return TypedRows([ParquetRows(path, called=name) for path, name in zip(paths, names, strict=True)], columns=columns)


def _arrow(paths: Sequence[str], names: Sequence[str], columns: Columns) -> ManifestSource:
    from headrace.data.manifest.arrow_files import ArrowFile
    from headrace.data.manifest.typed_rows import TypedRows

    return TypedRows([ArrowFile(path, called=name) for path, name in zip(paths, names, strict=True)], columns=columns)


_READERS: dict[str, Callable[[Sequence[str], Sequence[str], Columns], ManifestSource]] = {
    ".csv": _delimited(","),
    ".tsv": _delimited("\t"),
    ".txt": _lines,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
    ".arrow": _arrow,
}
