"""`open`: from a path, a pattern or a list of tars to a `Dataset`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ..errors import DatasetError, NotFoundError, UsageError
from .coco import is_coco, open_coco
from .dataset import Dataset
from .folder import open_folder
from .manifest import is_manifest, open_manifest
from .matched import open_matched
from .path_root import Root, open_root
from .paths import nearby, path_text, resolve
from .saved_dataset import is_saved_dataset, open_saved_dataset
from .table import Table
from .tar import open_tars
from .zip import are_zips, open_zips

Path = str | os.PathLike[str]
Where = Path | Sequence[Path] | Mapping[str, Path]


def open_dataset(
    where: Where,
    *,
    classes: bool | None = None,
    root: Root | None = None,
    columns: Sequence[str] | None = None,
    cache: Path | None = None,
) -> Dataset:
    """The samples at `where`, without reading one of them. `headrace.open` says what it takes and raises."""
    if isinstance(where, Mapping):
        _refuse("what is opened", "a mapping of folders", classes=classes, root=root, columns=columns)
        return Dataset(open_matched({name: _path(path) for name, path in where.items()}))
    if isinstance(where, list | tuple):
        paths = [path for part in where for path in resolve(_path(part))]
        if not paths:
            raise UsageError("expected the paths of tars or zips, got an empty list")
    else:
        paths = resolve(_path(where))
        if len(paths) == 1 and os.path.isdir(paths[0]):
            _refuse(paths[0], "a folder", root=root, columns=columns)
            return Dataset(_open_folder(paths[0], classes))
    folder = None if cache is None else os.path.abspath(_path(cache))
    return Dataset(_open_files(paths, classes=classes, root=root, columns=columns, cache=folder))


def _open_folder(path: str, classes: bool | None) -> Table:
    if not is_saved_dataset(path):
        return open_folder(path, classes=classes)
    _refuse(path, "a saved dataset, whose columns are named", classes=classes)
    return open_saved_dataset(path)


def _open_files(
    paths: Sequence[str], *, classes: bool | None, root: Root | None, columns: Sequence[str] | None, cache: str | None
) -> Table:
    for path in paths:
        _expect_file(path)
    if any(map(is_manifest, paths)):
        path = paths[0]
        _refuse(path, "a manifest, whose columns hold what classes there are", classes=classes)
        return open_manifest(paths, root=open_root(root, manifest=path, cache=cache), columns=columns, cache=cache)
    if any(map(is_coco, paths)):
        path = _only(paths)
        _refuse(path, "COCO's annotations, whose columns are named", classes=classes, columns=columns)
        return open_coco(path, open_root(root, manifest=path, cache=cache))
    _refuse(paths[0], "no manifest", root=root, columns=columns)
    open_archives = open_zips if are_zips(paths) else open_tars
    return open_archives(paths, classes=bool(classes), cache=cache)


def _only(paths: Sequence[str]) -> str:
    if len(paths) > 1:
        raise UsageError(f"expected one manifest, got {len(paths):,} paths. Join manifests into one, or open each")
    return paths[0]


def _refuse(path: str, what: str, **arguments: object) -> None:
    """Raises UsageError for an argument that means nothing for what is opened."""
    for name, value in arguments.items():
        if value is not None:
            raise UsageError(f"{name}: expected none, got {value!r}: {os.path.basename(path)} is {what}. Leave it out")


def _path(path: object) -> str:
    return path_text(path, "a path, a pattern or a list of archives")


def _expect_file(path: str) -> None:
    if os.path.isdir(path):
        raise DatasetError(
            f"{path}: expected an archive, got a folder. Open a folder on its own, or name only archives"
        )
    if not os.path.exists(path):
        raise NotFoundError(f"{path}: expected a folder, an archive or a manifest, got nothing. {nearby(path)}")
    if not os.path.isfile(path):
        raise DatasetError(f"{path}: expected a folder, an archive or a manifest, got a special file. Check the path")
