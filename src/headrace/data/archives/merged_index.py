"""Indices of many archives in stores, merged into one file that a node fetches once and its processes map.

The file starts with a table of the archives and their content versions. Their indices follow, in the format of the
cache folder. The table and each index have their own checksums.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, TypeVar

import numpy as np

from headrace.data.remote.listing import Stores
from headrace.data.remote.remote_file import ObjectPath, copy_object, put_object
from headrace.data.storage.file_writing import UnwritableError, finish_partial_file, partial_file
from headrace.data.storage.open_file import FilePath, open_path
from headrace.data.storage.safetensors import (
    InvalidFileError,
    MappedArrays,
    MappedFile,
    checked_array,
    checked_strings,
    divides,
    read_arrays,
    write_arrays,
)
from headrace.data.storage.sidecar import (
    FileIdentity,
    Sidecar,
    identify_archive,
    open_cached,
    sidecar_places,
)
from headrace.data.storage.strings import StringColumn
from headrace.errors import ChangedError, DatasetError, NotFoundError, ReadError, UsageError, WriteError
from headrace.stores import REMOTE_RETRIES, ObjectPin, is_remote

T = TypeVar("T")

MERGED_SUFFIX = ".headrace"
_FORMAT = "headrace merged index 1"
"""Raise the number with its meaning; the indices inside have their own formats."""
_ALIGNED = 8
_HEAD_BYTES = 512
_BUILD_AGAIN = "Build it again: headrace index ARCHIVES --to {}"
_LAST_ATTEMPT_S = 30
"""Upper bound on the last attempt at a piece, which begins before `retry_for=` is over."""


class MergedIndex:
    """Indices of archives in stores, mapped from one file."""

    def __init__(self, shown: str, path: str, *, damage_advice: str) -> None:
        """Map the file at `path`, called `shown` in messages. Raises InvalidFileError, or OSError."""
        self.shown = shown
        self._advice = damage_advice
        self._mapped = MappedFile(path)
        arrays, metadata = self._mapped.read()
        if metadata.get("format") != _FORMAT:
            raise InvalidFileError(f"its format is {metadata.get('format', 'unknown')!r}, not {_FORMAT!r}")
        names = checked_strings(arrays, "addresses")
        self._numbers = {name: number for number, name in enumerate(names)}
        self._bounds = checked_array(arrays, "bounds", np.int64, len(names) + 1)
        if not divides(self._bounds, int(self._bounds[-1])):
            raise InvalidFileError("bounds do not rise")
        self._begin = _padded(max(arrays.at[name] + array.nbytes for name, array in arrays.items()))
        sizes = checked_array(arrays, "sizes", np.int64, len(names)).tolist()
        stated = [list(checked_strings(arrays, name, len(names))) for name in ("etags", "versions", "times")]
        self._pins = [
            ObjectPin(size, *(text or None for text in texts)) for size, *texts in zip(sizes, *stated, strict=True)
        ]

    def __len__(self) -> int:
        return len(self._numbers)

    def pin(self, paths: Sequence[ObjectPath]) -> None:
        """Pin archives to their indexed content: the first read of changed content raises ChangedError.

        Raises ChangedError here if the content is already known, as from a listing. Raises DatasetError for an archive
        that is not in the index.
        """
        for path in paths:
            pin = self._pins[self._number(path)]
            if not path.known.setdefault("pin", pin).is_same(pin):
                raise ChangedError(
                    f"{path}: it was replaced since its index in {self.shown} was built. "
                    f"{_BUILD_AGAIN.format(self.shown)}"
                )

    def format(self, path: ObjectPath) -> str | None:
        """Return the format of the index of an archive. Raises DatasetError."""
        return self._read(path)[1].get("format")

    def load(self, sidecar: Sidecar[T], path: FilePath, identity: FileIdentity) -> T:
        """Return the index of the archive at `path`, which has this `identity`. Raises DatasetError."""
        arrays, metadata = self._read(path)
        if metadata.get("format") != sidecar.format:
            raise DatasetError(
                f"{self.shown}: expected the index of {path} as {sidecar.format!r}, got {metadata.get('format')!r}, of "
                f"another kind of archive or version of Headrace. {_BUILD_AGAIN.format(self.shown)}"
            )
        try:
            if metadata.get("of") != identity.to_json():
                raise InvalidFileError("it is of another content than the table says")
            arrays.check_all()
            return sidecar.load(arrays, metadata.get("outline", ""), identity.bytes)
        except InvalidFileError as error:
            raise self._damaged(path, error) from error

    def check_all(self) -> None:
        """Verify all checksums of all indices. Raises InvalidFileError."""
        for start, stop in pairwise(self._bounds.tolist()):
            self._mapped.read(self._begin + start, stop - start)[0].check_all()

    def _read(self, path: FilePath) -> tuple[MappedArrays, dict[str, str]]:
        number = self._number(path)
        start, stop = self._bounds[number : number + 2].tolist()
        try:
            return self._mapped.read(self._begin + start, stop - start)
        except InvalidFileError as error:
            raise self._damaged(path, error) from error

    def _number(self, path: FilePath) -> int:
        number = self._numbers.get(str(path))
        if number is None:
            raise DatasetError(
                f"{self.shown}: expected an index of each archive opened, got none of {path} among {len(self):,}. "
                f"{_BUILD_AGAIN.format(self.shown)}"
            )
        return number

    def _damaged(self, path: FilePath, error: InvalidFileError) -> DatasetError:
        return DatasetError(f"{self.shown}: expected the index of {path}, got a damaged one ({error}). {self._advice}")


# --- opening ---


def open_merged_index(where: str, stores: Stores, *, cache: str | None) -> MergedIndex:
    """Return the merged index at an address or an absolute path.

    For an address, one process per node fetches it into the cache folder while the others wait. Raises DatasetError,
    NotFoundError, ReadError.
    """
    if not is_remote(where):
        return _open_local(where)
    path = stores.path(where)
    shown = str(path)

    def load(place: str) -> MergedIndex:
        return MergedIndex(shown, place, damage_advice=f"Remove {place}, and open again")

    def check(place: str) -> None:
        try:
            load(place).check_all()
        except InvalidFileError as error:
            raise _no_index(shown, error) from error

    return open_copied(path, load, cache=cache, variant="merged", check=check)


def open_copied(
    path: ObjectPath,
    load: Callable[[str], T],
    *,
    cache: str | None,
    variant: str,
    check: Callable[[str], object] | None = None,
) -> T:
    """Return `load` of a copy of an object in the cache folder, which one process per node fetches as others wait.

    `load` raises InvalidFileError for a damaged copy, which is fetched again. `check` is called with a new copy, `load`
    by default. Raises as they do, NotFoundError, ReadError.
    """
    identity = identify_archive(path)
    (place,) = sidecar_places(path, identity, cache, variant=variant)

    def load_copy() -> T | None:
        return load(place) if os.path.exists(place) else None

    def fetch(partial: int) -> None:
        def write(target: BinaryIO) -> None:
            copy_object(path, target.fileno())
            (check or load)(f"/proc/self/fd/{target.fileno()}")

        finish_partial_file(partial, place, write)

    patience_s = REMOTE_RETRIES.of(path.store).retry_for_s + _LAST_ATTEMPT_S
    try:
        return open_cached(place, load_copy, fetch, expected=f"a copy of {path}", patience_s=patience_s)
    except UnwritableError as error:
        raise ReadError(
            f"{path}: it could not be copied to {place}: {error}. Name a writable folder with room as cache= or "
            f"HEADRACE_CACHE"
        ) from error


def _open_local(path: str) -> MergedIndex:
    if not os.path.isfile(path):
        raise NotFoundError(f"index: expected a file or an address, got {path}, where there is none. Check the path")
    try:
        return MergedIndex(path, path, damage_advice=_BUILD_AGAIN.format(path))
    except InvalidFileError as error:
        raise _no_index(path, error) from error


def _no_index(shown: str, error: InvalidFileError) -> DatasetError:
    return DatasetError(
        f"{shown}: expected a merged index, as `headrace index --to` writes it, got another or a damaged file "
        f"({error}). {_BUILD_AGAIN.format(shown)}"
    )


# --- building ---


@dataclass(frozen=True)
class MergedFile:
    """Written merged index."""

    path: str
    archives: int
    bytes: int


def check_merged_target(to: str, stores: Stores) -> None:
    """Raise UsageError unless `to` is a new object or file, or a merged index to replace."""
    if not to.endswith(MERGED_SUFFIX):
        raise UsageError(f"--to: expected the name of an index, such as index{MERGED_SUFFIX}, got {to}")
    target: FilePath = to
    if is_remote(to):
        target = stores.path(to)
        if target.store.address.is_web:
            raise UsageError(f"--to: expected a bucket or a path, got {target}: nothing is written to a web server")
    try:
        head = open_path(target).read(0, _HEAD_BYTES)
    except NotFoundError:
        return
    except ReadError:
        if not is_remote(to) and not os.path.exists(to):
            return
        raise
    if b'"headrace merged index ' not in head:
        raise UsageError(f"--to: expected a new name, or a merged index to replace, got {target}, which is none")


def write_merged_index(archives: Sequence[tuple[ObjectPath, str]], to: str, stores: Stores) -> MergedFile:
    """Write the indices of archives, each given with the path of its sidecar, to an address or an absolute path.

    Raises UsageError as `check_merged_target` does, DatasetError for a sidecar of another archive, WriteError, and for
    an address the errors of writing to its store.
    """
    check_merged_target(to, stores)
    if is_remote(to):
        path = stores.path(to)
        return MergedFile(str(path), len(archives), put_object(path, lambda file: _write(file, archives)))
    try:
        with partial_file(to, patience_s=REMOTE_RETRIES.retry_for_s + _LAST_ATTEMPT_S) as partial:
            finish_partial_file(partial, to, lambda file: _write(file, archives))
    except UnwritableError as error:
        raise WriteError(f"{to}: could not be written: {error}. Name another place") from error
    return MergedFile(to, len(archives), os.path.getsize(to))


def _write(file: BinaryIO, archives: Sequence[tuple[ObjectPath, str]]) -> None:
    parts = [_checked_part(path, place) for path, place in archives]
    pins = [path.open().pin() for path, _ in archives]
    table = {
        "bounds": np.cumsum([0, *(_padded(os.path.getsize(part)) for part in parts)]),
        "sizes": np.array([pin.size for pin in pins], np.int64),
    }
    columns = {
        "addresses": [str(path) for path, _ in archives],
        "etags": [pin.etag or "" for pin in pins],
        "versions": [pin.version or "" for pin in pins],
        "times": [pin.modified or "" for pin in pins],
    }
    for name, texts in columns.items():
        strings = StringColumn.from_list(texts)
        table |= {f"{name}.blob": strings.blob, f"{name}.offsets": strings.offsets}
    head = io.BytesIO()
    write_arrays(head, table, {"format": _FORMAT})
    file.write(_pad(head.getvalue()))
    for part in parts:
        with open(part, "rb") as source:
            shutil.copyfileobj(source, file)
            file.write(b"\0" * (_padded(source.tell()) - source.tell()))
    file.flush()


def _checked_part(path: ObjectPath, place: str) -> str:
    try:
        arrays, metadata = read_arrays(place)
        if metadata.get("of") != identify_archive(path).to_json():
            raise InvalidFileError("it is of another content")
        arrays.check_all()
    except InvalidFileError as error:
        raise DatasetError(f"{place}: expected the index of {path}, got another ({error}). Run it again") from error
    return place


def _padded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _pad(data: bytes) -> bytes:
    return data + b"\0" * (_padded(len(data)) - len(data))
