"""Binary values of compressed row files, decoded once into a file in the cache folder.

Decoding on access would decode a whole row group for each sample of a shuffled epoch: see docs/sources.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from headrace.data.byte_columns import ByteRanges, MemoryFile, ValuesFile
from headrace.data.location import ABSENT
from headrace.data.storage import safetensors
from headrace.data.storage.file_writing import UnwritableError, finish_partial_file, partial_file, write_all
from headrace.data.storage.open_file import FilePath
from headrace.data.storage.safetensors import ArrayContent, Arrays, InvalidFileError, read_outline
from headrace.data.storage.sidecar import (
    Sidecar,
    identify_archive,
    identify_closely,
    identify_rows,
    open_sidecar,
    sidecar_places,
)
from headrace.errors import ReadError
from headrace.system import work_through

if TYPE_CHECKING:
    import pyarrow as pa


class RowGroups(Protocol):
    """File of rows with binary values, decoded several row groups at once."""

    @property
    def groups(self) -> int: ...

    def groups_at_once(self, column: str, /) -> int: ...

    def column_bytes(self, column: str, /) -> int: ...

    def group(self, number: int, column: str, /) -> Iterator[pa.Array]:
        """Yield the values of a column in a row group. Raises DatasetError, ReadError."""
        ...


Put: TypeAlias = Callable[[memoryview], int]
"""Function that appends bytes to a file of values, from any thread, and returns their offset."""

_FORMAT = "headrace values 4"
"""Raise the number whenever the meaning of an index or of a file of values changes: old files are rebuilt."""
_VALUES_SUFFIX = ".values.headrace"
_KEPT_FROM_BYTES = 1 << 20
"""Smaller columns are decoded at each opening, to avoid an extra file for every small parquet."""


def open_decoded_values(
    path: FilePath, column: str, read: Callable[[], RowGroups], cache: str | None
) -> tuple[ValuesFile, ByteRanges]:
    """Return the file of a column's values and their ranges, decoding them unless an earlier opening did.

    `read` opens the file of rows at `path`, if needed. Raises DatasetError (damaged, no space, replaced meanwhile) or
    ReadError.
    """
    identity = identify_rows(path)
    variant = hashlib.blake2b(column.encode(), digest_size=4).hexdigest()
    (place,) = sidecar_places(path, identity, cache, variant=variant, beside=False)
    held: list[MemoryFile] = []

    def build(path: FilePath, folder: str | None) -> tuple[Mapping[str, ArrayContent], str]:
        rows = read()
        if folder is None:
            held[:] = [MemoryFile()]
            return _arrays(_decode(rows, column, held[0].put)), ""
        stem = place.removesuffix(".headrace")
        values = _write(rows, column, stem + _VALUES_SUFFIX)  # over what a killed build has left there
        # Each build has a name of its own: values are written in any order, and a run may read those of another build.
        where = f"{stem}.{secrets.token_hex(4)}{_VALUES_SUFFIX}"
        os.replace(stem + _VALUES_SUFFIX, where)
        return _arrays(values), json.dumps([os.path.basename(where), identify_archive(where).to_json()])

    def load(arrays: Arrays, outline: str, _: int) -> tuple[ValuesFile, ByteRanges]:
        length = safetensors.checked_array(arrays, "length", np.int64)
        offset = safetensors.checked_array(arrays, "offset", np.int64, len(length))
        paths = safetensors.checked_strings(arrays, "paths", len(length)) if "paths.blob" in arrays else None
        counts = safetensors.checked_array(arrays, "counts", np.int64) if "counts" in arrays else None
        if counts is not None and ((counts < 0).any() or int(counts.sum()) != len(length)):
            raise InvalidFileError("the lists do not divide the values")
        values = ByteRanges(offset, length, paths, counts)
        if held:
            return held[0], values
        return _find(os.path.dirname(place), outline, values), values

    sidecar = Sidecar(_FORMAT, build, load, identify_closely, variant, beside=False)
    if cache is None and not os.path.exists(place):
        rows = read()
        if rows.column_bytes(column) < _KEPT_FROM_BYTES:
            file = MemoryFile()
            return file, _decode(rows, column, file.put)
    return open_sidecar(sidecar, path, identity, cache=cache)


def _find(folder: str, outline: str, values: ByteRanges) -> str:
    """Return the path of the values. Raises InvalidFileError if that file is missing or has changed."""
    name, identity = read_outline(outline, tuple[str, str])
    where = os.path.join(folder, os.path.basename(name))
    here = values.length != ABSENT
    try:
        found = identify_archive(where)
    except ReadError:
        raise InvalidFileError("the values are gone") from None
    if found.to_json() != identity or not safetensors.ranges_lie_in(
        values.offset[here], values.length[here], first=0, end=found.bytes
    ):
        raise InvalidFileError("the values are gone")
    return where


def _write(rows: RowGroups, column: str, where: str) -> ByteRanges:
    """Decode the values into a file at `where`. Raises UnwritableError if there is not enough space."""
    found: list[ByteRanges] = []
    with partial_file(where) as descriptor:
        needed = rows.column_bytes(column)
        free = shutil.disk_usage(os.path.dirname(where)).free
        if free < needed:
            raise UnwritableError(f"its values take {needed:,} bytes, and there is room for {free:,}")
        lock, end = threading.Lock(), 0

        def put(data: memoryview) -> int:
            nonlocal end
            with lock:
                place = end
                end += len(data)
            write_all(descriptor, data, place)
            return place

        finish_partial_file(descriptor, where, lambda _: found.append(_decode(rows, column, put)))
    return found[0]


def _decode(rows: RowGroups, column: str, put: Put) -> ByteRanges:
    """Write a column's values contiguously, several row groups at once, and return their ranges."""
    parts: dict[int, ByteRanges] = {}

    def work(number: int) -> None:
        parts[number] = ByteRanges.join([add_values(put, array) for array in rows.group(number, column)])

    threads = max(1, min(rows.groups_at_once(column), rows.groups))
    work_through(range(rows.groups), work, name="decode-rows", threads=threads)
    return ByteRanges.join([parts[number] for number in sorted(parts)])


def add_values(put: Put, array: pa.Array) -> ByteRanges:
    """Write the values of a column that `is_bytes`, and return their ranges."""
    from headrace.data.manifest.arrow_files import ranges_of

    data, found = ranges_of(array)
    if data is None or not len(found.offset):
        return found
    first, last = int(found.offset[0]), int((found.offset + np.maximum(found.length, 0)).max())
    return found.moved(put(memoryview(data)[first:last]) - first)


def _arrays(values: ByteRanges) -> dict[str, ArrayContent]:
    arrays: dict[str, ArrayContent] = {"offset": values.offset, "length": values.length}
    if values.paths is not None:
        arrays |= {"paths.blob": values.paths.blob, "paths.offsets": values.paths.offsets}
    return arrays if values.counts is None else arrays | {"counts": values.counts}
