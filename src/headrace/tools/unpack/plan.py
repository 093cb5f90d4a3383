"""Which member is made where, and which is refused. Pure: nothing here looks at a disk."""

from __future__ import annotations

import stat
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import NamedTuple, Protocol

from headrace.data.archives.archive_members import NameTable
from headrace.data.storage.strings import StringColumn

# -- from unpack/members.py: What unpacking knows of a member, whatever archive it comes from.


Piece = tuple[int, memoryview]
"""A position in a file, and the bytes there, which are valid until the next piece is asked for. What no piece covers
is a hole."""

PIECE_BYTES = 1 << 17
"""Copied at once: it stays in the processor's cache. A megabyte took up to twice as long (benchmarks/unpack.py)."""


class MemberKind(Enum):
    FILE = "file"
    FOLDER = "folder"
    SYMBOLIC_LINK = "symbolic link"
    HARD_LINK = "hard link"
    SPECIAL = "special file"
    LABEL = "label"
    """A name of the archive itself, of which nothing is made."""


class UnpackMember(NamedTuple):
    """What is known without a look at its bytes."""

    name: str
    kind: MemberKind
    size: int
    """Bytes of the file; 0 for all else."""
    link: str
    """What a link names; empty for all else."""


class MemberAttributes(NamedTuple):
    mode: int | None
    """Permission bits as the archive has them; None: it has none."""
    mtime_ns: int


class UnpackArchive(Protocol):
    """An archive whose members are found by number, in any order, by any number of threads."""

    path: str

    def __len__(self) -> int: ...

    def member(self, number: int) -> UnpackMember: ...

    def attributes(self, number: int) -> MemberAttributes:
        """Raises ReadError, ChangedError or DamagedMemberError."""

    def pieces(self, number: int) -> Iterator[Piece]:
        """The bytes of a file, checked as far as the archive tells how. Raises as `attributes` does, and
        UnsupportedMemberError."""


class StreamedMember(NamedTuple):
    """A member of an archive that is read from its beginning to its end, once."""

    member: UnpackMember
    attributes: MemberAttributes
    pieces: Iterator[Piece]
    """To be taken before the next member is asked for, or not at all."""


# -- from unpack/member_paths.py: Where a member of an archive may be made below the target, and as what. Pure:
# nothing here looks at a disk.
#
# The rules are those of tarfile's "data" filter (PEP 706, with its later fixes), but for `..`, which no name may
# hold.


STAGING = b".headrace-unpack"
"""A folder of ours in the target, where a file waits for its name if it cannot be without one."""

_NAME_MOST_BYTES = 255
"""Of one component, in every file system that Linux writes but for a few older ones."""
_PATH_MOST_BYTES = 4095
"""Of a whole name, and of what a symbolic link holds (PATH_MAX, less its end)."""


class RefusedError(Exception):
    """A member must not be made; the text says why."""


def checked_path(member: UnpackMember) -> bytes:
    """Where `member` is made. Raises RefusedError if it must not be, for what it is or for what it links to."""
    path = member_path(member.name)
    if not path and member.kind is not MemberKind.FOLDER:
        raise RefusedError("it has no name")
    if member.kind is MemberKind.SPECIAL:
        raise RefusedError("it is neither a file nor a folder nor a link")
    if member.kind is MemberKind.SYMBOLIC_LINK:
        link_target(path, member.link)
    if member.kind is MemberKind.HARD_LINK:
        hard_link_target(member.link)
    return path


