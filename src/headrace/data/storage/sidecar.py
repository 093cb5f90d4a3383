"""Indices cached in sidecar files, and the identity of the file that an index describes."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from headrace._core import return_freed_memory
from headrace.data.storage import safetensors
from headrace.data.storage.file_writing import PARTIAL_SUFFIX, UnwritableError, finish_partial_file, partial_file
from headrace.data.storage.open_file import FilePath, OpenFile, ReadableFile, file_name, open_path
from headrace.data.storage.safetensors import (
    ArrayContent,
    Arrays,
    InvalidFileError,
    MappedArrays,
    UncheckedFileError,
    mapped_arrays,
)
from headrace.errors import ChangedError, DatasetError

T = TypeVar("T")

_SUFFIX = ".headrace"
INDEX_SUFFIXES = (_SUFFIX, _SUFFIX + PARTIAL_SUFFIX)
_CHECKED_AT_ONCE_BYTES = 32 << 20
"""A few milliseconds. What is larger and lazy is checked where it is read."""

_END_SAMPLE_BYTES = 1 << 16
_MIDDLE_SAMPLES, _MIDDLE_SAMPLE_BYTES = 6, 1 << 12
_WHOLE_BYTES, _PIECE_BYTES = 1 << 24, 1 << 18


@dataclass(frozen=True)
class FileIdentity:
    """Identity of a file's content, known without reading it all."""

    bytes: int
    sample: str
    """Hex hash of samples of the content."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def identify(file: ReadableFile) -> FileIdentity:
    """Return the identity of a file: its size, and a hash of samples of its content. Raises ReadError.

    They are the first and last 64 KiB, and six pieces evenly between.
    """
    size = file.size()
    step = size // (_MIDDLE_SAMPLES + 1)
    middle = [(step * (i + 1), _MIDDLE_SAMPLE_BYTES) for i in range(_MIDDLE_SAMPLES)]
    state = hashlib.blake2b(digest_size=16)
    for at, length in [(0, _END_SAMPLE_BYTES), *middle, (max(0, size - _END_SAMPLE_BYTES), _END_SAMPLE_BYTES)]:
        state.update(file.read(at, length))
    return FileIdentity(size, state.hexdigest())


def identify_archive(path: FilePath) -> FileIdentity:
    """Return the identity of the file at `path`: of an object, that which its store states. Raises ReadError."""
    stated = None if isinstance(path, str) else path.content_name()
    file = open_path(path)
    return identify(file) if stated is None else FileIdentity(file.size(), stated)


def identify_closely(file: OpenFile) -> FileIdentity:
    """Return the identity of a file that may change in places, as a list that is corrected by hand.

    Up to 16 MiB all of the content counts. Beyond, the time of its last status change counts as well, which nobody can
    set, so a copy is another file. Raises ReadError.
    """
    size = file.size()
    if size <= _WHOLE_BYTES:
        state = hashlib.blake2b(digest_size=16)
        for at in range(0, size, _PIECE_BYTES):
            state.update(file.read(at, _PIECE_BYTES))
        return FileIdentity(size, state.hexdigest())
    sampled, status = identify(file), file.status()
    known = json.dumps([sampled.sample, status.st_ctime_ns, status.st_mtime_ns, status.st_ino])
    return FileIdentity(size, hashlib.blake2b(known.encode(), digest_size=16).hexdigest())


def identify_rows(path: FilePath) -> FileIdentity:
    """Return the identity of a file of rows: `identify_closely` of a local one, what the store states of an object."""
    return identify_closely(OpenFile(os.fsencode(path))) if isinstance(path, str) else identify_archive(path)


@dataclass(frozen=True)
class Sidecar(Generic[T]):
    """Description of the index of a file: how it is built, and loaded again."""

    format: str
    """Name and version of the format: an index of any other is rebuilt."""
    build: Callable[[Any, str | None], tuple[Mapping[str, ArrayContent], str]]
    """Returns named arrays, and a JSON text of all else, for the file at the path given. The second argument is the
    folder for scratch files; None: where temporary files go. May raise UnwritableError for it."""
    load: Callable[[Arrays, str, int], T]
    """Loads untrusted arrays and text, given the size of the file. Raises InvalidFileError."""
    identify: Callable[[OpenFile], FileIdentity] = identify
    variant: str = ""
    """Part of its name, where several indices that differ belong to one file."""
    lazy: bool = False
    """Whether a large one is checked as it is read; else opening checks it whole."""


def open_sidecar(sidecar: Sidecar[T], path: FilePath, identity: FileIdentity, *, cache: str | None) -> T:
    """Return the index of the file at `path`, which has this `identity`: as it was cached, or built and cached now.

    It lies next to the file; with `cache`, or where that cannot be written, in that folder or the default cache folder.
    That of an object never lies in its bucket.
    """
    places = sidecar_places(path, identity, cache, variant=sidecar.variant)
    for place in places:
        try:
            kept = _load(sidecar, place, identity)
        except InvalidFileError as error:
            warnings.warn(damage_text(f"{place}: expected the index of {path}", error), stacklevel=2)
            break
        if kept is not None:
            return kept
    reasons = []
    for place in places:
        try:
            return _load_or_build(sidecar, place, path, identity)
        except UnwritableError as error:
            reasons.append(f"{place}: {error}")
    if cache is not None:
        raise DatasetError(
            f"cannot cache the index of {path} in the cache folder given: {reasons[0]}. Name one that is writable"
        )
    warnings.warn(
        f"the index of {path} cannot be cached, so each start scans it again ({'; '.join(reasons)}). "
        f"Set HEADRACE_CACHE to a writable folder",
        stacklevel=2,
    )
    contents, outline = build_unchanged(sidecar, path, identity, scratch_in=None)
    return sidecar.load(mapped_arrays(contents), outline, identity.bytes)


def cache_folder() -> str:
    """Return `$HEADRACE_CACHE`, else `headrace` in `$XDG_CACHE_HOME`, else `~/.cache/headrace`."""
    own = os.environ.get("HEADRACE_CACHE")
    if own:
        return os.path.abspath(own)
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "headrace")


def sidecar_places(path: FilePath, identity: FileIdentity, cache: str | None, *, variant: str = "") -> list[str]:
    """Return where the index may lie, best first. In a cache the content names it, so a moved file keeps its index.

    With `$HEADRACE_CACHE_ONLY` set, nothing is written beside the data: the doctor's trials leave it as it was.
    """
    end = f".{variant}{_SUFFIX}" if variant else _SUFFIX
    cached = f"{file_name(path)}.{identity.sample}{end}"
    if cache is not None:
        return [os.path.join(cache, cached)]
    if os.environ.get("HEADRACE_CACHE_ONLY") or not isinstance(path, str):
        return [os.path.join(cache_folder(), cached)]
    return [path + end, os.path.join(cache_folder(), cached)]


def read_cached(place: str, format: str, load: Callable[[MappedArrays, dict[str, str]], T | None]) -> T | None:
    """Return `load` of the arrays and the metadata at `place`; None if they are missing, or of another version.

    Raises InvalidFileError if the file is damaged, or none of ours.
    """
    try:
        arrays, metadata = safetensors.read_arrays(place)
        return load(arrays, metadata) if metadata.get("format") == format else None
    except UncheckedFileError as error:
        # An earlier version wrote it: that is no damage.
        if error.format is not None and error.format.startswith("headrace ") and error.format != format:
            return None
        raise
    except OSError:
        return None


def build_cached(
    place: str, load: Callable[[], T | None], build: Callable[[int], object], *, patience_s: float | None = None
) -> T:
    """Return what `load` finds at `place` once one process, of several that may want it, has built it there.

    `build` finishes the partial file with the given descriptor. `patience_s`: how long others wait while it writes
    nothing. Raises UnwritableError, and what `build` raises.
    """
    with partial_file(place, patience_s=patience_s) as partial:
        # Whoever held the lock before may have finished it. A damaged file is written over.
        with suppress(InvalidFileError):
            kept = load()
            if kept is not None:
                return kept
        build(partial)
        return_freed_memory()
        # Mapped from the file, its pages are shared with every other process.
        with suppress(InvalidFileError):
            kept = load()
            if kept is not None:
                return kept
        raise UnwritableError("what was written there does not come back")


def damage_text(expected: str, error: InvalidFileError) -> str:
    """Return the text of a warning."""
    return f"{expected}, got a damaged file ({error}). It is rebuilt; if that happens again, check the disk"


def _load(sidecar: Sidecar[T], place: str, identity: FileIdentity) -> T | None:
    """Return the index at `place`; None if it is missing, or of another file or version. Raises InvalidFileError."""

    def load(arrays: MappedArrays, metadata: dict[str, str]) -> T | None:
        if metadata.get("of") != identity.to_json():
            return None
        if not sidecar.lazy or arrays.nbytes <= _CHECKED_AT_ONCE_BYTES:
            arrays.check_all()
        return sidecar.load(arrays, metadata.get("outline", ""), identity.bytes)

    return read_cached(place, sidecar.format, load)


def _load_or_build(sidecar: Sidecar[T], place: str, path: FilePath, identity: FileIdentity) -> T:
    def build(partial: int) -> None:
        # The index needs room in its own folder, and temporary files may be kept in memory. The arrays are gone when
        # this returns: they would take as much memory again as those that are mapped.
        contents, outline = build_unchanged(sidecar, path, identity, scratch_in=os.path.dirname(place))
        metadata = {"format": sidecar.format, "of": identity.to_json(), "outline": outline}
        finish_partial_file(partial, place, lambda file: safetensors.write_arrays(file, contents, metadata))

    return build_cached(place, lambda: _load(sidecar, place, identity), build)


def build_unchanged(
    sidecar: Sidecar[T], path: FilePath, identity: FileIdentity, *, scratch_in: str | None
) -> tuple[Mapping[str, ArrayContent], str]:
    """Return `sidecar.build` of the file at `path`, which must keep this `identity` all the while.

    Raises ChangedError rather than what is wrong with a file that is still being written, and what building raises.
    """
    try:
        built = sidecar.build(path, scratch_in)
    except UnwritableError:
        raise
    except Exception:
        _expect_unchanged(sidecar, path, identity)
        raise
    _expect_unchanged(sidecar, path, identity)
    return built


def _expect_unchanged(sidecar: Sidecar[T], path: FilePath, identity: FileIdentity) -> None:
    if not isinstance(path, str):
        return  # each read of an object is of the content that was identified, or fails
    if sidecar.identify(OpenFile(os.fsencode(path))) != identity:
        raise ChangedError(f"{path}: it was replaced while it was indexed. Open it again once it is complete")
