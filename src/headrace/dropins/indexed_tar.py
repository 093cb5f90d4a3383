"""`IndexedTar`: replacement for `tarfile.TarFile` with random access for a Dataset."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import BinaryIO

from headrace.data import MAX_LINKS, TAR, FileIdentity, TarMember, TarMembers, read_member, refuse_compressed
from headrace.dropins.indexed_archive import IndexedArchive, OpenArchive, PathArgument
from headrace.errors import ChangedError, MemberError, MissingMemberError, UnsupportedMemberError

_BUFFER_BYTES = 1 << 16


class IndexedTar(IndexedArchive[TarMember]):
    """Tar archive with O(1) lookup by name and random access, under the method names of `tarfile`.

    The first open scans the headers and writes an index, `NAME.tar.headrace`, next to the tar. If the tar's folder is
    not writable, the index goes to the cache folder (`cache`, else the default). Later opens map the index without a
    scan. Any number of threads and of forked or spawned processes may read concurrently. Each read checks the member's
    header, so a tar that is replaced or truncated while in use raises ChangedError.

    The last of several members with one name counts, as in `tarfile`. Links are followed inside the tar. "./a" and "a"
    name the same member unless both exist. Compressed tars are rejected.

    Raises NotFoundError, ReadError, or DatasetError (compressed, corrupt, not a tar).
    """

    def __init__(self, path: PathArgument, *, cache: PathArgument | None = None) -> None:
        super().__init__(path, cache=cache)

    def extractfile(self, name: str | TarMember) -> BinaryIO | None:
        """Return the member as a seekable binary file with its own position; None for folders and devices.

        The file reads on demand, not the whole member at once. Raises the errors of `read`.
        """
        opened = self._open()
        member = self._target(opened, self._member(opened, name))
        if member.isdir() or member.isdev():
            return None
        return io.BufferedReader(_MemberFile(member, partial(self._read_range, opened, member)), _BUFFER_BYTES)

    def _load(self, identity: FileIdentity) -> TarMembers:
        refuse_compressed(self._path)
        return TAR.open_members(self._path, identity, cache=self._cache)

    def _read(self, opened: OpenArchive, member: TarMember) -> bytes:
        target = self._target(opened, member)
        if target.isdir() or target.isdev():
            kind = "a folder" if target.isdir() else "a device"
            raise MemberError(f"{self._path}: expected a file, got {kind}: member {member.name!r}")
        return self._read_range(opened, target, 0, target.size)

    def _read_range(self, opened: OpenArchive, member: TarMember, start: int, length: int) -> bytes:
        check = opened.members.header_check(member.number)
        try:
            return read_member(opened.file, member.offset_data, length, check, skip=start)
        except ChangedError as error:
            if self._has_changed(opened):
                raise
            raise ChangedError(
                f"{self._path} at byte {member.offset_data}: expected the header of member {member.name!r}, got "
                f"another: the tar has been rewritten at the same size; {self._index_to_delete()}"
            ) from error

    def _target(self, opened: OpenArchive, member: TarMember) -> TarMember:
        """Resolve a member's links; return the member itself if it is not a link."""
        target = member
        for _ in range(MAX_LINKS):
            if target.issparse():
                raise UnsupportedMemberError(
                    f"{self._path}: member {target.name!r} is a sparse file, whose bytes do not lie in one piece. "
                    f"Pack it again without --sparse"
                )
            if not (target.issym() or target.islnk()):
                return target
            number = opened.members.find_target(target)
            if number is None:
                raise MissingMemberError(
                    f"{self._path}: linkname {target.linkname!r} of member {target.name!r} not found in the tar"
                )
            target = opened.members.member(number)
        raise MemberError(f"{self._path}: member {member.name!r} is a link that leads in a circle")


class _MemberFile(io.RawIOBase):
    """Raw file over a member's bytes in the tar, with its own position."""

    def __init__(self, member: TarMember, read_range: Callable[[int, int], bytes]) -> None:
        self._member = member
        self._read_range = read_range
        self._at = 0
        self.name = member.name
        self.mode = "rb"

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._member.size}[whence]
        if start + offset < 0:
            raise ValueError(f"expected a position of 0 or more, got {start + offset}")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # BufferedReader hands a memoryview
        data = self._take(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self._take(self._member.size)

    def _take(self, length: int) -> bytes:
        data = self._read_range(self._at, max(0, min(length, self._member.size - self._at)))
        self._at += len(data)
        return data