def member_path(name: str) -> bytes:
    """`name` relative to the target, without empty and `.` components; empty for the target itself.

    Leading slashes are dropped, as tar does. Raises RefusedError.
    """
    if "\0" in name:
        raise RefusedError("its name holds a zero byte")
    parts = [part for part in encode(name).split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise RefusedError("its name holds '..'")
    if parts and parts[0] == STAGING:
        raise RefusedError(f"its name begins with {STAGING.decode()!r}, which is kept for unpacking")
    path = b"/".join(parts)
    if len(path) > _PATH_MOST_BYTES:
        raise RefusedError(f"its name is longer than {_PATH_MOST_BYTES} bytes")
    if len(path) > _NAME_MOST_BYTES and max(map(len, parts)) > _NAME_MOST_BYTES:
        raise RefusedError(f"a part of its name is longer than {_NAME_MOST_BYTES} bytes")
    return path


def link_target(path: bytes, link: str) -> bytes:
    """What the symbolic link at `path` may hold: `link` with every `..` at its start. Raises RefusedError.

    A `..` behind a name would lead to wherever that name leads, if it is a link itself, and from there up.
    """
    if not link or "\0" in link:
        raise RefusedError("it is a link that names nothing")
    if link.startswith("/"):
        raise RefusedError(f"it is a link to an absolute path, {link!r}")
    target = _normal(encode(link))
    if target.split(b"/").count(b"..") > path.count(b"/"):
        raise RefusedError(f"it is a link that leads out of the target, {link!r}")
    if len(target) > _PATH_MOST_BYTES:
        raise RefusedError(f"it is a link to a path longer than {_PATH_MOST_BYTES} bytes")
    return target


def hard_link_target(link: str) -> str:
    """The path that a hard link names. Raises RefusedError."""
    if link.startswith("/"):
        raise RefusedError(f"it is a hard link to an absolute path, {link!r}")
    try:
        return decode(member_path(link))
    except RefusedError:
        raise RefusedError(f"it is a hard link to {link!r}, which no member can be") from None


def file_mode(mode: int) -> int:
    """The permissions that a file gets: its owner may read and write it, others may not write it, nobody may execute
    it unless its owner may, and it is neither setuid nor setgid nor sticky."""
    mode = mode & ~(stat.S_IWGRP | stat.S_IWOTH) & 0o777
    if not mode & stat.S_IXUSR:
        mode &= ~(stat.S_IXGRP | stat.S_IXOTH)
    return mode | stat.S_IRUSR | stat.S_IWUSR


def encode(name: str) -> bytes:
    """The bytes of a name as the archive has it. Those that are not UTF-8 are surrogate escapes."""
    return name.encode("utf-8", "surrogateescape")


def decode(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _normal(target: bytes) -> bytes:
    parts: list[bytes] = []
    for part in target.split(b"/"):
        if part == b".." and parts and parts[-1] != b"..":
            parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    return b"/".join(parts) or b"."


# -- from unpack/plan.py: What an archive whose members are all known makes of a folder, decided before anything is
# written. Pure.


_LINKS_AT_MOST = 40
"""Hard links that lead from one to the next before they count as a circle."""
_NOWHERE = b"\0"
"""In place of the path of a member that is refused, or of which nothing is made: no path holds a zero byte."""
_KINDS = tuple(MemberKind)
_WORDS = {MemberKind.FILE: "a file", MemberKind.SYMBOLIC_LINK: "a symbolic link", MemberKind.HARD_LINK: "a hard link"}


class Refusal(NamedTuple):
    name: str
    why: str


class PlannedLink(NamedTuple):
    path: bytes
    target: bytes
    """What a symbolic link holds; for a hard link the path of the file that it is another name of."""
    number: int


@dataclass(frozen=True)
class UnpackPlan:
    """Paths are relative to the target. Each is made once: of members with one path the last counts, as with tar."""

    paths: NameTable
    """By the member's number; those that are refused, or labels, have none that could be found."""
    sizes: array[int]
    """Bytes, by the member's number."""
    files: array[int] = field(default_factory=lambda: array("q"))
    """Numbers of members, in the order of the archive."""
    copies: list[tuple[bytes, int]] = field(default_factory=list)
    """Hard links to a file that a later member replaces: a path, and the member whose bytes it gets."""
    folders: list[int] = field(default_factory=list)
    symbolic_links: list[PlannedLink] = field(default_factory=list)
    hard_links: list[PlannedLink] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Names whose path a later member makes."""
    refused: list[Refusal] = field(default_factory=list)

    def path(self, number: int) -> bytes:
        return encode(self.paths[number])

    @property
    def total_bytes(self) -> int:
        """Of all files."""
        return sum(self.sizes[number] for number in chain(self.files, (number for _, number in self.copies)))


def make_plan(count: int, member: Callable[[int], UnpackMember]) -> UnpackPlan:
    """`member` gives each of `count` members by its number."""
    return _Planner(count, member).plan


class _Planner:
    def __init__(self, count: int, member: Callable[[int], UnpackMember]) -> None:
        self._member = member
        self._obstacles: dict[str, str | None] = {"": None}
        paths, kinds, sizes, refused = _look_through(count, member)
        self.plan = UnpackPlan(NameTable.build(StringColumn.from_list(paths)), sizes, refused=refused)
        del paths  # an object each, as the table has none
        for number in range(count):
            path = self.plan.paths[number]
            if path != _NOWHERE.decode():
                self._add(number, path, _KINDS[kinds[number]])

    def _add(self, number: int, path: str, kind: MemberKind) -> None:
        plan = self.plan
        if not self._counts(number, path):
            plan.replaced.append(self._member(number).name)
            return
        try:
            self._expect_no_obstacle(path)
            match kind:
                case MemberKind.FILE:
                    plan.files.append(number)
                case MemberKind.FOLDER:
                    plan.folders.append(number)
                case MemberKind.SYMBOLIC_LINK:
                    target = link_target(encode(path), self._member(number).link)
                    plan.symbolic_links.append(PlannedLink(encode(path), target, number))
                case MemberKind.HARD_LINK:
                    self._add_hard_link(number, path, self._member(number))
        except RefusedError as error:
            plan.refused.append(Refusal(self._member(number).name, str(error)))

    def _add_hard_link(self, number: int, path: str, member: UnpackMember) -> None:
        """As what it leads to: another name of a file, a copy of one that will not be there, or a symbolic link."""
        plan = self.plan
        at = self._find_target(number, member)
        found, there = self._member(at), plan.paths[at]
        if found.kind is MemberKind.SYMBOLIC_LINK:
            # Moved to another folder its target may lie outside, so it is checked again.
            plan.symbolic_links.append(PlannedLink(encode(path), link_target(encode(path), found.link), at))
        elif self._counts(at, there):
            self._expect_no_obstacle(there)
            plan.hard_links.append(PlannedLink(encode(path), encode(there), number))
        else:
            plan.copies.append((encode(path), at))

    def _find_target(self, number: int, member: UnpackMember) -> int:
        """The member that a hard link leads to, which is none itself. Raises RefusedError."""
        at = number
        for _ in range(_LINKS_AT_MOST):
            link = member.link
            found = self.plan.paths.find(hard_link_target(link), before=at)
            if found is None:
                raise RefusedError(f"it is a hard link to {link!r}, which is not ahead of it in the archive")
            at, member = found, self._member(found)
            if member.kind is MemberKind.FOLDER:
                raise RefusedError(f"it is a hard link to {link!r}, a folder")
            if member.kind is not MemberKind.HARD_LINK:
                return at
        raise RefusedError("it is a hard link that leads through too many others")

    def _counts(self, number: int, path: str) -> bool:
        return self.plan.paths.find(path) == number

    def _expect_no_obstacle(self, path: str) -> None:
        """Raises RefusedError if what must be a folder is made as something else."""
        obstacle = self._obstacle(path.rpartition("/")[0])
        if obstacle is not None:
            raise RefusedError(obstacle)

    def _obstacle(self, folder: str) -> str | None:
        """Why nothing can be made in `folder`; None: nothing is in the way."""
        todo = []
        while folder not in self._obstacles:
            todo.append(folder)
            folder = folder.rpartition("/")[0]
        obstacle = self._obstacles[folder]
        for folder in reversed(todo):
            if obstacle is None:
                obstacle = self._is_no_folder(folder)
            self._obstacles[folder] = obstacle
        return obstacle

    def _is_no_folder(self, path: str) -> str | None:
        at = self.plan.paths.find(path)
        kind = MemberKind.FOLDER if at is None else self._member(at).kind
        return None if kind is MemberKind.FOLDER else f"it lies below {path!r}, which is {_WORDS[kind]} in the archive"


def _look_through(
    count: int, member: Callable[[int], UnpackMember]
) -> tuple[list[bytes], bytearray, array[int], list[Refusal]]:
    """Each member's path, kind (into `_KINDS`) and size, and what is refused for what it is by itself."""
    paths, kinds, sizes, refused = [], bytearray(), array("q"), []
    for number in range(count):
        one = member(number)
        kinds.append(_KINDS.index(one.kind))
        sizes.append(one.size)
        if one.kind is MemberKind.LABEL:
            paths.append(_NOWHERE)
            continue
        try:
            paths.append(checked_path(one))
        except RefusedError as error:
            refused.append(Refusal(one.name, str(error)))
            paths.append(_NOWHERE)
    return paths, kinds, sizes, refused
