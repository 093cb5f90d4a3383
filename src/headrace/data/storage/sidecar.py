"""Indices cached in sidecar files, and the identity of the file that an index describes."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

from headrace._core import return_freed_memory
from headrace.data.storage import safetensors
from headrace.data.storage.file_writing import PARTIAL_SUFFIX, UnwritableError, finish_partial_file, partial_file
from headrace.data.storage.open_file import OpenFile
from headrace.data.storage.safetensors import ArrayContent, Arrays, InvalidFileError, mapped_arrays
from headrace.errors import ChangedError, DatasetError

# -- from data/identity.py: What a file is known by, without reading it all: its size and a hash of samples of its
# content.


_END_SAMPLE_BYTES = 1 << 16
_MIDDLE_SAMPLES, _MIDDLE_SAMPLE_BYTES = 6, 1 << 12
_WHOLE_BYTES, _PIECE_BYTES = 1 << 24, 1 << 18


@dataclass(frozen=True)
class FileIdentity:
    bytes: int
    sample: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def identify(file: OpenFile) -> FileIdentity:
    """Raises ReadError."""
    size = file.size()
    state = hashlib.blake2b(digest_size=16)
    for at, length in _sampled_ranges(size):
        state.update(file.read(at, length))
    return FileIdentity(size, state.hexdigest())


def identify_archive(path: str) -> FileIdentity:
    """Of the file that lies there now. Raises ReadError."""
    return identify(OpenFile(os.fsencode(path)))


def identify_closely(file: OpenFile) -> FileIdentity:
    """For files that change in places, as a list that is corrected by hand does: nothing else would notice later.

    Up to 16 MiB all of the content counts. Beyond, the moment does at which the system last saw it change (which, other
    than the time of modification, nobody sets), and so a copy is another file. Raises ReadError.
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


def _sampled_ranges(size: int) -> list[tuple[int, int]]:
    """The first and last 64 KiB, and six pieces evenly between."""
    step = size // (_MIDDLE_SAMPLES + 1)
    middle = [(step * (i + 1), _MIDDLE_SAMPLE_BYTES) for i in range(_MIDDLE_SAMPLES)]
    return [(0, _END_SAMPLE_BYTES), *middle, (max(0, size - _END_SAMPLE_BYTES), _END_SAMPLE_BYTES)]


# -- from data/sidecar.py: Keeps the index of an archive in a file, beside the archive or in the cache folder; one
# process builds it, others
# wait.


T = TypeVar("T")

_SUFFIX = ".headrace"
_CHECKED_AT_ONCE_BYTES = 32 << 20
"""A few milliseconds. What is larger and lazy is checked where it is read."""
INDEX_SUFFIXES = (_SUFFIX, _SUFFIX + PARTIAL_SUFFIX)


@dataclass(frozen=True)
class Sidecar(Generic[T]):
    """What is kept of an archive."""

    format: str
    """Its name and version: a sidecar of any other is rebuilt."""
    build: Callable[[str, str | None], tuple[Mapping[str, ArrayContent], str]]
    """From the archive's path: named arrays, and a JSON text of what is not an array. The second argument is the folder
    for what is too long for memory meanwhile; None: where temporary files go. May raise UnwritableError for it."""
    load: Callable[[Arrays, str, int], T]
    """The inverse, from untrusted arrays, text and the archive's bytes. Raises safetensors.InvalidFileError."""
    identify: Callable[[OpenFile], FileIdentity] = identify
    """What tells one archive from another, or from what it was before."""
    variant: str = ""
    """A part of its name, where several that differ are kept of one file, beside each other."""
    lazy: bool = False
    """Whether what `load` makes of a large one checks what it reads of it: then opening checks small ones alone."""


