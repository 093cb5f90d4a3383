"""Tars in the WebDataset layout as one table: their indices, one after another."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from ..errors import DatasetError, EmptyDatasetError
from .archive_samples import ArchiveKeys, ArchiveSamples
from .columns import Column, ValueColumn
from .compressed import refuse_compressed
from .index import TarIndex
from .table import Table
from .tar_columns import TarColumn, samples_of, tar_columns, tar_files
from .tar_sidecar import open_index

_INDEXING_THREADS = 8  # scanning waits for the disk, not for the processor
_NAMES_IN_MESSAGE = 5


def open_tars(paths: Sequence[str], *, classes: bool, cache: str | None) -> Table:
    """The samples of tars (absolute paths), in the order given and as they lie in each.

    `classes`: keep only images below a first-level folder, and take its name as the class; an extension `label` or
    `cls` then gives way to it.
    """
    indices = _open_indices(paths, cache)
    skipped = sum((Counter(dict(index.samples.skipped)) for index in indices), Counter[str]())
    samples = samples_of(indices)
    if not len(samples):
        raise EmptyDatasetError(_nothing_there(paths, skipped))
    files = tar_files(paths)
    columns: Mapping[str, Column] = tar_columns(indices, files, samples)
    if classes:
        kept, label = _classes(paths, samples, columns.get("image"), skipped)
        samples = samples.keep(kept)
        columns = _with_label(tar_columns(indices, files, samples), label)
    digest = indices[0].digest if len(indices) == 1 and not classes else None
    return Table(_source(paths), ArchiveKeys(samples), columns, dict(sorted((+skipped).items())), known_digest=digest)


def _open_indices(paths: Sequence[str], cache: str | None) -> list[TarIndex]:
    for path in paths:
        refuse_compressed(path)
    if len(paths) == 1:
        return [open_index(paths[0], cache=cache)]
    with ThreadPoolExecutor(_INDEXING_THREADS, thread_name_prefix="headrace-index") as pool:
        try:
            return list(pool.map(lambda path: open_index(path, cache=cache), paths))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _classes(
    paths: Sequence[str], samples: ArchiveSamples, image: Column | None, skipped: Counter[str]
) -> tuple[npt.NDArray[np.int64], ValueColumn]:
    """Which samples have a folder and an image, and their classes: their folders' indices by sorted name."""
    names = sorted({name for part in samples.samples for name in part.folders})
    if not isinstance(image, TarColumn) or not names:
        keys = ArchiveKeys(samples)
        some = ", ".join(repr(keys[i]) for i in range(min(len(keys), _NAMES_IN_MESSAGE)))
        raise DatasetError(
            f"{_source(paths)}: expected images in class folders (classes=True), got samples such as {some}. "
            f"Pass classes=False"
        )
    folder = _folders(samples, names)
    has_image = image.present(np.arange(len(samples)))
    skipped["samples outside class folders"] = int(np.count_nonzero(folder < 0))
    skipped["samples without an image"] = int(np.count_nonzero((folder >= 0) & ~has_image))
    kept = np.flatnonzero((folder >= 0) & has_image)
    if not len(kept):
        raise EmptyDatasetError(
            f"{_source(paths)}: expected images in class folders (classes=True), got none in any folder. "
            f"Pass classes=False"
        )
    used, labels = np.unique(folder[kept], return_inverse=True)
    return kept, ValueColumn(labels.astype(np.int64), tuple(names[rank] for rank in used))


def _folders(samples: ArchiveSamples, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """For each sample the position of its folder in `names`, or -1."""
    ranks = {name: rank for rank, name in enumerate(names)}
    # The last entry serves folder_of's -1: no folder.
    rank_of = [np.array([*(ranks[name] for name in part.folders), -1]) for part in samples.samples]
    return np.concatenate([ranks[part.folder_of] for ranks, part in zip(rank_of, samples.samples, strict=True)])


def _with_label(columns: Mapping[str, Column], label: ValueColumn) -> dict[str, Column]:
    """The class takes the place of a column `label`, after the image."""
    return {"image": columns["image"], "label": label} | {
        name: column for name, column in columns.items() if name != "label"
    }


def _source(paths: Sequence[str]) -> str:
    first, last = os.path.basename(paths[0]), os.path.basename(paths[-1])
    return f"tar {first}" if len(paths) == 1 else f"{len(paths):,} tars {first} … {last}"


def _nothing_there(paths: Sequence[str], skipped: Mapping[str, int]) -> str:
    got = ", ".join(f"{count:,} {what}" for what, count in skipped.items()) or "nothing"
    where = paths[0] if len(paths) == 1 else _source(paths)
    return f"{where}: expected regular files with an extension, got {got}. Look at it with `tar -tvf`"
