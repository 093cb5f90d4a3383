"""Tars in the WebDataset layout as one table: their indices joined, with the usual columns under their usual names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from ..errors import DatasetError, EmptyDatasetError
from .columns import Column, RangeColumn, ValueColumn
from .compressed import refuse_compressed
from .files import Files
from .formats import IMAGE_EXTENSIONS
from .index import TarIndex
from .members import Members
from .strings import StringColumn
from .table import Table
from .tar_sidecar import open_index

_INDEXING_THREADS = 8  # scanning waits for the disk, not for the processor
_USUAL = ("image", "label", "text")
_NAMES_IN_MESSAGE = 5


def open_tars(paths: Sequence[str], *, classes: bool, cache: str | None) -> Table:
    """The samples of tars (absolute paths), in the order given and as they lie in each.

    `classes`: keep only images below a first-level folder, and take its name as the class; an extension `label` or
    `cls` then gives way to it.
    """
    indices = _open_indices(paths, cache)
    skipped = sum((Counter(dict(index.skipped)) for index in indices), Counter[str]())
    if not any(len(index.keys) for index in indices):
        raise EmptyDatasetError(_nothing_there(paths, skipped))
    joined = _join(indices)
    label = None
    if classes:
        kept, label = _classes(paths, indices, joined, skipped)
        joined = joined.take(kept)
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    relative = StringColumn.from_list(os.path.relpath(path, root) for path in paths)
    columns = _columns(Files(root, relative, archives=True), joined, label)
    return Table(_source(paths), joined.keys, columns, dict(sorted((+skipped).items())))


@dataclass(frozen=True, eq=False)
class _Joined:
    """The samples of all tars in one."""

    keys: StringColumn
    path_id: npt.NDArray[np.int32]
    members: Mapping[str, Members]
    """By extension, and `image`, `label`, `text`."""

    def take(self, ids: npt.NDArray[np.int64]) -> _Joined:
        if len(ids) == len(self.keys):
            return self
        members = {name: column.take(ids) for name, column in self.members.items()}
        return _Joined(self.keys.take(ids), self.path_id[ids], members)


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


def _join(indices: Sequence[TarIndex]) -> _Joined:
    if len(indices) == 1:
        keys, extensions = indices[0].keys, dict(indices[0].columns)
        # One number, however many samples.
        path_id = np.broadcast_to(np.int32(0), len(keys))
    else:
        keys = StringColumn.join(index.keys for index in indices)
        names = sorted({name for index in indices for name in index.columns})
        extensions = {name: Members.join([_members(index, name) for index in indices]) for name in names}
        path_id = np.repeat(np.arange(len(indices), dtype=np.int32), [len(index.keys) for index in indices])
    return _Joined(keys, path_id, _aliases(extensions) | extensions)


def _members(index: TarIndex, name: str) -> Members:
    return index.columns[name] if name in index.columns else Members.none(len(index.keys))


def _aliases(extensions: Mapping[str, Members]) -> dict[str, Members]:
    """`image`, `label` and `text`; an extension of that very name goes first."""
    aliases = {}
    images = [extensions[name] for name in IMAGE_EXTENSIONS if name in extensions]
    if images:
        aliases["image"] = reduce(Members.or_else, images)
    aliases |= {name: extensions[short] for name, short in (("label", "cls"), ("text", "txt")) if short in extensions}
    return aliases


def _classes(
    paths: Sequence[str], indices: Sequence[TarIndex], joined: _Joined, skipped: Counter[str]
) -> tuple[npt.NDArray[np.int64], ValueColumn]:
    """Which samples have a folder and an image, and their classes: their folders' indices by sorted name."""
    names = sorted({name for index in indices for name in index.folders})
    if "image" not in joined.members or not names:
        some = ", ".join(repr(joined.keys[i]) for i in range(min(len(joined.keys), _NAMES_IN_MESSAGE)))
        raise DatasetError(
            f"{_source(paths)}: expected images in class folders (classes=True), got samples such as {some}. "
            f"Pass classes=False"
        )
    ranks = {name: rank for rank, name in enumerate(names)}
    # The last entry serves folder_of's -1: no folder.
    rank_of = [np.array([*(ranks[name] for name in index.folders), -1]) for index in indices]
    folder = np.concatenate([ranks[index.folder_of] for ranks, index in zip(rank_of, indices, strict=True)])
    has_image = joined.members["image"].present
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


def _columns(files: Files, joined: _Joined, label: ValueColumn | None) -> dict[str, Column]:
    """The usual columns first, then extensions by name."""
    columns: dict[str, Column] = {
        name: RangeColumn(files, joined.path_id, *part) for name, part in joined.members.items()
    }
    if label is not None:
        columns["label"] = label
    usual = [name for name in _USUAL if name in columns]
    return {name: columns[name] for name in [*usual, *sorted(columns.keys() - set(usual))]}


def _source(paths: Sequence[str]) -> str:
    first, last = os.path.basename(paths[0]), os.path.basename(paths[-1])
    return f"tar {first}" if len(paths) == 1 else f"{len(paths):,} tars {first} … {last}"


def _nothing_there(paths: Sequence[str], skipped: Mapping[str, int]) -> str:
    got = ", ".join(f"{count:,} {what}" for what, count in skipped.items()) or "nothing"
    where = paths[0] if len(paths) == 1 else _source(paths)
    return f"{where}: expected regular files with an extension, got {got}. Look at it with `tar -tvf`"
