"""Build the indices of tars, zips and manifests ahead of the first opening."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.data.archives import tar_index, zip_index
from headrace.data.manifest import open_manifest
from headrace.data.manifest.manifest_table import ROW_SUFFIXES as MANIFEST_SUFFIXES
from headrace.data.sources.file_kind import refuse_compressed
from headrace.data.sources.path_root import open_root
from headrace.data.storage import safetensors
from headrace.data.storage.open_file import OpenFile
from headrace.data.storage.paths import resolve_paths, suggest_path
from headrace.data.storage.sidecar import FileIdentity, identify, identify_closely, sidecar_places
from headrace.errors import DatasetError, EmptyDatasetError, HeadraceError, NotFoundError
from headrace.system import work_through


class IndexCounts(NamedTuple):
    members: int
    samples: int | None
    """None: its members make none."""


@dataclass(frozen=True)
class IndexKind:
    """A kind of file of which an index is kept."""

    name: str
    suffixes: tuple[str, ...]
    """What such files are called, lower-case."""
    magics: tuple[bytes, ...]
    """What they begin with, if that tells; for those that are called otherwise."""
    open: Callable[[str, FileIdentity, str | None], IndexCounts]
    """Builds the index of the file at that path with that identity, or finds it; in that cache folder, if it is not
    None."""
    identify: Callable[[OpenFile], FileIdentity] = identify
    listed: bool = True
    """Whether a folder stands for such files in it."""


@dataclass(frozen=True)
class IndexedFile:
    """One file, and the index that is kept of it."""

    path: str
    kind: str
    bytes: int
    """Of the file."""
    members: int
    samples: int | None
    kept_at: str | None
    """Where the index lies; None: a file of this size needs none."""
    built: bool
    """Whether it was not there before."""
    wall_s: float


@dataclass(frozen=True)
class UnindexedFile:
    path: str
    error: HeadraceError


IndexOutcome = IndexedFile | UnindexedFile


def build_indices(
    paths: Sequence[str],
    *,
    cache: str | None,
    threads: int,
    tick: Callable[[Sequence[IndexOutcome]], None] | None = None,
) -> list[IndexOutcome]:
    """Builds what is missing, several files side by side, and says for each what there is now; in the order of `paths`.

    `tick` is called every now and then with what is done so far. A file that cannot be indexed keeps none of the others
    from it.
    """
    done: dict[int, IndexOutcome] = {}

    def work(number: int) -> None:
        done[number] = _outcome(paths[number], cache)

    with warnings.catch_warnings():
        # What elsewhere is a warning, that an index cannot be kept, is an error to who asks for nothing else.
        warnings.filterwarnings("error", message="the index of ", category=UserWarning)
        work_through(
            range(len(paths)),
            work,
            name="index",
            threads=min(threads, len(paths)),
            tick=None if tick is None else lambda: tick(list(done.values())),
        )
    return [done[number] for number in range(len(paths))]


def indexable_paths(where: Iterable[str]) -> list[str]:
    """The files that these paths and patterns name, absolute; a folder stands for those directly in it that are called
    as a kind of KINDS. Raises NotFoundError or EmptyDatasetError."""
    return list(dict.fromkeys(path for text in where for named in resolve_paths(text) for path in _files(named)))


def index_file(path: str, *, cache: str | None) -> IndexedFile:
    """Builds the index of the file at `path`, or finds it. Raises DatasetError or ReadError."""
    begin = time.perf_counter()
    refuse_compressed(path)
    kind = _kind_of(path)
    file = OpenFile(os.fsencode(path))
    identity = kind.identify(file)
    places = sidecar_places(path, identity, cache)
    before = {_version(place) for place in places}
    try:
        counts = kind.open(path, identity, cache)
    except UserWarning as warning:
        raise DatasetError(str(warning)) from warning
    kept_at = next((place for place in places if _is_of(place, identity)), None)
    built = kept_at is not None and _version(kept_at) not in before
    wall_s = time.perf_counter() - begin
    return IndexedFile(path, kind.name, identity.bytes, *counts, kept_at, built, wall_s)


def _outcome(path: str, cache: str | None) -> IndexOutcome:
    try:
        return index_file(path, cache=cache)
    except HeadraceError as error:
        return UnindexedFile(path, error)


def _files(path: str) -> list[str]:
    if not os.path.exists(path):
        raise NotFoundError(f"{path}: expected a file or a folder, got nothing. {suggest_path(path)}")
    if not os.path.isdir(path):
        return [path]
    suffixes = tuple(suffix for kind in INDEX_KINDS if kind.listed for suffix in kind.suffixes)
    with os.scandir(path) as entries:
        found = [entry.path for entry in entries if entry.name.lower().endswith(suffixes) and entry.is_file()]
    if not found:
        raise EmptyDatasetError(
            f"{path}: expected a folder with files of which an index is kept ({', '.join(suffixes)}), got none. "
            f"A folder of images needs no index"
        )
    return sorted(found, key=os.fsencode)


def _kind_of(path: str) -> IndexKind:
    by_name = next((kind for kind in INDEX_KINDS if path.lower().endswith(kind.suffixes)), None)
    start = OpenFile(os.fsencode(path)).read(0, _MAGIC_BYTES)
    by_start = next((kind for kind in INDEX_KINDS if kind.magics and start.startswith(kind.magics)), None)
    return by_name or by_start or TAR


def _is_of(place: str, identity: FileIdentity) -> bool:
    """Whether an index of that file lies there."""
    try:
        return safetensors.read_arrays(place)[1].get("of") == identity.to_json()
    except (OSError, safetensors.InvalidFileError):
        return False


def _version(place: str) -> tuple[int, int] | None:
    """What changes when an index is written anew."""
    try:
        status = os.stat(place)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _open_tar(path: str, identity: FileIdentity, cache: str | None) -> IndexCounts:
    members = len(tar_index.open_tar_members(path, identity, cache=cache))
    try:
        return IndexCounts(members, len(tar_index.open_tar_index(path, cache=cache).samples))
    except DatasetError:  # the index says why, to whoever asks it for samples
        return IndexCounts(members, None)


def _open_zip(path: str, identity: FileIdentity, cache: str | None) -> IndexCounts:
    members = len(zip_index.open_zip_members(path, identity, cache=cache))
    try:
        return IndexCounts(members, len(zip_index.open_zip_index(path, cache=cache).samples))
    except DatasetError:  # as of a tar
        return IndexCounts(members, None)


def _open_manifest(path: str, _: FileIdentity, cache: str | None) -> IndexCounts:
    """With the names that it gives its columns: with others it has another index."""
    rows = len(open_manifest(path, root=open_root(None, manifest=path, cache=cache), columns=None, cache=cache))
    return IndexCounts(rows, rows)


TAR = IndexKind("tar", (".tar",), (), _open_tar)
"""Also what is called or begins like none of the others: what is wrong with it, a scan says."""
INDEX_KINDS = (
    TAR,
    IndexKind("zip", (".zip",), (b"PK\x03\x04", b"PK\x05\x06"), _open_zip),
    IndexKind("manifest", MANIFEST_SUFFIXES, (), _open_manifest, identify_closely, listed=False),
)
_MAGIC_BYTES = 8
