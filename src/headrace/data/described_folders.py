"""Folders and prefixes that a file in them describes: shards of other loaders, and LeRobot's datasets."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from functools import partial
from itertools import islice

from headrace.data.open_arguments import OpenableSource, OpenArguments, root_of
from headrace.data.remote.listing import Listing
from headrace.data.sources.lerobot import INFO, open_lerobot
from headrace.data.sources.shard_formats import INDEX_NAME, describes_shards
from headrace.data.sources.shard_source import open_shards
from headrace.data.storage.open_file import FilePath, file_name, folder_of
from headrace.data.table import SampleTable
from headrace.errors import UsageError

_MOST_SPLITS = 16
"""Entries of a folder in which splits are looked for; folders of classes or images have more."""
_TAKES = ("columns", "cache", "classes")


def described_folder(folder: str, given: OpenArguments) -> OpenableSource | None:
    """Return the source in an absolute folder; None if nothing describes it. Raises UsageError for several splits."""
    with os.scandir(folder) as entries:  # a folder may have millions of files, which are listed later
        here = sorted(entry.name for entry in islice(entries, _MOST_SPLITS + 1))
    splits = [f"{name}/{INDEX_NAME}" for name in here] if len(here) <= _MOST_SPLITS else []
    names = [name for name in (INDEX_NAME, *splits) if os.path.isfile(os.path.join(folder, name))]
    if os.path.isfile(os.path.join(folder, INFO)):
        names += [name for pattern in ("meta/*", "data/*/*") for name in glob.glob(pattern, root_dir=folder)]
    return _described(folder, {name: os.path.join(folder, name) for name in names}, given)


def described_prefix(listing: Listing, given: OpenArguments) -> OpenableSource | None:
    """Return the source in a prefix, as `described_folder` does."""
    blob = listing.names.blob.tobytes()
    if INDEX_NAME.encode() not in blob and INFO.encode() not in blob:
        return None
    paths = {name: listing.path(number) for number, name in enumerate(listing.names)}
    return _described(str(listing.prefix), dict(sorted(paths.items(), key=lambda item: item[0].count("/"))), given)


def shards_of(index: FilePath, given: OpenArguments) -> OpenableSource:
    """Return the source of the shards that an `index.json` describes."""
    make_table = partial(open_shards, index, columns=given.columns, cache=given.cache_folder)
    return OpenableSource(file_name(index), "shards of another loader", _TAKES, make_table, labelled=True)


def _described(folder: str, paths: Mapping[str, FilePath], given: OpenArguments) -> OpenableSource | None:
    """Return the source that one of the files at `paths` describes, which are by name, the folder's own first."""
    if INFO in paths:
        return OpenableSource(INFO, "a LeRobot dataset", _TAKES, partial(_open_lerobot, paths, given), labelled=True)
    indices = {
        name: path
        for name, path in paths.items()
        if name.split("/")[1:] in ([], [INDEX_NAME]) and file_name(path) == INDEX_NAME and describes_shards(path)
    }
    if len(indices) > 1 and INDEX_NAME not in indices:
        raise UsageError(
            f"{folder}: expected the shards of one split, got those of {len(indices)}. Open one of them: "
            f"{', '.join(map(folder_of, indices.values()))}"
        )
    return shards_of(next(iter(indices.values())), given) if indices else None


def _open_lerobot(paths: Mapping[str, FilePath], given: OpenArguments) -> SampleTable:
    root = root_of([paths[INFO]], given)
    return open_lerobot(paths, root=root, columns=given.columns, cache=given.cache_folder)
