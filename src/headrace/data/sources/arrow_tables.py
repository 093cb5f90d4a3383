"""Tables of Arrow data: pandas, polars, pyarrow and Hugging Face datasets, in memory or saved to disk.

Arrow data is used in place. Tables are detected by type name, so that nothing here imports a library before the caller.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.data.byte_columns import (
    ByteRanges,
    MemoryFile,
    RowFiles,
    column_of_values,
    join_values,
)
from headrace.data.columns import ByteColumn, BytesListColumn, Column, RangeColumn, offsets_of
from headrace.data.location import ABSENT, ColumnFiles
from headrace.data.storage.open_file import OpenFile, unreadable
from headrace.data.storage.strings import Ints, NumberKeys, StringColumn
from headrace.data.table import PathRoot, SampleTable
from headrace.errors import DatasetError, EmptyDatasetError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.data.manifest.arrow_files import ArrowFile


_TABLES = {
    "pandas.DataFrame": "a pandas.DataFrame",
    "polars.DataFrame": "a polars.DataFrame",
    "pyarrow.Table": "a pyarrow.Table",
    "pyarrow.RecordBatch": "a pyarrow.RecordBatch",
    "datasets.Dataset": "a datasets.Dataset",
    "datasets.DatasetDict": "a datasets.DatasetDict",
}
_NOT_TABLES = {
    "polars.LazyFrame": "Collect it: hr.open(frame.collect())",
    "pandas.Series": "Make a table of it: hr.open(series.to_frame())",
    "polars.Series": "Make a table of it: hr.open(series.to_frame())",
    "pyarrow.ChunkedArray": "Make a table of it: hr.open(pyarrow.table({'image': array}))",
    "datasets.IterableDataset": "It can only be read in turn. Load it without streaming=True, or train on it with "
    "headrace.ThreadDataLoader",
    "datasets.IterableDatasetDict": "Its splits can only be read in turn. Load them without streaming=True, or train "
    "on one with headrace.ThreadDataLoader",
}
_LOOKED_AT_BYTES = 64
_STATE, _INFO, _SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"


def table_kind(where: object) -> str | None:
    """Return the name of a table in memory for messages; None for anything else.

    Raises UsageError for other types of these libraries, which cannot be opened.
    """
    for kind in type(where).__mro__:
        name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        if name in _NOT_TABLES:
            raise UsageError(f"expected a table, got a {name}. {_NOT_TABLES[name]}")
        if name in _TABLES:
            return _TABLES[name]
    return None


def open_memory_table(where: Any, *, root: PathRoot, columns: Sequence[str] | None) -> SampleTable:
    """Return the rows of a table (`table_kind`) as samples with paths into `root`; `columns` selects some columns.

    Bytes in memory-mapped files, as in a datasets.Dataset, are read in place; others are copied once. Raises UsageError
    (several splits, a transform, an unknown column), DatasetError, EmptyDatasetError.
    """
    from headrace.data.manifest.column_builders import columns_in_memory
    from headrace.data.manifest.manifest_columns import check_names
    from headrace.data.manifest.typed_rows import TableRows, TypedRows

    given = _arrow_of(where)
    part = TableRows(given.words, given.table, given.indices)
    if not part.rows:
        raise EmptyDatasetError(f"expected rows, got {given.words} of none. Check what was selected")
    rows = TypedRows([part], columns=None if columns is None else check_names(columns))
    kept = columns_in_memory(rows).labelled(given.classes)
    return kept.table(given.words, [given.words], lambda name: _byte_column(given, name, root), root=root)


def arrow_table(where: Any) -> pa.Table:
    """Return a table in memory (`table_kind`) in Arrow form. Raises as `open_memory_table` does."""
    given = _arrow_of(where)
    return given.table if given.indices is None else given.table.take(given.indices)


class _Given(NamedTuple):
    """Table from the user, in Arrow form."""

    words: str
    table: pa.Table
    indices: Ints | None = None
    """Rows of the table, in order; None: all."""
    classes: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def _arrow_of(where: Any) -> _Given:
    import pyarrow as pa

    words = table_kind(where)
    assert words is not None
    match words.removeprefix("a "):
        case "datasets.DatasetDict":
            names = list(where)
            if not names:
                raise EmptyDatasetError("expected a datasets.DatasetDict with a split, got one of none")
            if len(names) > 1:
                raise UsageError(
                    f"expected one split, got a datasets.DatasetDict of {', '.join(map(str, names))}. Open one of "
                    f"them: hr.open(splits[{names[0]!r}])"
                )
            return _arrow_of(where[names[0]])
        case "datasets.Dataset":
            return _of_dataset(where, words)
        case "pandas.DataFrame":
            _expect_names(words, list(where.columns))
            try:
                return _Given(words, pa.Table.from_pandas(where, preserve_index=False))
            except (pa.ArrowException, TypeError, ValueError) as error:
                why = " ".join(str(error).split())
                raise DatasetError(
                    f"expected columns of numbers, texts, bytes, lists of these or {{'bytes', 'path'}} in a "
                    f"pandas.DataFrame, got one that Arrow has no type for: {why}. Leave it out, or make its values of "
                    f"one type"
                ) from error
        case "polars.DataFrame":
            return _Given(words, where.to_arrow())
        case "pyarrow.RecordBatch":
            where = pa.table(where)
    _expect_names(words, where.schema.names)
    return _Given(words, where)


def _of_dataset(where: Any, words: str) -> _Given:
    from headrace.data.manifest.typed_rows import feature_classes

    shape = where.format
    if shape["type"] == "custom":
        raise UsageError(
            "expected a datasets.Dataset without a transform, got one with set_transform: the loader reads its rows "
            "past it. Call reset_format() and give the function to the loader as map="
        )
    table = where.data.table
    if list(shape["columns"]) != table.column_names:  # set_format(columns=…)
        table = table.select(list(shape["columns"]))
    chosen = where._indices
    indices = None if chosen is None else chosen.column(0).to_numpy().astype(np.int64)
    classes = feature_classes(where.features.to_dict())
    return _Given(words, table, indices, classes)


def _expect_names(words: str, names: Sequence[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"expected names of columns that are texts in {words}, got {name!r}. Rename the columns")


def _byte_column(given: _Given, name: str, root: PathRoot) -> Column:
    """Return the column of values in mapped files, or copied to a file in memory."""
    from headrace.data.manifest.arrow_files import ranges_of
    from headrace.data.manifest.decoded_values import add_values

    mappings = _mappings()
    copied = MemoryFile()
    files: dict[str, int] = {}
    parts: list[tuple[int, ByteRanges]] = []
    for chunk in given.table.column(name).chunks:
        data, found = ranges_of(chunk)
        end = int((found.offset + np.maximum(found.length, 0)).max(initial=0))
        place = None if data is None else _place_of(data.address, end, mappings)
        if place is None:
            parts.append((0, add_values(copied.put, chunk)))
        else:
            number = files.setdefault(place[0], len(files) + 1)
            parts.append((number, found.moved(place[1])))
    path_id, values = join_values(parts)
    if given.indices is not None:
        path_id, values = path_id[values.values_of(given.indices)], values.take(given.indices)
    return column_of_values(name, RowFiles.of([copied, *files]), path_id, values, root)


_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) .-.. ([0-9a-f]+) [0-9a-f]+:[0-9a-f]+ (\d+) +(/.*)")
"""Line of proc(5) maps for a read-only mapped file: its addresses, offset, inode and path."""


def _mappings() -> list[re.Match[str]]:
    """Return the files that are mapped read-only into this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        return [found for line in file.read().splitlines() if (found := _MAPPING.fullmatch(line))]


