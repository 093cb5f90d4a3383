"""The file that a cache lies in: anonymous memory, or a file of a folder."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from headrace import _core
from headrace.cache.hand_out import HandOut, shared_descriptor
from headrace.cache.identity import CacheIdentity
from headrace.cache.spec import CacheSpec
from headrace.cache.stats import size_text
from headrace.data.partial_file import PARTIAL_SUFFIX, UnwritableError, partial_file
from headrace.errors import SharedMemoryError, UsageError, WriteError
from headrace.system.resources import available_bytes

_ANEW = {
    "damaged": "is damaged",
    "other version": "is of another version of Headrace",
    "other key": "is damaged",  # its name says this key
    "other stamp": "is of files that have changed since",
}


def open_file(spec: CacheSpec, identity: CacheIdentity) -> tuple[int, HandOut | None]:
    """A descriptor that the caller owns, and what hands it to other processes.

    Raises UsageError (a limit without room for the index, or above the memory that is free), SharedMemoryError,
    WriteError. Warns where a file has to be made anew.
    """
    _check_limit(spec, identity)
    if spec.folder is None:
        return shared_descriptor(
            f"{identity.name}-{identity.stamp[:8].hex()}-{spec.limit_bytes}", lambda: _in_ram(spec, identity)
        )
    return _on_disk(spec.folder, identity), None


def _check_limit(spec: CacheSpec, identity: CacheIdentity) -> None:
    index_bytes = _core.cache_bytes(identity.entries)
    if spec.limit_bytes <= index_bytes:
        raise UsageError(
            f"cache: expected a limit above the {size_text(index_bytes)} that an index of {identity.entries:,} entries "
            f"takes, got {size_text(spec.limit_bytes)}"
        )


def _in_ram(spec: CacheSpec, identity: CacheIdentity) -> int:
    free = available_bytes()
    if free is not None and spec.limit_bytes > free:
        raise UsageError(
            f"cache: expected a limit within the {size_text(free)} of memory that are free, got "
            f"{size_text(spec.limit_bytes)}; lower it, or cache on a disk: disk:FOLDER:SIZE"
        )
    try:
        descriptor = os.memfd_create("headrace-cache")
    except (AttributeError, OSError) as error:
        raise SharedMemoryError(
            f"no memory for a cache: memfd_create of Linux: {error}; use disk:FOLDER:SIZE"
        ) from error
    try:
        _make(descriptor, identity)
    except OSError as error:
        os.close(descriptor)
        raise SharedMemoryError(f"no memory for a cache: {error.strerror or error}; lower its limit") from error
    return descriptor


def _on_disk(folder: str, identity: CacheIdentity) -> int:
    place = os.path.join(folder, f"headrace-{identity.name}.cache")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        found, _ = _look(place, identity)
        if found is not None:
            return found
        with partial_file(place):
            found, why = _look(place, identity)  # whoever held the lock before may have made it
            if found is not None:
                return found
            if why is not None:
                warnings.warn(f"the cache {place} {why}, and is made anew", stacklevel=2)
            return _make_at(place, identity)
    except (OSError, UnwritableError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise WriteError(
            f"the cache {place} cannot be made: {why}; check the folder, its rights and free space"
        ) from error


def _look(place: str, identity: CacheIdentity) -> tuple[int | None, str | None]:
    """The file at `place` if it is ours, or why it is not; (None, None) where there is none."""
    try:
        descriptor = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None, None
    kind = _core.cache_kind(descriptor, entries=identity.entries, key=identity.key, stamp=identity.stamp)
    if kind == "ours":
        return descriptor, None
    os.close(descriptor)
    return None, _ANEW[kind]


def _make_at(place: str, identity: CacheIdentity) -> int:
    """In the locked partial file, which gets its name once it is whole. Who uses what was there keeps it."""
    partial = place + PARTIAL_SUFFIX
    descriptor = os.open(partial, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, 0)
        _make(descriptor, identity)
        os.replace(partial, place)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _make(descriptor: int, identity: CacheIdentity) -> None:
    _core.make_cache(descriptor, entries=identity.entries, key=identity.key, stamp=identity.stamp)
