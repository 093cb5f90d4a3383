"""Base of IndexedTar and IndexedZip: random access to an archive's members, with O(1) lookup by name."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, BinaryIO, Generic, NamedTuple, Self, TypeVar

from headrace.data import (
    FileIdentity,
    OpenFile,
    TarMember,
    TarMembers,
    ZipMember,
    ZipMembers,
    identify,
    sidecar_places,
)
from headrace.errors import ChangedError, DatasetError, MissingMemberError, NotFoundError, UsageError
from headrace.foreign_arguments import KnownArguments

PathArgument = str | os.PathLike[str]


M = TypeVar("M", TarMember, ZipMember)


class OpenArchive(NamedTuple):
    """File and index of an archive that this process has open."""

    file: OpenFile
    members: Any
    """Index of the archive: TarMembers or ZipMembers."""


class IndexedArchive(KnownArguments, ABC, Generic[M]):
    """Read-only archive that threads and forked processes share, and spawned processes through pickling.

    Reads pass an explicit offset, so readers share no file position. An unpickled copy reopens the file on first use
    and raises ChangedError if the file was replaced.
    """

    def __init__(self, path: PathArgument, *, cache: PathArgument | None) -> None:
        self._path = _absolute(path)
        self._cache = None if cache is None else _absolute(cache)
        self._identity: FileIdentity | None = None
        self._closed = False
        self._opened: OpenArchive | None = None
        self._open()

    @abstractmethod
    def _load(self, identity: FileIdentity) -> TarMembers | ZipMembers:
        """Load the index of the archive."""

    @abstractmethod
    def _read(self, opened: OpenArchive, member: M) -> bytes:
        """Read all bytes of a member and verify them."""

    @abstractmethod
    def extractfile(self, name: str | M) -> BinaryIO | None:
        """Return a seekable file with its own position; None if the member is not a file, e.g. a folder."""

    @property
    def name(self) -> str:
        """Absolute path of the archive."""
        return self._path

    def read(self, name: str | M) -> bytes:
        """Return all bytes of a member, given by name or as a result of `getmember`.

        Raises MissingMemberError (a KeyError), another MemberError, ChangedError (the archive was replaced or truncated
        since it was opened) or ReadError.
        """
        opened = self._open()
        return self._read(opened, self._member(opened, name))

    def getmember(self, name: str) -> M:
        """Return the last member of that name. Raises MissingMemberError."""
        return self._member(self._open(), name)

    def getmembers(self) -> list[M]:
        """Return all members in the archive's order, including all entries of a repeated name."""
        return list(self)

    def getnames(self) -> list[str]:
        """Return the names of `getmembers()`."""
        return list(self._open().members.names.strings)

    def __iter__(self) -> Iterator[M]:
        members = self._open().members
        return map(members.member, range(len(members)))

    def __len__(self) -> int:
        return len(self._open().members)

    def __contains__(self, name: object) -> bool:
        """Return True if the archive has a member of that name."""
        if not isinstance(name, str):
            raise UsageError(f"{self._path}: expected a member's name, got {name!r}. Pass member.name")
        return self._open().members.find(name) is not None

    def close(self) -> None:
        """Close the archive. Its file stays open until reads in progress and open members are done."""
        self._closed = True
        self._opened = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def __repr__(self) -> str:
        if self._opened is None:
            return f"{type(self).__name__}({self._path!r}, {'closed' if self._closed else 'not open in this process'})"
        return f"{type(self).__name__}({self._path!r}, {len(self._opened.members):,} members)"

    def _open(self) -> OpenArchive:
        opened = self._opened
        if opened is not None:
            return opened
        if self._closed:
            raise UsageError(f"{self._path} is closed. Open it again, or close it later")
        if not os.path.exists(self._path):
            raise NotFoundError(f"{self._path}: expected an archive, got nothing. Check the path")
        if not os.path.isfile(self._path):
            kind = "a folder" if os.path.isdir(self._path) else "a special file"
            raise DatasetError(f"{self._path}: expected an archive, got {kind}")
        file = OpenFile(os.fsencode(self._path))
        identity = identify(file)
        if self._identity is not None and identity != self._identity:
            raise ChangedError(
                f"{self._path}: it is not the file that was opened and then passed to this process: it has been "
                f"replaced. Open it again"
            )
        # No lock: a fork could inherit it locked forever. If two threads open at once, one result is discarded.
        opened = OpenArchive(file, self._load(identity))
        self._identity = identity
        self._opened = opened
        return opened

    def _member(self, opened: OpenArchive, name: str | M) -> M:
        members = opened.members
        if isinstance(name, str):
            number = members.find(name)
            if number is None:
                raise MissingMemberError(f"{self._path}: filename {name!r} not found{_hint(members, name)}")
            found: M = members.member(number)
            return found
        number = getattr(name, "number", -1)
        if not 0 <= number < len(members) or members.member(number) != name:
            raise UsageError(f"{self._path}: expected a name or a member of this archive, got {name!r}")
        return name

    def _has_changed(self, opened: OpenArchive) -> bool:
        """Return True if the open file has changed since it was opened."""
        return identify(opened.file) != self._identity

    def _index_to_delete(self) -> str:
        """Return advice for a stale index of an archive with an unchanged identity.

        The archive was rewritten in a part that the identity does not sample, so reopening would find the same index.
        """
        assert self._identity is not None
        places = sidecar_places(self._path, self._identity, self._cache)
        found = " and ".join(place for place in places if os.path.exists(place))
        return f"delete its index ({found}) and open it again" if found else "open it again"


def _absolute(path: PathArgument) -> str:
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"expected a path, got {path!r}")
    return os.path.abspath(os.path.expanduser(os.fsdecode(path)))


def _hint(members: TarMembers | ZipMembers, name: str) -> str:
    """Suggest a name with a few lookups only: callers may probe for missing names routinely."""
    if not len(members):
        return ": it holds no members"
    first = members.names[0]
    folder = first.partition("/")[0]
    inner = name.lstrip("/").replace("\\", "/")
    stem, dot, extension = inner.rpartition(".")
    recased = (stem + dot + other for other in (extension.lower(), extension.upper()) if dot)
    for guess in (inner, inner.partition("/")[2], f"{folder}/{inner}", inner.lower(), *recased):
        if guess and members.find(guess) is not None:
            return f". Did you mean {guess!r}?"
    return f" among {len(members):,} members, of which the first is {first!r}"
