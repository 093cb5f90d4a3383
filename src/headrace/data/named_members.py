"""The members of archives that a column of paths names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .archive_columns import MemberData
from .columns import ABSENT, MISSING, ByteColumn, Location, Part
from .files import Files
from .strings import StringColumn

Ints = npt.NDArray[np.int64]


class MemberNames(Protocol):
    """What one archive holds."""

    @property
    def first_name(self) -> str | None:
        """Of any member; None: it is empty."""
        ...

    def find_files(self, paths: StringColumn, which: Ints) -> Ints:
        """The position of the file that each of the paths numbered `which` names; -1 where there is none. A leading
        "./" makes no difference."""
        ...


@dataclass(frozen=True, eq=False)
class NamedMembers(ByteColumn):
    """A member a sample, found by name when it is asked for, in the first archive that has it."""

    files: Files
    """The archives."""
    paths: StringColumn
    """Each sample's; an empty one means that it has none."""
    names: Sequence[MemberNames]
    """Of each archive."""
    data: MemberData

    def locate(self, ids: Ints) -> Location:
        archive, member = self._find(ids)
        at = self.data.locate(archive, member)
        assert at.length is not None
        named = self.paths.offsets[ids + 1] != self.paths.offsets[ids]
        at.length[member < 0] = np.where(named[member < 0], MISSING, ABSENT)
        return at._replace(path_id=np.maximum(at.path_id, 0))

    def parts(self) -> Iterator[Part]:
        return self.data.parts(*self._find(np.arange(len(self.paths))))

    def _find(self, ids: Ints) -> tuple[Ints, Ints]:
        archive, member = np.zeros(len(ids), np.int64), np.full(len(ids), -1)
        for number, names in enumerate(self.names):
            left = np.flatnonzero(member < 0)
            found = names.find_files(self.paths, ids[left])
            archive[left[found >= 0]] = number
            member[left] = found
        return archive, member
