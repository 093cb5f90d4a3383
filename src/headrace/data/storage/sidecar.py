"""Keeps the index of an archive in a file, beside the archive or in the cache folder; one process builds it, others
wait."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace._core import return_freed_memory
from headrace.data.identity import Identity, identify
from headrace.data.partial_file import PARTIAL_SUFFIX, UnwritableError, finish, partial_file
from headrace.data.storage import safetensors
from headrace.data.storage.open_file import OpenFile
from headrace.data.storage.safetensors import Arrays, Content, InvalidFileError, mapped
from headrace.errors import ChangedError, DatasetError

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
    build: Callable[[str, str | None], tuple[Mapping[str, Content], str]]
    """From the archive's path: named arrays, and a JSON text of what is not an array. The second argument is the folder
    for what is too long for memory meanwhile; None: where temporary files go. May raise UnwritableError for it."""
    load: Callable[[Arrays, str, int], T]
    """The inverse, from untrusted arrays, text and the archive's bytes. Raises safetensors.InvalidFileError."""
    identify: Callable[[OpenFile], Identity] = identify
    """What tells one archive from another, or from what it was before."""
    variant: str = ""
    """A part of its name, where several that differ are kept of one file, beside each other."""
    lazy: bool = False
    """Whether what `load` makes of a large one checks what it reads of it: then opening checks small ones alone."""


def open_sidecar(sidecar: Sidecar[T], path: str, identity: Identity, *, cache: str | None) -> T:
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
    return sidecar.load(mapped(contents), outline, identity.bytes)


def cache_folder() -> str:
    """`$HEADRACE_CACHE`, else `headrace` in `$XDG_CACHE_HOME`, else `~/.cache/headrace`."""
    own = os.environ.get("HEADRACE_CACHE")
    if own:
        return os.path.abspath(own)
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "headrace")


def sidecar_places(path: str, identity: Identity, cache: str | None, *, variant: str = "") -> list[str]:
    """Where the sidecar may lie, best first. In a cache the content names it, so a moved archive keeps its index."""
    end = f".{variant}{_SUFFIX}" if variant else _SUFFIX
    cached = f"{os.path.basename(path)}.{identity.sample}{end}"
    if cache is not None:
        return [os.path.join(cache, cached)]
    return [path + end, os.path.join(cache_folder(), cached)]


def _load(sidecar: Sidecar[T], place: str, identity: Identity) -> T | None:
    """Return what is kept at `place`; None if it is missing, or of another archive or version. Raises InvalidFileError
    if it is damaged, or none."""
    try:
        arrays, metadata = safetensors.read(place)
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


def _load_or_build(sidecar: Sidecar[T], place: str, path: str, identity: Identity) -> T:
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


def _build_and_write(sidecar: Sidecar[T], partial: int, place: str, path: str, identity: Identity) -> None:
    """The arrays are gone when this returns: they would take as much memory again as those that are mapped."""
    # Where the index is to lie there has to be room for it, and temporary files may be kept in memory.
    contents, outline = build_unchanged(sidecar, path, identity, scratch_in=os.path.dirname(place))
    metadata = {"format": sidecar.format, "of": identity.to_json(), "outline": outline}
    finish(partial, place, lambda file: safetensors.write(file, contents, metadata))


def build_unchanged(
    sidecar: Sidecar[T], path: str, identity: Identity, *, scratch_in: str | None
) -> tuple[Mapping[str, Content], str]:
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


def _expect_unchanged(sidecar: Sidecar[T], path: str, identity: Identity) -> None:
    if sidecar.identify(OpenFile(os.fsencode(path))) != identity:
        raise ChangedError(f"{path}: it was replaced while it was indexed. Open it again once it is complete")