def _place_of(address: int, size: int, mappings: Sequence[re.Match[str]]) -> tuple[str, int] | None:
    """Return the path and offset from which the `size` bytes at `address` are mapped; None if not from a file.

    The file at that path must still be the mapped one, with the same content.
    """
    import ctypes

    for found in mappings:
        start, stop, offset, path = int(found[1], 16), int(found[2], 16), int(found[3], 16), found[5]
        if not (start <= address and address + size <= stop and size):
            continue
        place, count = offset + address - start, min(size, _LOOKED_AT_BYTES)
        try:
            is_same = os.stat(path).st_ino == int(found[4]) and OpenFile(os.fsencode(path)).read(
                place, count
            ) == ctypes.string_at(address, count)
        except OSError:
            return None
        return (path, place) if is_same else None
    return None


def is_saved_dataset(folder: str) -> bool:
    """Return True if `save_to_disk` wrote a folder: one dataset, or several splits by name."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in (_STATE, _SPLITS))


def open_saved_dataset(folder: str) -> SampleTable:
    """Return the samples of the dataset in the absolute `folder`, in order; a sample's key is its row.

    A feature of images or bytes is a column of bytes. A ClassLabel, or a list of them, gets its names as classes.
    Numbers, texts and lists of them are unchanged, and all else becomes JSON texts.

    Raises DatasetError (several splits, an index next to the files, compressed, paths instead of bytes, damaged),
    EmptyDatasetError or ReadError.
    """
    folder = _only_saved_split(folder)
    names = _data_files(folder)
    from headrace.data.manifest.arrow_files import ArrowFile, common_schema
    from headrace.data.manifest.column_builders import columns_in_memory
    from headrace.data.manifest.typed_rows import TypedRows, feature_classes

    paths = [os.path.join(folder, name) for name in names]
    arrow = [ArrowFile(path, path) for path in paths]
    count = sum(len(file) for file in arrow)
    if not count:
        raise EmptyDatasetError(f"{folder}: expected rows, got a dataset of none. Check what was saved")
    files = ColumnFiles(folder, StringColumn.from_list(names), archives=True)
    common_schema(arrow)
    classes = feature_classes(_json(folder, _INFO).get("features")) if _has(folder, _INFO) else {}
    rows = TypedRows(arrow, columns=None)
    held = columns_in_memory(rows).labelled(classes)
    columns = held.joined(lambda name: _saved_byte_column(arrow, files, name))
    return SampleTable(f"dataset {os.path.basename(folder)}/", NumberKeys(range(count)), columns, rows.skipped)


def _data_files(folder: str) -> list[str]:
    state = _json(folder, _STATE)
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise DatasetError(
            f"{folder}: expected the rows themselves, got an index into them beside the files, as old versions of "
            f"datasets saved what was selected. Save it again: datasets.load_from_disk(…).save_to_disk(…)"
        )
    match state:
        case {"_data_files": [*files]}:
            names = [file["filename"] for file in files if isinstance(file, dict) and _is_name(file.get("filename"))]
            if len(names) == len(files):
                return names
    raise DatasetError(f"{folder}: expected names of Arrow files in {_STATE}, got none. Save the dataset again")


def _only_saved_split(folder: str) -> str:
    """Return the folder of the only split. Raises DatasetError."""
    if _has(folder, _STATE):
        return folder
    match _json(folder, _SPLITS):
        case {"splits": [str(only)]} if _is_name(only) and _has(os.path.join(folder, only), _STATE):
            return os.path.join(folder, only)
        case {"splits": [first, *others]}:
            raise DatasetError(
                f"{folder}: expected one dataset, got the splits {', '.join(map(str, [first, *others]))}. Open one of "
                f"them, such as {os.path.join(folder, str(first))}"
            )
    raise DatasetError(f"{folder}: expected a list of splits in {_SPLITS}, got none. Save the dataset again")


def _is_name(name: object) -> bool:
    """Return True if an untrusted value names a file directly in the folder."""
    if not isinstance(name, str):
        return False
    try:
        storable = b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:  # JSON strings allow more than file names
        return False
    return storable and bool(name) and name == os.path.basename(name) and name not in (".", "..")


def _has(folder: str, name: str) -> bool:
    return os.path.isfile(os.path.join(folder, name))


def _json(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: expected JSON, got otherwise: {error}. Save the dataset again") from error
    if not isinstance(found, dict):
        raise DatasetError(f"{path}: expected a JSON object, got a {type(found).__name__}. Save the dataset again")
    return found


def _saved_byte_column(arrow: Sequence[ArrowFile], files: ColumnFiles, name: str) -> ByteColumn | BytesListColumn:
    for file in arrow:
        if not file.holds_in_place(name):
            raise DatasetError(
                f"{file.path}: expected plain columns of bytes, got compressed ones, which cannot be read in place. "
                f"Save the dataset without compression (datasets' save_to_disk does)"
            )
    path_id, values = join_values([(number, file.values(name)) for number, file in enumerate(arrow)])
    if (values.length == ABSENT).all() and values.paths is not None:
        raise DatasetError(
            f"{files.root}: expected images as bytes in {name!r}, got the paths of their files alone, as old versions "
            f"of datasets saved them. Save it again: datasets.load_from_disk(…).save_to_disk(…)"
        )
    column = RangeColumn(files, path_id, values.offset, values.length, None)
    if values.counts is None:
        return column
    return BytesListColumn(offsets_of(values.counts), column)
