"""Manifests as a table: their formats, their cached values, and their bytes where they lie."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from headrace.data.byte_columns import (
    ByteRanges,
    MemoryFile,
    RowFiles,
    column_of_values,
    digest_with_bytes,
    join_values,
)
from headrace.data.columns import Column
from headrace.data.manifest.manifest_columns import ManifestColumns, ManifestSource, check_names, load_manifest_columns
from headrace.data.sources.file_kind import TEXT_SUFFIXES
from headrace.data.storage import safetensors
from headrace.data.storage.open_file import OpenFile
from headrace.data.storage.safetensors import ArrayContent, Arrays
from headrace.data.storage.sidecar import FileIdentity, Sidecar, build_unchanged, identify_closely, open_sidecar
from headrace.data.table import ManifestOrigin, ManifestRows, PathRoot, SampleTable
from headrace.errors import ChangedError, ReadError, UsageError

# -- from data/manifest/formats.py: Which reader reads which files of rows.


TYPED_SUFFIXES = (".parquet", ".arrow", ".feather")
"""Endings of files whose columns have types, and may hold the samples' bytes."""
ROW_SUFFIXES = (*TEXT_SUFFIXES, *TYPED_SUFFIXES)
"""Endings of files of rows."""

_PARQUET, _ARROW_FILE, _ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"

ColumnNames = Sequence[str] | None


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


def read_manifest(paths: Sequence[str], names: Sequence[str], columns: ColumnNames) -> ManifestSource:
    """Return the rows of these files, one after another; `names` is what messages call them.

    Raises DatasetError, ReadError, UsageError.
    """
    return _READERS[common_format(paths)](paths, names, columns)


def holds_bytes_of_samples(path: str) -> bool:
    """Return whether a file of rows has a column of bytes. Raises DatasetError, ReadError."""
    return bool(read_manifest([path], [os.path.basename(path)], None).byte_columns)


def _delimited(delimiter: str) -> Callable[[Sequence[str], Sequence[str], ColumnNames], ManifestSource]:
    def read(paths: Sequence[str], names: Sequence[str], columns: ColumnNames) -> ManifestSource:
        from headrace.data.manifest.text_columns import UntypedRows
        from headrace.data.manifest.text_files import DelimitedText

        named = zip(paths, names, strict=True)
        return UntypedRows(
            [DelimitedText(path, called=name, delimiter=delimiter, columns=columns) for path, name in named]
        )

    return read


def _lines(paths: Sequence[str], names: Sequence[str], columns: ColumnNames) -> ManifestSource:
    from headrace.data.manifest.text_columns import UntypedRows
    from headrace.data.manifest.text_files import LinesText

    return UntypedRows([LinesText(path, called=name, columns=columns) for path, name in zip(paths, names, strict=True)])


def _json_lines(paths: Sequence[str], names: Sequence[str], columns: ColumnNames) -> ManifestSource:
    from headrace.data.manifest.text_columns import JsonLines

    return JsonLines(paths, called=names, columns=columns)


def _parquet(paths: Sequence[str], names: Sequence[str], columns: ColumnNames) -> ManifestSource:
    from headrace.data.manifest.arrow_files import ParquetRows
    from headrace.data.manifest.typed_rows import TypedRows

    return TypedRows([ParquetRows(path, called=name) for path, name in zip(paths, names, strict=True)], columns=columns)


def _arrow(paths: Sequence[str], names: Sequence[str], columns: ColumnNames) -> ManifestSource:
    from headrace.data.manifest.arrow_files import ArrowFile
    from headrace.data.manifest.typed_rows import TypedRows

    return TypedRows([ArrowFile(path, called=name) for path, name in zip(paths, names, strict=True)], columns=columns)


_READERS: dict[str, Callable[[Sequence[str], Sequence[str], ColumnNames], ManifestSource]] = {
    ".csv": _delimited(","),
    ".tsv": _delimited("\t"),
    ".txt": _lines,
    ".jsonl": _json_lines,
    ".parquet": _parquet,
    ".arrow": _arrow,
}


# -- from data/manifest/opening.py: Opens files of rows: their values as an earlier opening cached them, or read now;
# their bytes where they lie.


