"""`IndexedZip`: replacement for `zipfile.ZipFile` with random access for a Dataset."""

from __future__ import annotations

import io
from typing import BinaryIO

from headrace.data import ZIP, DamagedEntryError, FileIdentity, ZipEntry, ZipMember, ZipMembers, read_entry, refusal
from headrace.dropins.indexed_archive import IndexedArchive, OpenArchive, PathArgument
from headrace.errors import ChangedError, DamagedMemberError, MemberLimitError, UnsupportedMemberError, UsageError


class IndexedZip(IndexedArchive[ZipMember]):
    """Zip archive with O(1) lookup by name and random access, under the method names of `zipfile`.

    The first open parses the central directory and writes an index, `NAME.zip.headrace`, next to the zip. If the zip's
    folder is not writable, the index goes to the cache folder (`cache`, else the default). Later opens map the index.
    Any number of threads and of forked or spawned processes may read concurrently.

    Each read checks the member's local header and CRC. `max_member_bytes` bounds the size that a member may declare,
    compressed or not, and no more than that is ever inflated. Overlapping members, as in zip bombs, and encrypted
    members are rejected. Supports stored, deflated, bzip2 and LZMA members.

    Raises NotFoundError, ReadError, or DatasetError (corrupt, not a zip).
    """

    def __init__(
        self, path: PathArgument, *, cache: PathArgument | None = None, max_member_bytes: int = 1 << 30
    ) -> None:
        if type(max_member_bytes) is not int or max_member_bytes < 1:
            raise UsageError(f"max_member_bytes: expected an int of 1 or more, got {max_member_bytes!r}")
        self._max_member_bytes = max_member_bytes
        super().__init__(path, cache=cache)

    def extractfile(self, name: str | ZipMember) -> BinaryIO | None:
        """Read and check the member and return its bytes as a seekable file; None for folders."""
        opened = self._open()
        member = self._member(opened, name)
        return None if member.is_dir() else io.BytesIO(self._read(opened, member))

    def open(self, name: str | ZipMember, mode: str = "r") -> BinaryIO:
        """Open a member like `zipfile` does: as `extractfile`, but with an empty file for a folder."""
        if mode != "r":
            raise UsageError(f"{self._path}: expected mode 'r', as nothing is written here, got {mode!r}")
        return io.BytesIO(self.read(name))

    def namelist(self) -> list[str]:
        """Return `getnames()`, under `zipfile`'s name."""
        return self.getnames()

    def infolist(self) -> list[ZipMember]:
        """Return `getmembers()`, under `zipfile`'s name."""
        return self.getmembers()

    def getinfo(self, name: str) -> ZipMember:
        """Return `getmember(name)`, under `zipfile`'s name."""
        return self.getmember(name)

    def _load(self, identity: FileIdentity) -> ZipMembers:
        return ZIP.open_members(self._path, identity, cache=self._cache)

    def _read(self, opened: OpenArchive, member: ZipMember) -> bytes:
        entry: ZipEntry = opened.members.entry(member.number)
        why = refusal(entry)
        if why is not None:
            raise UnsupportedMemberError(f"{self._path}: member {member.name!r} {why}")
        largest = max(entry.size, entry.packed)
        if largest > self._max_member_bytes:
            raise MemberLimitError(
                f"{self._path}: member {member.name!r} has {largest:,} bytes, more than max_member_bytes = "
                f"{self._max_member_bytes:,}. Raise the limit if you trust the file"
            )
        try:
            return read_entry(opened.file, entry)
        except DamagedEntryError as error:
            place = f"{self._path} at byte {member.header_offset}: member {member.name!r}: {error}"
            if self._has_changed(opened):
                raise ChangedError(f"{place}: the file has changed since it was opened. Open it again") from error
            raise DamagedMemberError(
                f"{place}. Check it with `unzip -t`, and copy or write it again; where that finds nothing, "
                f"{self._index_to_delete()}"
            ) from error
