"""Which member is made where, and which is refused. Pure: nothing here looks at a disk.

The rules are those of tarfile's "data" filter (PEP 706, with its later fixes), but for `..`, which no name may hold.
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
"""A folder of ours in the target, where a file waits for its name if it cannot be without one."""
PIECE_BYTES = 1 << 17
"""Bytes copied at once: they stay in the processor's cache. A megabyte took up to twice as long
(benchmarks/unpack.py)."""
_NAME_MOST_BYTES = 255
"""Longest component of a path in every file system that Linux writes, but for a few older ones."""
_PATH_MOST_BYTES = 4095
"""Longest path and longest target of a symbolic link (PATH_MAX, less its end)."""

Piece = tuple[int, memoryview]
"""Position in a file, and the bytes there, valid until the next piece is asked for. What no piece covers is a hole."""


class MemberKind(Enum):
    FILE = "a file"
    FOLDER = "a folder"
    SYMBOLIC_LINK = "a symbolic link"
    HARD_LINK = "a hard link"
    SPECIAL = "a special file"
    LABEL = "a label"
    """Name of the archive itself, of which nothing is made."""


class UnpackMember(NamedTuple):
    """What is known of a member without a look at its bytes."""

    name: str
    kind: MemberKind
    size: int
    """Bytes of a file; 0 for all else."""
    link: str
    """What a link names; empty for all else."""


class MemberAttributes(NamedTuple):
    mode: int | None
    """Permission bits as the archive has them; None: it has none."""
    mtime_ns: int


class RefusedError(Exception):
    """A member must not be made; the text says why."""


class Refusal(NamedTuple):
    name: str
    why: str


class PlannedLink(NamedTuple):
    path: bytes
    target: bytes
    """What a symbolic link holds; for a hard link the path of the file that it is another name of."""
    number: int


@dataclass
class UnpackPlan:
    """Paths are relative to the target. Each is made once: of members with one path the last counts, as with tar."""

    paths: list[bytes | None] = field(default_factory=list)
    """By member number; None: nothing is made of it."""
    sizes: array[int] = field(default_factory=lambda: array("q"))
    """Bytes, by member number."""
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
        path = self.paths[number]
        assert path is not None
        return path

    def all_files(self) -> Iterator[tuple[bytes, int]]:
        """Yield path and member of every file to make, the order of the archive first."""
        return chain(((self.path(number), number) for number in self.files), self.copies)

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes[number] for _, number in self.all_files())


def make_plan(count: int, member: Callable[[int], UnpackMember]) -> UnpackPlan:
    """Plan what is made of `count` members, which `member` gives by number."""
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
        """The last member of each path, of those looked at so far."""
        self._linked: dict[int, int | str] = {}
        """By hard link: the member that it leads to, through others perhaps, or why it is refused."""
        self._clear = {b""}
        """Folders in whose way no member is."""

    def look_at(self, number: int) -> None:
        """Note a member's path, kind and size, in the order of the archive."""
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
        """Add a member to the plan, once all are known."""
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
        """Check the target from where the link lies: another folder may put it outside."""
        target = link_target(path, self._member(number).link)
        self.plan.symbolic_links.append(PlannedLink(path, target, number))

    def _add_hard_link(self, number: int, path: bytes) -> None:
        """Add what it leads to: another name of a file, a copy of one that will not be there, or a symbolic link."""
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
        """Find the member that a hard link leads to, of those looked at so far."""
        at = self._last.get(hard_link_target(link))
        if at is None:
            return f"it is a hard link to {link!r}, which is not ahead of it in the archive"
        if self._kinds[at] is MemberKind.FOLDER:
            return f"it is a hard link to {link!r}, a folder"
        return self._linked.get(at, at)

    def _expect_no_obstacle(self, path: bytes) -> None:
        """Raise RefusedError if what must be a folder is made as something else."""
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
    """Return where `member` is made. Raises RefusedError if it must not be, for what it is or for what it links to."""
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
    """Return what the symbolic link at `path` may hold: `link` with every `..` at its start. Raises RefusedError.

    A `..` behind a name would lead to wherever that name leads, if it is a link itself, and from there up.
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
    """Return the path that a hard link names. Raises RefusedError."""
    if link.startswith("/"):
        raise RefusedError(f"it is a hard link to an absolute path, {link!r}")
    try:
        return member_path(link)
    except RefusedError:
        raise RefusedError(f"it is a hard link to {link!r}, which no member can be") from None


def file_mode(mode: int) -> int:
    """Return the permissions that a file gets.

    Its owner may read and write it, others may not write it, nobody may execute it unless its owner may, and it is
    neither setuid nor setgid nor sticky.
    """
    mode = mode & ~(stat.S_IWGRP | stat.S_IWOTH) & 0o777
    if not mode & stat.S_IXUSR:
        mode &= ~(stat.S_IXGRP | stat.S_IXOTH)
    return mode | stat.S_IRUSR | stat.S_IWUSR


def encode(name: str) -> bytes:
    """Return the bytes of a name as the archive has it. Those that are not UTF-8 are surrogate escapes."""
    return name.encode("utf-8", "surrogateescape")


def decode(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
