"""Indices cached in sidecar files, and the identity of indexed files."""

from __future__ import annotations

import hashlib
import json
import os
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
from headrace.errors import ChangedError, DatasetError, warn_caller

T = TypeVar("T")

_SUFFIX = ".headrace"
INDEX_SUFFIXES = (_SUFFIX, _SUFFIX + PARTIAL_SUFFIX)
_CHECKED_AT_ONCE_BYTES = 32 << 20
"""Limit for verifying on opening, a few milliseconds. Larger lazy indices are verified on access."""

_END_SAMPLE_BYTES = 1 << 16
_MIDDLE_SAMPLES, _MIDDLE_SAMPLE_BYTES = 6, 1 << 12
_WHOLE_BYTES, _PIECE_BYTES = 1 << 24, 1 << 18


@dataclass(frozen=True)
class FileIdentity:
    """Identity of a file's content, computed without reading all of it."""

    bytes: int
    sample: str
    """Hex hash of samples of the content."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def identify(file: ReadableFile) -> FileIdentity:
    """Return the identity of a file: its size, and a hash of samples of its content. Raises ReadError.

    The samples are the first and last 64 KiB, and six pieces evenly between.
    """
    size = file.size()
    step = size // (_MIDDLE_SAMPLES + 1)
    middle = [(step * (i + 1), _MIDDLE_SAMPLE_BYTES) for i in range(_MIDDLE_SAMPLES)]
    state = hashlib.blake2b(digest_size=16)
    for at, length in [(0, _END_SAMPLE_BYTES), *middle, (max(0, size - _END_SAMPLE_BYTES), _END_SAMPLE_BYTES)]:
        state.update(file.read(at, length))
    return FileIdentity(size, state.hexdigest())


def identify_archive(path: FilePath) -> FileIdentity:
    """Return the identity of the file at `path`; for an object, from its store. Raises ReadError."""
    stated = None if isinstance(path, str) else path.content_name()
    file = open_path(path)
    return identify(file) if stated is None else FileIdentity(file.size(), stated)


def identify_closely(file: OpenFile) -> FileIdentity:
    """Return the identity of a file that may be edited in place, such as a list corrected by hand.

    Up to 16 MiB, the identity covers all of the content. Beyond, it also covers the time of the last status change,
    which cannot be set, so a copy is another file. Raises ReadError.
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
    """Return the identity of a file of rows: `identify_closely` for a local file, else from the store."""
    return identify_closely(OpenFile(os.fsencode(path))) if isinstance(path, str) else identify_archive(path)


@dataclass(frozen=True)
class Sidecar(Generic[T]):
    """Functions that build and load the index of a file."""

    format: str
    """Name and version of the format; an index in any other is rebuilt."""
    build: Callable[[Any, str | None], tuple[Mapping[str, ArrayContent], str]]
    """Function that returns named arrays, and JSON of all else, for the file at a path. The second argument is the
    folder for scratch files; None: the temporary folder. It may raise UnwritableError for the folder."""
    load: Callable[[Arrays, str, int], T]
    """Function that loads untrusted arrays and JSON, given the size of the file. Raises InvalidFileError."""
    identify: Callable[[OpenFile], FileIdentity] = identify
    variant: str = ""
    """Part of the index's name, if a file has several indices."""
    lazy: bool = False
    """True if a large index is verified on access; otherwise opening verifies all of it."""
    beside: bool = True
    """True if the index may be next to the file; otherwise it is in a cache folder, as that of an object."""


def open_sidecar(sidecar: Sidecar[T], path: FilePath, identity: FileIdentity, *, cache: str | None) -> T:
    """Return the index of the file at `path`, which has this `identity`: cached, or built and cached now.

    The index is next to the file. With `cache`, or if that is not writable, it is in that folder or the default cache
    folder. The index of an object is never in its bucket.
    """
    places = sidecar_places(path, identity, cache, variant=sidecar.variant, beside=sidecar.beside)
    for place in places:
        try:
            kept = _load(sidecar, place, identity)
        except InvalidFileError as error:
            warn_caller(damage_text(f"{place}: expected the index of {path}", error))
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
    warn_caller(
        f"the index of {path} cannot be cached, so each start scans it again ({'; '.join(reasons)}). "
        f"Set HEADRACE_CACHE to a writable folder"
    )
    contents, outline = build_unchanged(sidecar, path, identity, scratch_in=None)
    return sidecar.load(mapped_arrays(contents), outline, identity.bytes)


def cache_folder() -> str:
    """Return `$HEADRACE_CACHE`, else `headrace` in `$XDG_CACHE_HOME`, else `~/.cache/headrace`."""
    own = os.environ.get("HEADRACE_CACHE")
    if own:
        return os.path.abspath(own)
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "headrace")


