"""Plan of the paths to create from an archive's members, and of refused members. Pure: it accesses no disk.

The rules are those of tarfile's "data" filter (PEP 706, with its later fixes), except that no name may contain `..`.
"""

from __future__ import annotations

import stat
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import NamedTuple

STAGING = b".headrace-unpack"
"""Staging folder in the target, for files that cannot be unnamed while they are written."""
PIECE_BYTES = 1 << 17
"""Bytes per copy, small enough for the CPU cache. A megabyte took up to twice as long (benchmarks/unpack.py)."""
_NAME_MOST_BYTES = 255
"""Longest path component of file systems that Linux writes, except a few older ones."""
_PATH_MOST_BYTES = 4095
"""Longest path and longest symbolic link target (PATH_MAX without the terminating zero)."""

Piece = tuple[int, memoryview]
"""Position in a file and its bytes, valid until the next piece is requested. Ranges without a piece are holes."""


class MemberKind(Enum):
    FILE = "a file"
    FOLDER = "a folder"
    SYMBOLIC_LINK = "a symbolic link"
    HARD_LINK = "a hard link"
    SPECIAL = "a special file"
    LABEL = "a label"
    """Name of the archive itself; creates nothing."""


class UnpackMember(NamedTuple):
    """Metadata of a member, known without its bytes."""

    name: str
    kind: MemberKind
    size: int
    """Bytes of a file; 0 for other kinds."""
    link: str
    """Target of a link; empty for other kinds."""


class MemberAttributes(NamedTuple):
    mode: int | None
    """Permission bits from the archive; None if it has none."""
    mtime_ns: int


class RefusedError(Exception):
    """Refusal to create a member; the text is the reason."""


class Refusal(NamedTuple):
    name: str
    why: str


class PlannedLink(NamedTuple):
    path: bytes
    target: bytes
    """Content of a symbolic link; for a hard link, the path of the linked file."""
    number: int


@dataclass
class UnpackPlan:
    """Plan of an archive, with paths relative to the target. The last of several members with one path counts."""

    paths: list[bytes | None] = field(default_factory=list)
    """Paths by member number; None for members that create nothing."""
    sizes: array[int] = field(default_factory=lambda: array("q"))
    """Sizes in bytes by member number."""
    files: array[int] = field(default_factory=lambda: array("q"))
    """Member numbers of files, in the order of the archive."""
    copies: list[tuple[bytes, int]] = field(default_factory=list)
    """Hard links to a file that a later member replaces, as copies: a path, and the member with its bytes."""
    folders: list[int] = field(default_factory=list)
    symbolic_links: list[PlannedLink] = field(default_factory=list)
    hard_links: list[PlannedLink] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Names of members with a later member at the same path."""
    refused: list[Refusal] = field(default_factory=list)

    def path(self, number: int) -> bytes:
        path = self.paths[number]
        assert path is not None
        return path

    def all_files(self) -> Iterator[tuple[bytes, int]]:
        """Yield path and member of every file to create: files in the archive's order, then copies."""
        return chain(((self.path(number), number) for number in self.files), self.copies)

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes[number] for _, number in self.all_files())


def make_plan(count: int, member: Callable[[int], UnpackMember]) -> UnpackPlan:
    """Plan an archive of `count` members, which `member` returns by number."""
    planner = _Planner(member)
    for number in range(count):
        planner.look_at(number)
    for number, path in enumerate(planner.plan.paths):
        if path is not None:
            planner.add(number, path)
    return planner.plan


