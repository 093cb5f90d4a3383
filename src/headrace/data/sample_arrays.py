"""Arrays with one row per sample: mapped from temporary files, or cached across processes."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.data.columns import ByteColumn
from headrace.data.dataset import Dataset
from headrace.data.location import Version
from headrace.data.storage import safetensors
from headrace.data.storage.file_writing import UnwritableError, finish_partial_file, scratch_file
from headrace.data.storage.safetensors import Arrays, InvalidFileError, checked_array
from headrace.data.storage.sidecar import open_cached, read_cached
from headrace.data.storage.strings import Ints, StoredArray
from headrace.data.table import spread_over
from headrace.errors import warn_caller

Int32s = npt.NDArray[np.int32]

_SMALL_BYTES = 1 << 20
_BLOCK = 1 << 20
_LOOKED_AT = 256
"""Samples to check for changed files: tools rarely rewrite only some files."""


def mapped_zeros(shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """Return zeros: in memory if small, else mapped from an unnamed file, so that unused pages can be evicted.

    Raises DatasetError if there is no space.
    """
    count = int(np.prod(shape, dtype=np.int64))
    size = count * np.dtype(dtype).itemsize
    if size <= _SMALL_BYTES:
        return np.zeros(shape, dtype)
    with scratch_file(None) as scratch:
        os.ftruncate(scratch, size)
        memory = mmap.mmap(scratch, size)
    return np.frombuffer(memory, dtype, count).reshape(shape)


def release_pages(*arrays: npt.NDArray[Any] | StoredArray | None) -> None:
    """Evict mapped arrays from this process's memory; reads map them again. Other arrays are unchanged."""
    for array in arrays:
        base: Any = array.base if isinstance(array, StoredArray) else array
        while isinstance(base, np.ndarray):
            base = base.base
        base = base.obj if isinstance(base, memoryview) else base
        if isinstance(base, mmap.mmap):
            base.madvise(mmap.MADV_DONTNEED)


def position_blocks(length: int, block: int = _BLOCK) -> Iterator[Ints]:
    """Yield all positions in blocks of `block`."""
    for first in range(0, length, block):
        yield np.arange(first, min(first + block, length), dtype=np.int64)


def cached_array(
    place: str,
    count: int,
    make: Callable[[], Int32s],
    *,
    format: str,
    name: str,
    what: str,
    least: int,
    lost: str,
) -> Int32s:
    """Return a read-only int32[count] mapped from the file at `place`, which `make` fills if missing.

    One process calls `make` while others wait; all map the same file. `format`: name and version; change the version
    with the file's meaning. `name`: name of the array. `least`: lower bound of the values. For messages, `what`
    describes the array ("the sizes of 5 images"), and `lost` is the consequence if caching fails.

    Raises as `make` does. Warns if the file cannot be written.
    """
    made: Int32s | None = None

    def checked(arrays: Arrays) -> Int32s:
        flat = checked_array(arrays, name, np.int32, count)
        if len(flat) and flat.min() < least:
            raise InvalidFileError(f"a value is below {least}")
        release_pages(flat)
        return flat

    def load() -> Int32s | None:
        return read_cached(place, format, lambda arrays, _: checked(arrays))

    def build(partial: int) -> None:
        nonlocal made
        made = make()
        contents = {name: made.reshape(-1)}
        write = safetensors.write_arrays
        finish_partial_file(partial, place, lambda file: write(file, contents, {"format": format}))

    try:
        return open_cached(place, load, build, expected=what)
    except UnwritableError as error:
        warn_caller(f"{lost} ({place}: {error}). Set HEADRACE_CACHE to a writable folder")
    made = make() if made is None else made
    made.flags.writeable = False
    return made


def file_versions(dataset: Dataset, files: ByteColumn) -> list[Version]:
    """Return the versions of the files of samples spread over the dataset, each file once. Raises ReadError.

    Paths do not count: a folder that was moved, or copied with its times, has the same versions.
    """
    spread = spread_over(len(dataset), _LOOKED_AT)
    at = files.locate(spread if dataset.base_ids is None else dataset.base_ids[spread])
    held = files.files if at.files is None else at.files
    return [held.version(number) for number in dict.fromkeys(at.path_id.tolist())]
