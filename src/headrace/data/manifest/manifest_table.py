"""Opens files of rows: their values as an earlier opening cached them, or read now; their bytes where they lie."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial

from headrace.data.byte_columns import ByteRanges, RowFiles, column_of_values, digest_with_bytes, join_values
from headrace.data.columns import Column
from headrace.data.identity import Identity, identify_closely
from headrace.data.manifest.column_names import check_names
from headrace.data.manifest.formats import common_format
from headrace.data.manifest.manifest_columns import Kept, load_kept
from headrace.data.memory_file import MemoryFile
from headrace.data.origin import ManifestRows, Origin
from headrace.data.storage import safetensors
from headrace.data.storage.open_file import OpenFile
from headrace.data.storage.safetensors import Arrays, Content
from headrace.data.storage.sidecar import Sidecar, build_unchanged, open_sidecar
from headrace.data.table import PathRoot, Table
from headrace.errors import ChangedError

_FORMAT = "headrace manifest 3"
"""Raise the number whenever the meaning of a sidecar changes: others are rebuilt."""
_KEPT_FROM_BYTES = 1 << 20
"""Smaller manifests are read each time, unless `cache` was given: a second file beside each little list would be in the
way."""


def open_manifest(
    paths: str | Sequence[str], *, root: PathRoot, columns: Sequence[str] | None, cache: str | None
) -> Table:
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
    return Table(
        f"manifest {names[0]}" if len(paths) == 1 else f"{len(paths):,} files {names[0]} … {names[-1]}",
        kept.keys,
        opened,
        kept.skipped,
        root=root,
        origin=Origin([ManifestRows(name, file.rows, file.first_line) for name, file in rows]),
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
    paths: Sequence[str], names: Sequence[str], column: str, kept: Kept, root: PathRoot, cache: str | None
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
    from headrace.data.manifest.decoded_values import SpilledRows, open_spilled

    if common_format([path]) == ".arrow":
        from headrace.data.manifest.arrow_files import ArrowFile

        file = ArrowFile(path, called=name)
        return (
            (path, file.values(column))
            if file.holds_in_place(column)
            else open_spilled(path, column, lambda: file, cache)
        )

    def read() -> SpilledRows:
        from headrace.data.manifest.parquet_rows import ParquetRows

        return ParquetRows(path, called=name)

    return open_spilled(path, column, read, cache)


def _open_kept(
    paths: Sequence[str], names: Sequence[str], columns: Sequence[str] | None, cache: str | None
) -> tuple[Kept, bool]:
    """Also whether it is kept for the next opening."""

    def build(_: str, folder: str | None) -> tuple[dict[str, Content], str]:
        # Building alone needs pyarrow, which takes a while to import.
        from headrace.data.manifest.building import build_columns
        from headrace.data.manifest.formats import read_manifest

        return build_columns(read_manifest(paths, names, columns), scratch_in=folder)

    def load(arrays: Arrays, outline: str, _: int) -> Kept:
        return load_kept(arrays, outline)

    def identify(first: OpenFile) -> Identity:
        others = [OpenFile(os.fsencode(path)) for path in paths[1:]]
        return _joint([identify_closely(file) for file in (first, *others)])

    identity = identify(OpenFile(os.fsencode(paths[0])))
    sidecar = Sidecar(f"{_FORMAT} {json.dumps(columns)}", build, load, identify, _variant(names, columns), lazy=True)
    if identity.bytes < _KEPT_FROM_BYTES and cache is None:
        contents, outline = build_unchanged(sidecar, paths[0], identity, scratch_in=None)
        return load_kept(safetensors.mapped(contents), outline), False
    return open_sidecar(sidecar, paths[0], identity, cache=cache), True


def _variant(names: Sequence[str], columns: Sequence[str] | None) -> str:
    """What is kept depends on what the columns are called, and of several files lies beside the first: openings that
    take others do not build it anew in turn."""
    if columns is None and len(names) == 1:
        return ""
    known = json.dumps(columns if len(names) == 1 else [columns, *names])
    return hashlib.blake2b(known.encode(), digest_size=4).hexdigest()


def _joint(files: Sequence[Identity]) -> Identity:
    if len(files) == 1:
        return files[0]
    known = json.dumps([file.to_json() for file in files])
    return Identity(sum(file.bytes for file in files), hashlib.blake2b(known.encode(), digest_size=16).hexdigest())
