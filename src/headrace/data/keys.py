"""Numbers as the names of samples: the rows of a manifest, or a column of ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.data.storage.strings import StoredArray
from headrace.data.strings import StringColumn, Strings

_PIECE = 1 << 16


class NumberKeys(Strings):
    """Without a string each: `numbers` is an array or a range."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: npt.NDArray[Any] | StoredArray | range) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def take(self, indices: npt.NDArray[np.int64]) -> StringColumn:
        if isinstance(self._numbers, range):
            return StringColumn.from_list(str(self._numbers[index]) for index in indices.tolist())
        return StringColumn.from_list(map(str, self._numbers[indices]))

    def pieces(self) -> Iterator[StringColumn]:
        for start in range(0, len(self), _PIECE):
            yield self.take(np.arange(start, min(start + _PIECE, len(self))))
