"""`Dataset`: samples as columns, and any selection of them."""

from __future__ import annotations

import hashlib
import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from ..errors import OutsideRootError, ReadError
from .columns import ABSENT, MISSING, ByteColumn, Column, Location, TextColumn
from .expected_files import expect_files
from .files import Files
from .memory_file import MemoryColumn
from .open_file import OpenFile
from .reading import read_file, read_member
from .selecting import Selector, draw_ids, occurrences, positions, split_positions
from .strings import Strings
from .table import Table
from .zipped import read_zipped

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Samples as columns. Immutable, picklable, and without a file that is open at a position, so a fork may use it
    freely.

    `ds[i]` reads sample `i`: a dict of its `"__key__"` and each column's value (bytes, a number, a text, or a list of
    these); a member that this sample does not have is absent. Slices and `select` give datasets that share the same
    columns.
    """

    table: Table
    base_ids: Ints | None = None
    """Each sample's place in the dataset as it was opened; None: all of it, in order. Random draws are keyed by it, and
    by how often it came before in the selection."""

    def __len__(self) -> int:
        return len(self.table) if self.base_ids is None else len(self.base_ids)

    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]: ...
    def __getitem__(self, index: slice | SupportsIndex) -> Dataset | dict[str, Any]:
        if isinstance(index, slice):
            return self.select(index)
        return self._sample(self._base_id(index))

    def __repr__(self) -> str:
        count = f"{len(self):,}" if self.base_ids is None else f"{len(self):,} of {len(self.table):,}"
        classes = "" if self.classes is None else f" in {len(self.classes):,} classes"
        columns = ", ".join(f"{name} ({self._kind_text(column)})" for name, column in self.columns.items())
        skipped = ", ".join(f"{what} ({count:,})" for what, count in self.skipped.items())
        parts = [f"{count} samples{classes}", f"columns {columns}", self.table.source]
        return "Dataset: " + ", ".join(parts) + (f"; skipped: {skipped}" if skipped else "")

    @property
    def columns(self) -> Mapping[str, Column]:
        """By name; they hold all samples of the opened dataset, and are indexed by base id."""
        return self.table.columns

    @property
    def fields(self) -> dict[str, str]:
        """Each column's kind: "bytes", "value" (a number), "text" or "list"."""
        return {name: column.kind for name, column in self.columns.items()}

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes that the column `label` holds; None where it holds none."""
        label = self.columns.get("label")
        return None if label is None or isinstance(label, ByteColumn) else label.classes

    @property
    def skipped(self) -> Mapping[str, int]:
        """What was found and is no part of any sample, by reason."""
        return self.table.skipped

    @cached_property
    def keys(self) -> Strings:
        """Each sample's name: its path in a folder, its members' common stem in a tar."""
        return self.table.keys if self.base_ids is None else self.table.keys.take(self.base_ids)

    @cached_property
    def fingerprint(self) -> str:
        """Hex identity of what the samples are, and in which order; the same on every machine and under any root."""
        state = hashlib.blake2b(self.table.digest.encode(), digest_size=16)
        if self.base_ids is not None and not np.array_equal(self.base_ids, np.arange(len(self.table))):
            state.update(np.ascontiguousarray(self.base_ids, dtype="<i8").data)
        return state.hexdigest()

    @cached_property
    def occurrences(self) -> npt.NDArray[Any] | None:
        """How often each sample came before in this selection (unsigned ints); None where none comes twice."""
        return None if self.base_ids is None else occurrences(self.base_ids, len(self.table))

    def draw_ids(self, index: Ints) -> Ints:
        """What random draws for the samples at positions `index` are keyed by. It is the base id where a sample comes
        for the first time, and another number for each further time."""
        if self.base_ids is None:
            return index
        ids, numbers = self.base_ids[index], self.occurrences
        return ids if numbers is None else draw_ids(ids, numbers[index])

    def key(self, index: SupportsIndex) -> str:
        return self.table.keys[self._base_id(index)]

    def select(self, which: Selector) -> Dataset:
        """The samples that a slice, indices or a boolean mask name, in that order. Base ids stay.

        A sample may come several times: each time gets random draws of its own, the first those that it has alone.
        """
        chosen = positions(which, len(self))
        return Dataset(self.table, chosen if self.base_ids is None else self.base_ids[chosen])

    def split(self, *fractions: float, seed: int = 0) -> tuple[Dataset, ...]:
        """Disjoint random parts with exactly those shares of the samples: `train, val = ds.split(0.9, 0.1)`.

        Each part keeps the dataset's order. The same on every machine for one seed and the same base ids.
        """
        ids = np.arange(len(self.table)) if self.base_ids is None else self.base_ids
        return tuple(Dataset(self.table, ids[part]) for part in split_positions(ids, fractions, seed))

    def locate(self, column: str, index: Ints) -> Location:
        """Where the bytes of the samples at positions `index` (int64, none negative) lie. For a whole batch at once."""
        byte_column = self.table.bytes_of(column)
        # Negative positions are huge as unsigned numbers: one pass checks both ends.
        if len(index) and int(index.view(np.uint64).max()) >= len(self):
            raise IndexError(f"expected positions from 0 to {len(self) - 1}, got {index.min()} to {index.max()}")
        return byte_column.locate(index if self.base_ids is None else self.base_ids[index])

    def has_bytes(self, column: str) -> bool:
        """Whether the column's samples can be read: bytes, or texts that name files."""
        return self.table.has_bytes(column)

    def files(self, column: str) -> Files:
        """The files that hold the column's bytes: one a sample in a folder, one a tar otherwise."""
        return self.table.bytes_of(column).files

    def read(self, column: str, index: SupportsIndex) -> bytes:
        """The bytes of one sample's member. Raises ReadError, ChangedError, OutsideRootError, KeyError where the sample
        has none; from a zip also DecodeError (damaged), UnsupportedError (encrypted, another method) or LimitError."""
        try:
            data = self._read(column, self.table.bytes_of(column), self._base_id(index))
        except (ReadError, OutsideRootError) as error:
            named = self.named(column, index)
            raise error if named is None else type(error)(f"{named}: {error}") from error
        if data is None:
            raise KeyError(f"sample {self.key(index)!r} has no {column!r}")
        return data

    def where(self, column: str, index: SupportsIndex) -> tuple[str, int | None]:
        """The file that holds one sample's member and its first byte there (None for a loose file), for messages; of
        bytes in memory, what they were given as."""
        found = self.table.bytes_of(column)
        if isinstance(found, MemoryColumn):
            return self.table.source, None
        at = found.locate(np.array([self._base_id(index)]))
        return os.fsdecode(found.path(at)), None if at.offset is None else int(at.offset[0])

    def named(self, column: str, index: SupportsIndex) -> str | None:
        """Which line of a manifest names which file for one sample, for messages; None where no manifest does."""
        texts, base_id = self.columns.get(column), self._base_id(index)
        if self.table.origin is None or not isinstance(texts, TextColumn):
            return None
        return f"{self.table.origin.of(base_id)} names {texts.strings[base_id]!r}"

    def expect_files(self, column: str) -> None:
        """Raises NotFoundError if `column` names files and none of a few that are looked for is there."""
        expect_files(self.table, column)

    def _kind_text(self, column: Column) -> str:
        classes = None if isinstance(column, ByteColumn) else column.classes
        # Texts that all differ, such as paths, are no classes to speak of.
        if classes is None or (isinstance(column, TextColumn) and len(classes) == len(self.table)):
            return column.kind
        return f"{column.kind}: {len(classes):,} classes"

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
            if not isinstance(column, ByteColumn):
                value = column.take(np.array([base_id]))[0]
                sample[name] = value.item() if isinstance(value, np.generic) else value
                continue
            # `image` and `jpg` are mostly the same bytes: read once.
            at = column.locate(np.array([base_id]))
            place = (id(column.files), *(-2 if part is None else int(part[0]) for part in at[:3]))
            data = seen[place] if place in seen else self._read(name, column, base_id)
            if data is not None:
                sample[name] = seen[place] = data
        return sample

    def _read(self, name: str, column: ByteColumn, base_id: int) -> bytes | None:
        at = column.locate(np.array([base_id]))
        path = column.path(at)
        if at.offset is None or at.length is None:
            return read_file(path) if path else None
        if at.length[0] == ABSENT:
            return None
        if at.length[0] == MISSING:
            raise ReadError(f"no file of that name is {self.table.place}")
        if at.zipped is not None:
            return read_zipped(OpenFile(path), at, key=self.table.keys[base_id], field=name)
        return read_member(
            OpenFile(path), int(at.offset[0]), int(at.length[0]), None if at.check is None else int(at.check[0])
        )
