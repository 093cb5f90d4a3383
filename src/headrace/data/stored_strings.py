"""Many strings that stay in a file: read from it where they are asked for, and never held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .._core import take_names
from ..errors import ChangedError
from .open_file import OpenFile
from .strings import StringColumn, Strings

_PIECE = 1 << 16


class StoredStrings(Strings):
    """As `StringColumn`, by where its two arrays lie in a file.

    Mapped, they would fill memory as they are looked at here and there: `core/names/stored_names.hpp`.
    """

    __slots__ = ("_blob_at", "_blob_bytes", "_count", "_file", "_offsets_at")

    def __init__(self, file: OpenFile, *, blob_at: int, blob_bytes: int, offsets_at: int, count: int) -> None:
        self._file = file
        self._blob_at, self._blob_bytes = blob_at, blob_bytes
        self._offsets_at, self._count = offsets_at, count

    def __len__(self) -> int:
        return self._count

    def take(self, indices: npt.NDArray[np.int64]) -> StringColumn:
        """Raises ReadError, ChangedError."""

        def read(descriptor: int) -> StringColumn:
            blob, offsets = take_names(
                descriptor,
                blob_at=self._blob_at,
                blob_bytes=self._blob_bytes,
                offsets_at=self._offsets_at,
                count=self._count,
                which=np.ascontiguousarray(indices, np.int64),
            )
            return StringColumn(blob, offsets)

        try:
            return self._file.read_by(read)
        except ValueError as error:
            raise ChangedError(f"{self._file}: {error}: it is damaged. Remove it, and open again") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """The strings themselves: where the file is unpickled it may be another one, or none."""
        return _whole, (StringColumn.join(self.pieces()),)

    def pieces(self) -> Iterator[StringColumn]:
        for start in range(0, self._count, _PIECE):
            yield self.take(np.arange(start, min(start + _PIECE, self._count)))


def _whole(strings: StringColumn) -> StringColumn:
    return strings
