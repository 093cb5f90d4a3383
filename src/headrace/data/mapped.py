"""Arrays as long as the dataset, in unnamed files: what is not in use may leave memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.data.scratch_file import no_room, scratch_file
from headrace.data.storage.strings import StoredArray

_SMALL_BYTES = 1 << 20
_PIECE = 1 << 20


def mapped(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Zeros: in memory if they are few, else in a file that is gone with the array. Raises DatasetError where there is
    no room for it."""
    count = int(np.prod(shape, dtype=np.int64))
    size = count * np.dtype(dtype).itemsize
    if size <= _SMALL_BYTES:
        return np.zeros(shape, dtype)
    with scratch_file(None) as file:
        try:
            file.truncate(size)
            memory = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise no_room(None, error) from error
    return np.frombuffer(memory, dtype, count).reshape(shape)


def let_go(*arrays: NDArray[Any] | StoredArray | None) -> None:
    """Takes what is mapped of files out of this process's memory; it comes back when it is read. Others stay."""
    for array in arrays:
        base: Any = array.base if isinstance(array, StoredArray) else array
        while isinstance(base, np.ndarray):
            base = base.base
        base = base.obj if isinstance(base, memoryview) else base
        if isinstance(base, mmap.mmap):
            base.madvise(mmap.MADV_DONTNEED)


def pieces(length: int) -> Iterator[NDArray[np.int64]]:
    """All positions, some at a time."""
    for first in range(0, length, _PIECE):
        yield np.arange(first, min(first + _PIECE, length), dtype=np.int64)
