"""All samples of a dataset before any selection: keys, columns, their digest and their origin."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from headrace.data.columns import ByteColumn, BytesListColumn, Column, ListColumn, TextColumn
from headrace.data.location import MISSING
from headrace.data.storage.strings import Ints, Strings
from headrace.errors import ChangedError, HeadraceError, NotFoundError, OutsideRootError, ReadError, UsageError
from headrace.stores import show_address


def table_digest(keys: Strings, columns: Mapping[str, Column]) -> str:
    """Return a hex identity of samples: keys, members' lengths and checks, and values, but not the root."""
    state = hashlib.blake2b(digest_size=16)
    outline = {name: [column.kind, getattr(column, "classes", None)] for name, column in columns.items()}
    state.update(json.dumps(["headrace table 1", outline], sort_keys=True).encode())
    # Keys as one blob and one array of lengths.
    lengths = np.concatenate([np.empty(0, np.int64), *(piece.lengths() for piece in keys.pieces())])
    _hash_size(state, int(lengths.sum()))
    for piece in keys.pieces():
        state.update(np.ascontiguousarray(piece.blob).data)
    _hash_array(state, lengths, "<i8")
    for name in sorted(columns):
        for array, dtype in columns[name].parts():
            _hash_array(state, array, dtype)
    return state.hexdigest()


def _hash_array(state: hashlib.blake2b, array: npt.NDArray[np.generic] | None, dtype: str) -> None:
    """Hash an array as little-endian, its size first, so that adjacent arrays cannot be confused."""
    data = b"" if array is None else np.ascontiguousarray(array, dtype=np.dtype(dtype)).view(np.uint8).data
    _hash_size(state, None if array is None else len(data))
    state.update(data)


def _hash_size(state: hashlib.blake2b, size: int | None) -> None:
    state.update((size or 0).to_bytes(8, "little") + (b"\0" if size is None else b"\1"))


class ManifestRows(NamedTuple):
    """Samples of one manifest."""

    name: str
    rows: int
    first_line: int | None
    """Line number, from 1, of the first sample if each sample has one line; None: rows are counted, from 0."""


@dataclass(frozen=True)
class ManifestOrigin:
    """Manifests of the samples, in row order."""

    manifests: Sequence[ManifestRows]

    def of(self, base_id: int) -> str:
        row = base_id
        for manifest in self.manifests[:-1]:
            if row < manifest.rows:
                break
            row -= manifest.rows
        else:
            manifest = self.manifests[-1]
        place = f"row {row:,}" if manifest.first_line is None else f"line {manifest.first_line + row:,}"
        return f"{place} of {manifest.name}"


class PathRoot(Protocol):
    """Root of the paths in a manifest: a folder, or archives."""

    @property
    def place(self) -> str:
        """Name of the root in messages: "below /data"."""
        ...

    @property
    def advice(self) -> str:
        """Advice for a file that does not exist."""
        ...

    def column(self, paths: Strings) -> ByteColumn:
        """Return the column of the files at these paths, without reading any."""
        ...


@dataclass(frozen=True, eq=False)
class SampleTable:
    """All samples of an opened dataset. Immutable; shared by its selections and across forks."""

    source: str
    """Name of the source in messages: "folder photos/"."""
    keys: Strings
    columns: Mapping[str, Column]
    skipped: Mapping[str, int]
    """Counts (above 0) of entries that belong to no sample, by reason."""
    root: PathRoot | None = None
    """Root of the paths in text columns, if any."""
    origin: ManifestOrigin | None = None
    """Manifest rows that the samples come from, if any."""
    known_digest: str | None = None
    """`digest`, if known from an index."""
    again: Callable[[], SampleTable] | None = None
    """Function that opens the same samples in another process, if cheaper than pickling them."""

    def __len__(self) -> int:
        return len(self.keys)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.again is not None:
            return _open_again, (self.again, self.digest)
        return SampleTable, tuple(getattr(self, field.name) for field in fields(self))

    def bytes_of(self, name: str) -> ByteColumn:
        """Return a column of bytes, of the files that its texts name, or of arrays as `.npy` files.

        Raises UsageError for any other column.
        """
        column = self.columns.get(name)
        if isinstance(column, ByteColumn):
            return column
        if isinstance(column, TextColumn) and self.root is not None:
            return self._named.setdefault(name, self.root.column(column.strings))
        if isinstance(column, ListColumn) and (arrays := column.as_bytes) is not None:
            return arrays
        names = ", ".join(key for key in self.columns if self.has_bytes(key))
        got = f"a column of {column.kind}s" if column is not None else "no such column"
        raise UsageError(f"expected the name of a column of bytes ({names}), got {name!r}: {got} in {self.source}")

    def items_of(self, name: str) -> ByteColumn:
        """Return the values of a column of lists of bytes, by their number among all."""
        column = self.columns[name]
        assert isinstance(column, BytesListColumn), "other columns have no lists of bytes"
        if isinstance(column.items, ByteColumn):
            return column.items
        assert self.root is not None, "texts of a list of bytes name files"
        if name not in self._named:  # a root looks at all paths
            self._named[name] = self.root.column(column.items.strings)
        return self._named[name]

    def with_column(self, name: str, column: Column) -> SampleTable:
        """Return these samples with an added or replaced column."""
        return replace(self, columns={**self.columns, name: column}, known_digest=None, again=None)

    @property
    def place(self) -> str:
        """Name, in messages, of the root of files in text columns."""
        return "there" if self.root is None else self.root.place

    def has_bytes(self, name: str) -> bool:
        """Return True if `bytes_of` returns a column."""
        column = self.columns.get(name)
        if isinstance(column, ListColumn):
            return column.as_bytes is not None
        return isinstance(column, ByteColumn) or (isinstance(column, TextColumn) and self.root is not None)

    @cached_property
    def _named(self) -> dict[str, ByteColumn]:
        """Text columns as byte columns, created once: readers identify files by their `ColumnFiles`."""
        return {}

    @cached_property
    def digest(self) -> str:
        """`table_digest` of the samples."""
        return table_digest(self.keys, self.columns) if self.known_digest is None else self.known_digest


