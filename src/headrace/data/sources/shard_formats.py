"""Shards of other loaders, by their `index.json`: MDS of MosaicML Streaming, and LitData's chunks.

Both have one layout, in little-endian uint32: the number of rows, the first byte of each row and the end of the last;
then the rows. A row has the sizes of its columns, in MDS only of those without a fixed size, and then their bytes.

https://docs.mosaicml.com/projects/streaming/en/stable/preparing_datasets/dataset_format.html
https://github.com/Lightning-AI/litData (`BinaryWriter`)
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np

from headrace._core import leads_out
from headrace.data.manifest.manifest_columns import choose_names, distinct_names
from headrace.data.remote.remote_file import beside
from headrace.data.storage.open_file import FilePath, read_path
from headrace.errors import DatasetError, EmptyDatasetError

INDEX_NAME = "index.json"
"""Name of the description of a folder of shards."""
FRAMES = "frames"
"""Codec of a LitData chunk whose rows are compressed in groups."""
CODECS = {"zstd": "zstd", "gz": "gzip", "br": "brotli", "bz2": "bz2"}
"""Compressions of whole files, and pyarrow's names for them."""

ColumnKind: TypeAlias = Literal["bytes", "text", "digits", "number", "list", "image", "array"]
"""Bytes and UTF-8 as they are; a number as text or in binary; a list of numbers; an image's raw pixels; an array."""
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**40)]
_KINDS: dict[str, ColumnKind] = {
    # Contents of files, and pickles, which are never loaded.
    **dict.fromkeys(("bytes", "jpeg", "png", "image", "tiff", "tifffile", "file", "pkl", "pickle"), "bytes"),
    **dict.fromkeys(("str", "text", "json", "str_decimal"), "text"),
    **dict.fromkeys(("str_int", "str_float"), "digits"),
    "pil": "image",
}
_NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
_TYPES = {name: name for name in _NUMBERS} | {"int": "int64", "float": "float64", "bool": "bool"}
_DIGITS = {"str_int": "int64", "str_float": "float64"}
ARRAY_TYPES = {
    "numpy": (*_NUMBERS, "complex64", "complex128", "bool"),
    "tensor": ("float32", "float32", "float64", "float64", "complex64", "complex64", "complex128", "complex128",
               "float16", "float16", "", "uint8", "int8", "int16", "int16", "int32", "int32", "int64", "int64",
               "bool", "uint16"),
}  # fmt: skip
"""LitData's types of arrays by number; bfloat16, which numpy lacks, is empty."""


@dataclass(frozen=True)
class ShardColumn:
    """Column of shards, and the encoding of its values."""

    name: str
    encoding: str
    """Name of the encoding in the library that wrote it."""
    kind: ColumnKind | None
    """None for an encoding that is not read."""
    size: int | None = None
    """Bytes of each value; None if they vary."""
    is_stated: bool = True
    """True if each row states the size."""
    dtype: str = ""
    """numpy's name for the type of the numbers; empty for arrays that state it."""
    shape: tuple[int, ...] | None = None
    """Shape of all arrays; None for arrays that state it."""


@dataclass(frozen=True)
class Shard:
    """File of rows."""

    path: FilePath
    rows: int
    codec: str | None
    """Compression: a key of `CODECS`, `FRAMES`, or None."""
    most_bytes: int
    """Upper bound on the size of the uncompressed file."""


@dataclass(frozen=True)
class ShardSet:
    """Shards of one dataset, which have the same columns in the order of their bytes; `names` are those to read."""

    columns: tuple[ShardColumn, ...]
    names: tuple[str, ...]
    shards: tuple[Shard, ...]


class _File(msgspec.Struct):
    basename: str
    bytes: _Count


class _MdsShard(msgspec.Struct):
    samples: _Count
    format: str = ""
    version: int = 0
    raw_data: _File | None = None
    zip_data: _File | None = None
    compression: str | None = None
    column_names: tuple[str, ...] = ()
    column_encodings: tuple[str, ...] = ()
    column_sizes: tuple[_Count | None, ...] = ()


