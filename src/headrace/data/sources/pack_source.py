"""Packs as sources: bytes from their tars, all else from `columns.headrace`, by the schema in `pack.json`."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import msgspec
import numpy as np

from headrace.data.archives.archive_columns import ArchiveColumn
from headrace.data.archives.merged_index import MergedIndex, open_copied
from headrace.data.archives.tar_index import TAR
from headrace.data.columns import Column, HeldColumn, ListColumn, Numbers, TextColumn, ValueColumn, labelled
from headrace.data.manifest.manifest_columns import load_column
from headrace.data.remote.remote_file import CopiedObject, ObjectPath, beside, is_there
from headrace.data.sources.pack_names import AGAIN, key_of, place_of
from headrace.data.storage.open_file import FilePath, file_name, folder_of, read_path
from headrace.data.storage.safetensors import Arrays, InvalidFileError, checked_strings, verified_arrays, write_arrays
from headrace.data.storage.sidecar import INDEX_SUFFIXES, identify_archive
from headrace.data.storage.strings import Ints, StringColumn, Strings
from headrace.data.table import SampleTable
from headrace.errors import DatasetError

PLAN, COLUMNS, INDEX = "pack.json", "columns.headrace", "index.headrace"
"""Names of a pack's plan, of its values and, in a store, of the merged index."""
_FORMAT, _COLUMNS_FORMAT = "headrace pack 2", "headrace pack columns 1"
_CHECK = "check"
_SHARD = re.compile(r"shard-(\d{6,})\.tar")


class PackColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """Column of a pack, and what its samples have of it."""

    name: str
    kind: str
    """Kind of the column: "bytes", "value", "text" or "list"."""
    place: str = ""
    """Text after the key in the names of its members, without the extension of an image. For values in JSON: the
    member with them."""
    of: tuple[str, ...] = ()
    """Columns whose members it has, the first that a sample has, as `image` has `jpg` and `png`."""
    dtype: str = ""
    """Type of its numbers; empty for texts."""
    item_shape: tuple[int, ...] = ()
    """Shape of an item of a list, such as [4] for boxes."""
    classes: tuple[str, ...] | None = None
    """Class names of its numbers."""

    @property
    def members(self) -> str:
        """Name of its members, for messages."""
        if self.kind != "bytes":
            return f"KEY.{self.place}"
        return f"as {', '.join(self.of)}" if self.of else ".".join(filter(None, ("KEY", self.place, "FORMAT")))


class _Plan(msgspec.Struct):
    """Part of the plan that readers need."""

    schema: tuple[PackColumn, ...]
    json: str
    """Text after the key in the name of the member with values in JSON."""
    cuts: tuple[int, ...]
    id: str


def shard_name(shard: int) -> str:
    return f"shard-{shard:06d}.tar"


def document_name(tar: str) -> str:
    """Return the name of the document of a shard."""
    return tar.removesuffix(".tar") + ".json"


def document_bytes(document: Mapping[str, Any]) -> bytes:
    """Return a document of a pack with its format and checksum."""
    document = {"format": _FORMAT, **document}
    return json.dumps({**document, _CHECK: _check(document)}).encode()


def parse_document(data: bytes, path: object) -> dict[str, Any]:
    """Return a document of a pack; `path` names it in messages. Raises DatasetError if it is damaged."""
    try:
        found = json.loads(data)
        if found.pop(_CHECK) != _check(found):
            raise ValueError("its content has changed")
        if found["format"] != _FORMAT:
            raise ValueError(f"expected {_FORMAT!r}, got {found['format']!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{path}: expected a document of headrace pack, got another: {error}") from error
    return dict(found)


def _check(document: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True).encode())


# --- values ---


