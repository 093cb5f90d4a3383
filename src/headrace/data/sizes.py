"""Sizes of a dataset's images: stated by columns, or probed from headers and cached."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from functools import partial

import numpy as np

from headrace._core import Limits
from headrace.data.columns import ByteColumn, ValueColumn
from headrace.data.dataset import Dataset
from headrace.data.native_reading import ImageSizes, probe_sizes
from headrace.data.sample_arrays import cached_array, file_versions, mapped_zeros, position_blocks, release_pages
from headrace.data.storage.sidecar import cache_folder
from headrace.system import default_threads

SIZES_FORMAT = "headrace image sizes 3"
"""Raise the number whenever the meaning of a cached file changes."""
_LOOKED_AT = 32
"""Images whose headers are compared with the sizes that the dataset states."""
_MOST = np.iinfo(np.int32).max
_WORTH_KEEPING = 1024
"""Fewer images are probed each time, which is as fast as looking for cached sizes."""


def image_sizes(
    dataset: Dataset,
    column: str,
    *,
    exif: bool = False,
    threads: int | None = None,
    limits: Limits | None = None,
    cache: str | None = None,
) -> ImageSizes:
    """Return int32 [N, 2]: height and width in pixels of each sample's image in `column`, read-only.

    Sizes are (0, 0) for a missing or damaged image, or one beyond `limits`. `exif`: apply the EXIF orientation.
    `threads`: native threads that read headers; None: one per core.

    Columns `width` and `height`, as in COCO annotations, are trusted for the column `image`, or else the first column
    of images; with `exif`, if a few images have these sizes. All other sizes come from headers, via a library if the
    core does not know the format. They are cached in the folder `cache`, or the default cache folder. The cache is
    valid for the same samples while the size and modification time of a few of their files are unchanged.

    Raises UsageError (no column of images), and as `Dataset.read` does if reading fails.
    """
    files_of = dataset.table.bytes_of(column)
    limits = Limits() if limits is None else limits
    count = default_threads() if threads is None else threads
    probe_part = partial(probe_sizes, column=column, exif=exif, threads=count, limits=limits)
    stated = _stated_sizes(dataset, column)
    if stated is not None and (not exif or _are_right(stated, dataset, probe_part)):
        return stated

    def probe() -> ImageSizes:
        return probe_part(dataset)

    if len(dataset) < _WORTH_KEEPING:
        sizes = probe()
        sizes.flags.writeable = False
        return sizes
    return _open_cached(
        _cached_at(dataset, column, files_of, exif=exif, limits=limits, cache=cache), len(dataset), probe
    )


def _open_cached(place: str, count: int, probe: Callable[[], ImageSizes]) -> ImageSizes:
    what = f"the sizes of {count:,} images"
    lost = f"{what} cannot be cached, so each start reads their headers again"
    found = cached_array(
        place, 2 * count, lambda: probe().reshape(-1), format=SIZES_FORMAT, name="sizes", what=what, least=0, lost=lost
    )
    return found.reshape(-1, 2)


def _cached_at(
    dataset: Dataset, column: str, files: ByteColumn, *, exif: bool, limits: Limits, cache: str | None
) -> str:
    """Return the cache path for the sizes of these samples' images; the name covers everything they depend on."""
    bounds: list[int | str] = [
        limits.max_pixels,
        limits.max_jpeg_scans,
        limits.max_png_chunk_bytes,
        limits.max_file_bytes,
    ]
    bounds += limits.formats
    known = json.dumps([SIZES_FORMAT, dataset.fingerprint, column, exif, bounds, file_versions(dataset, files)])
    name = f"sizes.{hashlib.blake2b(known.encode(), digest_size=16).hexdigest()}.headrace"
    return os.path.join(cache_folder() if cache is None else os.path.abspath(cache), name)


def _are_right(stated: ImageSizes, dataset: Dataset, probe: Callable[[Dataset], ImageSizes]) -> bool:
    """Return True if a few images, spread over the dataset, have the stated sizes, or no readable header.

    Tables often state the size of the stored pixels, which EXIF turns, or that of a larger original.
    """
    few = np.unique(np.linspace(0, len(dataset) - 1, min(_LOOKED_AT, len(dataset))).astype(np.int64))
    found = probe(dataset.select(few))
    return bool(((found == stated[few]) | (found == 0)).all())


def stated_columns(dataset: Dataset, column: str) -> list[ValueColumn]:
    """Return the columns with the height and width of the images in `column`; empty if the dataset has none."""
    if column != ("image" if dataset.has_bytes("image") else next(filter(dataset.has_bytes, dataset.columns), None)):
        return []
    numbers = [dataset.columns.get(name) for name in ("height", "width")]
    columns = [column for column in numbers if isinstance(column, ValueColumn)]
    return columns if len(columns) == 2 else []


def _stated_sizes(dataset: Dataset, column: str) -> ImageSizes | None:
    """Return the sizes in the dataset's own columns; None if `column` has none, or invalid ones."""
    columns = stated_columns(dataset, column)
    if not columns:
        return None
    sizes = mapped_zeros((len(dataset), 2), np.int32)
    for positions in position_blocks(len(dataset)):
        ids = positions if dataset.base_ids is None else dataset.base_ids[positions]
        values = [column.take(ids) for column in columns]
        for side in values:  # whole numbers of pixels
            if side.dtype.kind not in "iuf" or not ((side >= 1) & (side <= _MOST) & (side == np.floor(side))).all():
                return None
        sizes[positions[0] : positions[-1] + 1] = np.stack(values, axis=1)
        release_pages(sizes, *(column.values for column in columns))
    sizes.flags.writeable = False
    return sizes