class _Planner:
    def __init__(self, member: Callable[[int], UnpackMember]) -> None:
        self.plan = UnpackPlan()
        self._member = member
        self._kinds: list[MemberKind] = []
        self._last: dict[bytes, int] = {}
        """Last member seen at each path."""
        self._linked: dict[int, int | str] = {}
        """Member that each hard link resolves to, or the reason for its refusal."""
        self._clear = {b""}
        """Folders with no other kind of member at their path or above."""

    def look_at(self, number: int) -> None:
        """Record a member's path, kind and size, in the order of the archive."""
        one, path = self._member(number), None
        self._kinds.append(one.kind)
        self.plan.sizes.append(one.size)
        try:
            if one.kind is not MemberKind.LABEL:
                path = checked_path(one)
                if one.kind is MemberKind.HARD_LINK:
                    self._linked[number] = self._leads_to(one.link)
                self._last[path] = number
        except RefusedError as error:
            self.plan.refused.append(Refusal(one.name, str(error)))
        self.plan.paths.append(path)

    def add(self, number: int, path: bytes) -> None:
        """Add a member to the plan after all members have been recorded."""
        plan, kind = self.plan, self._kinds[number]
        if self._last[path] != number:
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
                    self._add_symbolic_link(path, number)
                case MemberKind.HARD_LINK:
                    self._add_hard_link(number, path)
        except RefusedError as error:
            plan.refused.append(Refusal(self._member(number).name, str(error)))

    def _add_symbolic_link(self, path: bytes, number: int) -> None:
        """Add a symbolic link. Its target is checked relative to `path`: from another folder it may lead outside."""
        target = link_target(path, self._member(number).link)
        self.plan.symbolic_links.append(PlannedLink(path, target, number))

    def _add_hard_link(self, number: int, path: bytes) -> None:
        """Add a hard link as a link to its file, a copy if that file is replaced later, or a symbolic link."""
        at = self._linked[number]
        if isinstance(at, str):
            raise RefusedError(at)
        there = self.plan.path(at)
        if self._kinds[at] is MemberKind.SYMBOLIC_LINK:
            self._add_symbolic_link(path, at)
        elif self._last[there] == at:
            self._expect_no_obstacle(there)
            self.plan.hard_links.append(PlannedLink(path, there, number))
        else:
            self.plan.copies.append((path, at))

    def _leads_to(self, link: str) -> int | str:
        """Return the earlier member that a hard link resolves to, or the reason for its refusal."""
        at = self._last.get(hard_link_target(link))
        if at is None:
            return f"it is a hard link to {link!r}, which is not ahead of it in the archive"
        if self._kinds[at] is MemberKind.FOLDER:
            return f"it is a hard link to {link!r}, a folder"
        return self._linked.get(at, at)

    def _expect_no_obstacle(self, path: bytes) -> None:
        """Raise RefusedError if a parent folder of the path is another kind of member."""
        folder, above, obstacle = path, [], None
        while (folder := folder.rpartition(b"/")[0]) not in self._clear:
            above.append(folder)
            at = self._last.get(folder)
            if at is not None and self._kinds[at] is not MemberKind.FOLDER:
                obstacle = f"it lies below {decode(folder)!r}, which is {self._kinds[at].value} in the archive"
        if obstacle is not None:
            raise RefusedError(obstacle)
        self._clear.update(above)


def checked_path(member: UnpackMember) -> bytes:
    """Return the path for `member`. Raises RefusedError if its kind, name or link is not allowed."""
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
    """Return `name` relative to the target, without empty and `.` components; empty for the target itself.

    Leading slashes are dropped, as in tar. Raises RefusedError.
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
    """Return the safe target of the symbolic link at `path`: `link` with every `..` at its start. Raises RefusedError.

    A `..` after a name would be resolved at that name's own target if the name is a link.
    """
    if not link or "\0" in link:
        raise RefusedError("it is a link that names nothing")
    if link.startswith("/"):
        raise RefusedError(f"it is a link to an absolute path, {link!r}")
    parts: list[bytes] = []
    for part in encode(link).split(b"/"):
        if part == b".." and parts and parts[-1] != b"..":
            parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    target = b"/".join(parts) or b"."
    if target.split(b"/").count(b"..") > path.count(b"/"):
        raise RefusedError(f"it is a link that leads out of the target, {link!r}")
    if len(target) > _PATH_MOST_BYTES:
        raise RefusedError(f"it is a link to a path longer than {_PATH_MOST_BYTES} bytes")
    return target


def hard_link_target(link: str) -> bytes:
    """Return the path of a hard link's target. Raises RefusedError."""
    if link.startswith("/"):
        raise RefusedError(f"it is a hard link to an absolute path, {link!r}")
    try:
        return member_path(link)
    except RefusedError:
        raise RefusedError(f"it is a hard link to {link!r}, which no member can be") from None


def file_mode(mode: int) -> int:
    """Return safe permissions for a file.

    The owner may read and write, others may not write, nobody may execute unless the owner may, and the setuid, setgid
    and sticky bits are cleared.
    """
    mode = mode & ~(stat.S_IWGRP | stat.S_IWOTH) & 0o777
    if not mode & stat.S_IXUSR:
        mode &= ~(stat.S_IXGRP | stat.S_IXOTH)
    return mode | stat.S_IRUSR | stat.S_IWUSR


def encode(name: str) -> bytes:
    """Return the archive's bytes of a name, in which surrogate escapes stand for invalid UTF-8."""
    return name.encode("utf-8", "surrogateescape")


def decode(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
