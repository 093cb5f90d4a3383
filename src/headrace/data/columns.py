"""Kinds of columns: byte ranges, files, numbers, texts and lists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.data.location import Checks, ColumnFiles, Location
from headrace.data.storage.open_file import ReadableFile
from headrace.data.storage.strings import Ints, StoredArray, StringColumn, Strings
from headrace.errors import ChangedError

Numbers: TypeAlias = npt.NDArray[Any] | StoredArray
"""Numbers of a column. Indexing returns an array."""
ColumnPart: TypeAlias = tuple[npt.NDArray[np.generic] | None, str]
"""Array, and the little-endian type that it is hashed as on every machine."""

KEY = "__key__"
"""Name of the key column, which every dataset has, as in `ds[i]` and WebDataset."""


def offsets_of(counts: Sequence[int] | Ints) -> npt.NDArray[np.int64]:
    """Return where each list begins among the items of all, and their end: int64[n + 1]."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def numbers_in_ranges(first: Ints, counts: Ints) -> Ints:
    """Return the numbers of ranges one after another: `counts[i]` of them from `first[i]` on."""
    numbers: Ints = np.repeat(first - np.cumsum(counts) + counts, counts)
    numbers += np.arange(len(numbers))
    return numbers


class DescribedColumn:
    """Base of all columns, whose text names their kind: their arrays may have millions of values."""

    kind: ClassVar[str]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.kind}>"


class ByteColumn(DescribedColumn, ABC):
    """Column of bytes, located by sample id."""

    kind: ClassVar[str] = "bytes"
    names_content: ClassVar[bool] = False
    """True if `parts` identifies the content, so that no values need sampling."""
    files: ColumnFiles

    @property
    def unit_bytes(self) -> int | None:
        """Mean bytes read for a single value, if more than the value's own; else None."""
        return None

    @property
    def unit_rows(self) -> int | None:
        """Rows that are read together, if nearly all units have the same number; else None."""
        return None

    @abstractmethod
    def locate(self, ids: Ints) -> Location:
        """Return the location of a whole batch; no id is negative."""

    def stored_bytes(self, ids: Ints) -> Ints | None:
        """Return the stored size of each sample in bytes, the same at every call; None if unknown."""
        at = self.locate(ids)
        return at.length if at.zipped is None else at.zipped.packed

    def path(self, at: Location, row: int = 0) -> bytes:
        """Return the path of the file for row `row` of a batch; empty for none. Raises as `ColumnFiles.path` does."""
        files = self.files if at.files is None else at.files
        return files.path(int(at.path_id[row]))

    def open(self, at: Location, row: int = 0) -> ReadableFile:
        """Open the file or object for row `row` of a batch. Raises as `ColumnFiles.open` does."""
        files = self.files if at.files is None else at.files
        return files.open(int(at.path_id[row]))

    @abstractmethod
    def parts(self) -> Iterator[ColumnPart]:
        """Yield the arrays that identify this column's content; file locations do not count."""


class BytesInMemory(ByteColumn):
    """Column of bytes that no file has."""

    length: Ints
    """Bytes of each sample; `ABSENT` for a sample without the member."""


@dataclass(frozen=True, eq=False, repr=False)
class FileColumn(ByteColumn):
    """Column with one file per sample; the sample id is the file number."""

    files: ColumnFiles

    @property
    def folder(self) -> str | None:
        """Folder or prefix that was listed for the files; None if they were named."""
        return self.files.root

    def locate(self, ids: Ints) -> Location:
        return Location(ids, None, None, None)

    def parts(self) -> Iterator[ColumnPart]:
        yield None, "<i8"
        yield None, "<u4"


@dataclass(frozen=True, eq=False, repr=False)
class NamedFileColumn(FileColumn):
    """Column with one file per sample that looks up names on access, since all names may not fit in memory."""

    @property
    def folder(self) -> str | None:
        return None

    def locate(self, ids: Ints) -> Location:
        named = replace(self.files, names=self.files.names.take(ids))
        return Location(np.arange(len(ids)), None, None, None, files=named)


@dataclass(frozen=True, eq=False, repr=False)
class RangeColumn(ByteColumn):
    """Column with one byte range per sample, in files of many samples."""

    files: ColumnFiles
    path_id: npt.NDArray[np.int32]
    offset: Ints
    length: Ints
    check: Checks | None

    def locate(self, ids: Ints) -> Location:
        return Location(
            self.path_id[ids].astype(np.int64),
            self.offset[ids],
            self.length[ids],
            None if self.check is None else self.check[ids],
        )

    def parts(self) -> Iterator[ColumnPart]:
        yield self.length, "<i8"
        yield self.check, "<u4"


@dataclass(frozen=True, eq=False, repr=False)
class ValueColumn(DescribedColumn):
    """Column with one number per sample."""

    kind: ClassVar[str] = "value"
    values: Numbers
    classes: tuple[str, ...] | None = None
    """Class names, if the values are class indices."""

    def take(self, ids: Ints) -> npt.NDArray[Any]:
        """Return the numbers of samples. Raises ChangedError."""
        found: npt.NDArray[Any] = self.values[ids]
        return found

    def rows(self, ids: Ints) -> ValueColumn:
        """Return the column of these samples alone, in memory. Raises ChangedError."""
        return replace(self, values=self.take(ids))

    def parts(self) -> Iterator[ColumnPart]:
        yield np.asarray(self.values), f"<{self.values.dtype.kind}{self.values.dtype.itemsize}"


