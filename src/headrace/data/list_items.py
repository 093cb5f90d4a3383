"""Items of a column of lists, such as the frames of a clip, as samples of their own."""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.data.byte_columns import RowFiles
from headrace.data.columns import (
    ByteColumn,
    BytesListColumn,
    Column,
    ColumnPart,
    FileColumn,
    ListColumn,
    TextColumn,
    offsets_of,
)
from headrace.data.dataset import Dataset
from headrace.data.location import ABSENT, ColumnFiles, Location, ZipLocation
from headrace.data.storage.strings import Ints, StringColumn, Strings
from headrace.data.table import SampleTable, expect_files
from headrace.errors import NotFoundError, OutsideRootError, UsageError
from headrace.system import default_threads, work_through

ITEM = "item"
"""Name of the column of items."""
_PATTERN = re.compile(r"[*?\[]")
_DIGITS = re.compile(r"(\d+)")
Lists: TypeAlias = "tuple[npt.NDArray[np.int64], ByteColumn | TextColumn]"
"""Offsets and values of lists."""


@dataclass(frozen=True, eq=False)
class ListItems:
    """Items of all lists of a column."""

    offsets: npt.NDArray[np.int64]
    """Items of the sample with base id i: `offsets[i]` to `offsets[i + 1]`."""
    dataset: Dataset
    """A sample per item, with the column `ITEM`."""


@dataclass(frozen=True, eq=False, repr=False)
class ItemKeys(Strings):
    """Keys of items: their sample's key, and their place in its list."""

    keys: Strings
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def take(self, indices: Ints) -> StringColumn:
        owners = np.searchsorted(self.offsets, indices, side="right") - 1
        places = (indices - self.offsets[owners]).tolist()
        keys = self.keys.take(owners)
        return StringColumn.from_list(f"{key} (item {place})" for key, place in zip(keys, places, strict=True))


def items_of_lists(table: SampleTable, source: str, place: str) -> ListItems:
    """Return the items of a column, or of the columns that a pattern matches. `place` starts the errors.

    Lists are those of bytes or of paths, texts with lists of paths as JSON, and texts that name folders of files. Time
    is proportional to the number of samples. Raises UsageError for any other column, and NotFoundError for a folder.
    """
    column = table.columns.get(source)
    if column is None and f"{source}.0" in table.columns:  # as a pack has lists
        source = f"{glob.escape(source)}.[0-9]*"
    if column is None and _PATTERN.search(source):
        offsets, items = _matching(table, source, place)
    elif (lists := _lists_in(table, column)) is not None:
        offsets, items = lists
    elif isinstance(column, TextColumn) and table.root is not None:
        offsets, items = _of_texts(table, source, column, place)
    else:
        got = "no such column" if column is None else f"a column of {column.kind}s"
        raise UsageError(
            f"{place}: expected lists of images or of their paths, or a pattern of columns, got {source!r}: {got} in "
            f"{table.source}; it has {', '.join(table.columns)}. For one image a sample, use hr.Image()"
        )
    return ListItems(offsets, Dataset(_as_samples(table, offsets, items)))


def _lists_in(table: SampleTable, column: Column | None) -> Lists | None:
    """Return the offsets and the values of a column of lists of bytes, or of texts that may name files; else None."""
    if isinstance(column, BytesListColumn):
        return column.offsets, column.items
    if isinstance(column, ListColumn) and isinstance(column.items, Strings) and table.root is not None:
        return np.asarray(column.offsets).astype(np.int64), TextColumn(column.items)
    return None


def _as_samples(table: SampleTable, offsets: npt.NDArray[np.int64], items: ByteColumn | TextColumn) -> SampleTable:
    return SampleTable(table.source, ItemKeys(table.keys, offsets), {ITEM: items}, {}, root=table.root)


def unlisted(dataset: Dataset) -> Dataset:
    """Return the dataset with numbered columns, such as images.0 and images.1, instead of lists of images.

    Lists of texts count if a few of them name files.
    """
    table, columns = dataset.table, dict[str, Column]()
    for name, column in dataset.columns.items():
        lists = _lists_in(table, column)
        if lists is None or (isinstance(column, ListColumn) and not _names_files(_as_samples(table, *lists))):
            columns[name] = column
            continue
        offsets, values = lists
        for place in range(int(np.diff(offsets).max(initial=0))):
            columns[f"{name}.{place}"] = _numbered(offsets, values, place)
    if columns.keys() == dataset.columns.keys():
        return dataset
    return replace(dataset, table=replace(table, columns=columns, known_digest=None, again=None))


def _names_files(items: SampleTable) -> bool:
    """Return True for texts of which a few name files."""
    try:
        return expect_files(items, ITEM)
    except (NotFoundError, OutsideRootError):
        return False


