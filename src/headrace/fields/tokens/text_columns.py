"""Text columns: the source of a field's texts, their encoder, and their lengths in tokens."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.data import (
    KEY,
    ByteColumn,
    Column,
    Dataset,
    KeyColumn,
    ListColumn,
    Strings,
    TextColumn,
    cache_folder,
    cached_array,
    file_versions,
    mapped_zeros,
    numbers_in_ranges,
    read_members,
)
from headrace.errors import UsageError
from headrace.fields.tokens.tokenizers import Encoder, resolve_tokenizer
from headrace.fields.values import Text
from headrace.system import default_threads

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class HeldTexts:
    """Texts in memory, by base id."""

    strings: Strings
    lists: ListColumn | None
    """Ranges of `strings` by sample; None if each sample has one text."""

    def __len__(self) -> int:
        return len(self.strings)

    def ranges(self, ids: Ints) -> tuple[Ints, Ints]:
        """Return the index of each sample's first text and its number of texts."""
        return (ids, np.ones(len(ids), np.int64)) if self.lists is None else self.lists.ranges(ids)

    def take(self, which: Ints) -> list[bytes]:
        """Return texts by index, as the source's bytes, which may not be UTF-8."""
        found = self.strings.take(which)
        return [found.bytes(row) for row in range(len(found))]


def find_column(dataset: Dataset, column: str, place: str) -> Column | KeyColumn:
    """Return the dataset's column of that name. Raises UsageError, whose text begins with `place`, if it is absent."""
    found = KeyColumn(dataset.table.keys) if column == KEY else dataset.columns.get(column)
    if found is None:
        have = ", ".join(dataset.columns)
        raise UsageError(
            f"{place}: expected a column of the dataset, got {column!r}; it has {have}. Name one with source="
        )
    return found


def texts_of(dataset: Dataset, name: str, place: str) -> HeldTexts | None:
    """Return the texts if the dataset has them in memory; None if they are in files or members.

    Raises UsageError, whose text begins with `place`, if the column is absent or does not hold texts.
    """
    column = find_column(dataset, name, place)
    if isinstance(column, ByteColumn):
        return None
    if isinstance(column, TextColumn):
        return HeldTexts(column.strings, None)
    if isinstance(column, KeyColumn):
        return HeldTexts(column.keys, None)
    if isinstance(column, ListColumn) and isinstance(column.items, Strings):
        return HeldTexts(column.items, column)
    kind = "lists of numbers" if isinstance(column, ListColumn) else f"{column.kind}s"
    raise UsageError(f"{place}: expected a column of texts, of lists of texts, or of bytes, got the {kind} of {name!r}")


class UnfitTextError(ValueError):
    """Bytes that are not valid UTF-8 text."""


class LongTextError(UnfitTextError):
    """Text longer than `max_bytes`."""


