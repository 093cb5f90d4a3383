"""`open`: from a path, a pattern or a list of archives to a `Dataset`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ..errors import DatasetError, NotFoundError, UsageError
from .dataset import Dataset
from .folder import open_folder
from .manifest import is_manifest, open_manifest
from .matched import open_matched
from .path_root import open_root
from .paths import nearby, path_text, resolve
from .tar import open_tars
from .zip import is_zip, open_zips

Path = str | os.PathLike[str]
Where = Path | Sequence[Path] | Mapping[str, Path]


def open_dataset(
    where: Where,
    *,
    classes: bool | None = None,
    root: Path | None = None,
    columns: Sequence[str] | None = None,
    cache: Path | None = None,
) -> Dataset:
    """The samples at `where`, without reading one of them.

    `where`: a folder of class folders (columns `image`, `label`), a folder tree with images directly in it (column
    `image`), a tar or a zip, a glob (`shards/*.tar`), a brace list (`train-{000..009}.tar`), or a list of tars or of
    zips. In these, members that share a stem (the name up to its first dot) are one sample, and each extension is a
    column; `image`, `label` and `text` stand for the usual ones. A mapping such as
    `{"image": "images/", "mask": "masks/*_mask.png"}` opens folders or patterns whose files belong together by their
    stems.
    A manifest (`.csv`, `.tsv`, `.txt`, `.jsonl`, `.odgt`, `.parquet`) lists a sample a row, with columns of paths and
    values: an image field takes its column as paths, any other as values.
    `classes`: take first-level folder names as classes; None: only for a folder without images directly in it.
    `root`: the folder that a manifest's paths lead into, and not out of; None: they are relative to the manifest's own
    folder, or absolute.
    `columns`: names for a manifest without a header; of one that has names, those to take.
    `cache`: folder for the indices of archives and manifests; None: beside each, or in the default cache folder where
    that is not writable.

    Raises UsageError, NotFoundError, EmptyDatasetError, DatasetError (damaged, compressed, no archive) or ReadError.
    """
    if isinstance(where, Mapping):
        return Dataset(open_matched({name: _path(path) for name, path in where.items()}))
    folder = None if cache is None else os.path.abspath(_path(cache))
    if isinstance(where, list | tuple):
        paths = [path for part in where for path in resolve(_path(part))]
        if not paths:
            raise UsageError("expected the paths of tars or zips, got an empty list")
    else:
        paths = resolve(_path(where))
        if len(paths) == 1 and os.path.isdir(paths[0]):
            return Dataset(open_folder(paths[0], classes=classes))
    for path in paths:
        _expect_file(path)
    if len(paths) == 1 and is_manifest(paths[0]):
        return Dataset(open_manifest(paths[0], root=open_root(root, manifest=paths[0]), columns=columns, cache=folder))
    open_archives = open_zips if _are_zips(paths) else open_tars
    return Dataset(open_archives(paths, classes=bool(classes), cache=folder))


def _path(path: object) -> str:
    return path_text(path, "a path, a pattern or a list of archives")


def _are_zips(paths: Sequence[str]) -> bool:
    """Whether all are zips rather than tars. Raises UsageError where only some are."""
    zips = [is_zip(path) for path in paths]
    if any(zips) and not all(zips):
        raise UsageError(
            f"expected tars alone or zips alone, got the zip {paths[zips.index(True)]} and the tar "
            f"{paths[zips.index(False)]}. Open them apart"
        )
    return any(zips)


def _expect_file(path: str) -> None:
    if os.path.isdir(path):
        raise DatasetError(
            f"{path}: expected an archive, got a folder. Open a folder on its own, or name only archives"
        )
    if not os.path.exists(path):
        raise NotFoundError(f"{path}: expected a folder, an archive or a manifest, got nothing. {nearby(path)}")
    if not os.path.isfile(path):
        raise DatasetError(f"{path}: expected a folder, an archive or a manifest, got a special file. Check the path")