def _numbered(offsets: npt.NDArray[np.int64], items: ByteColumn | TextColumn, place: int) -> Column:
    """Return the item at one place of each list; a shorter list has none."""
    if isinstance(items, ByteColumn):
        return NumberedColumn(items, offsets, place)
    some = np.flatnonzero(np.diff(offsets) > place)
    paths = items.strings.take(offsets[some] + place)
    lengths = np.zeros(len(offsets) - 1, np.int64)
    lengths[some] = paths.lengths()
    return TextColumn(StringColumn.from_parts(paths.blob, lengths))


@dataclass(frozen=True, eq=False, repr=False)
class NumberedColumn(ByteColumn):
    """Column of the items at one place of lists; a shorter list has none."""

    items: ByteColumn
    offsets: npt.NDArray[np.int64]
    place: int

    @property
    def files(self) -> ColumnFiles:  # type: ignore[override]
        return self.items.files

    def locate(self, ids: Ints) -> Location:
        wanted = self.offsets[ids] + self.place
        missing = wanted >= self.offsets[ids + 1]
        at = self.items.locate(np.where(missing, 0, wanted))
        assert at.length is not None, "values of lists are ranges"
        return at._replace(length=np.where(missing, ABSENT, at.length))

    def parts(self) -> Iterator[ColumnPart]:
        yield self.offsets, "<i8"
        yield np.array([self.place]), "<i8"
        yield from self.items.parts()


def natural(name: str) -> list[tuple[int, str | int]]:
    """Return a sort key by which "2.jpg" precedes "10.jpg"."""
    return [(1, int(part)) if part.isdigit() else (0, part) for part in _DIGITS.split(name) if part]


def _of_texts(table: SampleTable, source: str, column: TextColumn, place: str) -> tuple[Ints, TextColumn]:
    texts = list(column.strings)
    first = next((text for text in texts if text.strip()), "")
    lists = _json_lists(texts, source, place) if first.lstrip().startswith("[") else _folders(table, source, texts)
    paths = StringColumn.from_list(path for each in lists for path in each)
    return offsets_of([len(each) for each in lists]), TextColumn(paths)


def _json_lists(texts: Sequence[str], source: str, place: str) -> list[list[str]]:
    lists = []
    for row, text in enumerate(texts):
        try:
            found = json.loads(text) if text.strip() else []
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
            raise UsageError(
                f'{place}: expected a JSON list of paths, such as ["a.jpg", "b.jpg"], in each row of {source!r}, got '
                f"{text[:60]!r} in row {row:,}"
            )
        lists.append(found)
    return lists


def _folders(table: SampleTable, source: str, names: Sequence[str]) -> list[list[str]]:
    """Return the paths of each folder's files, in natural order. Raises UsageError for files, and NotFoundError."""
    column = table.bytes_of(source)
    at = column.locate(np.arange(len(names)))
    files = column.files if at.files is None else at.files
    if files.is_remote or at.offset is not None:
        raise UsageError(
            f"column {source!r}: expected folders on this machine, or lists of paths, got paths in a store or an "
            "archive; list the files in the manifest"
        )
    lists: list[list[str]] = [[] for _ in names]

    def look(row: int) -> None:
        if not names[row]:
            return
        try:
            with os.scandir(files.path(int(at.path_id[row]))) as entries:
                inside = sorted((os.fsdecode(entry.name) for entry in entries), key=natural)
        except NotADirectoryError as error:
            raise UsageError(
                f"column {source!r}: expected folders of images or lists of paths, got the file {names[row]!r} in row "
                f"{row:,}. For one image a sample, use hr.Image()"
            ) from error
        except OSError as error:
            raise NotFoundError(
                f"column {source!r}, row {row:,}: expected the folder {names[row]!r} {table.place}, got "
                f"{error.strerror}. Correct it, or pass root="
            ) from error
        lists[row] = [os.path.join(names[row], name) for name in inside if not name.startswith(".")]

    work_through(range(len(names)), look, name="list-folders", threads=default_threads())
    return lists


