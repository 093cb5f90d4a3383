"""One member of a tar, as the index has it."""

from __future__ import annotations

from typing import NamedTuple

# Type flags of POSIX ustar, and GNU's for sparse files.
_FILE, HARD_LINK, SYMBOLIC_LINK, _CHARACTER_DEVICE = b"0", b"1", b"2", b"3"
_BLOCK_DEVICE, _FOLDER, _FIFO, _CONTIGUOUS_FILE = b"4", b"5", b"6", b"7"
_SPARSE_FILE = b"S"
_REGULAR = (_FILE, _CONTIGUOUS_FILE, _SPARSE_FILE)


class TarMember(NamedTuple):
    """What the index knows of a member, under the names that `tarfile.TarInfo` has for it."""

    name: str
    size: int
    """Bytes of data; 0 for links, folders and devices."""
    offset_data: int
    """First byte of its data in the tar."""
    type: bytes
    """As `tarfile.REGTYPE`, `DIRTYPE`, …; sparse files of any form are `GNUTYPE_SPARSE`."""
    linkname: str
    """What a link names; empty for all else."""
    number: int
    """Its position among the members of the tar."""

    @property
    def path(self) -> str:
        return self.name

    @property
    def linkpath(self) -> str:
        return self.linkname

    def isreg(self) -> bool:
        return self.type in _REGULAR

    def isfile(self) -> bool:
        return self.isreg()

    def isdir(self) -> bool:
        return self.type == _FOLDER

    def issym(self) -> bool:
        return self.type == SYMBOLIC_LINK

    def islnk(self) -> bool:
        return self.type == HARD_LINK

    def ischr(self) -> bool:
        return self.type == _CHARACTER_DEVICE

    def isblk(self) -> bool:
        return self.type == _BLOCK_DEVICE

    def isfifo(self) -> bool:
        return self.type == _FIFO

    def isdev(self) -> bool:
        return self.ischr() or self.isblk() or self.isfifo()

    def issparse(self) -> bool:
        return self.type == _SPARSE_FILE
