"""Every member of one zip, as its central directory has it, found by name in O(1)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace._core import read_zip_directory
from headrace.data import checked
from headrace.data.names import NameTable
from headrace.data.storage.safetensors import Arrays, InvalidFileError
from headrace.data.strings import StringColumn
from headrace.data.zip_member import ZipMember
from headrace.data.zip_reading import ZipEntry


@dataclass(frozen=True, eq=False)
class ZipMembers:
    """An entry a member in each array, in the order of the central directory."""

    names: NameTable
    size: npt.NDArray[np.int64]
    packed: npt.NDArray[np.int64]
    """Bytes in the zip."""
    method: npt.NDArray[np.uint32]
    crc: npt.NDArray[np.uint32]
    offset: npt.NDArray[np.int64]
    """Of the local header."""
    flags: npt.NDArray[np.uint32]
    check: npt.NDArray[np.uint32]
    """`local_header_check` of what the local header must say."""
    end: npt.NDArray[np.int64]
    """Where the next member's local header begins, or the central directory: data that goes on would overlap it."""
    _views: tuple[memoryview, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Single entries come out of a memoryview several times as fast as out of an array.
        columns = (getattr(self, name).data for name in _COLUMNS)
        object.__setattr__(self, "_views", tuple(columns))

    def __len__(self) -> int:
        return len(self.names)

    def member(self, number: int) -> ZipMember:
        size, packed, method, crc, offset, flags, *_ = self._views
        return ZipMember(
            self.names[number],
            size[number],
            packed[number],
            method[number],
            crc[number],
            offset[number],
            flags[number],
            number,
        )

    def entry(self, number: int) -> ZipEntry:
        size, packed, method, crc, offset, flags, check, end = self._views
        at = offset[number]
        return ZipEntry(
            at,
            packed[number],
            size[number],
            end[number] - at,
            method[number],
            crc[number],
            flags[number],
            check[number],
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return ZipMembers, (self.names, *(getattr(self, name) for name in _COLUMNS))

    def find(self, name: str) -> int | None:
        """The last member of exactly that name."""
        return self.names.find(name)

    @property
    def first_name(self) -> str | None:
        return self.names[0] if len(self) else None

    def find_files(self, paths: StringColumn, which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The position of the file that each of the paths numbered `which` names; -1 where there is none. A leading
        "./" makes no difference."""
        found = self.names.find_paths(paths, which)
        there = np.flatnonzero(found >= 0)
        found[there[are_folders(self.names.strings.take(found[there]))]] = -1
        return found

    def fit(self, zip_bytes: int) -> bool:
        """Whether all members lie in a zip of that size."""
        inside = checked.ranges_fit(self.offset, self.packed, first=0, end=zip_bytes)
        return bool((inside & (self.size >= 0) & (self.end >= self.offset) & (self.end <= zip_bytes)).all())

    def to_arrays(self) -> Arrays:
        return {**self.names.to_arrays(), **{name: getattr(self, name) for name in _COLUMNS}}

    @classmethod
    def from_arrays(cls, arrays: Arrays, zip_bytes: int) -> ZipMembers:
        """The inverse of `to_arrays`, from untrusted input: raises InvalidFileError unless all fits `zip_bytes`."""
        names = NameTable.from_arrays(arrays)
        columns = {name: checked.array(arrays, name, dtype, len(names)) for name, dtype in _COLUMNS.items()}
        members = cls(names, **columns)
        if not members.fit(zip_bytes):
            raise InvalidFileError("a member lies outside the zip")
        return members

    @classmethod
    def read(cls, path: str) -> ZipMembers:
        """From the central directory of the zip at `path`. Raises OSError, or ValueError if it is no zip or damaged."""
        names, name_offsets, size, packed, method, crc, offset, flags, check, directory_at = read_zip_directory(
            os.fsencode(path)
        )
        table = NameTable.build(StringColumn(names, name_offsets))
        return cls(table, size, packed, method, crc, offset, flags, check, _ends(offset, directory_at))


_COLUMNS: dict[str, type[np.generic]] = {
    "size": np.int64,
    "packed": np.int64,
    "method": np.uint32,
    "crc": np.uint32,
    "offset": np.int64,
    "flags": np.uint32,
    "check": np.uint32,
    "end": np.int64,
}


def are_folders(names: StringColumn) -> npt.NDArray[np.bool_]:
    """Which names are those of folders: they end in a slash."""
    found = np.zeros(len(names), np.bool_)
    named = np.flatnonzero(names.lengths() > 0)
    found[named] = names.blob[names.offsets.view(np.int64)[1:][named] - 1] == ord("/")
    return found


def _ends(offset: npt.NDArray[np.int64], directory_at: int) -> npt.NDArray[np.int64]:
    """For each offset the next one by value. Equal ones end where they begin: members that lie on each other."""
    by_offset = np.argsort(offset, kind="stable")
    ends = np.empty_like(offset)
    ends[by_offset] = np.append(offset[by_offset][1:], directory_at)
    return ends
