"""MDS shards and LitData's chunks as samples: bytes in place, values in an index in the cache folder."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from headrace.data.archives.archive_scans import open_each
from headrace.data.byte_columns import ByteRanges, RowFiles, ValuesFile
from headrace.data.columns import Column, RangeColumn
from headrace.data.manifest.decoded_values import open_decoded_values
from headrace.data.manifest.manifest_columns import ManifestColumns, load_manifest_columns
from headrace.data.remote.remote_file import CopiedObject, ObjectPath
from headrace.data.sources.shard_formats import CODECS, FRAMES, Shard, ShardSet, read_shard_set
from headrace.data.storage.open_file import (
    FilePath,
    FileStream,
    OpenFile,
    ReadableFile,
    file_name,
    folder_of,
    open_path,
)
from headrace.data.storage.safetensors import ArrayContent, Arrays, InvalidFileError, checked_array, mapped_arrays
from headrace.data.storage.sidecar import FileIdentity, Sidecar, build_unchanged, identify_rows, open_sidecar
from headrace.data.storage.strings import NumberKeys
from headrace.data.table import SampleTable
from headrace.errors import DatasetError, HeadraceError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.data.sources.shard_rows import ShardRows

_FORMAT = "headrace shards 1"
"""Raise the number whenever the meaning of an index changes: old indices are rebuilt."""
_KEPT_FROM_BYTES = 1 << 20
"""Smaller datasets are read at each opening, to avoid an extra file for each."""
_UNPACKED = "\0unpacked"
"""Name of the values that are a whole uncompressed shard; no column has it."""

_PIECE_BYTES = 8 << 20
_HEADER = struct.Struct("<8sHHIII")
"""Magic, version, flags, number of rows, rows of a frame, and number of frames."""
_MAGIC, _VERSION = b"LDFZ01\0\0", 1
_FRAME = np.dtype([("row", "<u4"), ("rows", "<u4"), ("at", "<u8"), ("bytes", "<u4"), ("unpacked", "<u4")])

_Index: TypeAlias = tuple[ManifestColumns, Mapping[str, ByteRanges]]
"""Values of all rows, and the ranges of the columns that are in place."""


def open_shards(index: FilePath, *, columns: Sequence[str] | None, cache: str | None) -> SampleTable:
    """Return the rows of the shards that the `index.json` at `index` describes as samples; keys are row numbers.

    Bytes and contents of files, pickles among them, are columns of bytes in place. A compressed shard is unpacked once
    into the cache folder, where raw pixels also become PNGs, and arrays of unknown or several dimensions `.npy`.

    Raises DatasetError (NotFoundError, EmptyDatasetError, ChangedError), ReadError, UsageError for unknown columns.
    """
    return _open_set(index, read_shard_set(index, columns), cache)


def _open_set(index: FilePath, known: ShardSet, cache: str | None) -> SampleTable:
    files = _ShardFiles(index, known, cache)
    values, ranges = files.index()
    path_id = np.repeat(np.arange(len(known.shards), dtype=np.int32), [shard.rows for shard in known.shards])
    in_place = RowFiles.of(files.values)

    def column_of(name: str) -> Column:
        if name in ranges:
            return RangeColumn(in_place, path_id, ranges[name].offset, ranges[name].length, None)
        # Another index may give the same shard other encodings.
        variant = f"{name}\0{known.columns}"
        parts = [
            open_decoded_values(shard.path, variant, partial(files.rows, number), cache)
            for number, shard in enumerate(known.shards)
        ]
        converted = ByteRanges.join([part for _, part in parts])
        return RangeColumn(RowFiles.of([file for file, _ in parts]), path_id, converted.offset, converted.length, None)

    values = replace(values, keys=NumberKeys(range(len(path_id))))
    source = f"{len(known.shards):,} shards in {folder_of(index)}"
    names = [file_name(shard.path) for shard in known.shards]
    return values.table(source, names, column_of, root=None, again=partial(_open_set, index, known, cache))


def identify_shards(index: FilePath) -> FileIdentity:
    """Return the identity under which the index of all columns of shards is cached. Raises as `open_shards` does."""
    return _identify(index, read_shard_set(index, None))


def _identify(index: FilePath, known: ShardSet) -> FileIdentity:
    """Return the identity of all shards, and of the columns to read."""

    def identify(path: FilePath) -> FileIdentity:
        if isinstance(path, str) and not os.path.exists(path):
            raise NotFoundError(f"{path}: expected the shard that {index} names, got nothing. Copy it there")
        return identify_rows(path)

    identities = open_each([shard.path for shard in known.shards], identify, cache=None)
    joint = [repr(known.columns), known.names, [each.to_json() for each in identities]]
    digest = hashlib.blake2b(json.dumps(joint).encode(), digest_size=16).hexdigest()
    return FileIdentity(sum(each.bytes for each in identities), digest)


class _ShardFiles:
    """Uncompressed files of shards, and the index of their rows."""

    def __init__(self, path: FilePath, known: ShardSet, cache: str | None) -> None:
        """Unpack compressed shards unless an earlier opening did. Raises DatasetError, NotFoundError, ReadError."""
        self._path, self._known, self._cache = path, known, cache
        self._shards = {str(shard.path): shard for shard in known.shards}
        self._identity = _identify(path, known)
        self.values = open_each([shard.path for shard in known.shards], self._unpacked, cache=cache)
        self._in_place = [each.name for each in known.columns if each.kind == "bytes" and each.name in known.names]

    def rows(self, number: int) -> ShardRows:
        """Return the rows of a shard."""
        from headrace.data.sources.shard_rows import ShardRows

        shard = self._known.shards[number]
        return ShardRows(self.values[number], str(shard.path), self._known.columns, shard.rows)

    def index(self) -> _Index:
        """Return the index, built unless an earlier opening did. Raises DatasetError, ReadError."""
        sidecar = Sidecar(_FORMAT, self._build, self._load, self._again, lazy=True, beside=False)
        if self._identity.bytes < _KEPT_FROM_BYTES and self._cache is None:
            contents, outline = build_unchanged(sidecar, self._path, self._identity, scratch_in=None)
            return self._load(mapped_arrays(contents), outline, 0)
        return open_sidecar(sidecar, self._path, self._identity, cache=self._cache)

    def _again(self, _: OpenFile) -> FileIdentity:
        return _identify(self._path, self._known)

    def _build(self, _: FilePath, folder: str | None) -> tuple[dict[str, ArrayContent], str]:
        from headrace.data.manifest.column_builders import build_columns
        from headrace.data.manifest.typed_rows import TypedRows

        parts = [self.rows(number) for number in range(len(self.values))]
        arrays, outline = build_columns(TypedRows(parts, columns=self._known.names), scratch_in=folder)
        for number, name in enumerate(self._in_place):
            ranges = ByteRanges.join([part.ranges(name) for part in parts])
            arrays |= {f"ranges.{number}.offset": ranges.offset, f"ranges.{number}.length": ranges.length}
        return arrays, outline

    def _load(self, arrays: Arrays, outline: str, _: int) -> _Index:
        values, rows = load_manifest_columns(arrays, outline), [shard.rows for shard in self._known.shards]
        if [file.rows for file in values.files] != rows:
            raise InvalidFileError("it has other rows than the shards")
        ranges = {}
        for number, name in enumerate(self._in_place):
            offset, length = (
                checked_array(arrays, f"ranges.{number}.{part}", np.int64, sum(rows)) for part in ("offset", "length")
            )
            ranges[name] = ByteRanges(offset, length)
        return values, ranges

    def _unpacked(self, path: FilePath) -> ValuesFile:
        shard = self._shards[str(path)]
        if shard.codec is None:
            return path
        return open_decoded_values(path, _UNPACKED, lambda: _PackedShard(shard), self._cache)[0]


# --- compressed shards ---


@dataclass(frozen=True)
class _PackedShard:
    """Compressed shard, whose only value is the uncompressed one."""

    shard: Shard
    groups = 1

    def groups_at_once(self, _: str) -> int:
        return self.groups

    def column_bytes(self, _: str) -> int:
        return self.shard.most_bytes

    def group(self, _: int, __: str) -> Iterator[pa.Array]:
        """Yield the uncompressed file in pieces. Raises DatasetError, ReadError."""
        import pyarrow as pa

        path, codec, left = self.shard.path, self.shard.codec, self.shard.most_bytes
        file = open_path(CopiedObject(path) if isinstance(path, ObjectPath) else path)
        try:
            for piece in _frames(file) if codec == FRAMES else _stream(file, CODECS[str(codec)]):
                left -= len(piece)
                if left < 0 and codec != FRAMES:  # frames are as long as their table says
                    raise ValueError(f"more than the {self.shard.most_bytes:,} bytes that the index states")
                yield pa.array([piece], pa.large_binary())
        except HeadraceError:
            raise
        except (pa.ArrowException, ValueError, OverflowError, OSError, struct.error) as error:
            raise DatasetError(
                f"{path}: expected a shard compressed with {codec}, got otherwise: {error}. Copy or write it again"
            ) from error


def _stream(file: ReadableFile, codec: str) -> Iterator[bytes]:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.PythonFile(FileStream(file), "r"), codec) as stream:
        while piece := stream.read(_PIECE_BYTES):
            yield piece


def _frames(file: ReadableFile) -> Iterator[bytes]:
    """Yield a LitData chunk whose rows are compressed in groups, after their offsets and a table of the groups."""
    import pyarrow as pa

    magic, version, _, rows, _, count = _HEADER.unpack(file.read(0, _HEADER.size))
    if (magic, version) != (_MAGIC, _VERSION):
        raise ValueError(f"expected frames of version {_VERSION}, got {magic!r}, version {version}")
    size = file.size()
    table = file.read(_HEADER.size, min(4 * (rows + 1) + _FRAME.itemsize * count, size))
    bounds = np.frombuffer(table, "<u4", rows + 1).astype(np.int64)
    frames = np.frombuffer(table, _FRAME, count, 4 * (rows + 1))
    ends = np.cumsum(frames["rows"], dtype=np.int64)
    begins = ends - frames["rows"]
    if not count or ends[-1] != rows or bounds[0] or (frames["row"] != begins).any():
        raise ValueError(f"expected frames of {rows:,} rows in order, got others")
    yield struct.pack("<I", rows) + (bounds + 4 * (rows + 2)).astype("<u4").tobytes()
    for frame, size_of_rows in zip(frames, (bounds[ends] - bounds[begins]).tolist(), strict=True):
        packed = file.read(int(frame["at"]), min(int(frame["bytes"]), size))
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            piece = stream.read(size_of_rows + 1)
        if len(piece) != size_of_rows:
            raise ValueError(f"expected a frame of {size_of_rows:,} bytes, got another")
        yield piece