def write_columns(file: BinaryIO, id: str, keys: Strings, columns: Iterable[HeldColumn]) -> None:
    """Write the samples' keys and the columns of values of the pack called `id`, from the start of an empty file."""
    arrays = _arrays("keys", keys)
    for number, column in enumerate(columns):
        prefix = f"column.{number}"
        if isinstance(column, ValueColumn):
            arrays |= _arrays(f"{prefix}.values", column.values)
        elif isinstance(column, TextColumn):
            arrays |= _arrays(prefix, column.strings)
            if column.labels is not None:
                arrays |= _arrays(f"{prefix}.labels", column.labels.values)
                arrays |= _arrays(f"{prefix}.classes", StringColumn.from_list(column.labels.classes or ()))
        elif isinstance(column, ListColumn):
            arrays |= _arrays(f"{prefix}.offsets", column.offsets) | _arrays(f"{prefix}.items", column.items)
    write_arrays(file, arrays, {"format": _COLUMNS_FORMAT, "of": id})


def _arrays(name: str, values: Numbers | Strings) -> Arrays:
    if isinstance(values, Strings):
        whole = StringColumn.join(values.pieces())
        return {f"{name}.blob": whole.blob, f"{name}.offsets": whole.offsets}
    array = np.asarray(values).reshape(-1)
    return {name: array.astype(array.dtype.newbyteorder("<"), copy=False)}


def _load_columns(path: str, id: str, schema: Sequence[PackColumn], rows: int) -> tuple[Strings, dict[str, HeldColumn]]:
    """Return the keys and the columns of values in the file at `path`, all verified. Raises InvalidFileError."""
    plain, columns = verified_arrays(path, _COLUMNS_FORMAT, id), dict[str, HeldColumn]()
    for number, each in enumerate(each for each in schema if each.kind != "bytes"):
        column = load_column(plain, f"column.{number}", each.kind, rows, each.item_shape)
        columns[each.name] = labelled(column, each.classes)
    return checked_strings(plain, "keys", rows), columns


def values_faults(tars: Sequence[FilePath], id: str, names: Collection[str]) -> list[str]:
    """Return what is wrong with the values of a pack and its merged index, all of which is read.

    `names`: files that are there. Raises ReadError if one cannot be read.
    """
    values, objects = beside(tars[0], COLUMNS), [tar for tar in tars if isinstance(tar, ObjectPath)]
    if COLUMNS not in names:
        return [f"{values}: missing; pack again"]

    def check_index(place: str) -> None:
        merged = MergedIndex(INDEX, place, damage_advice="")
        merged.check_all()
        merged.pin(objects)

    found = _faults(values, lambda place: verified_arrays(place, _COLUMNS_FORMAT, id))
    return found + _faults(beside(tars[0], INDEX), check_index) if objects and INDEX in names else found


def index_faults(tar: FilePath) -> list[str]:
    """Return what is wrong with the index of a local tar, all of which is read."""
    place = f"{tar}{INDEX_SUFFIXES[0]}"
    if not isinstance(tar, str) or not os.path.exists(place):
        return []
    return _faults(place, lambda _: verified_arrays(place, TAR.format, identify_archive(tar).to_json()))


def _faults(path: FilePath, check: Callable[[str], object]) -> list[str]:
    copy = CopiedObject(path) if isinstance(path, ObjectPath) else None
    try:
        check(str(path) if copy is None else os.fsdecode(copy.open().path))
    except (InvalidFileError, DatasetError) as error:
        return [f"{path}: {error}; delete it, and run headrace merge or pack again"]
    return []


# --- opening ---


def shards_among(names: Iterable[str]) -> list[str]:
    """Return the names of shards, in order, among a folder's files; empty if it holds no pack."""
    there = set(names)
    return sorted(filter(_SHARD.fullmatch, there), key=lambda name: (len(name), name)) if PLAN in there else []


def pack_files(paths: Sequence[FilePath]) -> list[FilePath]:
    """Return the files next to the tars `paths` without which they open as no pack; empty if they are of none."""
    if not paths or find_pack(paths) is None:
        return []
    names = [PLAN, COLUMNS, *(document_name(file_name(path)) for path in paths)]
    return [beside(paths[0], name) for name in names]