def _open_again(again: Callable[[], SampleTable], digest: str) -> SampleTable:
    table = again()
    if table.digest != digest:
        raise ChangedError(f"{table.source}: it holds other samples than when it was opened first. Open it again")
    return table


def spread_over(count: int, most: int) -> Ints:
    """Return up to `most` positions spread evenly over `count`, the first and the last included."""
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))


_LOOKED_FOR = 8


def expect_files(table: SampleTable, column: str) -> bool:
    """Return True if `column` names files, of which a few were looked for and some exist.

    Raises NotFoundError if none exists (a single missing file may be the only one), and OutsideRootError.
    """
    texts = table.columns.get(column)
    if table.root is None or not isinstance(texts, TextColumn):
        return False
    spread = spread_over(len(table), _LOOKED_FOR)
    named = [base_id for base_id in spread.tolist() if texts.strings[base_id]]
    if not named or any(_is_there(table, column, base_id) for base_id in named):
        return bool(named)
    name = show_address(texts.strings[named[0]])
    raise NotFoundError(
        f"{table.source}: expected the files that its column {column!r} names, got none of {len(named)} looked "
        f"for {table.root.place}, such as {name!r} ({_sample_text(table, named[0])}). {table.root.advice}"
    )


def _is_there(table: SampleTable, column: str, base_id: int) -> bool:
    found = table.bytes_of(column)
    at = found.locate(np.array([base_id]))
    if at.length is not None:
        return bool(at.length[0] != MISSING)
    try:
        if found.files.is_remote:
            return found.open(at).size() >= 0
        return os.path.isfile(found.path(at))
    except (NotFoundError, ReadError):
        return False
    except OutsideRootError as error:
        raise OutsideRootError(f"{_sample_text(table, base_id)}: {error}") from error


def _sample_text(table: SampleTable, base_id: int) -> str:
    return f"sample {table.keys[base_id]!r}" if table.origin is None else table.origin.of(base_id)


_LOOKED_AT = 16
"""Samples to read; each opens a file, which costs a few round trips on a network file system."""
_PIECE_BYTES = 4096


def content_sample(count: int, files: ByteColumn) -> list[str | None]:
    """Return digests of a few KiB of samples spread over all `count`; None for an unreadable sample.

    Files from a build or an archive may agree in names, sizes and times but differ in content: arrays or uncompressed
    images of one size, for example.
    """
    at = files.locate(spread_over(count, _LOOKED_AT))
    starts = [0] * len(at.path_id) if at.offset is None else at.offset.tolist()
    lengths = [None] * len(at.path_id) if at.length is None else at.length.tolist()
    digests: list[str | None] = []
    for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        try:
            if length is not None and length < 0:
                digests.append(None)
                continue
            file = files.open(at, row)
            size = file.size() if length is None else length
            looked_at = dict.fromkeys((0, max(0, size // 2), max(0, size - _PIECE_BYTES)))
            pieces = b"".join(file.read(start + place, min(_PIECE_BYTES, size - place)) for place in looked_at)
            digests.append(hashlib.blake2b(pieces, digest_size=8).hexdigest())
        except HeadraceError:
            digests.append(None)
    return digests
