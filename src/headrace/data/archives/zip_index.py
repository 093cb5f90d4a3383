"""Index of a zip: its members, and the ranges and form of their bytes."""

from __future__ import annotations

import os
import struct
import tempfile
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace._core import read_zip_directory
from headrace.data.archives.archive_index import ArchiveKind, index_arrays
from headrace.data.archives.archive_members import ArchiveMembers, NameTable
from headrace.data.archives.zip_reading import ZipEntry
from headrace.data.storage.open_file import FilePath, ReadableFile, open_path
from headrace.data.storage.safetensors import Arrays, ranges_fit
from headrace.data.storage.strings import Ints, StringColumn
from headrace.errors import DatasetError, HeadraceError, ReadError

Words = npt.NDArray[np.uint32]

_TAIL_BYTES = (1 << 16) + 4096
"""Longest comment with the records around it, and most small directories."""
_END = struct.Struct("<12xII2x")  # the directory's size and offset; the length of the comment
_END_64 = struct.Struct("<40xQQ")

_FILE, _FOLDER = np.uint8(ord("0")), np.uint8(ord("5"))
"""Member types as in a tar, for grouping members into samples."""


class ZipMember(NamedTuple):
    """One member of a zip, with the attributes and methods of `zipfile.ZipInfo` and `tarfile.TarInfo`."""

    name: str
    file_size: int
    """Bytes of data."""
    compress_size: int
    """Compressed bytes in the zip."""
    compress_type: int
    """`zipfile.ZIP_STORED`, `ZIP_DEFLATED`, …"""
    CRC: int  # as zipfile spells it
    header_offset: int
    """First byte of the local header in the zip."""
    flag_bits: int
    number: int
    """Index in the zip."""

    @property
    def filename(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        return self.file_size

    def is_dir(self) -> bool:
        return self.name.endswith("/")

    def isdir(self) -> bool:
        return self.is_dir()

    def isfile(self) -> bool:
        return not self.is_dir()


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


@dataclass(frozen=True, eq=False)
class ZipMembers(ArchiveMembers):
    """All members of a zip, in central-directory order, as arrays with one entry per member."""

    columns = _COLUMNS
    located = tuple(_COLUMNS)
    proof = "crc"

    size: Ints
    packed: Ints
    """Compressed bytes in the zip."""
    method: Words
    crc: Words
    offset: Ints
    """First byte of the local header."""
    flags: Words
    check: Words
    """Expected `local_header_check` of the local header."""
    end: Ints
    """Start of the next member's local header, or of the central directory; longer data would overlap it."""

    def member(self, number: int) -> ZipMember:
        size, packed, method, crc, offset, flags, *_ = (view[number] for view in self.views)
        return ZipMember(self.names[number], size, packed, method, crc, offset, flags, number)

    def entry(self, number: int) -> ZipEntry:
        size, packed, method, crc, offset, flags, check, end = (view[number] for view in self.views)
        return ZipEntry(offset, packed, size, end - offset, method, crc, flags, check)

    def find(self, name: str) -> int | None:
        """Return the index of the last member of exactly that name, or None."""
        return self.names.find(name)

    def find_files(self, paths: StringColumn, which: Ints) -> Ints:
        """Return the index of the file that each of the paths numbered `which` names; -1 for none.

        A leading "./" is ignored.
        """
        found = self.names.find_paths(paths, which)
        there = np.flatnonzero(found >= 0)
        found[there[_are_folders(self.names.strings.take(found[there]))]] = -1
        return found

    def fit(self, archive_bytes: int) -> bool:
        inside = ranges_fit(self.offset, self.packed, first=0, end=archive_bytes)
        return bool((inside & (self.size >= 0) & (self.end >= self.offset) & (self.end <= archive_bytes)).all())


def build_zip_index(path: FilePath) -> tuple[Arrays, str]:
    """Read the central directory of the zip at `path`, and return the arrays and outline of its index.

    Raises ReadError or DatasetError.
    """
    zip_bytes = open_path(path).size()
    try:
        names, name_offsets, size, packed, method, crc, offset, flags, check, directory_at = _read_directory(path)
        table = NameTable.build(StringColumn(names, name_offsets))
    except HeadraceError:
        raise  # from a store
    except OSError as error:
        raise ReadError(f"{error}. Check its permissions and the disk") from error
    except ValueError as error:
        raise DatasetError(f"{error}. Check it with `unzip -t`, and copy or write it again") from error
    # A member ends at the next higher offset. Members with equal offsets end where they begin: they overlap.
    by_offset = np.argsort(offset, kind="stable")
    ends = np.empty_like(offset)
    ends[by_offset] = np.append(offset[by_offset][1:], directory_at)
    members = ZipMembers(table, size, packed, method, crc, offset, flags, check, ends)
    if not members.fit(zip_bytes):
        raise DatasetError(
            f"{path}: its central directory points outside the file. Check it with `unzip -t`, and copy or write it "
            f"again"
        )
    is_folder = _are_folders(members.names.strings)
    types = np.where(is_folder, _FOLDER, _FILE)
    skipped = {"directories": int(np.count_nonzero(is_folder))}
    return index_arrays(path, members, types, skipped)


def _read_directory(path: FilePath) -> Any:
    if isinstance(path, str):
        return read_zip_directory(os.fsencode(path))
    with tempfile.NamedTemporaryFile(prefix="headrace-") as copy:
        _copy_directory(path.open(), copy.fileno())
        try:
            return read_zip_directory(os.fsencode(copy.name))
        except ValueError as error:
            raise ValueError(str(error).replace(copy.name, str(path))) from error


def _copy_directory(file: ReadableFile, to: int) -> None:
    """Write the end of a zip, with its central directory, into a sparse file of the zip's size."""
    size = file.size()
    os.ftruncate(to, size)
    start = max(0, size - _TAIL_BYTES)
    tail = file.read(start, size - start)
    os.pwrite(to, tail, start)
    end = tail.rfind(b"PK\5\6")
    if end < 0 or end + _END.size > len(tail):
        return  # no zip: the directory reader reports it
    directory_bytes, directory_at = _END.unpack_from(tail, end)
    begin = min(start + end - directory_bytes, directory_at)
    place = tail.rfind(b"PK\6\6", 0, end)
    if place >= 0 and place + _END_64.size <= len(tail):  # more members, or a larger zip, than 32 bits can count
        directory_bytes, directory_at = _END_64.unpack_from(tail, place)
        begin = min(start + place - directory_bytes, directory_at)
    if 0 <= begin < start:
        os.pwrite(to, file.read(begin, start - begin), begin)


def _are_folders(names: StringColumn) -> npt.NDArray[np.bool_]:
    """Return a mask of the names that end in a slash, as folders do."""
    found = np.zeros(len(names), np.bool_)
    named = np.flatnonzero(names.lengths() > 0)
    found[named] = names.blob[names.offsets.view(np.int64)[1:][named] - 1] == ord("/")
    return found


ZIP = ArchiveKind(
    word="zip",
    listed_by="unzip -l",
    format="headrace zip index 3",
    build=lambda path: build_zip_index(path),
    members=ZipMembers,
)