_FORMAT = "headrace manifest 3"
"""Raise the number whenever the meaning of a sidecar changes: others are rebuilt."""
_KEPT_FROM_BYTES = 1 << 20
"""Smaller manifests are read each time, unless `cache` was given: a second file beside each little list would be in the
way."""


def open_manifest(
    paths: str | Sequence[str], *, root: PathRoot, columns: Sequence[str] | None, cache: str | None
) -> SampleTable:
    """Return the samples of the files of rows at `paths` (absolute; one format), a row each, one file after another,
    whose paths lead into `root`.

    `columns`: names for a `.csv`, `.tsv` or `.txt` without a header; of files that have names, those to take.

    Raises DatasetError (EmptyDatasetError, ChangedError), ReadError, and UsageError for a column that is not there, or
    for files of several formats.
    """
    paths = [paths] if isinstance(paths, str) else list(paths)
    common_format(paths)
    taken = None if columns is None else check_names(columns)
    names = _short_names(paths)
    kept, in_sidecar = _open_kept(paths, names, taken, cache)
    of_bytes = {name: _byte_column(paths, names, name, kept, root, cache) for _, name in kept.byte_columns}
    opened = _in_order(kept.columns, kept.byte_columns, of_bytes)
    rows = zip(names, kept.files, strict=True)
    return SampleTable(
        f"manifest {names[0]}" if len(paths) == 1 else f"{len(paths):,} files {names[0]} … {names[-1]}",
        kept.keys,
        opened,
        kept.skipped,
        root=root,
        origin=ManifestOrigin([ManifestRows(name, file.rows, file.first_line) for name, file in rows]),
        known_digest=digest_with_bytes(kept.digest, opened) if of_bytes else kept.digest,
        again=partial(open_manifest, paths, root=root, columns=taken, cache=cache) if in_sidecar else None,
    )


def _short_names(paths: Sequence[str]) -> list[str]:
    """What messages call the files: by their names where these differ."""
    names = [os.path.basename(path) for path in paths]
    if len(set(names)) == len(names):
        return names
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])
    return [os.path.relpath(path, folder) for path in paths]


def _in_order(
    held: Mapping[str, Column], places: Sequence[tuple[int, str]], of_bytes: Mapping[str, Column]
) -> dict[str, Column]:
    named = list(held.items())
    for at, name in places:  # rising
        named.insert(at, (name, of_bytes[name]))
    return dict(named)


def _byte_column(
    paths: Sequence[str], names: Sequence[str], column: str, kept: ManifestColumns, root: PathRoot, cache: str | None
) -> Column:
    found = [_values(path, name, column, cache) for path, name in zip(paths, names, strict=True)]
    for path, file, (_, values) in zip(paths, kept.files, found, strict=True):
        if len(values.length) != file.rows:
            raise ChangedError(
                f"{path}: expected {file.rows:,} rows, got {len(values.length):,}: it was replaced while "
                f"it was opened. Open it again once it is complete"
            )
    files = RowFiles.of([file for file, _ in found])
    path_id, values = join_values([(number, values) for number, (_, values) in enumerate(found)])
    return column_of_values(column, files, path_id, values, root)


def _values(path: str, name: str, column: str, cache: str | None) -> tuple[str | MemoryFile, ByteRanges]:
    """Where the values of one column lie: in the file itself, or in one that they are decoded into once."""
    from headrace.data.manifest.decoded_values import RowGroups, open_decoded_values

    if common_format([path]) == ".arrow":
        from headrace.data.manifest.arrow_files import ArrowFile

        file = ArrowFile(path, called=name)
        return (
            (path, file.values(column))
            if file.holds_in_place(column)
            else open_decoded_values(path, column, lambda: file, cache)
        )

    def read() -> RowGroups:
        from headrace.data.manifest.arrow_files import ParquetRows

        return ParquetRows(path, called=name)

    return open_decoded_values(path, column, read, cache)


