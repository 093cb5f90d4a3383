"""What an archive whose members are all known makes of a folder, decided before anything is written. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from headrace.data.names import NameTable
from headrace.data.strings import StringColumn
from headrace.unpack.member_paths import RefusedError, checked_path, encode, hard_link_target, link_target
from headrace.unpack.members import Kind, Member

_LINKS_AT_MOST = 40
"""Hard links that lead from one to the next before they count as a circle."""
_NOWHERE = b"\0"
"""In place of the path of a member that is refused, or of which nothing is made: no path holds a zero byte."""
_KINDS = tuple(Kind)
_WORDS = {Kind.FILE: "a file", Kind.SYMBOLIC_LINK: "a symbolic link", Kind.HARD_LINK: "a hard link"}


class Refusal(NamedTuple):
    name: str
    why: str


class Link(NamedTuple):
    path: bytes
    target: bytes
    """What a symbolic link holds; for a hard link the path of the file that it is another name of."""
    number: int


@dataclass(frozen=True)
class Plan:
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
    symbolic_links: list[Link] = field(default_factory=list)
    hard_links: list[Link] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    """Names whose path a later member makes."""
    refused: list[Refusal] = field(default_factory=list)

    def path(self, number: int) -> bytes:
        return encode(self.paths[number])

    @property
    def total_bytes(self) -> int:
        """Of all files."""
        return sum(self.sizes[number] for number in chain(self.files, (number for _, number in self.copies)))


def make_plan(count: int, member: Callable[[int], Member]) -> Plan:
    """`member` gives each of `count` members by its number."""
    return _Planner(count, member).plan


class _Planner:
    def __init__(self, count: int, member: Callable[[int], Member]) -> None:
        self._member = member
        self._obstacles: dict[str, str | None] = {"": None}
        paths, kinds, sizes, refused = _look_through(count, member)
        self.plan = Plan(NameTable.build(StringColumn.from_list(paths)), sizes, refused=refused)
        del paths  # an object each, as the table has none
        for number in range(count):
            path = self.plan.paths[number]
            if path != _NOWHERE.decode():
                self._add(number, path, _KINDS[kinds[number]])

    def _add(self, number: int, path: str, kind: Kind) -> None:
        plan = self.plan
        if not self._counts(number, path):
            plan.replaced.append(self._member(number).name)
            return
        try:
            self._expect_no_obstacle(path)
            match kind:
                case Kind.FILE:
                    plan.files.append(number)
                case Kind.FOLDER:
                    plan.folders.append(number)
                case Kind.SYMBOLIC_LINK:
                    target = link_target(encode(path), self._member(number).link)
                    plan.symbolic_links.append(Link(encode(path), target, number))
                case Kind.HARD_LINK:
                    self._add_hard_link(number, path, self._member(number))
        except RefusedError as error:
            plan.refused.append(Refusal(self._member(number).name, str(error)))

    def _add_hard_link(self, number: int, path: str, member: Member) -> None:
        """As what it leads to: another name of a file, a copy of one that will not be there, or a symbolic link."""
        plan = self.plan
        at = self._find_target(number, member)
        found, there = self._member(at), plan.paths[at]
        if found.kind is Kind.SYMBOLIC_LINK:
            # Moved to another folder its target may lie outside, so it is checked again.
            plan.symbolic_links.append(Link(encode(path), link_target(encode(path), found.link), at))
        elif self._counts(at, there):
            self._expect_no_obstacle(there)
            plan.hard_links.append(Link(encode(path), encode(there), number))
        else:
            plan.copies.append((encode(path), at))

    def _find_target(self, number: int, member: Member) -> int:
        """The member that a hard link leads to, which is none itself. Raises RefusedError."""
        at = number
        for _ in range(_LINKS_AT_MOST):
            link = member.link
            found = self.plan.paths.find(hard_link_target(link), before=at)
            if found is None:
                raise RefusedError(f"it is a hard link to {link!r}, which is not ahead of it in the archive")
            at, member = found, self._member(found)
            if member.kind is Kind.FOLDER:
                raise RefusedError(f"it is a hard link to {link!r}, a folder")
            if member.kind is not Kind.HARD_LINK:
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
        kind = Kind.FOLDER if at is None else self._member(at).kind
        return None if kind is Kind.FOLDER else f"it lies below {path!r}, which is {_WORDS[kind]} in the archive"


def _look_through(
    count: int, member: Callable[[int], Member]
) -> tuple[list[bytes], bytearray, array[int], list[Refusal]]:
    """Each member's path, kind (into `_KINDS`) and size, and what is refused for what it is by itself."""
    paths, kinds, sizes, refused = [], bytearray(), array("q"), []
    for number in range(count):
        one = member(number)
        kinds.append(_KINDS.index(one.kind))
        sizes.append(one.size)
        if one.kind is Kind.LABEL:
            paths.append(_NOWHERE)
            continue
        try:
            paths.append(checked_path(one))
        except RefusedError as error:
            refused.append(Refusal(one.name, str(error)))
            paths.append(_NOWHERE)
    return paths, kinds, sizes, refused
