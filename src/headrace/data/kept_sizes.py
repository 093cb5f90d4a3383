"""Sizes of images, kept in the cache folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headrace._core import Limits
from headrace.data.columns import ByteColumn
from headrace.data.dataset import Dataset
from headrace.data.sample_arrays import Kept, file_versions
from headrace.data.storage.sidecar import cache_folder

Sizes = npt.NDArray[np.int32]

FORMAT = "headrace image sizes 2"
"""Raise the number whenever the meaning of a kept file changes."""


def kept_place(
    dataset: Dataset, column: str, files: ByteColumn, *, exif: bool, limits: Limits, cache: str | None
) -> str:
    """Where the sizes of these samples' images lie, if they are kept. Its name tells all that they depend on."""
    bounds: list[int | str] = [
        limits.max_pixels,
        limits.max_jpeg_scans,
        limits.max_png_chunk_bytes,
        limits.max_file_bytes,
    ]
    bounds += limits.formats
    known = json.dumps([FORMAT, dataset.fingerprint, column, exif, bounds, file_versions(dataset, files)])
    name = f"sizes.{hashlib.blake2b(known.encode(), digest_size=16).hexdigest()}.headrace"
    return os.path.join(cache_folder() if cache is None else os.path.abspath(cache), name)


def keep_sizes(place: str, count: int, probe: Callable[[], Sizes]) -> Sizes:
    """What lies at `place`, mapped, if it is the sizes of `count` images; else what `probe` finds, kept there.

    Raises what `probe` raises. Warns where nothing can be written.
    """
    what = f"the sizes of {count:,} images"
    lost = f"{what} cannot be kept, so each start reads their headers again"
    kept = Kept(FORMAT, "sizes", what, least=0, lost=lost)
    return kept.keep(place, 2 * count, lambda: probe().reshape(-1)).reshape(-1, 2)
