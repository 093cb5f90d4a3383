"""Sizes of images, kept in the cache folder: one process probes, others wait, and all of them map one file."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .._core import Limits
from . import checked, safetensors
from .columns import ByteColumn
from .dataset import Dataset
from .mapped import let_go
from .partial_file import UnwritableError, finish, partial_file
from .sidecar import cache_folder

Sizes = npt.NDArray[np.int32]

FORMAT = "headrace image sizes 1"
"""Raise the number whenever the meaning of a kept file changes."""
_LOOKED_AT = 256
"""Samples whose files are looked at for changes: what makes images anew seldom makes only some."""


def kept_place(
    dataset: Dataset, column: str, files: ByteColumn, *, exif: bool, limits: Limits, cache: str | None
) -> str:
    """Where the sizes of these samples' images lie, if they are kept. Its name tells all that they depend on."""
    bounds = [limits.max_pixels, limits.max_jpeg_scans, limits.max_png_chunk_bytes, limits.max_file_bytes]
    known = json.dumps([FORMAT, dataset.fingerprint, column, exif, bounds, file_versions(dataset, files)])
    name = f"sizes.{hashlib.blake2b(known.encode(), digest_size=16).hexdigest()}.headrace"
    return os.path.join(cache_folder() if cache is None else os.path.abspath(cache), name)


def keep_sizes(place: str, count: int, probe: Callable[[], Sizes]) -> Sizes:
    """What lies at `place`, mapped, if it is the sizes of `count` images; else what `probe` finds, kept there.

    Raises what `probe` raises. Warns where nothing can be written.
    """
    kept = _load(place, count)
    if kept is not None:
        return kept
    sizes = None
    try:
        with partial_file(place) as partial:
            kept = _load(place, count)  # whoever held the lock before may have finished it
            if kept is not None:
                return kept
            sizes = probe()
            contents = {"sizes": sizes.reshape(-1)}
            finish(partial, place, lambda file: safetensors.write(file, contents, {"format": FORMAT}))
        kept = _load(place, count)
        if kept is None:
            raise UnwritableError("what was written there does not come back")
        return kept
    except UnwritableError as error:
        warnings.warn(
            f"the sizes of {count:,} images cannot be kept, so each start reads their headers again ({place}: "
            f"{error}). Set HEADRACE_CACHE to a writable folder",
            stacklevel=3,
        )
    sizes = probe() if sizes is None else sizes
    sizes.flags.writeable = False
    return sizes


def _load(place: str, count: int) -> Sizes | None:
    """None if it is missing, damaged, or of other images."""
    try:
        arrays, metadata = safetensors.read(place)
        if metadata.get("format") != FORMAT:
            return None
        flat = checked.array(arrays, "sizes", np.int32, 2 * count)
    except (OSError, safetensors.InvalidFileError):
        return None
    if len(flat) and flat.min() < 0:
        return None
    let_go(flat)
    return flat.reshape(-1, 2)


def file_versions(dataset: Dataset, files: ByteColumn) -> list[tuple[int, int] | None]:
    """Size and time of modification of the files of samples spread over the dataset; None for one that is not there.

    Not their paths: a folder that was moved, or copied with its times, holds the same images.
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
