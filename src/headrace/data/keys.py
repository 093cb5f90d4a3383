"""What samples are called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .strings import StringColumn


class NumberKeys:
    """Numbers as names, without a string each: an array of them, or a range."""

    def __init__(self, numbers: npt.NDArray[Any] | range) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> str:
        return str(self.numbers[index])

    def __iter__(self) -> Iterator[str]:
        return map(str, self.numbers)

    def take(self, indices: npt.NDArray[np.int64]) -> StringColumn:
        """The names at `indices` (non-negative), in that order."""
        return StringColumn.from_list(self[index] for index in indices.tolist())


Keys: TypeAlias = StringColumn | NumberKeys
