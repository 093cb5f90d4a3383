"""Manifests as a table: formats, cached values, and byte columns in place."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headrace.data.archives.archive_columns import archive_files
from headrace.data.byte_columns import (
    ByteRanges,
    RowFiles,
    ValuesFile,
    column_of_values,
    join_values,
)
from headrace.data.columns import Column
from headrace.data.manifest.manifest_columns import ManifestColumns, ManifestSource, check_names, load_manifest_columns
from headrace.data.manifest.packed_column import PageUnits, open_packed_column
from headrace.data.remote.remote_file import CopiedObject, ObjectPath
from headrace.data.sources.file_kind import TEXT_SUFFIXES, kind_of
from headrace.data.storage import safetensors
from headrace.data.storage.open_file import FilePath, OpenFile, file_name
from headrace.data.storage.paths import is_folder
from headrace.data.storage.safetensors import ArrayContent, Arrays
from headrace.data.storage.sidecar import (
    FileIdentity,
    Sidecar,
    build_unchanged,
    identify_closely,
    identify_rows,
    open_sidecar,
)
from headrace.data.table import PathRoot, SampleTable
from headrace.errors import ChangedError, UsageError

if TYPE_CHECKING:
    from headrace.data.manifest.arrow_files import ArrowFile
    from headrace.data.manifest.parquet_files import ParquetRows

T = TypeVar("T")
TYPED_SUFFIXES = (".parquet", ".arrow", ".feather")
"""Suffixes of files with typed columns, which may include the samples' bytes."""
ROW_SUFFIXES = (*TEXT_SUFFIXES, *TYPED_SUFFIXES)
"""Suffixes of files of rows."""
_FOLDER_SUFFIXES = tuple(suffix for suffix in ROW_SUFFIXES if suffix != ".txt")
"""Suffixes that mark a folder of rows; `.txt` is excluded, since many folders contain text files."""
_BESIDE = re.compile(
    r"readme|licen[cs]e|dataset_infos?\.json|state\.json|.*\.(md|headrace|headrace\.partial)$", re.IGNORECASE
)
"""Names of other files that a folder of rows may contain."""
_SHARD = re.compile(r"(?P<split>.+?)[-_.]\d+-of-\d+([-_.].*)?$")
_SPLIT = re.compile(
    r"(?P<split>train|training|test|testing|valid|validation|val|dev|eval)(?![a-z0-9]).*$", re.IGNORECASE
)

_FORMAT = "headrace manifest 3"
"""Raise the number whenever the meaning of a sidecar changes: old sidecars are rebuilt."""
_OPENED_AT_ONCE = 16
_KEPT_FROM_BYTES = 1 << 20
"""Smaller manifests are read each time unless `cache` is given, to avoid an extra file next to each."""


def format_of(path: FilePath) -> str:
    """Return the suffix that selects the reader for the file at `path`, by its first bytes if they identify it.

    For an object, a suffix of rows is enough: checking each of many objects takes a request.
    """
    suffix = os.path.splitext(file_name(path))[1].lower()
    if isinstance(path, str):
        kind = kind_of(path).kind if os.path.isfile(path) else "other"
    else:
        kind = "other" if suffix in ROW_SUFFIXES else kind_of(path).kind
    if kind in ("arrow file", "arrow stream"):
        return ".arrow"
    return ".parquet" if kind == "parquet" else {".feather": ".arrow", ".odgt": ".jsonl"}.get(suffix, suffix)


def common_format(paths: Sequence[FilePath]) -> str:
    """Return the common format of these files. Raises UsageError if they differ."""
    first = format_of(paths[0])
    for path in paths[1:]:
        if format_of(path) != first:
            raise UsageError(
                f"expected files of one format, got {file_name(paths[0])} ({first}) and {file_name(path)} "
                f"({format_of(path)}). Open each format by itself"
            )
    return first


