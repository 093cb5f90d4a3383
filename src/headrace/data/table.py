"""All samples of a dataset before any selection: keys, paths and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol

from headrace.data.columns import ByteColumn, Column, TextColumn
from headrace.data.digest import digest_of
from headrace.data.origin import Origin
from headrace.data.strings import Strings
from headrace.errors import ChangedError, UsageError


class PathRoot(Protocol):
    """What paths in a manifest name: files below a folder, or members of an archive."""

    @property
    def place(self) -> str:
        """Where files are looked for, in words: "below /data"."""
        ...

    @property
    def advice(self) -> str:
        """What to do where none of them is there, in words."""
        ...

    def column(self, paths: Strings) -> ByteColumn:
        """Where the file of each path lies. Nothing is read for it."""
        ...


@dataclass(frozen=True, eq=False)
class Table:
    """Immutable; shared by every selection of the same dataset, and across forks."""

    source: str
    """What was opened, in words: "folder photos/"."""
    keys: Strings
    columns: Mapping[str, Column]
    skipped: Mapping[str, int]
    """What lay there and is no part of any sample, by reason; only counts above 0."""
    root: PathRoot | None = None
    """Where the paths in columns of text lead, if they lead anywhere."""
    origin: Origin | None = None
    """Where a manifest has the samples."""
    known_digest: str | None = None
    """`digest`, where an index has kept it."""
    again: Callable[[], Table] | None = None
    """Opens the same samples in another process, where that is better than to send all of them there."""

    def __len__(self) -> int:
        return len(self.keys)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.again is not None:
            return _open_again, (self.again, self.digest)
        return Table, tuple(getattr(self, field.name) for field in fields(self))

    def bytes_of(self, name: str) -> ByteColumn:
        """The column of that name, a text's paths as the bytes of their files. Raises UsageError where it has none."""
        column = self.columns.get(name)
        if isinstance(column, ByteColumn):
            return column
        if isinstance(column, TextColumn) and self.root is not None:
            return self._named.setdefault(name, self.root.column(column.strings))
        names = ", ".join(key for key in self.columns if self.has_bytes(key))
        got = f"a column of {column.kind}s" if column is not None else "no such column"
        raise UsageError(f"expected the name of a column of bytes ({names}), got {name!r}: {got} in {self.source}")

    def with_column(self, name: str, column: Column) -> Table:
        """Return these samples with a column more, or another in its place."""
        return replace(self, columns={**self.columns, name: column}, known_digest=None, again=None)

    @property
    def place(self) -> str:
        """Where the files are that columns of text name, in words."""
        return "there" if self.root is None else self.root.place

    def has_bytes(self, name: str) -> bool:
        """Whether `bytes_of` has an answer."""
        column = self.columns.get(name)
        return isinstance(column, ByteColumn) or (isinstance(column, TextColumn) and self.root is not None)

    @cached_property
    def _named(self) -> dict[str, ByteColumn]:
        """Columns of text as columns of bytes, by name: made once, since readers know files by their `Files`."""
        return {}

    @cached_property
    def digest(self) -> str:
        """Identity of the samples: keys, members' lengths and checks, values. Not where the root is."""
        return digest_of(self.keys, self.columns) if self.known_digest is None else self.known_digest


def _open_again(again: Callable[[], Table], digest: str) -> Table:
    table = again()
    if table.digest != digest:
        raise ChangedError(f"{table.source}: it holds other samples than when it was opened first. Open it again")
    return table
