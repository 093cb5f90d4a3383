"""The members of archives that a column of paths names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headrace.data.archive_columns import MemberData
from headrace.data.columns import ABSENT, MISSING, ByteColumn, Location, Part
from headrace.data.files import Files
from headrace.data.strings import StringColumn, Strings

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
    paths: Strings
    """Each sample's; an empty one means that it has none."""
    names: Sequence[MemberNames]
    """Of each archive."""
    data: MemberData

    def locate(self, ids: Ints) -> Location:
        paths = self.paths.take(ids)
        archive, member = self._find(paths)
        at = self.data.locate(archive, member)
        assert at.length is not None
        at.length[member < 0] = np.where(paths.lengths() > 0, MISSING, ABSENT)[member < 0]
        return at

    def parts(self) -> Iterator[Part]:
        return self.data.parts(*self._find(StringColumn.join(self.paths.pieces())))

    def _find(self, paths: StringColumn) -> tuple[Ints, Ints]:
        archive, member = np.zeros(len(paths), np.int64), np.full(len(paths), -1)
        for number, names in enumerate(self.names):
            left = np.flatnonzero(member < 0)
            found = names.find_files(paths, left)
            archive[left[found >= 0]] = number
            member[left] = found
        return archive, member
