"""The two kinds of column: where each sample's bytes lie, and values that are there already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Checks = npt.NDArray[np.uint32]

ABSENT = -1
"""The length of a member that a sample does not have."""


class Location(NamedTuple):
    """Where the bytes of a batch of samples lie; every array has one entry a sample."""

    path_id: Ints
    """Index into the dataset's `paths`."""
    offset: Ints | None
    """First byte in that file; None: all begin at 0."""
    length: Ints | None
    """Bytes; `ABSENT` where the sample has none; None: all are whole files."""
    check: Checks | None
    """`tar_header_check` of the 512 bytes before `offset`; None: nothing to check."""


@dataclass(frozen=True, eq=False)
class ByteColumn:
    """Where each sample's bytes lie, by sample id."""

    path_id: npt.NDArray[np.int32] | None = None
    """None: a file a sample, so the sample's id is the path's."""
    offset: Ints | None = None
    length: Ints | None = None
    check: Checks | None = None

    def locate(self, ids: Ints) -> Location:
        return Location(
            ids if self.path_id is None else self.path_id[ids].astype(np.int64),
            None if self.offset is None else self.offset[ids],
            None if self.length is None else self.length[ids],
            None if self.check is None else self.check[ids],
        )

    @property
    def kind(self) -> str:
        return "bytes"


@dataclass(frozen=True, eq=False)
class ValueColumn:
    """One number a sample, by sample id."""

    values: npt.NDArray[Any]
    classes: tuple[str, ...] | None = None
    """What the values name, if they are class indices."""

    @property
    def kind(self) -> str:
        return "value"


Column = ByteColumn | ValueColumn
