"""An array with one row a sample, kept in the cache folder: one process makes it, others wait, all map one file."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.data import checked
from headrace.data.columns import ByteColumn
from headrace.data.dataset import Dataset
from headrace.data.mapped import let_go
from headrace.data.partial_file import UnwritableError, finish, partial_file
from headrace.data.storage import safetensors
from headrace.data.storage.sidecar import damage_text, is_older

Whole = npt.NDArray[np.int32]

_LOOKED_AT = 256
"""Samples whose files are looked at for changes: what makes files anew seldom makes only some."""


@dataclass(frozen=True)
class Kept:
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
            arrays, metadata = safetensors.read(place)
            if metadata.get("format") != self.format:
                return None
            flat = checked.array(arrays, self.name, np.int32, count)
        except safetensors.UncheckedFileError as error:
            if is_older(error.format, self.format):
                return None
            raise
        except OSError:
            return None
        if len(flat) and flat.min() < self.least:
            raise safetensors.InvalidFileError(f"a value is below {self.least}")
        let_go(flat)
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
                finish(partial, place, lambda file: safetensors.write(file, contents, {"format": self.format}))
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
