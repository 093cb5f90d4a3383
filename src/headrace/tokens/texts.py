"""Where texts come from: columns that hold them, one or several a sample, and members of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.data import KEY, ByteColumn, Dataset, HeldColumn, KeyColumn, ListColumn, TextColumn
from headrace.data.strings import Strings
from headrace.errors import UsageError

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class HeldTexts:
    """Texts that a dataset holds, by base id."""

    strings: Strings
    lists: ListColumn | None
    """Which of `strings` are a sample's; None: each has one."""

    def __len__(self) -> int:
        return len(self.strings)

    def ranges(self, ids: Ints) -> tuple[Ints, Ints]:
        """The number of each sample's first text, and how many it has."""
        return (ids, np.ones(len(ids), np.int64)) if self.lists is None else self.lists.ranges(ids)

    def take(self, which: Ints) -> list[bytes]:
        """Texts by their numbers, in UTF-8 or whatever bytes the source has for them."""
        found = self.strings.take(which)
        return [found.bytes(row) for row in range(len(found))]


def texts_of(dataset: Dataset, column: str, place: str) -> HeldTexts | None:
    """What the dataset holds; None where members of bytes have to be read.

    Raises UsageError, whose text begins with `place`, where there is no such column, or none of texts.
    """
    found = KeyColumn(dataset.table.keys) if column == KEY else dataset.columns.get(column)
    if found is None:
        have = ", ".join(dataset.columns)
        raise UsageError(
            f"{place}: expected a column of the dataset, got {column!r}; it has {have}. Name one with source="
        )
    return None if isinstance(found, ByteColumn) else held_texts(found, column, place)


def held_texts(column: HeldColumn, name: str, place: str) -> HeldTexts:
    if isinstance(column, TextColumn):
        return HeldTexts(column.strings, None)
    if isinstance(column, KeyColumn):
        return HeldTexts(column.keys, None)
    if isinstance(column, ListColumn) and isinstance(column.items, Strings):
        return HeldTexts(column.items, column)
    kind = "lists of numbers" if isinstance(column, ListColumn) else f"{column.kind}s"
    raise UsageError(f"{place}: expected a column of texts, of lists of texts, or of bytes, got the {kind} of {name!r}")


class UnfitTextError(ValueError):
    """Bytes that are no text."""


class LongTextError(UnfitTextError):
    """A text beyond its limit."""


def decoded(data: bytes, most_bytes: int) -> str:
    """The text. Raises UnfitTextError for what is not UTF-8, LongTextError beyond `most_bytes`."""
    if len(data) > most_bytes:
        raise LongTextError(f"a text of {len(data):,} bytes, more than max_bytes={most_bytes}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnfitTextError(f"expected UTF-8, got the byte 0x{data[error.start]:02x} at {error.start}") from None
