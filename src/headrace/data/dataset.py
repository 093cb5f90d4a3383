"""`Dataset`: samples as columns, and selections of them."""

from __future__ import annotations

import hashlib
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from headrace.data.archives.zip_reading import read_zipped
from headrace.data.class_names import label_column, named_classes, parse_labels, rows_of_values
from headrace.data.columns import KEY, ByteColumn, BytesInMemory, BytesListColumn, Column, KeyColumn, TextColumn
from headrace.data.dataset_display import SHOWN, dataset_html, dataset_line
from headrace.data.location import ABSENT, MISSING, ColumnFiles, Location
from headrace.data.remote.bulk_reads import BulkPart, read_in_bulk
from headrace.data.selection import (
    Selector,
    checked_mask,
    checked_shares,
    draw_ids,
    last_places,
    occurrences,
    positions,
    split_positions,
)
from headrace.data.sources.memory_samples import columns_of, in_order
from headrace.data.storage.open_file import ReadableFile, read_file, read_member, read_whole
from headrace.data.storage.strings import Ints, Strings
from headrace.data.table import SampleTable, expect_files
from headrace.errors import OutsideRootError, ReadError, UsageError
from headrace.stores import show_address

_BLOCK = 1024
"""Samples per block in `filter`."""


_INTERNAL = frozenset(
    ("base_ids", "draw_ids", "expect_files", "expect_paths", "files", "has_bytes", "locate", "named", "occurrences",
     "paths", "table")
)  # fmt: skip
"""Attributes for loaders that `dir` omits."""


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Samples as columns, and a selection of them. Immutable, picklable and fork-safe.

    `ds[i]` reads sample `i` as a dict of its `"__key__"` and each column's value: bytes, a number, a text, or a list of
    numbers or texts. The dict omits members that the sample does not have. Slices and `select` return datasets that
    share the same columns.
    """

    table: SampleTable
    base_ids: Ints | None = None
    """Index of each sample in the opened dataset; None: all, in order. Random draws are keyed by this index and by how
    often the sample occurred before in the selection."""

    def __len__(self) -> int:
        return len(self.table) if self.base_ids is None else len(self.base_ids)

    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]: ...
    def __getitem__(self, index: slice | SupportsIndex) -> Dataset | dict[str, Any]:
        if isinstance(index, slice):
            return self.select(index)
        if isinstance(index, str):
            raise TypeError(f"expected a position or a slice, got {index!r}; column({index!r}) gives a column's values")
        return self._sample(self._base_id(index))

    def __dir__(self) -> list[str]:
        return sorted(set(super().__dir__()) - _INTERNAL)

    def __repr__(self) -> str:
        return dataset_line(self.table, None if self.base_ids is None else len(self), self.classes)

    def _repr_html_(self) -> str:
        # Skip stores: notebooks display a dataset often and should not wait for requests.
        is_here = "image" in self.columns and self.has_bytes("image") and not self.files("image").is_remote
        shown = range(min(SHOWN, len(self)) if is_here else 0)
        return dataset_html(repr(self), [self.key(index) for index in shown], partial(self.read, "image"))

    @property
    def columns(self) -> Mapping[str, Column]:
        """Columns by name. They cover all samples of the opened dataset and are indexed by base id."""
        return self.table.columns

    @property
    def fields(self) -> dict[str, str]:
        """Kind of each column: "bytes", "value" (a number), "text", "list" or "list of bytes"."""
        return {name: column.kind for name, column in self.columns.items()}

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names of the column `label`; None if it has none."""
        label = self.columns.get("label")
        return None if label is None or isinstance(label, ByteColumn) else label.classes

    @property
    def skipped(self) -> Mapping[str, int]:
        """Number of entries that belong to no sample, by reason."""
        return self.table.skipped

    @cached_property
    def keys(self) -> Strings:
        """Names of the samples: paths in a folder, common stems of members in a tar."""
        return self.table.keys if self.base_ids is None else self.table.keys.take(self.base_ids)

    @cached_property
    def fingerprint(self) -> str:
        """Hex identity of the samples and their order; the same on every machine and under any root."""
        state = hashlib.blake2b(self.table.digest.encode(), digest_size=16)
        if self.base_ids is not None and not np.array_equal(self.base_ids, np.arange(len(self.table))):
            state.update(np.ascontiguousarray(self.base_ids, dtype="<i8").data)
        return state.hexdigest()

    @cached_property
    def occurrences(self) -> npt.NDArray[Any] | None:
        """Earlier occurrences of each sample in this selection (unsigned); None if all samples are distinct."""
        return None if self.base_ids is None else occurrences(self.base_ids, len(self.table))

    def draw_ids(self, index: Ints) -> Ints:
        """Return the keys of random draws for the samples at positions `index`.

        The key of a sample's first occurrence is its base id; each further occurrence gets another number.
        """
        if self.base_ids is None:
            return index
        ids, numbers = self.base_ids[index], self.occurrences
        return ids if numbers is None else draw_ids(ids, numbers[index])

    def key(self, index: SupportsIndex) -> str:
        return self.table.keys[self._base_id(index)]

    def select(self, which: Selector) -> Dataset:
        """Return the samples chosen by a slice, indices or a boolean mask, in that order. Base ids are unchanged.

        A sample may occur several times. Each occurrence has its own random draws; the first draws as if alone.
        """
        chosen = positions(which, len(self))
        return Dataset(self.table, chosen if self.base_ids is None else self.base_ids[chosen])

    @overload
    def split(self, fractions: Mapping[str, float], /, *, seed: int = 0) -> dict[str, Dataset]: ...
    @overload
    def split(self, *fractions: float | Sequence[float], seed: int = 0) -> tuple[Dataset, ...]: ...
    def split(self, *fractions: Any, seed: int = 0) -> tuple[Dataset, ...] | dict[str, Dataset]:
        """Return disjoint random parts with exactly these shares of the samples: `train, val = ds.split(0.9, 0.1)`.

        A single share below 1 returns that part and the rest: `train, val = ds.split(0.9)`. A tuple of shares works
        like separate arguments; a dict such as `{"train": 0.9, "val": 0.1}` returns a dict of parts. Each part keeps
        the dataset's order. The same seed and base ids give the same parts on every machine.
        """
        names, shares = checked_shares(fractions)
        ids = self._base_ids()
        parts = tuple(Dataset(self.table, ids[part]) for part in split_positions(ids, shares, seed))
        return parts if names is None else dict(zip(names, parts, strict=True))

    def column(self, name: str) -> npt.NDArray[Any] | list[Any]:
        """Return the value of each sample in column `name`, or in `"__key__"`, in this dataset's order.

        Numbers come as an array [len(self)], texts as a list of str, lists as a list of arrays or of lists of str. Byte
        columns are read into a list of bytes, with None for a sample without the member, and lists of bytes into a list
        of such lists. Raises UsageError for an unknown name, and as `read` does.
        """
        column = self._column(name)
        if isinstance(column, ByteColumn):
            return list(self.read_all(name))
        if isinstance(column, BytesListColumn):
            return [self._read_list(name, column, base_id) for base_id in self._base_ids().tolist()]
        return column.take(self._base_ids())

    def labels(self, column: str = "label") -> npt.NDArray[Any]:
        """Return each sample's label [len(self)], as the field `Label` does, without a loader.

        Labels are a column's numbers, the class indices of its texts, or the whole numbers in text members (`.cls`),
        which are read. Raises UsageError for a column without labels, and as `read` does.
        """
        found = self._column(column)
        if isinstance(found, ByteColumn):
            read = [self._expect_bytes(data, column, index) for index, data in enumerate(self.read_all(column))]
            return parse_labels(read, self.keys, column)
        return label_column(found, f"column {column!r}").take(self._base_ids())

    def filter(
        self,
        keep: Callable[..., Any] | Selector | None = None,
        columns: str | Sequence[str] | None = None,
        **wanted: Any,
    ) -> Dataset:
        """Return the samples for which `keep` is true, in this order. Base ids are unchanged, as in `select`.

        `keep` is a function, or a boolean array with an entry per sample. `columns` names the columns that are passed
        to the function as arguments: `data.filter(lambda w, h: w >= 64 <= h, ["width", "height"])`. Without `columns`,
        the function gets a dict of the sample's key and values. Byte columns are read only if `columns` names them.

        Keywords name columns of numbers or texts, with the value or values to select:
        `data.filter(split="train", label=["cat", "dog"])`. A sample must match all keywords. Numbers with classes also
        match by class name.

        Raises UsageError for an unknown column or class, and as `read` does.
        """
        if wanted:
            chosen = self if keep is None else self.filter(keep, columns)
            ids = chosen._base_ids()
            kept = [rows_of_values(self._column(name), ids, values, name) for name, values in wanted.items()]
            return chosen.select(np.logical_and.reduce(kept))
        if not callable(keep):
            return self.select(checked_mask(keep))
        names = [columns] if isinstance(columns, str) else None if columns is None else list(columns)
        read = ByteColumn | BytesListColumn
        held = [KEY, *(name for name in self.columns if not isinstance(self.columns[name], read))]
        blocks = (self[start : start + _BLOCK] for start in range(0, len(self), _BLOCK))
        values = ([block.column(name) for name in (held if names is None else names)] for block in blocks)
        rows = (row for block in values for row in zip(*block, strict=True))
        found = (bool(keep(dict(zip(held, row, strict=True))) if names is None else keep(*row)) for row in rows)
        return self.select(np.fromiter(found, bool, len(self)))

    def with_column(self, name: str, values: Any, *, classes: Sequence[str] | None = None) -> Dataset:
        """Return this dataset with an added or replaced column.

        `values` has one value per sample, in this dataset's order: an array or a list of numbers, texts, bytes, or
        lists of numbers or texts. Repeated samples need equal values. `classes` names the classes of whole numbers from
        0 on. The fingerprint covers the column. Raises UsageError.
        """
        if name == KEY or not isinstance(name, str) or not name:
            raise UsageError(f"with_column: expected the name of a column, got {name!r}")
        size = len(values) if hasattr(values, "__len__") else None
        if size != len(self):
            got = type(values).__name__ if size is None else f"{size:,}"
            raise UsageError(f"with_column({name!r}): expected {len(self):,} values, one a sample, got {got}")
        column = columns_of({name: self._by_base_id(name, values)})[0][name]
        if classes is not None:
            column = named_classes(column, tuple(classes), name)
        return replace(self, table=self.table.with_column(name, column))

    def locate(self, column: str, index: Ints) -> Location:
        """Return the location of the samples at positions `index` (int64, none negative) as one batch."""
        byte_column = self.table.bytes_of(column)
        # As unsigned numbers, negative positions are huge: one pass checks both ends.
        if len(index) and int(index.view(np.uint64).max()) >= len(self):
            raise IndexError(f"expected positions from 0 to {len(self) - 1}, got {index.min()} to {index.max()}")
        return byte_column.locate(index if self.base_ids is None else self.base_ids[index])

    def has_bytes(self, column: str) -> bool:
        """Return True if the column's samples can be read: bytes, or texts that name files."""
        return self.table.has_bytes(column)

    def files(self, column: str) -> ColumnFiles:
        """Return the files with the column's bytes: one per sample in a folder, else one per tar."""
        return self.table.bytes_of(column).files

    def read(self, column: str, index: SupportsIndex, *, part: BulkPart | None = None) -> bytes:
        """Return the bytes of one sample's member. `part`: the part of its object that is in memory.

        Raises ReadError, ChangedError, OutsideRootError, or KeyError if the sample has no such member. A zip also
        raises DecodeError (damaged), UnsupportedError (encrypted, another method) or LimitError.
        """
        return self._expect_bytes(self._read_named(column, index, part), column, index)

    def read_all(self, column: str) -> Iterator[bytes | None]:
        """Yield the bytes of each sample's member in this dataset's order, None for no member; read stores in bulk.

        Raises as `read` does.
        """
        files = self.files(column)
        if not files.is_remote:
            yield from (self._read_named(column, index) for index in range(len(self)))
            return
        with read_in_bulk(files, partial(self.locate, column), len(self)) as blocks:
            for block in blocks:
                for index, part in zip(block.positions.tolist(), block.parts, strict=True):
                    yield self._read_named(column, index, part)

    def _read_named(self, column: str, index: SupportsIndex, part: BulkPart | None = None) -> bytes | None:
        try:
            return self._read(column, self.table.bytes_of(column), self._base_id(index), part)
        except (ReadError, OutsideRootError) as error:
            named = self.named(column, index)
            raise error if named is None else type(error)(f"{named}: {error}") from error

    def _expect_bytes(self, data: bytes | None, column: str, index: SupportsIndex) -> bytes:
        if data is None:
            raise KeyError(f"sample {self.key(index)!r} has no {column!r}")
        return data

    def where(self, column: str, index: SupportsIndex) -> tuple[str, int | None]:
        """Return, for messages, the file of one sample's member and its first byte there (None: a loose file).

        For bytes in memory, return the name of their source.
        """
        found = self.table.bytes_of(column)
        if isinstance(found, BytesInMemory):
            return self.table.source, None
        at = found.locate(np.array([self._base_id(index)]))
        return os.fsdecode(found.path(at)), None if at.offset is None else int(at.offset[0])

    def paths(self, column: str, index: Ints) -> list[str]:
        """Return the files with the bytes of the samples at positions `index`; "" for no member.

        For members of an archive, return the archive. Raises OutsideRootError, and ReadError for an invalid file name.
        """
        found, at = self.table.bytes_of(column), self.locate(column, index)
        return [os.fsdecode(found.path(at, row)) for row in range(len(index))]

    def expect_paths(self, column: str, place: str) -> None:
        """Raise UsageError unless the column's bytes are in files; `place` starts the message."""
        if not self.table.has_bytes(column) or isinstance(self.table.bytes_of(column), BytesInMemory):
            raise UsageError(f"{place}: expected a column whose bytes lie in files, got {column!r} of {self!r}")

    def named(self, column: str, index: SupportsIndex) -> str | None:
        """Return, for messages, the manifest line that names one sample's file; None if no manifest names it."""
        texts, base_id = self.columns.get(column), self._base_id(index)
        if self.table.origin is None or not isinstance(texts, TextColumn):
            return None
        return f"{self.table.origin.of(base_id)} names {show_address(texts.strings[base_id])!r}"

    def expect_files(self, column: str) -> bool:
        """Return True if `column` names files. Raises NotFoundError if none of a few sampled files exists."""
        return expect_files(self.table, column)

    def _base_ids(self) -> Ints:
        return np.arange(len(self.table)) if self.base_ids is None else self.base_ids

    def _column(self, name: str) -> Column:
        column = KeyColumn(self.table.keys) if name == KEY else self.columns.get(name)
        if column is None:
            raise UsageError(f"expected a column of the dataset, got {name!r}; it has {', '.join(self.columns)}")
        return column

    def _by_base_id(self, name: str, values: Any) -> Any:
        """Return a value for each sample of the opened dataset; unselected samples get an arbitrary selected value."""
        if self.base_ids is None:
            return values
        values = in_order(name, values)
        place, again = last_places(self.base_ids, len(self.table))
        for row, other in again:
            if not np.array_equal(values[row], values[other]):
                raise UsageError(
                    f"with_column({name!r}): expected equal values where a sample comes several times, got "
                    f"{values[row]!r} at {row} and {values[other]!r} at {other} for {self.key(row)!r}"
                )
        return values[place] if isinstance(values, np.ndarray) else [values[at] for at in place.tolist()]

    def _base_id(self, index: SupportsIndex) -> int:
        position, size = operator.index(index), len(self)
        if not -size <= position < size:
            raise IndexError(f"sample {position} of {size}")
        position %= size
        return position if self.base_ids is None else int(self.base_ids[position])

    def _sample(self, base_id: int) -> dict[str, Any]:
        sample: dict[str, Any] = {"__key__": self.table.keys[base_id]}
        seen: dict[tuple[int, ...], bytes] = {}
        for name, column in self.columns.items():
            if isinstance(column, BytesListColumn):
                sample[name] = self._read_list(name, column, base_id)
                continue
            if not isinstance(column, ByteColumn):
                value = column.take(np.array([base_id]))[0]
                sample[name] = value.item() if isinstance(value, np.generic) else value
                continue
            # `image` and `jpg` are mostly the same bytes: read them once.
            at = column.locate(np.array([base_id]))
            if at.packed is not None:
                data = self._read(name, column, base_id)
                if data is not None:
                    sample[name] = data
                continue
            place = (id(column.files), *(-2 if part is None else int(part[0]) for part in at[:3]))
            data = seen[place] if place in seen else self._read(name, column, base_id)
            if data is not None:
                sample[name] = seen[place] = data
        return sample

    def _read_list(self, name: str, column: BytesListColumn, base_id: int) -> list[bytes | None]:
        """Return the bytes of each item of a sample's list."""
        items = self.table.items_of(name)
        first, last = column.offsets[base_id : base_id + 2].tolist()
        return [self._read(name, items, number) for number in range(first, last)]

    def _read(self, name: str, column: ByteColumn, base_id: int, part: BulkPart | None = None) -> bytes | None:
        at = column.locate(np.array([base_id]))
        path = column.path(at)
        if at.offset is None or at.length is None:
            if not path:
                return None
            return read_whole(_opened(column, at, part)) if column.files.is_remote else read_file(path)
        if at.length[0] == ABSENT:
            return None
        if at.length[0] == MISSING:
            raise ReadError(f"no file of that name is {self.table.place}")
        file = _opened(column, at, part)
        if at.packed is not None:
            return at.packed.read(file, at, {} if part is None else part.unpacked)
        if at.zipped is not None:
            return read_zipped(file, at, key=self.table.keys[base_id], field=name)
        data = read_member(file, int(at.offset[0]), int(at.length[0]), None if at.check is None else int(at.check[0]))
        return data if at.prefix is None else at.prefix[0].tobytes() + data


def _opened(column: ByteColumn, at: Location, part: BulkPart | None) -> ReadableFile:
    return column.open(at) if part is None else part.over(column.open(at))
