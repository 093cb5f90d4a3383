"""Every member of one tar: its name, kind and place, found by name in O(1)."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.data import checked
from headrace.data.names import END, NameTable
from headrace.data.storage.safetensors import Arrays, InvalidFileError
from headrace.data.strings import StringColumn
from headrace.data.tar_member import HARD_LINK, SYMBOLIC_LINK, TarMember

_HEADER_BYTES = 512
_LINKS = HARD_LINK + SYMBOLIC_LINK
_IN_ONE_PIECE = [ord("0"), ord("7")]
"""Types of regular files that are not sparse."""
MAX_LINKS = 40
"""Links that lead from one to the next before they count as a circle, as Linux has it."""
_TYPES = tuple(bytes((flag,)) for flag in range(256))


@dataclass(frozen=True, eq=False)
class TarMembers:
    """An entry a member in each array, in the order of the tar."""

    names: NameTable
    type: npt.NDArray[np.uint8]
    offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    check: npt.NDArray[np.uint32]
    """Identity of the header block before the data."""
    links: StringColumn
    """Targets of the links alone."""
    link_of: npt.NDArray[np.int64]
    """The member that each of `links` belongs to, rising."""
    _views: tuple[memoryview, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Single entries come out of a memoryview three times as fast as out of an array.
        views = (self.type.data, self.offset.data, self.size.data, self.check.data)
        object.__setattr__(self, "_views", views)

    def __reduce__(self) -> tuple[Any, ...]:
        return TarMembers, (self.names, self.type, self.offset, self.size, self.check, self.links, self.link_of)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def first_name(self) -> str | None:
        return self.names[0] if len(self) else None

    def member(self, number: int) -> TarMember:
        types, offsets, sizes, _ = self._views
        kind = types[number]
        link = self._link(number) if kind in _LINKS else ""
        return TarMember(self.names[number], sizes[number], offsets[number], _TYPES[kind], link, number)

    def header_check(self, number: int) -> int:
        check: int = self._views[3][number]
        return check

    def find(self, name: str, before: int = END) -> int | None:
        """The last member of that name (ahead of `before`), as `tarfile` takes it; where there is no "a", "./a" is
        meant, and the other way round."""
        at = self.names.find(name, before)
        if at is not None:
            return at
        bare = name = name.rstrip("/")
        while bare.startswith("./"):
            bare = bare[2:]
        return self.names.find_any((name, bare, f"./{bare}"), before)

    def find_target(self, member: TarMember) -> int | None:
        """The member that a link names, as `tarfile` takes it: a symbolic one relative to its own folder and anywhere
        in the tar, a hard one ahead of itself."""
        if member.islnk():
            return self.find(posixpath.normpath(member.linkname), member.number)
        folder = posixpath.dirname(member.name)
        return self.find(posixpath.normpath(f"{folder}/{member.linkname}" if folder else member.linkname))

    def find_files(self, paths: StringColumn, which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The position of the regular file that each of the paths numbered `which` leads to, through links as well; -1
        where there is none, or one that is sparse. A leading "./" makes no difference."""
        found = self.names.find_paths(paths, which)
        there = np.flatnonzero(found >= 0)
        for at in there[~np.isin(self.type[found[there]], _IN_ONE_PIECE)].tolist():
            found[at] = self._linked_file(int(found[at]))
        return found

    def _linked_file(self, number: int) -> int:
        for _ in range(MAX_LINKS):
            member = self.member(number)
            if member.type[0] in _IN_ONE_PIECE:
                return number
            target = self.find_target(member) if member.type in _LINKS else None
            if target is None:
                break
            number = target
        return -1

    def _link(self, number: int) -> str:
        at = int(np.searchsorted(self.link_of, number))
        return self.links[at] if at < len(self.link_of) and self.link_of[at] == number else ""

    def to_arrays(self) -> Arrays:
        return {
            **self.names.to_arrays(),
            "members.type": self.type,
            "members.offset": self.offset,
            "members.size": self.size,
            "members.check": self.check,
            "links.blob": self.links.blob,
            "links.offsets": self.links.offsets,
            "links.of": self.link_of,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, tar_bytes: int) -> TarMembers:
        """The inverse of `to_arrays`, from untrusted input: raises InvalidFileError unless all fits `tar_bytes`."""
        names = NameTable.from_arrays(arrays)
        count = len(names)
        offset = checked.array(arrays, "members.offset", np.int64, count)
        size = checked.array(arrays, "members.size", np.int64, count)
        if not checked.ranges_lie_in(offset, size, first=_HEADER_BYTES, end=tar_bytes):
            raise InvalidFileError("a member lies outside the tar")
        link_of = checked.indices(arrays, "links.of", count)
        return cls(
            names,
            checked.array(arrays, "members.type", np.uint8, count),
            offset,
            size,
            checked.array(arrays, "members.check", np.uint32, count),
            checked.strings(arrays, "links", len(link_of)),
            link_of,
        )