@dataclass(frozen=True, eq=False, repr=False)
class TextColumn(DescribedColumn):
    """Column with one string per sample. If the table has a root, the string names the sample's file there."""

    kind: ClassVar[str] = "text"
    strings: Strings
    labels: ValueColumn | None = None
    """Each string as a class index, if few strings differ."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        return None if self.labels is None else self.labels.classes

    def take(self, ids: Ints) -> list[str]:
        return list(self.strings.take(ids))

    def rows(self, ids: Ints) -> TextColumn:
        """Return the column of these samples alone, in memory. Raises ChangedError."""
        return TextColumn(self.strings.take(ids), None if self.labels is None else self.labels.rows(ids))

    def parts(self) -> Iterator[ColumnPart]:
        yield from _parts_of(self.strings)


@dataclass(frozen=True, eq=False, repr=False)
class ListColumn(DescribedColumn):
    """Column with a list of numbers or strings per sample: `items[offsets[i]:offsets[i + 1]]`."""

    kind: ClassVar[str] = "list"
    offsets: Numbers
    """uint64[n + 1]"""
    items: Numbers | Strings
    """Numbers may have further dimensions: boxes are float32[m, 4]."""
    classes: tuple[str, ...] | None = None
    """Class names, if the numbers are class indices."""

    @property
    def as_bytes(self) -> ByteColumn | None:
        """The lists as `.npy` files, for fields of pixels; None unless they are rows of an array in a file."""
        return None

    def take(self, ids: Ints) -> list[Any]:
        """Return the lists of samples. Raises ChangedError."""
        bounds = zip(*(part.tolist() for part in self.ranges(ids)), strict=True)
        if isinstance(self.items, Strings):
            return [list(self.items.take(np.arange(start, start + count))) for start, count in bounds]
        return [self.items[start : start + count].copy() for start, count in bounds]

    def take_joined(self, ids: Ints) -> tuple[Any, Ints]:
        """Return the concatenated items of all these lists, and each list's length. Raises ChangedError."""
        items, counts = self._items_of(ids)
        return (list(items) if isinstance(items, Strings) else items), counts

    def _items_of(self, ids: Ints) -> tuple[Any, Ints]:
        start, counts = self.ranges(ids)
        which = numbers_in_ranges(start, counts)
        return (self.items.take(which) if isinstance(self.items, Strings) else self.items[which]), counts

    def rows(self, ids: Ints) -> ListColumn:
        """Return the column of these samples alone, in memory. Raises ChangedError."""
        items, counts = self._items_of(ids)
        return ListColumn(offsets_of(counts).astype(np.uint64), items, self.classes)

    def ranges(self, ids: Ints) -> tuple[Ints, Ints]:
        """Return each list's first index in `items`, and its length. Raises ChangedError."""
        start, stop = self.offsets[ids].astype(np.int64), self.offsets[ids + 1].astype(np.int64)
        odd = np.flatnonzero((start < 0) | (start > stop) | (stop > len(self.items)))
        if len(odd):  # offsets are untrusted: opening checks only the first and the last
            raise ChangedError(
                f"expected a list within {len(self.items):,} items, got one from {start[odd[0]]:,} to "
                f"{stop[odd[0]]:,}: the index that is cached for the dataset is damaged. Remove it, and open again"
            )
        return start, stop - start

    def parts(self) -> Iterator[ColumnPart]:
        yield np.asarray(self.offsets), "<u8"
        if isinstance(self.items, Strings):
            yield from _parts_of(self.items)
        else:
            yield np.asarray(self.items), f"<{self.items.dtype.kind}{self.items.dtype.itemsize}"


@dataclass(frozen=True, eq=False, repr=False)
class KeyColumn(DescribedColumn):
    """Column of the samples' keys."""

    kind: ClassVar[str] = "text"
    classes: ClassVar[None] = None
    keys: Strings

    def take(self, ids: Ints) -> list[str]:
        return list(self.keys.take(ids))

    def rows(self, ids: Ints) -> KeyColumn:
        """Return the keys of these samples alone, in memory."""
        return KeyColumn(self.keys.take(ids))

    def parts(self) -> Iterator[ColumnPart]:
        """Yield nothing: the dataset's identity already covers its keys."""
        return iter(())


@dataclass(frozen=True, eq=False, repr=False)
class BytesListColumn(DescribedColumn):
    """Column with a list of byte values per sample: items `offsets[i]` to `offsets[i + 1]`, such as images."""

    kind: ClassVar[str] = "list of bytes"
    classes: ClassVar[None] = None
    offsets: npt.NDArray[np.int64]
    items: ByteColumn | TextColumn
    """Values of all lists, located by their number; texts name files."""

    def parts(self) -> Iterator[ColumnPart]:
        yield self.offsets, "<i8"
        yield from self.items.parts()


HeldColumn: TypeAlias = ValueColumn | TextColumn | ListColumn | KeyColumn
"""Columns of values rather than byte ranges."""
Column: TypeAlias = ByteColumn | BytesListColumn | HeldColumn


def labelled(column: HeldColumn, classes: tuple[str, ...] | None) -> HeldColumn:
    """Return a column of numbers with class names; return other columns unchanged."""
    if classes is None or not isinstance(column, ValueColumn | ListColumn):
        return column
    return replace(column, classes=classes)


def _parts_of(strings: Strings) -> Iterator[ColumnPart]:
    whole = StringColumn.join(strings.pieces())
    yield whole.blob, "<u1"
    yield whole.lengths(), "<i8"