def _matching(table: SampleTable, pattern: str, place: str) -> tuple[Ints, ByteColumn | TextColumn]:
    """Return the present values of all columns that match, sample by sample, in natural order of the columns."""
    names = sorted((name for name in table.columns if fnmatch.fnmatchcase(name, pattern)), key=natural)
    columns: list[Column] = [table.columns[name] for name in names]
    if not columns:
        raise UsageError(
            f"{place}: expected a column that matches {pattern!r}, got none in {table.source}; it has "
            f"{', '.join(table.columns)}"
        )
    if table.root is not None and all(isinstance(column, TextColumn) for column in columns):
        texts = [StringColumn.join(column.strings.pieces()) for column in columns if isinstance(column, TextColumn)]
        present = np.stack([each.lengths() > 0 for each in texts], axis=1)
        offsets, owners, turns = _layout(present)
        return offsets, TextColumn(StringColumn.join(texts).take(turns * len(table) + owners))
    byte_columns = [column for column in columns if isinstance(column, ByteColumn)]
    if len(byte_columns) < len(columns):
        raise UsageError(
            f"{place}: expected columns of images, or of their paths, for {pattern!r}, got "
            + ", ".join(f"{name!r} of {column.kind}s" for name, column in zip(names, columns, strict=True))
        )
    if all(isinstance(column, FileColumn) for column in byte_columns):
        paths = [_paths(column, len(table)) for column in byte_columns]
        offsets, owners, turns = _layout(np.array([list(map(bool, row)) for row in zip(*paths, strict=True)]))
        chosen = (paths[turn][owner] for turn, owner in zip(turns.tolist(), owners.tolist(), strict=True))
        return offsets, FileColumn(ColumnFiles("/", StringColumn.from_list(chosen), archives=False))
    offsets, owners, turns = _layout(np.stack([_present(column, len(table)) for column in byte_columns], axis=1))
    try:
        return offsets, InterleavedColumn.of(byte_columns, turns, owners)
    except ValueError as error:
        raise UsageError(f"{place}: expected columns of one kind for {pattern!r}, got {error}") from error


def _layout(present: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], Ints, Ints]:
    """Return the offsets of lists of present values [samples, columns], and each value's sample and column."""
    owners, turns = np.nonzero(present)
    return offsets_of(present.sum(axis=1)), owners, turns


def _present(column: ByteColumn, count: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the samples that have a value; a value that is null counts as missing."""
    at = column.locate(np.arange(count))
    if at.packed is not None or at.files is not None or at.length is None:
        raise UsageError(
            f"expected columns in archives, folders or local files, got one whose values lie in pages of objects or "
            f"in several files ({type(column).__name__}); stage the files, or pack them"
        )
    return np.asarray(at.length != ABSENT)


def _paths(column: ByteColumn, count: int) -> list[bytes]:
    at = column.locate(np.arange(count))
    if column.files.is_remote:
        raise UsageError(
            "expected folders on this machine for a pattern of columns, got prefixes of a store; stage them"
        )
    return [column.path(at, row) for row in range(count)]


@dataclass(frozen=True, eq=False, repr=False)
class InterleavedColumn(ByteColumn):
    """Values of several columns in files of many values, in a new order."""

    columns: Sequence[ByteColumn]
    turns: Ints
    """Column of each value."""
    owners: Ints
    """Sample of each value in its column."""
    files: ColumnFiles
    """Files of all columns, column by column unless they have the same ones."""

    @classmethod
    def of(cls, columns: Sequence[ByteColumn], turns: Ints, owners: Ints) -> InterleavedColumn:
        """Raise ValueError unless all columns are in the same archives, or all in files of rows."""
        files = columns[0].files
        if all(column.files is files for column in columns):
            return cls(columns, turns, owners, files)
        rows = [column.files for column in columns if isinstance(column.files, RowFiles)]
        if len(rows) < len(columns):
            raise ValueError(", ".join(type(column).__name__ for column in columns))
        return cls(columns, turns, owners, RowFiles.of([file for each in rows for file in each.sources()]))

    def locate(self, ids: Ints) -> Location:
        turns, owners = self.turns[ids], self.owners[ids]
        path_id, offset, length = (np.zeros(len(ids), np.int64) for _ in range(3))
        check: npt.NDArray[np.uint32] | None = None
        zipped: list[npt.NDArray[Any]] | None = None
        for turn in np.unique(turns).tolist():
            rows = np.flatnonzero(turns == turn)
            at = self.columns[turn].locate(owners[rows])
            assert at.offset is not None
            assert at.length is not None
            path_id[rows], offset[rows], length[rows] = at.path_id + self._first[turn], at.offset, at.length
            if at.check is not None:
                check = np.zeros(len(ids), np.uint32) if check is None else check
                check[rows] = at.check
            if at.zipped is not None:
                zipped = [np.zeros(len(ids), part.dtype) for part in at.zipped] if zipped is None else zipped
                for whole, part in zip(zipped, at.zipped, strict=True):
                    whole[rows] = part
        return Location(path_id, offset, length, check, None if zipped is None else ZipLocation(*zipped))

    @cached_property
    def _first(self) -> list[int]:
        """Number of each column's first file."""
        counts = [0 if column.files is self.files else len(column.files) for column in self.columns]
        return [sum(counts[:turn]) for turn in range(len(counts))]

    def parts(self) -> Iterator[ColumnPart]:
        yield self.turns, "<i8"
        yield self.owners, "<i8"
        for column in self.columns:
            yield from column.parts()
