"""Where the data of each member of several zips lies, and in which form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headrace.data.archive_columns import MemberData
from headrace.data.columns import ABSENT, Location, Part, Zipped
from headrace.data.joined import JoinedArray

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]


class ZipArrays(Protocol):
    """An entry a member of one zip: see `ZipMembers`."""

    @property
    def offset(self) -> Ints: ...
    @property
    def size(self) -> Ints: ...
    @property
    def packed(self) -> Ints: ...
    @property
    def end(self) -> Ints: ...
    @property
    def method(self) -> Words: ...
    @property
    def crc(self) -> Words: ...
    @property
    def flags(self) -> Words: ...
    @property
    def check(self) -> Words: ...


@dataclass(frozen=True, eq=False)
class ZipData(MemberData):
    offset: JoinedArray[np.int64]
    size: JoinedArray[np.int64]
    packed: JoinedArray[np.int64]
    end: JoinedArray[np.int64]
    method: JoinedArray[np.uint32]
    crc: JoinedArray[np.uint32]
    flags: JoinedArray[np.uint32]
    check: JoinedArray[np.uint32]

    @classmethod
    def of(cls, zips: Sequence[ZipArrays]) -> ZipData:
        return cls(
            JoinedArray(one.offset for one in zips),
            JoinedArray(one.size for one in zips),
            JoinedArray(one.packed for one in zips),
            JoinedArray(one.end for one in zips),
            JoinedArray(one.method for one in zips),
            JoinedArray(one.crc for one in zips),
            JoinedArray(one.flags for one in zips),
            JoinedArray(one.check for one in zips),
        )

    def locate(self, archive: Ints, member: Ints) -> Location:
        offset = self.offset.take(archive, member)
        zipped = Zipped(
            self.packed.take(archive, member),
            self.end.take(archive, member) - offset,
            self.method.take(archive, member),
            self.crc.take(archive, member),
            self.flags.take(archive, member),
        )
        return Location(archive, offset, self._sizes(archive, member), self.check.take(archive, member), zipped)

    def parts(self, archive: Ints, member: Ints) -> Iterator[Part]:
        """Of the data alone, so that a zip packed again at another level is the same dataset."""
        yield self._sizes(archive, member), "<i8"
        yield self.crc.take(archive, member), "<u4"

    def _sizes(self, archive: Ints, member: Ints) -> Ints:
        size = self.size.take(archive, member)
        size[member < 0] = ABSENT
        return size
