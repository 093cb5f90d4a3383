"""Several arrays of one kind, read at random as if they were one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from headrace._core import JoinedInt64, JoinedUInt32

T = TypeVar("T", np.int64, np.uint32)

_NATIVE: dict[np.dtype[Any], type[JoinedInt64] | type[JoinedUInt32]] = {
    np.dtype(np.int64): JoinedInt64,
    np.dtype(np.uint32): JoinedUInt32,
}


class JoinedArray(Generic[T]):
    """An array for each archive, borrowed: joining a thousand mapped ones would copy them all into memory."""

    __slots__ = ("_native", "parts")

    def __init__(self, parts: Iterable[npt.NDArray[T]]) -> None:
        """At least one array, all int64 or all uint32."""
        self.parts: tuple[npt.NDArray[T], ...] = tuple(parts)
        self._native: Any = _NATIVE[self.parts[0].dtype]()
        for part in self.parts:
            self._native.add(part)

    def take(self, part: npt.NDArray[np.int64], index: npt.NDArray[np.int64]) -> npt.NDArray[T]:
        """`parts[part[i]][index[i]]` for each i; 0 where the index is -1. Raises IndexError."""
        taken: npt.NDArray[T] = self._native.take(part, index)
        return taken

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinedArray, (self.parts,)