def find_pack(paths: Sequence[FilePath]) -> PackedShards | None:
    """Return the tars as shards of a pack; None if they are not named as shards, or have no plan next to them.

    Raises DatasetError if the plan is damaged, ReadError.
    """
    if not all(_SHARD.fullmatch(file_name(path)) for path in paths) or len({folder_of(path) for path in paths}) > 1:
        return None
    path = beside(paths[0], PLAN)
    if not (is_there(path) if isinstance(path, ObjectPath) else os.path.exists(str(path))):
        return None
    document = parse_document(read_path(path), path)
    try:
        return PackedShards(tuple(paths), msgspec.convert(document, _Plan))
    except msgspec.ValidationError as error:
        raise DatasetError(f"{path}: expected the plan of a pack, got another document: {error}") from error


@dataclass(frozen=True)
class PackedShards:
    """Shards of one pack, with its documents."""

    paths: tuple[FilePath, ...]
    plan: _Plan

    def expect_all(self) -> PackedShards:
        """Return these shards. Raises DatasetError if the pack has others."""
        have = {file_name(path) for path in self.paths}
        missing = [name for name in map(shard_name, range(len(self.plan.cuts) - 1)) if name not in have]
        if missing:
            raise DatasetError(
                f"{folder_of(self.paths[0])}: expected all shards of the pack, got none called "
                f"{', '.join(missing[:5])}. Run headrace pack again, or open the shards that are there by a pattern"
            )
        return self

    def table(self, tars: SampleTable, *, cache: str | None) -> SampleTable:
        """Return the samples of the pack, given its tars' samples. Raises DatasetError, ReadError."""
        member = next(each for each in tars.columns.values() if isinstance(each, ArchiveColumn))
        keys, values = self._values(cache)
        rows = self._rows(member, keys)
        if len(rows) != len(keys) or not np.array_equal(rows, np.arange(len(keys))):
            keys, values = keys.take(rows), {name: each.rows(rows) for name, each in values.items()}
        columns: dict[str, Column] = {
            each.name: self._members(each, member) if each.kind == "bytes" else values[each.name]
            for each in self.plan.schema
        }
        return SampleTable(f"pack of {tars.source}", keys, columns, tars.skipped)

    def _members(self, column: PackColumn, member: ArchiveColumn) -> Column:
        """Return the column of the members that are `column`'s, or of the columns that it is made of."""
        places = {self.plan.json: ""} | {each.place: each.name for each in self.plan.schema if not each.of}
        names = [(places.get(place_of(each, places)), each) for each in member.samples.extensions]
        mine = [each for wanted in column.of or (column.name,) for name, each in names if name == wanted]
        return replace(member, ranks=member.samples.ranks(mine))

    def _values(self, cache: str | None) -> tuple[Strings, dict[str, HeldColumn]]:
        path, rows = beside(self.paths[0], COLUMNS), self.plan.cuts[-1]

        def load(place: str) -> tuple[Strings, dict[str, HeldColumn]]:
            return _load_columns(place, self.plan.id, self.plan.schema, rows)

        try:
            if isinstance(path, ObjectPath):
                return open_copied(path, load, cache=cache, variant="columns")
            return load(str(path))
        except (InvalidFileError, OSError) as error:
            raise DatasetError(f"{path}: expected the values of the pack, got none or others: {error}") from error

    def _rows(self, member: ArchiveColumn, keys: Strings) -> Ints:
        """Return the row of each sample in the tars, among all that were to be packed."""
        found, begin = [np.empty(0, np.int64)], 0
        for path, samples in zip(self.paths, member.samples.samples, strict=True):
            shard = int(_SHARD.fullmatch(file_name(path))[1])  # type: ignore[index]
            rows = np.arange(*self.plan.cuts[shard : shard + 2])
            if len(samples) != len(rows):
                entry = beside(path, document_name(file_name(path)))
                rows = np.delete(rows, [row for row, _, _ in parse_document(read_path(entry), entry)["dropped"]])
            ends = np.array([begin, begin + len(samples) - 1] if len(samples) else [], np.int64)
            there = [key.partition(AGAIN)[0] for key in member.samples.keys(ends)]
            if len(samples) != len(rows) or there != [key_of(keys[row]) for row in rows[[0, -1][: len(ends)]].tolist()]:
                raise DatasetError(f"{path}: expected the samples of a shard of the pack, got others. Pack again")
            found.append(rows)
            begin += len(samples)
        return np.concatenate(found)