def _open_kept(
    paths: Sequence[str], names: Sequence[str], columns: Sequence[str] | None, cache: str | None
) -> tuple[ManifestColumns, bool]:
    """Also whether it is kept for the next opening."""

    def build(_: str, folder: str | None) -> tuple[dict[str, ArrayContent], str]:
        # Building alone needs pyarrow, which takes a while to import.
        from headrace.data.manifest.column_builders import build_columns

        return build_columns(read_manifest(paths, names, columns), scratch_in=folder)

    def load(arrays: Arrays, outline: str, _: int) -> ManifestColumns:
        return load_manifest_columns(arrays, outline)

    def identify(first: OpenFile) -> FileIdentity:
        others = [OpenFile(os.fsencode(path)) for path in paths[1:]]
        return _joint([identify_closely(file) for file in (first, *others)])

    identity = identify(OpenFile(os.fsencode(paths[0])))
    sidecar = Sidecar(f"{_FORMAT} {json.dumps(columns)}", build, load, identify, _variant(names, columns), lazy=True)
    if identity.bytes < _KEPT_FROM_BYTES and cache is None:
        contents, outline = build_unchanged(sidecar, paths[0], identity, scratch_in=None)
        return load_manifest_columns(safetensors.mapped_arrays(contents), outline), False
    return open_sidecar(sidecar, paths[0], identity, cache=cache), True


def _variant(names: Sequence[str], columns: Sequence[str] | None) -> str:
    """What is kept depends on what the columns are called, and of several files lies beside the first: openings that
    take others do not build it anew in turn."""
    if columns is None and len(names) == 1:
        return ""
    known = json.dumps(columns if len(names) == 1 else [columns, *names])
    return hashlib.blake2b(known.encode(), digest_size=4).hexdigest()


def _joint(files: Sequence[FileIdentity]) -> FileIdentity:
    if len(files) == 1:
        return files[0]
    known = json.dumps([file.to_json() for file in files])
    return FileIdentity(sum(file.bytes for file in files), hashlib.blake2b(known.encode(), digest_size=16).hexdigest())


# -- from data/row_folder.py: A folder of files of rows, such as the Hugging Face Hub's `data/`: which files are one
# dataset.


_FOLDER_SUFFIXES = tuple(suffix for suffix in ROW_SUFFIXES if suffix != ".txt")
"""Endings that make a folder one of rows: texts lie in many."""
_BESIDE = re.compile(r"readme|licen[cs]e|dataset_infos?\.json|.*\.(md|headrace|headrace\.partial)$", re.IGNORECASE)
"""What may lie there as well."""
_SHARD = re.compile(r"(?P<split>.+?)[-_.]\d+-of-\d+([-_.].*)?$")
_SPLIT = re.compile(
    r"(?P<split>train|training|test|testing|valid|validation|val|dev|eval)(?![a-z0-9]).*$", re.IGNORECASE
)


def rows_in_folder(folder: str) -> list[str]:
    """Return the files of rows in a folder (absolute) that holds no other samples, by name; none where it is no such
    folder.

    Raises UsageError where they are several splits, as their names say.
    """
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if not entry.name.startswith(".") and not _BESIDE.match(entry.name)]
    names = sorted((entry.name for entry in found), key=os.fsencode)
    suffixes = {os.path.splitext(name)[1].lower() for name in names}
    if len(suffixes) != 1 or suffixes.isdisjoint(_FOLDER_SUFFIXES) or any(entry.is_dir() for entry in found):
        return []
    splits = list(dict.fromkeys(map(_split_of, names)))
    if len(splits) > 1:
        raise _several_splits(folder, names, splits)
    return [os.path.join(folder, name) for name in names]


def _split_of(name: str) -> str | None:
    """The split that a file's name speaks of, as the Hub's names do; None where it does not."""
    stem = os.path.splitext(name)[0]
    found = _SPLIT.match(stem) or _SHARD.match(stem)
    return None if found is None else found["split"]


def _several_splits(folder: str, names: Sequence[str], splits: Sequence[str | None]) -> UsageError:
    suffix = os.path.splitext(names[0])[1]
    named = [split for split in splits if split is not None]
    others = " and files of none" if None in splits else ""
    return UsageError(
        f"{folder}: expected the files of one split, got those of {', '.join(named)}{others}. Open one of them: "
        f"{os.path.join(folder, f'{named[0]}*{suffix}')}"
    )