def decode_text(data: bytes, most_bytes: int) -> str:
    """Decode a text. Raises UnfitTextError for invalid UTF-8 and LongTextError above `most_bytes`."""
    if len(data) > most_bytes:
        raise LongTextError(f"a text of {len(data):,} bytes, more than max_bytes={most_bytes}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnfitTextError(f"expected UTF-8, got the byte 0x{data[error.start]:02x} at {error.start}") from None


Lengths: TypeAlias = NDArray[np.int32]
TextBlock: TypeAlias = tuple[Ints, list[bytes] | list[bytes | None]]
"""Base ids of samples, and their undecoded texts."""

FORMAT = "headrace token lengths 2"
"""Format of cached files; increment the number whenever their meaning changes."""
UNKNOWN = -1

_BLOCK = 1024
"""Samples per block: enough to occupy all cores with a native tokenizer, few enough to use little memory."""
_WORTH_CACHING = 1024
"""Minimum number of texts worth caching; encoding fewer is as fast as a cache lookup."""


def _base_ids(dataset: Dataset, positions: Ints) -> Ints:
    return positions if dataset.base_ids is None else dataset.base_ids[positions]


def _usable(ids: Ints, texts: list[bytes] | list[bytes | None], max_bytes: int) -> tuple[Ints, list[str]]:
    """Return the valid texts, decoded, and the base ids of their samples."""
    rows, found = [], []
    for row, data in enumerate(texts):
        if data is None:
            continue
        try:
            found.append(decode_text(data, max_bytes))
        except UnfitTextError:
            continue
        rows.append(row)
    return ids[rows], found


@dataclass(frozen=True)
class ResolvedText:
    """Text field with its column, texts and encoder."""

    dataset: Dataset
    name: str
    field: Text
    column: str
    held: HeldTexts | None
    """Texts in memory; None if they are read from files or members."""
    encoder: Encoder
    pad_id: int

    def lengths(self) -> Lengths:
        """Return the number of tokens in each sample's text as a read-only int32[len(dataset.table)], by base id.

        Lengths include special tokens and are after truncation. A length is -1 if the sample has no usable text or is
        not in the dataset. With several captions, the longest counts, unless the field uses only the first. Lengths are
        cached by samples, tokenizer and maximum length; for a function, only with a `version`. Raises the errors of
        `Dataset.read`.
        """
        dataset, field = self.dataset, self.field
        if self.encoder.identity is None or len(dataset) < _WORTH_CACHING:
            found = self._measured_lengths()
            found.flags.writeable = False
            return found
        what = f"the lengths of {len(dataset):,} texts"
        lost = f"{what} cannot be cached, so each start encodes them again"
        known = [FORMAT, dataset.fingerprint, self.column, self.encoder.identity, field.captions, field.most_bytes]
        if self.held is None:
            known.append(file_versions(dataset, dataset.table.bytes_of(self.column)))
        name = f"tokens.{hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()}.headrace"
        place, count, measure = os.path.join(cache_folder(), name), len(dataset.table), self._measured_lengths
        return cached_array(place, count, measure, format=FORMAT, name="lengths", what=what, least=UNKNOWN, lost=lost)

    def _measured_lengths(self) -> Lengths:
        found = mapped_zeros((len(self.dataset.table),), np.int32)
        found[:] = UNKNOWN
        for ids, texts in self._read_blocks() if self.held is None else self._held_blocks(self.held):
            usable, decoded = _usable(ids, texts, self.field.most_bytes)
            ends = np.array([len(each) for each in self.encoder.encode(decoded)], np.int32)
            np.maximum.at(found, usable, ends)
        return found

    def _read_blocks(self) -> Iterator[TextBlock]:
        blocks = read_members(
            self.dataset,
            self.column,
            block=_BLOCK,
            threads=default_threads(),
            most_bytes=self.field.most_bytes,
        )
        for positions, members in blocks:
            yield _base_ids(self.dataset, positions), members

    def _held_blocks(self, held: HeldTexts) -> Iterator[TextBlock]:
        for start in range(0, len(self.dataset), _BLOCK):
            ids = _base_ids(self.dataset, np.arange(start, min(start + _BLOCK, len(self.dataset))))
            first, counts = held.ranges(ids)
            if self.field.captions == "first":
                counts = np.minimum(counts, 1)
            which = numbers_in_ranges(first, counts)
            for at in range(0, len(which), _BLOCK):
                part = slice(at, at + _BLOCK)
                yield np.repeat(ids, counts)[part], held.take(which[part])

    def padded(self, longest: int) -> int:
        """Return the row length L of a batch whose longest text has `longest` tokens."""
        if self.field.pad == "max":
            return self.field.max_length
        if self.field.pad == "batch" and self.encoder.row_length is not None:
            return max(longest, self.encoder.row_length)
        multiple = 1 if self.field.pad == "batch" else self.field.pad
        return -(-max(longest, 1) // multiple) * multiple


def resolve_texts(dataset: Dataset, fields: Mapping[str, object]) -> tuple[ResolvedText, ...]:
    """Resolve the column and tokenizer of each text field. Raises UsageError if one is unusable or has no pad id."""
    found = []
    for name, field in fields.items():
        if not isinstance(field, Text):
            continue
        place = f"field {name!r}"
        column = name if field.source is None else field.source
        held = texts_of(dataset, column, place)
        encoder = resolve_tokenizer(
            field.tokenizer, max_length=field.max_length, pad_id=field.pad_id, version=field.version, place=place
        )
        pad_id = encoder.pad_id if field.pad_id is None else field.pad_id
        if pad_id is None:
            raise UsageError(
                f"{place}: expected to know what rows are filled up with, got a tokenizer without a pad token; give it "
                "one (tokenizer.pad_token = …, or enable_padding(pad_id=…) of tokenizers), or pass Text(pad_id=…). The "
                "mask is False there, whatever it is"
            )
        found.append(ResolvedText(dataset, name, field, column, held, encoder, pad_id))
    return tuple(found)


def text_measured(texts: Sequence[ResolvedText], source: str) -> ResolvedText | None:
    """Return the text field that `Buckets("length", source=…)` names, directly or by its column; None if there is none.

    Raises UsageError if several fields read the column and none has its name.
    """
    found = [text for text in texts if text.name == source] or [text for text in texts if text.column == source]
    if len(found) > 1:
        names = ", ".join(repr(text.name) for text in found)
        raise UsageError(
            f"Buckets: expected source to name one field of text, got {source!r}, the column of {names}; name a field"
        )
    return found[0] if found else None


ENTRY_FORMAT = 1
"""Version of the layout of cache entries; increment it whenever the layout changes."""

ABSENT = -1

_TYPES: tuple[np.dtype[np.integer[Any]], ...] = (np.dtype("<u2"), np.dtype("<u4"), np.dtype("<i8"))
"""Types of the ids in an entry: the first that holds all ids, followed by one byte with its index. So no entry is
empty, and an entry depends only on its own ids."""
_WIDTHS = np.array([*(kind.itemsize for kind in _TYPES), 1])
"""Item sizes of `_TYPES`; the last is for an unknown type."""


@dataclass(frozen=True)
class Sequences:
    """N sequences of token ids in one array."""

    ids: Ints
    """Concatenated ids of all sequences."""
    lengths: Ints
    """Number of ids of each sequence, [N]; ABSENT for a missing sequence."""

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Sequences:
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        return cls(np.fromiter(chain.from_iterable(sequences), np.int64, int(lengths.sum())), lengths)

    def with_missing(self, made: Sequences) -> Sequences:
        """Return a copy with the absent sequences filled from `made`, in order."""
        missing = self.lengths == ABSENT
        lengths = self.lengths.copy()
        lengths[missing] = made.lengths
        of_made = np.repeat(missing, lengths)
        ids = np.empty(len(of_made), np.int64)
        ids[of_made], ids[~of_made] = made.ids, self.ids
        return Sequences(ids, lengths)


def to_entries(sequences: Sequences) -> tuple[NDArray[np.uint8], Ints]:
    """Return the concatenated cache entries of all sequences, and each entry's size. No sequence may be absent."""
    ends = np.cumsum(sequences.lengths)
    entries = [_entry(sequences.ids[start:end]) for start, end in zip(ends - sequences.lengths, ends, strict=True)]
    return np.frombuffer(b"".join(entries), np.uint8), np.fromiter(map(len, entries), np.int64, len(entries))


def _entry(ids: Ints) -> bytes:
    most = int(ids.max(initial=0))
    which = next(which for which, kind in enumerate(_TYPES) if most <= np.iinfo(kind).max)
    return ids.astype(_TYPES[which]).tobytes() + bytes([which])


def from_entries(data: NDArray[np.uint8], lengths: Ints, *, most: int) -> Sequences:
    """Read entries written by `to_entries`; `lengths` are their sizes, negative for a missing entry.

    A malformed entry, or one with more than `most` ids, counts as absent.
    """
    sizes = np.maximum(lengths, 0)
    there, lasts = lengths > 0, np.cumsum(sizes) - 1
    types = np.full(len(lengths), len(_TYPES))
    types[there] = np.minimum(data[lasts[there]], len(_TYPES))
    counts, left = np.divmod(sizes - 1, _WIDTHS[types])
    fit = (types < len(_TYPES)) & (left == 0) & (counts <= most)
    of_ids = np.repeat(fit, sizes)
    of_ids[lasts[there]] = False
    found = Sequences(np.empty(int(counts[fit].sum()), np.int64), np.where(fit, counts, ABSENT))
    for which in np.unique(types[fit]):
        of_type = types == which
        ids = data[of_ids & np.repeat(of_type, sizes)].view(_TYPES[which])
        found.ids[np.repeat(of_type[fit], counts[fit])] = ids
    return found
