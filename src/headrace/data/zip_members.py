"""Every member of one zip, as its central directory has it, found by name in O(1)."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from . import checked
from .names import NameTable
from .safetensors import Arrays, InvalidFileError
from .strings import StringColumn
from .zip_member import ZipMember
from .zip_reading import ZipEntry, local_header_check

_UTF8_NAME = 0x800


@dataclass(frozen=True, eq=False)
class ZipMembers:
    """An entry a member in each array, in the order of the central directory."""

    names: NameTable
    size: npt.NDArray[np.int64]
    compressed: npt.NDArray[np.int64]
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
        size, compressed, method, crc, offset, flags, *_ = self._views
        return ZipMember(
            self.names[number],
            size[number],
            compressed[number],
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

    def find(self, name: str) -> int | None:
        """The last member of exactly that name."""
        return self.names.find(name)

    def fit(self, zip_bytes: int) -> bool:
        """Whether all members lie in a zip of that size."""
        inside = checked.ranges_fit(self.offset, self.compressed, first=0, end=zip_bytes)
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
    def from_infos(cls, infos: list[zipfile.ZipInfo], directory_at: int) -> ZipMembers:
        """From the central directory, which begins at byte `directory_at`."""
        offset = np.array([info.header_offset for info in infos], np.int64)
        return cls(
            NameTable.build(StringColumn.from_list(info.filename for info in infos)),
            size=np.array([info.file_size for info in infos], np.int64),
            compressed=np.array([info.compress_size for info in infos], np.int64),
            method=np.array([info.compress_type for info in infos], np.uint32),
            crc=np.array([info.CRC for info in infos], np.uint32),
            offset=offset,
            flags=np.array([info.flag_bits for info in infos], np.uint32),
            check=np.array([local_header_check(info.compress_type, _raw_name(info)) for info in infos], np.uint32),
            end=_ends(offset, directory_at),
        )


_COLUMNS: dict[str, type[np.generic]] = {
    "size": np.int64,
    "compressed": np.int64,
    "method": np.uint32,
    "crc": np.uint32,
    "offset": np.int64,
    "flags": np.uint32,
    "check": np.uint32,
    "end": np.int64,
}


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8_NAME else "cp437")


def _ends(offset: npt.NDArray[np.int64], directory_at: int) -> npt.NDArray[np.int64]:
    """For each offset the next one by value. Equal ones end where they begin: members that lie on each other."""
    by_offset = np.argsort(offset, kind="stable")
    ends = np.empty_like(offset)
    ends[by_offset] = np.append(offset[by_offset][1:], directory_at)
    return ends
