"""Members of a sample in WebDataset's layout: `key.jpg`, `key.cls`, `key.txt`, `key.depth.png`, `key.json`."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace.data import ByteColumn, Dataset, TextColumn
from headrace.errors import DatasetError, HeadraceError, NotFoundError, ReadError, UsageError
from headrace.pack.conversion import ImageConverter

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_ALIASES = ("image", "label", "text")
"""Columns of an archive whose members have columns by extension too."""


class PackMember(NamedTuple):
    """Member of a tar: its name without the sample's key, such as `.jpg`, and its content."""

    suffix: str
    data: bytes


@dataclass(frozen=True)
class SampleReader:
    """Reader of the members of single samples. Thread-safe."""

    dataset: Dataset
    converter: ImageConverter
    files: tuple[str, ...] = field(init=False)
    """Columns whose bytes become members."""
    values: tuple[str, ...] = field(init=False)
    """Columns whose values become members."""

    def __post_init__(self) -> None:
        columns = self.dataset.columns
        files = [name for name, column in columns.items() if isinstance(column, ByteColumn) or self._names_files(name)]
        if any(isinstance(columns[name], ByteColumn) and name not in _ALIASES for name in files):
            files = [name for name in files if name not in _ALIASES]
        object.__setattr__(self, "files", tuple(files))
        values = (name for name, column in columns.items() if not isinstance(column, ByteColumn) and name not in files)
        object.__setattr__(self, "values", tuple(values))
        if not files:
            raise UsageError(f"expected a dataset with a column of files, got {self.dataset!r}")

    def _names_files(self, name: str) -> bool:
        if not isinstance(self.dataset.columns[name], TextColumn) or not self.dataset.has_bytes(name):
            return False
        try:
            self.dataset.expect_files(name)
        except NotFoundError:
            return False
        return True

    def try_members(self, index: int, values: Sequence[PackMember]) -> list[PackMember] | HeadraceError:
        """Return the converted members of the sample at `index` and its `values`, or the error of a bad sample.

        Raises ReadError or DatasetError if a read failed, which says nothing about the sample.
        """
        try:
            members = [member for name in self.files if (member := self._file(name, index)) is not None]
            return [*members, *values]
        except (ReadError, DatasetError):
            raise
        except HeadraceError as error:
            return error

    def _file(self, name: str, index: int) -> PackMember | None:
        try:
            data = self.dataset.read(name, index)
        except KeyError:
            return None  # this sample has no such member
        stem, _, last = name.rpartition(".")
        try:
            found = self.converter.convert(data, dense=bool({stem, last, name} & set(self.converter.options.dense)))
        except (HeadraceError, ValueError, OSError) as error:
            raise HeadraceError(f"sample {self.dataset.key(index)!r}, column {name!r}: {error}") from error
        by_extension = isinstance(self.dataset.columns[name], ByteColumn) and name not in _ALIASES
        if found is None:
            return PackMember(f".{name}", data)
        if by_extension:
            return PackMember(f".{stem}.{found.extension}" if stem else f".{found.extension}", found.data)
        return PackMember(f".{found.extension}" if len(self.files) == 1 else f".{name}.{found.extension}", found.data)

    def value_members(self, indices: Ints) -> list[list[PackMember]]:
        """Return the members of each sample's values: the label as `.cls`, a text as `.txt`, all others as `.json`."""
        samples = self.dataset.select(indices)
        columns = [samples.column(name) for name in self.values]
        columns = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns]
        return [list(self._members_of(values)) for values in zip(*columns, strict=True)] or [[] for _ in indices]

    def _members_of(self, values: Sequence[Any]) -> Iterator[PackMember]:
        others: dict[str, Any] = {}
        for name, value in zip(self.values, values, strict=True):
            if name == "label" and isinstance(value, int):
                yield PackMember(".cls", b"%d" % value)
            elif name in ("text", "caption") and isinstance(value, str):
                yield PackMember(".txt", value.encode())
            else:
                others[name] = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        if others:
            yield PackMember(".json", json.dumps(others, ensure_ascii=False, sort_keys=True).encode())


def key_of(name: str) -> str:
    """Return a WebDataset key for a sample's name: its folders and stem, without the dots that would end the key."""
    folder, base = posixpath.split(name.replace("\\", "/").lstrip("/"))
    stem = base.rpartition(".")[0] or base
    parts = [part for part in folder.split("/") if part not in ("", ".", "..")]
    return "/".join([*(part.replace(".", "_") for part in parts), stem.replace(".", "_")])
