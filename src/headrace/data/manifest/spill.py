"""Arrays that grow on disk: a column is longer than memory should have to be."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.data.scratch_file import no_room, scratch_file

_PIECE_BYTES = 4 << 20


class Scratch:
    """An unnamed file that arrays grow in, in turn; gone with the last of them, and with the process."""

    def __init__(self, folder: str | None) -> None:
        """In `folder`, or where temporary files go. Raises UnwritableError, or DatasetError where that is None."""
        self._descriptor: int | None = None
        self._folder = folder
        self._end = 0
        # Not the file object: one that an error's traceback holds may be collected before this, and warn.
        with scratch_file(folder) as file:
            self._descriptor = os.dup(file.fileno())

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def append(self, data: memoryview) -> int:
        """Where it was put. Raises as making it does."""
        at = self._end
        try:
            while self._end < at + data.nbytes:
                self._end += os.pwrite(self._handle, data[self._end - at :], self._end)
        except OSError as error:
            raise no_room(self._folder, error) from error
        return at

    def read(self, at: int, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        found = np.empty(count, dtype)
        left = found.view(np.uint8).data
        while left:
            got = os.preadv(self._handle, [left], at)
            left, at = left[got:], at + got
        return found

    @property
    def _handle(self) -> int:
        assert self._descriptor is not None
        return self._descriptor


class Spill:
    """An array of one dimension that grows in a `Scratch`; `safetensors.write` takes it as it would an array."""

    def __init__(self, scratch: Scratch, dtype: type[np.generic]) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self._scratch = scratch
        self._parts: list[tuple[int, int]] = []
        self._count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._count * self.dtype.itemsize

    def append(self, values: npt.NDArray[Any]) -> None:
        data = np.ascontiguousarray(values, self.dtype).view(np.uint8).data
        self._parts.append((self._scratch.append(data), len(values)))
        self._count += len(values)
        self._hash.update(data)

    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """The array in order, a few MB at a time."""
        step = _PIECE_BYTES // self.dtype.itemsize
        for at, count in self._parts:
            for start in range(0, count, step):
                yield self._scratch.read(at + start * self.dtype.itemsize, min(step, count - start), self.dtype)

    def digest(self) -> str:
        """Hex hash of the array."""
        return self._hash.hexdigest()