def open_sidecar(sidecar: Sidecar[T], path: str, identity: FileIdentity, *, cache: str | None) -> T:
    """What is known of the archive at `path`, which has this `identity`: kept from an earlier time, or built and kept.

    It lies beside the archive; with `cache`, or where that cannot be written, in that folder or the default cache
    folder.
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
            f"cannot keep the index of {path} in the cache folder given: {reasons[0]}. Name one that is writable"
        )
    warnings.warn(
        f"the index of {path} cannot be kept, so each start scans it again ({'; '.join(reasons)}). "
        f"Set HEADRACE_CACHE to a writable folder",
        stacklevel=2,
    )
    contents, outline = build_unchanged(sidecar, path, identity, scratch_in=None)
    return sidecar.load(mapped_arrays(contents), outline, identity.bytes)


def cache_folder() -> str:
    """`$HEADRACE_CACHE`, else `headrace` in `$XDG_CACHE_HOME`, else `~/.cache/headrace`."""
    own = os.environ.get("HEADRACE_CACHE")
    if own:
        return os.path.abspath(own)
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "headrace")


def sidecar_places(path: str, identity: FileIdentity, cache: str | None, *, variant: str = "") -> list[str]:
    """Where the sidecar may lie, best first. In a cache the content names it, so a moved archive keeps its index."""
    end = f".{variant}{_SUFFIX}" if variant else _SUFFIX
    cached = f"{os.path.basename(path)}.{identity.sample}{end}"
    if cache is not None:
        return [os.path.join(cache, cached)]
    return [path + end, os.path.join(cache_folder(), cached)]


def _load(sidecar: Sidecar[T], place: str, identity: FileIdentity) -> T | None:
    """Return what is kept at `place`; None if it is missing, or of another archive or version. Raises InvalidFileError
    if it is damaged, or none."""
    try:
        arrays, metadata = safetensors.read_arrays(place)
        if metadata.get("format") != sidecar.format or metadata.get("of") != identity.to_json():
            return None
        if not sidecar.lazy or arrays.nbytes <= _CHECKED_AT_ONCE_BYTES:
            arrays.check_all()
        return sidecar.load(arrays, metadata.get("outline", ""), identity.bytes)
    except safetensors.UncheckedFileError as error:
        if is_older(error.format, sidecar.format):
            return None
        raise
    except OSError:
        return None


def is_older(format: str | None, now: str) -> bool:
    """Tell whether a file without checksums, of this format, was written by an earlier version: no word is lost over
    it."""
    return format is not None and format.startswith("headrace ") and format != now


def damage_text(expected: str, error: InvalidFileError) -> str:
    """Return the text of a warning."""
    return f"{expected}, got a damaged file ({error}). It is made anew; if that happens again, check the disk"


def _load_or_build(sidecar: Sidecar[T], place: str, path: str, identity: FileIdentity) -> T:
    with partial_file(place) as partial:
        # Whoever held the lock before may have finished it. What is damaged was said, and is written over.
        with suppress(InvalidFileError):
            kept = _load(sidecar, place, identity)
            if kept is not None:
                return kept
        _build_and_write(sidecar, partial, place, path, identity)
        return_freed_memory()
        # Mapped from the file, its pages are shared with every other process.
        with suppress(InvalidFileError):
            kept = _load(sidecar, place, identity)
            if kept is not None:
                return kept
        raise UnwritableError("what was written there does not come back")


def _build_and_write(sidecar: Sidecar[T], partial: int, place: str, path: str, identity: FileIdentity) -> None:
    """The arrays are gone when this returns: they would take as much memory again as those that are mapped."""
    # Where the index is to lie there has to be room for it, and temporary files may be kept in memory.
    contents, outline = build_unchanged(sidecar, path, identity, scratch_in=os.path.dirname(place))
    metadata = {"format": sidecar.format, "of": identity.to_json(), "outline": outline}
    finish_partial_file(partial, place, lambda file: safetensors.write_arrays(file, contents, metadata))


def build_unchanged(
    sidecar: Sidecar[T], path: str, identity: FileIdentity, *, scratch_in: str | None
) -> tuple[Mapping[str, ArrayContent], str]:
    """What `sidecar.build` makes of the file at `path`, and that it had this `identity` all the while: what is wrong
    with a file that is still being written is nothing to tell. Raises ChangedError, and what building raises."""
    try:
        built = sidecar.build(path, scratch_in)
    except UnwritableError:
        raise
    except Exception:
        _expect_unchanged(sidecar, path, identity)
        raise
    _expect_unchanged(sidecar, path, identity)
    return built


def _expect_unchanged(sidecar: Sidecar[T], path: str, identity: FileIdentity) -> None:
    if sidecar.identify(OpenFile(os.fsencode(path))) != identity:
        raise ChangedError(f"{path}: it was replaced while it was indexed. Open it again once it is complete")
