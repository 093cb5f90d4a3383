"""Members of a sample in WebDataset's layout: `key.jpg`, `key.cls`, `key.txt`, `key.depth.png`, `key.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace.data import (
    ArchiveColumn,
    ArrayColumn,
    ByteColumn,
    BytesListColumn,
    Column,
    Dataset,
    HeldColumn,
    ListColumn,
    PackColumn,
    StringColumn,
    Strings,
    TextColumn,
    ValueColumn,
    bare_place,
    free_place,
    member_places,
    pack_keys,
    unlisted,
)
from headrace.errors import DatasetError, HeadraceError, NotFoundError, OutsideRootError, ReadError, UsageError
from headrace.pack.conversion import ImageConverter, png_of

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_MOST_MEMBERS = 120
"""Columns of bytes: an archive's index counts 256 extensions, and each column may have two."""


class PackMember(NamedTuple):
    """Member of a tar: its name without the sample's key, such as `.jpg`, and its content."""

    suffix: str
    data: bytes


def schema_of(dataset: Dataset) -> tuple[PackColumn, ...]:
    """Return the columns of a pack of the dataset, in order. Raises UsageError if its columns make none."""
    columns = dataset.columns
    same = {name: _same_members(name, columns) for name in columns}
    files = [name for name in columns if not same[name] and _has_files(dataset, name)]
    if not 0 < len(files) <= _MOST_MEMBERS:
        raise UsageError(
            f"expected a dataset with 1 to {_MOST_MEMBERS} columns of files, got {len(files)} in {dataset!r}"
        )
    archived = [name for name in files if isinstance(columns[name], ArchiveColumn)]
    places = member_places(files, extensions=archived)
    schema = [
        PackColumn(name, "bytes", places.get(name, ""), same[name]) for name in columns if same[name] or name in places
    ]
    taken, in_json = member_names(schema), json_place(schema)
    for at, (name, column) in enumerate(columns.items()):
        if not isinstance(column, ByteColumn | BytesListColumn) and name not in places:
            wanted = _own_place(name, column)
            place = in_json if wanted is None or wanted in taken else wanted
            schema.insert(at, _value_column(name, column, place))
            taken.add(place)
    return tuple(schema)


def member_names(schema: Sequence[PackColumn]) -> set[str]:
    """Return what follows the key in the names of members that are bytes, without the extensions of images."""
    return {each.place or bare_place(each.name) for each in schema if each.kind == "bytes" and not each.of}


def json_place(schema: Sequence[PackColumn]) -> str:
    """Return what follows the key in the name of the member with values in JSON."""
    return free_place("json", member_names(schema))


