"""`open`: from a path, a pattern or a list of tars to a `Dataset`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence

from ..errors import DatasetError, NotFoundError, UsageError
from .dataset import Dataset
from .folder import open_folder
from .matched import open_matched
from .patterns import expand, is_pattern
from .tar import open_tars
from .zip import is_zip, open_zips

Path = str | os.PathLike[str]
Where = Path | Sequence[Path] | Mapping[str, Path]


def open_dataset(where: Where, *, classes: bool | None = None, cache: Path | None = None) -> Dataset:
    """The samples at `where`, without reading one of them.

    `where`: a folder of class folders (columns `image`, `label`), a folder tree with images directly in it (column
    `image`), a tar, a glob (`shards/*.tar`), a brace list (`train-{000..009}.tar`), or a list of tars. In tars,
    members that share a stem (the name up to its first dot) are one sample, and each extension is a column; `image`,
    `label` and `text` stand for the usual ones. A mapping such as `{"image": "images/", "mask": "masks/*_mask.png"}`
    opens folders or patterns whose files belong together by their stems.
    `classes`: take first-level folder names as classes; None: only for a folder without images directly in it.
    `cache`: folder for the indices of tars; None: beside each tar, or in the default cache folder where that is not
    writable.

    Raises UsageError, NotFoundError, EmptyDatasetError, DatasetError (damaged, compressed, not a tar) or ReadError.
    """
    if isinstance(where, Mapping):
        return Dataset(open_matched({name: _text(path) for name, path in where.items()}))
    if isinstance(where, list | tuple):
        paths = [path for part in where for path in _resolve(_text(part))]
        if not paths:
            raise UsageError("expected the paths of tars, got an empty list")
    else:
        paths = _resolve(_text(where))
        if len(paths) == 1 and os.path.isdir(paths[0]):
            return Dataset(open_folder(paths[0], classes=classes))
    for path in paths:
        _expect_file(path)
    open_archives = open_zips if _are_zips(paths) else open_tars
    return Dataset(
        open_archives(paths, classes=bool(classes), cache=None if cache is None else os.path.abspath(_text(cache)))
    )


def _are_zips(paths: Sequence[str]) -> bool:
    """Whether all are zips rather than tars. Raises UsageError where only some are."""
    zips = [is_zip(path) for path in paths]
    if any(zips) and not all(zips):
        raise UsageError(
            f"expected tars alone or zips alone, got the zip {paths[zips.index(True)]} and the tar "
            f"{paths[zips.index(False)]}. Open them apart"
        )
    return any(zips)


def _text(path: object) -> str:
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"expected a path, a pattern or a list of tars, got {path!r}")
    text = os.fsdecode(path)
    if "://" in text:
        raise UsageError(f"expected a local path, got {text!r}. Download it, or mount it as a folder")
    if not text:
        raise UsageError("expected a path, got an empty string")
    return os.path.expanduser(text)


def _resolve(text: str) -> list[str]:
    """Absolute paths. What exists under exactly this name is never taken for a pattern."""
    if os.path.lexists(text) or not is_pattern(text):
        return [os.path.abspath(text)]
    paths = expand(text)
    if not paths:
        raise NotFoundError(f"expected files that match {text!r}, got none. {_nearby(os.path.abspath(text))}")
    return [os.path.abspath(path) for path in paths]


def _expect_file(path: str) -> None:
    if os.path.isdir(path):
        raise DatasetError(f"{path}: expected a tar, got a folder. Open a folder on its own, or name only tars")
    if not os.path.exists(path):
        raise NotFoundError(f"{path}: expected a folder or a tar, got nothing. {_nearby(path)}")
    if not os.path.isfile(path):
        raise DatasetError(f"{path}: expected a folder or a tar, got a special file. Check the path")


def _nearby(path: str) -> str:
    """The deepest folder of `path` that exists, and the name in it that comes closest to the next part."""
    while not os.path.isdir(parent := os.path.dirname(path)):
        path = parent
    try:
        names = os.listdir(parent)
    except OSError as error:
        return f"{parent} cannot be listed: {error.strerror}"
    close = difflib.get_close_matches(os.path.basename(path), names, 1)
    return (
        f"Did you mean {os.path.join(parent, close[0])}?"
        if close
        else f"{parent} exists and holds {len(names):,} entries"
    )
