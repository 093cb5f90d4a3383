"""What unpacking knows of a member, whatever archive it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, Protocol

Piece = tuple[int, memoryview]
"""A position in a file, and the bytes there, which are valid until the next piece is asked for. What no piece covers
is a hole."""

PIECE_BYTES = 1 << 17
"""Copied at once: it stays in the processor's cache. A megabyte took up to twice as long (benchmarks/unpack.py)."""


class Kind(Enum):
    FILE = "file"
    FOLDER = "folder"
    SYMBOLIC_LINK = "symbolic link"
    HARD_LINK = "hard link"
    SPECIAL = "special file"
    LABEL = "label"
    """A name of the archive itself, of which nothing is made."""


class Member(NamedTuple):
    """What is known without a look at its bytes."""

    name: str
    kind: Kind
    size: int
    """Bytes of the file; 0 for all else."""
    link: str
    """What a link names; empty for all else."""


class Attributes(NamedTuple):
    mode: int | None
    """Permission bits as the archive has them; None: it has none."""
    mtime_ns: int


class IndexedArchive(Protocol):
    """An archive whose members are found by number, in any order, by any number of threads."""

    path: str

    def __len__(self) -> int: ...

    def member(self, number: int) -> Member: ...

    def attributes(self, number: int) -> Attributes:
        """Raises ReadError, ChangedError or DamagedMemberError."""

    def pieces(self, number: int) -> Iterator[Piece]:
        """The bytes of a file, checked as far as the archive tells how. Raises as `attributes` does, and
        UnsupportedMemberError."""


class StreamedMember(NamedTuple):
    """A member of an archive that is read from its beginning to its end, once."""

    member: Member
    attributes: Attributes
    pieces: Iterator[Piece]
    """To be taken before the next member is asked for, or not at all."""
