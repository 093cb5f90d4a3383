"""Keeps the index of a tar in a file, beside the tar or in the cache folder; one process builds it, others wait.

The file being written is also the lock, so nothing is left over: whoever holds the flock of `NAME.partial` may write
it and rename it to `NAME`. The kernel frees the lock of a killed holder, and the next one writes over its remains.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ..errors import DatasetError, ReadError
from . import safetensors
from .index import TarIndex
from .indexing import build_index

FORMAT = "headrace tar index 1"
"""Raise the number whenever the meaning of a sidecar changes: others are rebuilt."""

_SUFFIX, _PARTIAL = ".headrace", ".partial"
INDEX_SUFFIXES = (_SUFFIX, _SUFFIX + _PARTIAL)
_END_SAMPLE_BYTES = 1 << 16
_MIDDLE_SAMPLES, _MIDDLE_SAMPLE_BYTES = 6, 1 << 12


@dataclass(frozen=True)
class _Identity:
    """What a tar is known by: its size and a hash of samples of its content."""

    size: int
    sample: str


def open_index(path: str, *, cache: str | None) -> TarIndex:
    """The index of the tar at `path`: kept from an earlier time, or built now and kept.

    It lies beside the tar; with `cache`, or where that cannot be written, in that folder or the default cache folder.
    """
    identity = _identify(path)
    places = _places(path, identity, cache)
    for place in places:
        index = _load(place, identity)
        if index is not None:
            return index
    reasons = []
    for place in places:
        try:
            return _load_or_build(place, path, identity)
        except _UnwritableError as error:
            reasons.append(f"{place}: {error}")
    if cache is not None:
        raise DatasetError(
            f"cannot keep the index of {path} in the cache folder given: {reasons[0]}. Name one that is writable"
        )
    warnings.warn(
        f"the index of {path} cannot be kept, so each start scans the tar again ({'; '.join(reasons)}). "
        f"Set HEADRACE_CACHE to a writable folder",
        stacklevel=2,
    )
    return build_index(path)


class _UnwritableError(Exception):
    """The sidecar cannot be written at this place."""


def _identify(path: str) -> _Identity:
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            state = hashlib.blake2b(digest_size=16)
            for at, length in _sampled_ranges(size):
                state.update(os.pread(file.fileno(), length, at))
    except OSError as error:
        raise ReadError(f"{path}: could not be read: {error.strerror}. Check its permissions and the disk") from error
    return _Identity(size, state.hexdigest())


def _sampled_ranges(size: int) -> list[tuple[int, int]]:
    """The first and last 64 KiB, and six pieces evenly between."""
    step = size // (_MIDDLE_SAMPLES + 1)
    middle = [(step * (i + 1), _MIDDLE_SAMPLE_BYTES) for i in range(_MIDDLE_SAMPLES)]
    return [(0, _END_SAMPLE_BYTES), *middle, (max(0, size - _END_SAMPLE_BYTES), _END_SAMPLE_BYTES)]


def _places(path: str, identity: _Identity, cache: str | None) -> list[str]:
    """Where the sidecar may lie, best first. In a cache the content names it, so a moved tar keeps its index."""
    cached = f"{os.path.basename(path)}.{identity.sample}{_SUFFIX}"
    if cache is not None:
        return [os.path.join(cache, cached)]
    return [path + _SUFFIX, os.path.join(cache_folder(), cached)]


def cache_folder() -> str:
    """`$HEADRACE_CACHE`, else `headrace` in `$XDG_CACHE_HOME`, else `~/.cache/headrace`."""
    own = os.environ.get("HEADRACE_CACHE")
    if own:
        return os.path.abspath(own)
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "headrace")


def _load(place: str, identity: _Identity) -> TarIndex | None:
    """The index kept at `place`; None if there is none, or it is damaged, foreign, or of another tar or version."""
    try:
        arrays, metadata = safetensors.read(place)
        if metadata.get("format") != FORMAT or metadata.get("tar") != _identity_text(identity):
            return None
        return TarIndex.from_arrays(arrays, metadata.get("outline", ""), identity.size)
    except (OSError, safetensors.InvalidFileError):
        return None


def _load_or_build(place: str, path: str, identity: _Identity) -> TarIndex:
    with _partial_file(place) as partial:
        # Whoever held the lock before may have finished it.
        index = _load(place, identity)
        if index is None:
            index = build_index(path)
            _write(partial, place, index, identity)
            # Mapped from the file, its pages are shared with every other process.
            index = _load(place, identity) or index
    return index


@contextmanager
def _partial_file(place: str) -> Iterator[int]:
    """The descriptor of `place`.partial, locked; it is removed at the end unless it was renamed to `place`."""
    name = place + _PARTIAL
    descriptor = _lock(name)
    try:
        yield descriptor
    finally:
        if _is_at(descriptor, name):
            with suppress(OSError):
                os.unlink(name)
        os.close(descriptor)


def _lock(name: str) -> int:
    """Opens and locks `name`; waits for another holder. Raises _UnwritableError."""
    try:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        while True:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except BaseException:
                os.close(descriptor)
                raise
            # While this waited, the holder may have renamed the file: then it is the finished sidecar.
            if _is_at(descriptor, name):
                return descriptor
            os.close(descriptor)
    except OSError as error:
        raise _UnwritableError(error.strerror or str(error)) from error


def _is_at(descriptor: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except FileNotFoundError:
        return False


def _write(partial: int, place: str, index: TarIndex, identity: _Identity) -> None:
    arrays, outline = index.to_arrays()
    metadata = {"format": FORMAT, "tar": _identity_text(identity), "outline": outline}
    try:
        os.ftruncate(partial, 0)
        with os.fdopen(partial, "wb", closefd=False) as file:
            safetensors.write(file, arrays, metadata)
        os.fsync(partial)
        os.replace(place + _PARTIAL, place)
    except OSError as error:
        raise _UnwritableError(error.strerror or str(error)) from error


def _identity_text(identity: _Identity) -> str:
    parts: dict[str, Any] = {"bytes": identity.size, "sample": identity.sample}
    return json.dumps(parts, sort_keys=True)
