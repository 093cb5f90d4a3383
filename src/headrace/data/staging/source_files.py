"""What a source holds: every regular file, also through links, with its size and its time."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headrace.data.partial_file import PARTIAL_SUFFIX
from headrace.data.storage.open_file import unreadable
from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.data.walking import walk
from headrace.errors import EmptyDatasetError
from headrace.stage.sources import Source

_UNFINISHED = next(suffix for suffix in INDEX_SUFFIXES if suffix.endswith(PARTIAL_SUFFIX))


@dataclass(frozen=True)
class Wanted:
    """A file that is to lie in the folder of copies."""

    path: bytes
    """There, relative to it."""
    source: bytes
    size: int
    mtime_ns: int
    mode: int
    """Permissions: those of the source, and the owner's to read and write."""


@dataclass
class Listing:
    files: list[Wanted] = field(default_factory=list)
    folders: list[bytes] = field(default_factory=list)
    """Relative to the folder of copies; empty ones count, too: they may be classes."""
    skipped: Counter[str] = field(default_factory=Counter)
    """What is not copied, by reason."""


def list_sources(sources: Sequence[Source]) -> Listing:
    """Files in the order of their paths, source by source. An archive comes with the indices that lie beside it.

    Raises ReadError, or EmptyDatasetError where there is no file at all.
    """
    listing = Listing()
    for source in sources:
        if source.only is not None:
            _take(listing, source, ((name, os.path.join(source.path, name)) for name in source.only))
        elif os.path.isdir(source.path):
            _take_folder(listing, source)
        else:
            _take_file(listing, source)
    if not listing.files:
        raise EmptyDatasetError(f"{os.fsdecode(sources[0].path)}: expected files to stage, got none. Check the path")
    return listing


def _take_folder(listing: Listing, source: Source) -> None:
    def count_circle() -> None:
        listing.skipped["folder links that lead back"] += 1

    found = sorted(walk(source.path, lambda full: _scan(full, listing.skipped), in_circle=count_circle))
    for folder, names in found:
        listing.folders.append(os.path.join(source.name, folder) if folder else source.name)
        paths = (os.path.join(folder, name) if folder else name for name in sorted(names))
        _take(listing, source, ((path, os.path.join(source.path, path)) for path in paths))


def _take_file(listing: Listing, source: Source) -> None:
    folder, name = os.path.split(source.path)
    beside = [INDEX_SUFFIXES[0]]
    listing.files.append(_wanted(source.name, source.path))
    for suffix in beside:
        index = os.path.join(folder, name + os.fsencode(suffix))
        if os.path.isfile(index):
            listing.files.append(_wanted(source.name + os.fsencode(suffix), index))


def _take(listing: Listing, source: Source, files: Iterator[tuple[bytes, bytes]]) -> None:
    for name, path in files:
        if name.endswith(os.fsencode(_UNFINISHED)):
            listing.skipped["indices that are being built"] += 1
        else:
            listing.files.append(_wanted(os.path.join(source.name, name), path))


def _wanted(path: bytes, source: bytes) -> Wanted:
    try:
        status = os.stat(source)
    except OSError as error:
        raise unreadable(source, 0, error) from error
    mode = stat.S_IMODE(status.st_mode) & 0o777 | 0o600
    return Wanted(path, source, status.st_size, status.st_mtime_ns, mode)


def _scan(full: bytes, skipped: Counter[str]) -> tuple[list[bytes], list[bytes]]:
    """Names of the subfolders and of the files in one folder."""
    folders, files = [], []
    with os.scandir(full) as entries:
        for entry in entries:
            if entry.is_dir():
                folders.append(entry.name)
            elif entry.is_file():
                files.append(entry.name)
            else:
                skipped["broken links and special files"] += 1
    return folders, files
