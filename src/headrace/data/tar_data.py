"""Where the data of each member of several tars lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headrace.data.archive_columns import MemberData
from headrace.data.columns import ABSENT, Location, Part
from headrace.data.joined import JoinedArray

Ints = npt.NDArray[np.int64]


class TarArrays(Protocol):
    """An entry a member of one tar."""

    @property
    def offset(self) -> Ints:
        """First byte of its data."""
        ...

    @property
    def size(self) -> Ints: ...

    @property
    def check(self) -> npt.NDArray[np.uint32]:
        """Identity of the header block before it."""
        ...


@dataclass(frozen=True, eq=False)
class TarData(MemberData):
    offset: JoinedArray[np.int64]
    size: JoinedArray[np.int64]
    check: JoinedArray[np.uint32]

    @classmethod
    def of(cls, tars: Sequence[TarArrays]) -> TarData:
        return cls(
            JoinedArray(tar.offset for tar in tars),
            JoinedArray(tar.size for tar in tars),
            JoinedArray(tar.check for tar in tars),
        )

    def locate(self, archive: Ints, member: Ints) -> Location:
        length = self.size.take(archive, member)
        length[member < 0] = ABSENT
        return Location(archive, self.offset.take(archive, member), length, self.check.take(archive, member))

    def parts(self, archive: Ints, member: Ints) -> Iterator[Part]:
        at = self.locate(archive, member)
        yield at.length, "<i8"
        yield at.check, "<u4"
