"""Arrays with a row a sample: mapped from temporary files, or cached across processes."""

from __future__ import annotations

import mmap
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from headrace.data.columns import ByteColumn
from headrace.data.dataset import Dataset
from headrace.data.storage import safetensors
from headrace.data.storage.file_writing import UnwritableError, finish_partial_file, no_room, partial_file, scratch_file
from headrace.data.storage.sidecar import damage_text, is_older
from headrace.data.storage.strings import StoredArray

# -- from data/mapped.py: Arrays as long as the dataset, in unnamed files: what is not in use may leave memory.


_SMALL_BYTES = 1 << 20
_PIECE = 1 << 20


def mapped_zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
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


def release_pages(*arrays: NDArray[Any] | StoredArray | None) -> None:
    """Takes what is mapped of files out of this process's memory; it comes back when it is read. Others stay."""
    for array in arrays:
        base: Any = array.base if isinstance(array, StoredArray) else array
        while isinstance(base, np.ndarray):
            base = base.base
        base = base.obj if isinstance(base, memoryview) else base
        if isinstance(base, mmap.mmap):
            base.madvise(mmap.MADV_DONTNEED)


def position_blocks(length: int) -> Iterator[NDArray[np.int64]]:
    """All positions, some at a time."""
    for first in range(0, length, _PIECE):
        yield np.arange(first, min(first + _PIECE, length), dtype=np.int64)


# -- from data/kept_array.py: An array with one row a sample, kept in the cache folder: one process makes it, others
# wait, all map one file.


Whole = npt.NDArray[np.int32]

_LOOKED_AT = 256
"""Samples whose files are looked at for changes: what makes files anew seldom makes only some."""


@dataclass(frozen=True)
class CachedArray:
    """What is kept, and how it is told from anything else."""

    format: str
    """Its number is raised whenever the meaning of a kept file changes."""
    name: str
    """Of the array in the file."""
    what: str
    """What it is, in words: "the sizes of 5 images"."""
    least: int
    """No value is below it."""
    lost: str
    """What it means for the user that nothing can be kept: "so each start …"."""

    def load(self, place: str, count: int) -> Whole | None:
        """Return int32[count]; None if it is missing, or of an earlier version.

        Raises InvalidFileError for what is damaged, of another length or none."""
        try:
            arrays, metadata = safetensors.read_arrays(place)
            if metadata.get("format") != self.format:
                return None
            flat = safetensors.checked_array(arrays, self.name, np.int32, count)
        except safetensors.UncheckedFileError as error:
            if is_older(error.format, self.format):
                return None
            raise
        except OSError:
            return None
        if len(flat) and flat.min() < self.least:
            raise safetensors.InvalidFileError(f"a value is below {self.least}")
        release_pages(flat)
        return flat

    def keep(self, place: str, count: int, make: Callable[[], Whole]) -> Whole:
        """int32[count], read-only: what lies at `place`, mapped, or else what `make` returns, kept there.

        Raises what `make` raises. Warns where nothing can be written.
        """
        try:
            kept = self.load(place, count)
            if kept is not None:
                return kept
        except safetensors.InvalidFileError as error:
            warnings.warn(damage_text(f"{place}: expected {self.what}", error), stacklevel=4)
        made = None
        try:
            with partial_file(place) as partial:
                with suppress(safetensors.InvalidFileError):
                    kept = self.load(place, count)  # whoever held the lock before may have finished it
                    if kept is not None:
                        return kept
                made = make()
                contents: dict[str, Any] = {self.name: made.reshape(-1)}
                finish_partial_file(
                    partial, place, lambda file: safetensors.write_arrays(file, contents, {"format": self.format})
                )
            with suppress(safetensors.InvalidFileError):
                kept = self.load(place, count)
                if kept is not None:
                    return kept
            raise UnwritableError("what was written there does not come back")
        except UnwritableError as error:
            warnings.warn(f"{self.lost} ({place}: {error}). Set HEADRACE_CACHE to a writable folder", stacklevel=4)
        made = make() if made is None else made
        made.flags.writeable = False
        return made


def file_versions(dataset: Dataset, files: ByteColumn) -> list[tuple[int, int] | None]:
    """Size and time of modification of the files of samples spread over the dataset; None for one that is not there.

    Not their paths: a folder that was moved, or copied with its times, holds the same files.
    """
    spread = np.unique(np.linspace(0, len(dataset) - 1, _LOOKED_AT).astype(np.int64))
    at = files.locate(spread if dataset.base_ids is None else dataset.base_ids[spread])
    paths = dict.fromkeys(files.path(at, row) for row in range(len(spread)))  # an archive once
    return [_version(path) for path in paths]


def _version(path: bytes) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
