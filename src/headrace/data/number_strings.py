"""Numbers as names of samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .strings import StringColumn, Strings

_PIECE = 1 << 16


class NumberStrings(Strings):
    """Numbers written out, without a string each: an array of them, or a range."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: npt.NDArray[Any] | range) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, indices: npt.NDArray[np.int64]) -> StringColumn:
        return StringColumn.from_list(str(self.numbers[index]) for index in indices.tolist())

    def pieces(self) -> Iterator[StringColumn]:
        for start in range(0, len(self), _PIECE):
            yield self.take(np.arange(start, min(start + _PIECE, len(self))))
