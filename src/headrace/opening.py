"""`headrace.open`: a dataset where it lies, or where it was staged."""

from __future__ import annotations

import os
from collections.abc import Sequence

from headrace.data import Dataset, Where
from headrace.data import open as open_in_place
from headrace.data.class_names import Classes
from headrace.data.opening import OpenArguments, find_source
from headrace.data.sources.path_root import Root

Path = str | os.PathLike[str]


def open_dataset(
    where: Where,
    *,
    classes: Classes | None = None,
    root: Root | None = None,
    columns: Sequence[str] | None = None,
    cache: Path | None = None,
    stage: Path | None = None,
    length: int | None = None,
) -> Dataset:
    """The samples at `where`, without reading one of them.

    `where` is one of:
    - a folder of class folders (columns `image`, `label`), or a folder tree with images directly in it (`image`);
    - tars or zips: one, a glob (`shards/*.tar`), a brace list (`train-{000..009}.tar`), or a list of them. Members that
      share a stem (the name up to its first dot) are one sample, and each extension is a column; `image`, `label` and
      `text` stand for the usual ones;
    - a manifest (`.csv`, `.tsv`, `.txt`, `.jsonl`, `.odgt`, `.parquet`, `.arrow`), several of one format, or a folder
      of them: a sample a row, with columns of paths, values and, of parquet and Arrow, bytes or `{bytes, path}` as the
      Hugging Face Hub has images. An image field takes a column of texts as paths, any other field as values;
    - a mapping such as `{"image": "images/", "mask": "masks/*_mask.png"}`: folders or patterns whose files belong
      together by their stems;
    - COCO's annotations (`.json`): a sample an image, with lists of captions, or of boxes and labels;
    - a folder that Hugging Face datasets' `save_to_disk` wrote;
    - images: a pattern (`photos/*.jpg`), or a list of their paths (column `image`);
    - samples in memory: a list of (path, label), as torchvision's `samples` are; a dict of columns, which are lists or
      arrays of numbers, texts, paths or bytes; a list of dicts; or an iterable of dicts, which is read to its end;
    - a pandas or polars DataFrame, a pyarrow Table, or a `datasets.Dataset`, whose Arrow data is read in place.

    Files are known by their first bytes, and manifests of text by their ending. Arguments that mean nothing for what is
    opened are refused.

    `classes`: take first-level folder names as classes; None: only for a folder without images directly in it. A list
    of names keeps the samples of these classes alone, numbered in that order; then also where a column `label` has the
    classes, or, of whole numbers, has these names.
    `root`: the folder that the paths in a manifest, in annotations or in memory lead into, and not out of, or archives
    that hold the files; None: paths are relative to the manifest's own folder (those in memory to the current one), or
    absolute.
    `columns`: names for a manifest without a header, or for rows in memory; of columns that have names, those to take.
    Of archives, `json.KEY` is what the `.json` members have under that key.
    `cache`: folder for the indices of archives and manifests; None: beside each, or in the default cache folder where
    that is not writable.
    `length`: how many samples an iterable gives that does not say; another number is an error.
    `stage`: folder on a faster file system, such as `/dev/shm/NAME`, that everything is copied into first, unless it is
    there already; of several processes one copies and the others wait. The samples and their identity stay the same, so
    a state that was saved without it goes on with it.

    Raises UsageError, NotFoundError, EmptyDatasetError, DatasetError (damaged, compressed, no archive) or ReadError;
    with `stage` also WriteError (it would not fit, or cannot be written).
    """
    if stage is not None:
        given = OpenArguments(classes=classes, root=root, columns=columns, cache=cache, stage=stage, length=length)
        find_source(where, given)  # what is wrong is said before anything is copied
        from headrace.data.staging.staged_dataset import stage_dataset

        where, root = stage_dataset(where, root=root, to=stage)
    return open_in_place(where, classes=classes, root=root, columns=columns, cache=cache, length=length)
