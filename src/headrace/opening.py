"""`open`: a dataset where it lies, or where it was staged."""

from __future__ import annotations

import os
from collections.abc import Sequence

from headrace.data import Dataset, Where
from headrace.data import open as open_in_place
from headrace.data.path_root import Root

Path = str | os.PathLike[str]


def open_dataset(
    where: Where,
    *,
    classes: bool | None = None,
    root: Root | None = None,
    columns: Sequence[str] | None = None,
    cache: Path | None = None,
    stage: Path | None = None,
) -> Dataset:
    """The samples at `where`, without reading one of them.

    `where` is one of:
    - a folder of class folders (columns `image`, `label`), or a folder tree with images directly in it (`image`);
    - tars or zips: one, a glob (`shards/*.tar`), a brace list (`train-{000..009}.tar`), or a list of them. Members that
      share a stem (the name up to its first dot) are one sample, and each extension is a column; `image`, `label` and
      `text` stand for the usual ones;
    - a manifest (`.csv`, `.tsv`, `.txt`, `.jsonl`, `.odgt`, `.parquet`): a sample a row, with columns of paths and
      values. An image field takes its column as paths, any other as values;
    - a mapping such as `{"image": "images/", "mask": "masks/*_mask.png"}`: folders or patterns whose files belong
      together by their stems;
    - COCO's annotations (`.json`): a sample an image, with lists of captions, or of boxes and labels;
    - a folder that Hugging Face datasets' `save_to_disk` wrote.

    `classes`: take first-level folder names as classes; None: only for a folder without images directly in it.
    `root`: the folder that the paths in a manifest or annotations lead into, and not out of, or archives that hold the
    files; None: paths are relative to its own folder, or absolute.
    `columns`: names for a manifest without a header; of one that has names, those to take.
    `cache`: folder for the indices of archives and manifests; None: beside each, or in the default cache folder where
    that is not writable.
    `stage`: folder on a faster file system, such as `/dev/shm/NAME`, that everything is copied into first, unless it is
    there already; of several processes one copies and the others wait. The samples and their identity stay the same, so
    a state that was saved without it goes on with it.

    Raises UsageError, NotFoundError, EmptyDatasetError, DatasetError (damaged, compressed, no archive) or ReadError;
    with `stage` also WriteError (it would not fit, or cannot be written).
    """
    if stage is not None:
        from headrace.stage.whole_dataset import stage_dataset

        where, root = stage_dataset(where, root=root, to=stage)
    return open_in_place(where, classes=classes, root=root, columns=columns, cache=cache)