def read_manifest(paths: Sequence[FilePath], names: Sequence[str], columns: Sequence[str] | None) -> ManifestSource:
    """Return the concatenated rows of these files; `names`: file names in messages.

    Raises DatasetError, ReadError, UsageError.
    """
    # Readers import pyarrow, which is slow and needed only to build the cache.
    from headrace.data.manifest.parquet_files import ParquetRows
    from headrace.data.manifest.text_columns import UntypedRows
    from headrace.data.manifest.text_files import DelimitedText, JsonText, LinesText
    from headrace.data.manifest.typed_rows import TypedRows

    suffix = common_format(paths)
    if suffix == ".parquet":
        return TypedRows(_opened(ParquetRows, paths, names), columns=columns)
    if suffix == ".arrow":
        return TypedRows(_opened(_arrow_file, paths, names), columns=columns)
    texts = [CopiedObject(path) if isinstance(path, ObjectPath) else path for path in paths]
    named = list(zip(texts, names, strict=True))
    match suffix:
        case ".csv" | ".tsv":
            delimiter = "," if suffix == ".csv" else "\t"
            return UntypedRows([DelimitedText(*file, delimiter=delimiter, columns=columns) for file in named])
        case ".txt":
            return UntypedRows([LinesText(*file, columns=columns) for file in named])
        case ".jsonl":
            return UntypedRows([JsonText(*file) for file in named], columns=columns)
    raise AssertionError(f"{paths[0]} is no file of rows")


def _opened(kind: Callable[[FilePath, str], T], paths: Sequence[FilePath], names: Sequence[str]) -> list[T]:
    """Open files with `kind`, objects several at once, since each needs a request for its end."""
    if isinstance(paths[0], str):
        return [kind(path, name) for path, name in zip(paths, names, strict=True)]
    with ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="headrace-open") as pool:
        return list(pool.map(kind, paths, names))


def holds_bytes_of_samples(path: str) -> bool:
    """Return True if a file of rows has a column of bytes. Raises DatasetError, ReadError."""
    return bool(read_manifest([path], [os.path.basename(path)], None).byte_columns)


def open_manifest(
    paths: str | Sequence[FilePath], *, root: PathRoot, columns: Sequence[str] | None, cache: str | None
) -> SampleTable:
    """Return the concatenated rows of files of one format (absolute paths) as samples.

    Their paths lead into `root`. `columns`: names for a `.csv`, `.tsv` or `.txt` without a header; for files with
    column names, the columns to take.

    Raises DatasetError (EmptyDatasetError, ChangedError), ReadError, and UsageError for an unknown column, or for files
    of several formats.
    """
    paths = [paths] if isinstance(paths, str) else list(paths)
    common_format(paths)
    taken = None if columns is None else check_names(columns)
    names = [file_name(path) for path in paths]
    if len(set(names)) < len(names):
        files = archive_files(paths).names
        names = [files[number] for number in range(len(files))]
    kept, in_sidecar = _open_kept(paths, names, taken, cache)
    source = f"manifest {names[0]}" if len(paths) == 1 else f"{len(paths):,} files {names[0]} … {names[-1]}"
    again = partial(open_manifest, paths, root=root, columns=taken, cache=cache) if in_sidecar else None
    column_of = partial(_byte_column, paths, names, kept=kept, root=root, cache=cache)
    return kept.table(source, names, column_of, root=root, again=again)


def _byte_column(
    paths: Sequence[FilePath],
    names: Sequence[str],
    column: str,
    *,
    kept: ManifestColumns,
    root: PathRoot,
    cache: str | None,
) -> Column:
    if format_of(paths[0]) == ".parquet" and not isinstance(paths[0], str):
        rows = [file.rows for file in kept.files]
        packed = open_packed_column(paths, names, rows, column, read=partial(_page_units, column), cache=cache)
        if packed is not None:
            return packed
    found = [_values(path, name, column, cache) for path, name in zip(paths, names, strict=True)]
    for path, file, (_, values) in zip(paths, kept.files, found, strict=True):
        if values.rows != file.rows:
            raise ChangedError(
                f"{path}: expected {file.rows:,} rows, got {values.rows:,}: it was replaced while "
                f"it was opened. Open it again once it is complete"
            )
    files = RowFiles.of([file for file, _ in found])
    path_id, values = join_values([(number, values) for number, (_, values) in enumerate(found)])
    return column_of_values(column, files, path_id, values, root)


def _page_units(column: str, path: FilePath, name: str) -> PageUnits | None:
    from headrace.data.manifest.parquet_files import ParquetRows

    return ParquetRows(path, name).page_units(column)