def sidecar_places(
    path: FilePath, identity: FileIdentity, cache: str | None, *, variant: str = "", beside: bool = True
) -> list[str]:
    """Return candidate paths of the index, best first. In a cache, names depend on the content: a moved file matches.

    With `$HEADRACE_CACHE_ONLY` set, nothing is written next to the data, so the doctor's trials leave it unchanged.
    """
    end = f".{variant}{_SUFFIX}" if variant else _SUFFIX
    cached = f"{file_name(path)}.{identity.sample}{end}"
    if cache is not None:
        return [os.path.join(cache, cached)]
    if not beside or os.environ.get("HEADRACE_CACHE_ONLY") or not isinstance(path, str):
        return [os.path.join(cache_folder(), cached)]
    return [path + end, os.path.join(cache_folder(), cached)]


def read_cached(place: str, format: str, load: Callable[[MappedArrays, dict[str, str]], T | None]) -> T | None:
    """Return `load` of the arrays and metadata at `place`; None if missing, or of another version.

    Raises InvalidFileError if the file is damaged, or not written by Headrace.
    """
    try:
        arrays, metadata = safetensors.read_arrays(place)
        return load(arrays, metadata) if metadata.get("format") == format else None
    except UncheckedFileError as error:
        # An earlier version wrote the file: it is not damaged.
        if error.format is not None and error.format.startswith("headrace ") and error.format != format:
            return None
        raise
    except OSError:
        return None


def open_cached(
    place: str,
    load: Callable[[], T | None],
    build: Callable[[int], object],
    *,
    expected: str,
    patience_s: float | None = None,
) -> T:
    """Return `load` of the file at `place`, or of a new one as `build_cached` does; warn if it was damaged.

    `expected` says in the warning what the file should be.
    """
    try:
        found = load()
    except InvalidFileError as error:
        warn_caller(damage_text(f"{place}: expected {expected}", error))
        found = None
    return build_cached(place, load, build, patience_s=patience_s) if found is None else found


def build_cached(
    place: str, load: Callable[[], T | None], build: Callable[[int], object], *, patience_s: float | None = None
) -> T:
    """Return `load` of the file at `place`, after one of the processes that want it has built it.

    `build` finishes the partial file with the given descriptor. `patience_s`: how long others wait while it writes
    nothing. Raises UnwritableError, and as `build` does.
    """
    with partial_file(place, patience_s=patience_s) as partial:
        # The previous lock holder may have finished the file. Overwrite a damaged one.
        with suppress(InvalidFileError):
            kept = load()
            if kept is not None:
                return kept
        build(partial)
        return_freed_memory()
        # Load from the mapped file, so that processes share its pages.
        with suppress(InvalidFileError):
            kept = load()
            if kept is not None:
                return kept
        raise UnwritableError("what was written there does not come back")


def damage_text(expected: str, error: InvalidFileError) -> str:
    return f"{expected}, got a damaged file ({error}). It is rebuilt; if that happens again, check the disk"


def _load(sidecar: Sidecar[T], place: str, identity: FileIdentity) -> T | None:
    """Return the index at `place`; None if missing, or of another file or version. Raises InvalidFileError."""

    def load(arrays: MappedArrays, metadata: dict[str, str]) -> T | None:
        if metadata.get("of") != identity.to_json():
            return None
        if not sidecar.lazy or arrays.nbytes <= _CHECKED_AT_ONCE_BYTES:
            arrays.check_all()
        return sidecar.load(arrays, metadata.get("outline", ""), identity.bytes)

    return read_cached(place, sidecar.format, load)


def _load_or_build(sidecar: Sidecar[T], place: str, path: FilePath, identity: FileIdentity) -> T:
    def build(partial: int) -> None:
        # The index needs space in its own folder, and the temporary folder may be in memory. The arrays are freed when
        # this returns: they would double the memory of the mapped ones.
        contents, outline = build_unchanged(sidecar, path, identity, scratch_in=os.path.dirname(place))
        metadata = {"format": sidecar.format, "of": identity.to_json(), "outline": outline}
        finish_partial_file(partial, place, lambda file: safetensors.write_arrays(file, contents, metadata))

    return build_cached(place, lambda: _load(sidecar, place, identity), build)


def build_unchanged(
    sidecar: Sidecar[T], path: FilePath, identity: FileIdentity, *, scratch_in: str | None
) -> tuple[Mapping[str, ArrayContent], str]:
    """Return `sidecar.build` of the file at `path`, which must have this `identity` throughout.

    Raises ChangedError, rather than a misleading error, for a file that is still being written, and as building does.
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
        return  # each read of an object is of the identified content, or fails
    if sidecar.identify(OpenFile(os.fsencode(path))) != identity:
        raise ChangedError(f"{path}: it was replaced while it was indexed. Open it again once it is complete")