def _same_members(name: str, columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Return the other columns of an archive whose members, and no others, a column has."""
    column = columns[name]
    extensions = column.extensions if isinstance(column, ArchiveColumn) else []
    others = [columns.get(each) for each in extensions if each != name]
    return tuple(extensions) if others and all(isinstance(each, ArchiveColumn) for each in others) else ()


def _has_files(dataset: Dataset, name: str) -> bool:
    """Return True for bytes, pictures in arrays, and texts that name files: at least one of a few looked for."""
    column = dataset.columns[name]
    if isinstance(column, ArrayColumn):
        return column.holds_pictures
    if not isinstance(column, TextColumn) or not dataset.has_bytes(name):
        return isinstance(column, ByteColumn)
    try:
        return dataset.expect_files(name)
    except (NotFoundError, OutsideRootError):
        return False


def _own_place(name: str, column: HeldColumn) -> str | None:
    """Return what follows the key in the name of a value's own member; None: it is in JSON."""
    if name == "label" and isinstance(column, ValueColumn) and column.values.dtype.kind in "iu":
        return "cls"
    return "txt" if name in ("text", "caption") and isinstance(column, TextColumn) else None


def _value_column(name: str, column: HeldColumn, place: str) -> PackColumn:
    numbers = column.items if isinstance(column, ListColumn) else getattr(column, "values", None)
    if numbers is None or isinstance(numbers, Strings):
        return PackColumn(name, column.kind, place)
    if numbers.dtype.itemsize > 8:
        raise UsageError(f"column {name!r}: expected numbers of at most 64 bits, got {numbers.dtype}")
    shape = tuple(numbers.shape[1:])
    return PackColumn(name, column.kind, place, (), numbers.dtype.name, shape, column.classes)


@dataclass(frozen=True)
class SampleReader:
    """Reader of the members of single samples. Thread-safe, and picklable with what it has computed."""

    dataset: Dataset
    converter: ImageConverter
    schema: tuple[PackColumn, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dataset", unlisted(self.dataset))
        object.__setattr__(self, "schema", schema_of(self.dataset))

    @cached_property
    def keys(self) -> StringColumn:
        """Key of each sample in the pack."""
        return pack_keys(self.dataset.keys)

    @cached_property
    def files(self) -> dict[str, PackColumn]:
        """Columns whose bytes become members, by name."""
        return {each.name: each for each in self.schema if each.kind == "bytes" and not each.of}

    @cached_property
    def values(self) -> tuple[PackColumn, ...]:
        """Columns of values."""
        return tuple(each for each in self.schema if each.kind != "bytes")

    def read(self, name: str, index: int) -> bytes | None:
        """Return the source's bytes of a column, None if the sample has none. Raises as `Dataset.read` does.

        A row of an array is a PNG.
        """
        try:
            data = self.dataset.read(name, index)
        except KeyError:
            return None
        return png_of(data) if isinstance(self.dataset.columns[name], ArrayColumn) else data

    def try_members(self, index: int, values: Sequence[PackMember]) -> list[PackMember] | HeadraceError:
        """Return the converted members of the sample at `index` and its `values`, or the error of a bad sample.

        Raises ReadError or DatasetError if a read failed, which says nothing about the sample.
        """
        try:
            members = [member for each in self.files.values() if (member := self._file(each, index)) is not None]
            # A sample without members would be lost.
            return [*members, *values] or [PackMember(f".{json_place(self.schema)}", b"{}")]
        except (ReadError, DatasetError):
            raise
        except HeadraceError as error:
            return error

    def _file(self, column: PackColumn, index: int) -> PackMember | None:
        name, data = column.name, self.read(column.name, index)
        if data is None:
            return None
        stem, _, last = name.rpartition(".")
        try:
            image = self.converter.convert(data, dense=bool({stem, last, name} & set(self.converter.options.dense)))
        except (HeadraceError, ValueError, OSError) as error:
            raise HeadraceError(f"sample {self.dataset.key(index)!r}, column {name!r}: {error}") from error
        if image is None:
            return PackMember(f".{column.place or bare_place(name)}", data)
        return PackMember(f".{column.place}.{image.extension}" if column.place else f".{image.extension}", image.data)

    def value_members(self, indices: Ints) -> list[list[PackMember]]:
        """Return the members of each sample's values: the label as `.cls`, a text as `.txt`, all others as `.json`."""
        samples = self.dataset.select(indices)
        columns = [map(_plain, samples.column(each.name)) for each in self.values]
        return [list(self._members_of(values)) for values in zip(*columns, strict=True)] or [[] for _ in indices]

    def _members_of(self, values: Sequence[Any]) -> Iterator[PackMember]:
        in_json: dict[str, dict[str, Any]] = {}
        for column, value in zip(self.values, values, strict=True):
            if column.place == "cls":
                yield PackMember(".cls", b"%d" % value)
            elif column.place == "txt":
                yield PackMember(".txt", value.encode("utf-8", "surrogateescape"))
            else:
                in_json.setdefault(column.place, {})[column.name] = value
        for place, record in in_json.items():
            text = json.dumps(record, ensure_ascii=False, sort_keys=True, allow_nan=False)
            yield PackMember(f".{place}", text.encode("utf-8", "backslashreplace"))


def _plain(value: Any) -> Any:
    """Return a value for JSON: null for a missing number, and "Infinity" as in protobuf's JSON, which has no other."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