def _values(path: FilePath, name: str, column: str, cache: str | None) -> tuple[ValuesFile, ByteRanges]:
    """Return the file and ranges of one column's values: in the given file, or in one of decoded values."""
    from headrace.data.manifest.decoded_values import open_decoded_values

    def read() -> ParquetRows:
        from headrace.data.manifest.parquet_files import ParquetRows

        return ParquetRows(path, name)

    if format_of(path) != ".arrow":
        return open_decoded_values(path, column, read, cache)
    if not isinstance(path, str):
        return open_decoded_values(path, column, lambda: _arrow_file(path, name), cache)
    file = _arrow_file(path, name)
    if file.holds_in_place(column):
        return path, file.values(column)
    return open_decoded_values(path, column, lambda: file, cache)


def _arrow_file(path: FilePath, name: str) -> ArrowFile:
    from headrace.data.manifest.arrow_files import ArrowFile

    return ArrowFile(CopiedObject(path) if isinstance(path, ObjectPath) else path, name)


def _open_kept(
    paths: Sequence[FilePath], names: Sequence[str], columns: Sequence[str] | None, cache: str | None
) -> tuple[ManifestColumns, bool]:
    """Return the columns, and True if they are cached for the next opening."""

    def build(_: FilePath, folder: str | None) -> tuple[dict[str, ArrayContent], str]:
        from headrace.data.manifest.column_builders import build_columns

        return build_columns(read_manifest(paths, names, columns), scratch_in=folder)

    def load(arrays: Arrays, outline: str, _: int) -> ManifestColumns:
        return load_manifest_columns(arrays, outline)

    def identify(first: FileIdentity) -> FileIdentity:
        files = [first, *(identify_rows(path) for path in paths[1:])]
        if len(files) == 1:
            return files[0]
        joint = _digest([file.to_json() for file in files], 16)
        return FileIdentity(sum(file.bytes for file in files), joint)

    variant = ""  # The index of these columns of these files is next to the first file, under this variant of its name.
    if columns is not None or len(names) > 1:
        variant = _digest(columns if len(names) == 1 else [columns, *names], 4)
    identity = identify(identify_rows(paths[0]))

    def identify_again(first: OpenFile) -> FileIdentity:
        return identify(identify_closely(first))

    sidecar = Sidecar(f"{_FORMAT} {json.dumps(columns)}", build, load, identify_again, variant, lazy=True)
    if identity.bytes < _KEPT_FROM_BYTES and cache is None:
        contents, outline = build_unchanged(sidecar, paths[0], identity, scratch_in=None)
        return load_manifest_columns(safetensors.mapped_arrays(contents), outline), False
    return open_sidecar(sidecar, paths[0], identity, cache=cache), True


def _digest(known: object, size: int) -> str:
    return hashlib.blake2b(json.dumps(known).encode(), digest_size=size).hexdigest()


def rows_in_folder(folder: str) -> list[str]:
    """Return the files of rows in an absolute folder, sorted by name; empty if it has other samples.

    Raises UsageError if the names indicate several splits.
    """
    with os.scandir(folder) as entries:
        found = {entry.name: is_folder(entry) for entry in entries if not is_beside_rows(entry.name)}
    names = sorted(found, key=os.fsencode)
    return [] if any(found.values()) else [os.path.join(folder, name) for name in rows_among(folder, names)]


def is_beside_rows(name: str) -> bool:
    """Return True for names to ignore in a folder of rows: hidden files, READMEs and the like."""
    return name.startswith(".") or _BESIDE.match(name) is not None


def split_of(stem: str) -> str | None:
    """Return the split in a file name without suffix, in the Hub's naming scheme; None: no split."""
    match = _SPLIT.match(stem) or _SHARD.match(stem)
    return None if match is None else match["split"]


def rows_among(folder: str, names: Sequence[str]) -> Sequence[str]:
    """Return the sorted names in a folder if all are files of rows; else none.

    Raises UsageError if the names indicate several splits.
    """
    suffixes = {os.path.splitext(name)[1].lower() for name in names}
    if len(suffixes) != 1 or suffixes.isdisjoint(_FOLDER_SUFFIXES):
        return []
    splits = dict.fromkeys(split_of(os.path.splitext(name)[0]) for name in names)
    if len(splits) > 1:
        named = [split for split in splits if split is not None]
        others = " and files of none" if None in splits else ""
        one = os.path.join(folder, f"{named[0]}*{os.path.splitext(names[0])[1]}")
        raise UsageError(
            f"{folder}: expected the files of one split, got those of {', '.join(named)}{others}. Open one of them: "
            f"{one}"
        )
    return names
