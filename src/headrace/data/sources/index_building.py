"""Build the indices of tars, zips and manifests, local or in stores, before the first opening."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from headrace.data.archives.archive_index import ArchiveKind
from headrace.data.archives.archive_scans import ScanProgress, ScanState, scan_each
from headrace.data.archives.merged_index import MergedFile, check_merged_target, write_merged_index
from headrace.data.archives.tar_index import TAR
from headrace.data.archives.zip_index import ZIP
from headrace.data.manifest import open_manifest
from headrace.data.manifest.manifest_table import ROW_SUFFIXES
from headrace.data.remote.key_ranges import list_objects
from headrace.data.remote.listing import Stores, path_of
from headrace.data.remote.remote_file import ObjectPath
from headrace.data.sources.file_kind import kind_of, refuse_compressed
from headrace.data.sources.path_root import open_root
from headrace.data.sources.shard_formats import INDEX_NAME, describes_shards
from headrace.data.sources.shard_source import identify_shards, open_shards
from headrace.data.storage import safetensors
from headrace.data.storage.open_file import FilePath, OpenFile, file_name
from headrace.data.storage.paths import local_path, resolve_paths, suggest_path
from headrace.data.storage.sidecar import FileIdentity, identify_archive, identify_closely, sidecar_places
from headrace.errors import DatasetError, EmptyDatasetError, HeadraceError, NotFoundError, UsageError
from headrace.stores import is_remote


class IndexCounts(NamedTuple):
    """Numbers of members and samples in a file."""

    members: int
    samples: int | None
    """Number of samples; None: the members form no samples."""


@dataclass(frozen=True)
class IndexKind:
    """Kind of file with a cached index."""

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[Any, FileIdentity, str | None], IndexCounts]
    """Function that finds or builds the index, given a path, its identity and a cache folder or None."""
    identify: Callable[[FilePath], FileIdentity] = identify_archive
    listed: bool = True
    """True if a folder argument includes such files in it."""


@dataclass(frozen=True)
class IndexedFile:
    """File with its cached index."""

    path: str
    """Path or address."""
    kind: str
    bytes: int
    """Size of the file."""
    members: int
    samples: int | None
    kept_at: str | None
    """Path of the index; None: a file of this size needs none."""
    built: bool
    """True if the index did not exist before."""
    wall_s: float


@dataclass(frozen=True)
class UnindexedFile:
    """File that cannot be indexed, and the reason."""

    path: str
    """Path or address."""
    error: HeadraceError


IndexOutcome = IndexedFile | UnindexedFile


def build_indices(
    paths: Sequence[FilePath],
    *,
    cache: str | None,
    threads: int | None = None,
    tick: Callable[[ScanState], None] | None = None,
    gap_bytes: int | None = None,
) -> list[IndexOutcome]:
    """Build the missing indices, several at once, and return the outcome for each file, in the order of `paths`.

    `tick` is called periodically with the progress of the scans. A file that cannot be indexed does not stop the
    others. `threads`: as `scan_each` takes it; `gap_bytes`: as `ScanProgress` does. Raises UsageError.
    """
    progress = ScanProgress(gap_bytes=gap_bytes)
    progress.expect(paths, cache=cache)

    def index(path: FilePath) -> IndexOutcome:
        try:
            return index_file(path, cache=cache)
        except HeadraceError as error:
            return UnindexedFile(str(path), error)

    with warnings.catch_warnings():
        # Elsewhere, an index that cannot be cached is a warning; here, the index is all that the caller wants.
        warnings.filterwarnings("error", message="the index of ", category=UserWarning)
        return scan_each(paths, index, progress, tick=tick, threads=threads)


def index_written(path: ObjectPath, copy: str) -> None:
    """Cache the index of a tar that was just written from the file `copy`, which is scanned in place of the object.

    Raises ReadError, NotFoundError.
    """
    scanned = replace(TAR, build=lambda _: TAR.build(copy))
    scanned.open_members(path, identify_archive(path), cache=None)


def merged_target(to: str, stores: Stores) -> str:
    """Return the address or absolute path to write a merged index to. Raises as `check_merged_target` does."""
    place = to if is_remote(to) else os.path.abspath(local_path(to, "a path or an address as --to"))
    check_merged_target(place, stores)
    return place


def merge_indices(paths: Sequence[FilePath], outcomes: Sequence[IndexOutcome], to: str, stores: Stores) -> MergedFile:
    """Merge the indices that `build_indices` returned for `paths` into one file at `to`.

    Raises UsageError for anything but archives in stores, and as `write_merged_index` does.
    """
    archives: list[tuple[ObjectPath, str]] = []
    for path, outcome in zip(paths, outcomes, strict=True):
        if not isinstance(path, ObjectPath) or isinstance(outcome, UnindexedFile) or outcome.kept_at is None:
            raise UsageError(
                f"--to: expected archives in stores, got {path}, whose index lies beside it. Leave --to out, or name "
                f"the archives by their addresses"
            )
        archives.append((path, outcome.kept_at))
    return write_merged_index(archives, to, stores)


def indexable_paths(where: Iterable[str], stores: Stores | None = None) -> list[FilePath]:
    """Return the absolute paths, or the objects, for paths, addresses and patterns.

    A folder, or an address that ends in a slash, is replaced by the files directly in it with a suffix of
    `INDEX_KINDS`. Raises NotFoundError or EmptyDatasetError; for addresses also UsageError and ReadError.
    """
    stores = Stores() if stores is None else stores
    found: dict[Hashable, FilePath] = {}
    for text in where:
        paths = (
            _objects(text, stores) if is_remote(text) else (p for named in resolve_paths(text) for p in _files(named))
        )
        for path in paths:
            found.setdefault(path.identity if isinstance(path, ObjectPath) else str(path), path)
    return list(found.values())


def index_file(path: FilePath, *, cache: str | None) -> IndexedFile:
    """Build or find the index of the file or object at `path`. Raises DatasetError or ReadError."""
    begin = time.perf_counter()
    if isinstance(path, str):
        refuse_compressed(path)
    kind = next((kind for kind in INDEX_KINDS if file_name(path).lower().endswith(kind.suffixes)), None)
    if kind is None:  # assume a tar: the scan reports any problem
        kind = _ZIP_KIND if kind_of(path).kind == "zip" else _TAR_KIND
    if not isinstance(path, str) and kind not in (*_ARCHIVE_KINDS, _SHARDS_KIND):
        raise DatasetError(f"{path}: expected a tar or a zip in a store, got a {kind.name}, of which no index is kept")
    identity = kind.identify(path)
    places = sidecar_places(path, identity, cache)
    before = {_version(place) for place in places}
    try:
        counts = kind.open(path, identity, cache)
    except UserWarning as warning:
        raise DatasetError(str(warning)) from warning
    kept_at = next((place for place in places if _is_of(place, identity)), None)
    built = kept_at is not None and _version(kept_at) not in before
    wall_s = time.perf_counter() - begin
    return IndexedFile(str(path), kind.name, identity.bytes, *counts, kept_at, built, wall_s)


def _objects(text: str, stores: Stores) -> Iterable[FilePath]:
    if not text.endswith("/"):
        return stores.resolve(text)
    prefix = stores.path(text)
    key, suffixes = prefix.key.rstrip("/"), _listed_suffixes()
    found = [
        path_of(prefix.store, each)
        for each in list_objects(prefix.store, key)
        if each.key.rpartition("/")[0] == key and each.key.lower().endswith(suffixes)
    ]
    if not found:
        raise EmptyDatasetError(
            f"{prefix}: expected objects of which an index is kept ({', '.join(suffixes)}), got none. Check the address"
        )
    return found


def _listed_suffixes() -> tuple[str, ...]:
    return tuple(suffix for kind in INDEX_KINDS if kind.listed for suffix in kind.suffixes)


def _files(path: str) -> list[str]:
    if not os.path.exists(path):
        raise NotFoundError(f"{path}: expected a file or a folder, got nothing. {suggest_path(path)}")
    if not os.path.isdir(path):
        return [path]
    index = os.path.join(path, INDEX_NAME)
    if os.path.isfile(index) and describes_shards(index):
        return [index]
    suffixes = _listed_suffixes()
    with os.scandir(path) as entries:
        found = [entry.path for entry in entries if entry.name.lower().endswith(suffixes) and entry.is_file()]
    if not found:
        raise EmptyDatasetError(
            f"{path}: expected a folder with files of which an index is kept ({', '.join(suffixes)}), got none. "
            f"A folder of images needs no index"
        )
    return sorted(found, key=os.fsencode)


def _is_of(place: str, identity: FileIdentity) -> bool:
    """Return True if the index of that file is there."""
    try:
        return safetensors.read_arrays(place)[1].get("of") == identity.to_json()
    except (OSError, safetensors.InvalidFileError):
        return False


def _version(place: str) -> tuple[int, int] | None:
    """Return a value that changes when an index is rewritten."""
    try:
        status = os.stat(place)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _open_archive(kind: ArchiveKind[Any], path: FilePath, identity: FileIdentity, cache: str | None) -> IndexCounts:
    members = len(kind.open_members(path, identity, cache=cache))
    try:
        return IndexCounts(members, len(kind.open_index(path, cache=cache).samples))
    except DatasetError:  # the index reports the reason when samples are requested
        return IndexCounts(members, None)


def _open_manifest(path: str, _: FileIdentity, cache: str | None) -> IndexCounts:
    """Count the rows, with the manifest's own column names; other names have another index."""
    rows = len(open_manifest(path, root=open_root(None, manifest=path, cache=cache), columns=None, cache=cache))
    return IndexCounts(rows, rows)


def _open_shards(path: FilePath, _: FileIdentity, cache: str | None) -> IndexCounts:
    rows = len(open_shards(path, columns=None, cache=cache))
    return IndexCounts(rows, rows)


def _local(path: FilePath) -> OpenFile:
    assert isinstance(path, str)
    return OpenFile(os.fsencode(path))


_TAR_KIND = IndexKind("tar", (".tar",), partial(_open_archive, TAR))
_ZIP_KIND = IndexKind("zip", (".zip",), partial(_open_archive, ZIP))
_ARCHIVE_KINDS = (_TAR_KIND, _ZIP_KIND)
_SHARDS_KIND = IndexKind("shards", (INDEX_NAME,), _open_shards, identify_shards, listed=False)
INDEX_KINDS = (
    _TAR_KIND,
    _ZIP_KIND,
    _SHARDS_KIND,
    IndexKind("manifest", ROW_SUFFIXES, _open_manifest, lambda path: identify_closely(_local(path)), listed=False),
)
