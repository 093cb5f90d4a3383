"""The files below a folder that a column of paths names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from headrace.data.columns import ByteColumn, Location, Part
from headrace.data.files import Files


@dataclass(frozen=True, eq=False)
class NamedFiles(ByteColumn):
    """A whole file a sample, whose name is looked up when it is asked for: there may be too many names to hold."""

    files: Files

    def locate(self, ids: npt.NDArray[np.int64]) -> Location:
        named = replace(self.files, names=self.files.names.take(ids))
        return Location(np.arange(len(ids)), None, None, None, files=named)

    def parts(self) -> Iterator[Part]:
        yield None, "<i8"
        yield None, "<u4"