class _Chunk(msgspec.Struct):
    filename: str
    chunk_bytes: _Count
    chunk_size: _Count


class _Config(msgspec.Struct):
    data_format: tuple[str, ...] = ()
    data_spec: str | None = None
    compression: str | None = None
    compression_level: str | None = None
    encryption: Any = None
    item_loader: str | None = None


class _Index(msgspec.Struct):
    """Index of either library."""

    shards: Any = None
    chunks: Any = None
    config: Any = None


def describes_shards(path: FilePath) -> bool:
    """Return True if an `index.json` describes shards, or is no JSON. Raises ReadError."""
    try:
        index = msgspec.json.decode(read_path(path), type=_Index)
    except msgspec.ValidationError:
        return False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    return index.shards is not None or (index.chunks is not None and index.config is not None)


def read_shard_set(path: FilePath, columns: Sequence[str] | None) -> ShardSet:
    """Return the shards that the `index.json` at `path` describes; `columns` names those to read, None: all.

    Raises DatasetError for another form or for encodings that are not read, EmptyDatasetError, UsageError for an
    unknown column, ReadError.
    """
    try:
        index = msgspec.json.decode(read_path(path), type=_Index)
        if index.shards is not None:
            described, shards = _mds(path, msgspec.convert(index.shards, list[_MdsShard]))
        else:
            chunks = msgspec.convert(index.chunks, list[_Chunk])
            described, shards = _litdata(path, chunks, msgspec.convert(index.config, _Config))
    except (msgspec.DecodeError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise DatasetError(
            f"{path}: expected a description of shards, got otherwise: {error}. Copy the dataset again, or write it "
            f"again"
        ) from error
    shards = [shard for shard in shards if shard.rows]
    if not shards:
        raise EmptyDatasetError(f"{path}: expected rows, got shards of none. Check what was written")
    names = choose_names(str(path), distinct_names(str(path), [column.name for column in described]), columns)
    for column in described:
        if column.kind is None and column.name in names:
            raise DatasetError(
                f"{path}: expected encodings of bytes, texts, numbers, arrays or images, got {column.encoding!r} in "
                f"the column {column.name!r}. Leave it out: name the others with columns="
            )
    return ShardSet(tuple(described), tuple(names), tuple(shards))


def _mds(index: FilePath, described: Sequence[_MdsShard]) -> tuple[list[ShardColumn], list[Shard]]:
    shards: list[Shard] = []
    columns: list[ShardColumn] = []
    for each in described:
        if each.format != "mds" or each.version != 2 or each.raw_data is None:
            raise ValueError(f"format {each.format!r}, version {each.version}, in place of 'mds', version 2")
        stated = zip(each.column_names, each.column_encodings, each.column_sizes, strict=True)
        encoded = [_column(*column) for column in stated]
        if shards and encoded != columns:
            raise ValueError(f"{each.raw_data.basename} has other columns than the first shard")
        columns = encoded
        packed = each.raw_data if each.zip_data is None else each.zip_data
        codec = None if each.compression is None else each.compression.partition(":")[0]
        shards.append(_shard(index, each.raw_data.basename, packed.basename, codec, each.samples, each.raw_data.bytes))
    return columns, shards


def _litdata(index: FilePath, chunks: Sequence[_Chunk], config: _Config) -> tuple[list[ShardColumn], list[Shard]]:
    level, codec = config.compression_level or "chunk", config.compression
    if config.encryption or config.item_loader not in (None, "PyTreeLoader") or level not in ("chunk", "batch"):
        how = "encryption" if config.encryption else f"{config.item_loader} and compression_level={level!r}"
        raise ValueError(f"chunks with {how}, which LitData alone reads")
    names = [".".join(parts) or "0" for parts in _leaves(json.loads(config.data_spec or "[1, {}]")[1])]
    # LitData's "json" is a binary form of its own.
    encodings = [f"LitData's {each}" if each == "json" else each for each in config.data_format]
    shards = []
    for chunk in chunks:
        name = chunk.filename
        way: str | None = None
        if codec is not None and f".{codec}" in name:
            name, way = name.replace(f".{codec}", ""), codec.partition(":")[0]
        elif codec is not None and level == "batch":
            way = FRAMES
        most_bytes = chunk.chunk_bytes + 4 * (chunk.chunk_size + 2)  # old versions leave the table out
        shards.append(_shard(index, name, chunk.filename, way, chunk.chunk_size, most_bytes))
    return [_column(*column, None) for column in zip(names, encodings, strict=True)], shards


def _column(name: str, encoding: str, size: int | None) -> ShardColumn:
    """Return a column by its encoding, such as "jpeg" or "ndarray:int32:3,4", and its size if rows do not state it."""
    family, _, rest = encoding.partition(":")
    column = ShardColumn(name, encoding, _KINDS.get(family), size or None, is_stated=not size)
    if family in _TYPES:
        known = replace(column, kind="number", dtype=_TYPES[family], size=np.dtype(_TYPES[family]).itemsize)
    elif family == "ndarray":
        dtype, _, sides = rest.partition(":")
        shape = tuple(map(int, sides.split(","))) if sides else None
        if dtype and dtype not in ARRAY_TYPES["numpy"]:
            raise ValueError(f"arrays of {dtype!r} in the column {name!r}")
        known = _array(replace(column, dtype=dtype, shape=shape))
    elif family in ARRAY_TYPES:
        known = replace(column, kind="array")
    elif family in ("no_header_numpy", "no_header_tensor") and rest.isdecimal():
        types = ARRAY_TYPES[family.removeprefix("no_header_")]
        dtype = types[int(rest)] if int(rest) < len(types) else ""
        known = _array(replace(column, dtype=dtype, shape=(-1,))) if dtype else column
    else:
        known = replace(column, dtype=_DIGITS.get(family, ""))
    if size and known.size != size:
        raise ValueError(f"{size} bytes for {encoding!r} in the column {name!r}")
    return known


def _array(column: ShardColumn) -> ShardColumn:
    """Return a column of arrays: a column of lists if they have one dimension, and a type that lists have."""
    shape = () if column.shape is None else column.shape
    in_list = len(shape) == 1 and np.dtype(column.dtype).kind in "iuf"
    fixed = column.dtype and shape and min(shape) >= 0
    size = math.prod(shape) * np.dtype(column.dtype).itemsize if fixed else None
    return replace(column, kind="list" if in_list else "array", size=size)


def _leaves(spec: Any) -> Iterator[tuple[str, ...]]:
    """Yield the path of each leaf of a tree in torch's JSON form: keys of dicts, else numbers."""
    children = spec["children_spec"] if isinstance(spec, dict) and spec else None
    if not children:
        yield ()
        return
    keys = json.loads(spec["context"]) if isinstance(spec["context"], str) else None
    if not isinstance(keys, list) or len(keys) != len(children):
        keys = range(len(children))
    for key, child in zip(keys, children, strict=True):
        for rest in _leaves(child):
            yield str(key), *rest


def _shard(index: FilePath, name: str, packed: str, codec: str | None, rows: int, most_bytes: int) -> Shard:
    """Return a shard: the file `packed` if it is compressed and not unpacked next to it as `name`."""
    for each in (name, packed):
        if "\0" in each or os.path.isabs(each) or leads_out(os.fsencode(each)):
            raise ValueError(f"{each!r}, which leads out of the folder")
    path = beside(index, name)
    if codec is None or (name != packed and isinstance(path, str) and os.path.exists(path)):
        return Shard(path, rows, None, most_bytes)
    if codec not in (*CODECS, FRAMES):
        raise ValueError(f"compression {codec!r}, in place of {', '.join(CODECS)}")
    return Shard(beside(index, packed), rows, codec, most_bytes)
