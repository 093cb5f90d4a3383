"""How large the images of a dataset are, before one of them is decoded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace._core import Limits
from headrace.cores import default_threads
from headrace.data.columns import ValueColumn
from headrace.data.dataset import Dataset
from headrace.data.kept_sizes import keep_sizes, kept_place
from headrace.data.mapped import let_go, mapped, pieces
from headrace.data.native_reading import Sizes, probe_sizes

_MOST = np.iinfo(np.int32).max
_WORTH_KEEPING = 1024
"""Fewer images are probed each time, which takes no longer than to look for what was kept."""


def image_sizes(
    dataset: Dataset,
    column: str,
    *,
    exif: bool = False,
    threads: int | None = None,
    limits: Limits | None = None,
    cache: str | None = None,
) -> Sizes:
    """int32 [N, 2]: height and width in pixels of each sample's image in `column`, in the dataset's own order;
    read-only. (0, 0) where the sample has none, or one that is damaged or beyond `limits`.

    Where the dataset has numbers in columns `width` and `height`, as COCO's annotations do, these are trusted for its
    column `image`, else for its first column of images, unless `exif` turns images as their EXIF orientation says. All
    other sizes are read from headers in `threads` native threads (None: one a core), by a library where the core does
    not know the format; and kept, in the folder `cache` or else in the default cache folder, so that the next call maps
    them from there. What was kept is not used when the samples, or the size or time of modification of a few of their
    files, are others.

    Raises UsageError (no column of images), and where reading fails what `Dataset.read` raises.
    """
    files_of = dataset.table.bytes_of(column)
    stated = None if exif else _stated_sizes(dataset, column)
    if stated is not None:
        return stated
    limits = Limits() if limits is None else limits
    count = default_threads() if threads is None else threads

    def probe() -> Sizes:
        return probe_sizes(dataset, column, exif=exif, threads=count, limits=limits)

    if len(dataset) < _WORTH_KEEPING:
        sizes = probe()
        sizes.flags.writeable = False
        return sizes
    return keep_sizes(kept_place(dataset, column, files_of, exif=exif, limits=limits, cache=cache), len(dataset), probe)


def _stated_sizes(dataset: Dataset, column: str) -> Sizes | None:
    """What the dataset's own columns say; None where they say nothing of this column's images, or nothing that can
    be."""
    if column != ("image" if dataset.has_bytes("image") else next(filter(dataset.has_bytes, dataset.columns), None)):
        return None
    numbers = [dataset.columns.get(name) for name in ("height", "width")]
    columns = [column for column in numbers if isinstance(column, ValueColumn)]
    if len(columns) < 2:
        return None
    sizes = mapped((len(dataset), 2), np.int32)
    for positions in pieces(len(dataset)):
        ids = positions if dataset.base_ids is None else dataset.base_ids[positions]
        values = [column.take(ids) for column in columns]
        if not all(_are_lengths(side) for side in values):
            return None
        sizes[positions[0] : positions[-1] + 1] = np.stack(values, axis=1)
        let_go(sizes, *(column.values for column in columns))
    sizes.flags.writeable = False
    return sizes


def _are_lengths(values: npt.NDArray[np.generic]) -> bool:
    """Whether all are whole numbers of pixels."""
    if values.dtype.kind not in "iuf":
        return False
    return bool(np.all((values >= 1) & (values <= _MOST) & (values == np.floor(values))))  # type: ignore[operator]
