"""Texts as str, or as token ids that are padded to the batch or packed into rows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import ReservedStage
from headrace.data import Dataset
from headrace.errors import DecodeError, LimitError, SampleError, UsageError
from headrace.fields import LongTextError, ResolvedText, Sequences, UnfitTextError, decode_text
from headrace.loader.batch_values import BatchRows, part_name
from headrace.loader.cache import TokenCache
from headrace.loader.decoding.arrays import ColumnOrigin, Ints, Raws
from headrace.loader.stats import StageMeter

_STREAM = ReservedStage.CAPTIONS << 8
"""Random stream: dataset 0, stage 254, draw 0. Above every stage of a view (core/rng/stream.hpp)."""

IDS, MASK = "ids", "mask"


@dataclass(frozen=True)
class RawTextContent:
    """Field of members or files, read as UTF-8 into str."""

    dataset: Dataset
    name: str
    column: str
    raw: int
    """Position among the recipe's raw fields."""

    def take(self, rows: BatchRows, raws: Raws) -> list[str | SampleError]:
        return [self._text(data, int(sample)) for data, sample in zip(raws[self.raw], rows.samples, strict=True)]

    def _text(self, data: bytes, sample: int) -> str | SampleError:
        try:
            return decode_text(data, len(data))
        except UnfitTextError as error:
            return ColumnOrigin(self.dataset, self.name, self.column, read=True).error(DecodeError, str(error), sample)

    def join(self, contents: list[str], rows: BatchRows, longest: int) -> dict[str, list[str]]:
        return {self.name: contents}


class RowText(NamedTuple):
    """Text of a row."""

    text: str
    number: int
    """Number of the text in the dataset, or the base id of its sample; unique in the field."""


@dataclass(frozen=True)
class TextContent:
    """Text field of one pass."""

    text: ResolvedText
    raw: int | None
    """Position among the recipe's raw fields; None if the dataset holds the texts."""
    meter: StageMeter
    kept: TokenCache | None = None
    """Token cache; None if every text is encoded on every read."""

    @property
    def name(self) -> str:
        return self.text.name

    def take(self, rows: BatchRows, raws: Raws) -> list[Any]:
        numbers, found = self._held(rows) if self.raw is None else (rows.base_ids, raws[self.raw])
        return [
            self._usable(data, number, sample)
            for data, number, sample in zip(found, numbers.tolist(), rows.samples.tolist(), strict=True)
        ]

    def _held(self, rows: BatchRows) -> tuple[Ints, list[bytes | None]]:
        assert self.text.held is not None, "it is read"
        first, counts = self.text.held.ranges(rows.base_ids)
        if self.text.field.captions == "random" and len(counts) and counts.max() > 1:
            first = first + draw_captions(rows, counts)
        there = np.flatnonzero(counts)
        found: list[bytes | None] = [None] * len(counts)
        for row, data in zip(there.tolist(), self.text.held.take(first[there]), strict=True):
            found[row] = data
        return first, found

    def _usable(self, data: bytes | None, number: int, sample: int) -> RowText | SampleError:
        if data is None:
            return self._origin.error(DecodeError, "the sample has no text", sample)
        try:
            return RowText(decode_text(data, self.text.field.most_bytes), number)
        except LongTextError as error:
            why = f"{error}; raise it with Text(max_bytes=…) if such texts are wanted"
            return self._origin.error(LimitError, why, sample)
        except UnfitTextError as error:
            return self._origin.error(DecodeError, str(error), sample)

    @property
    def _origin(self) -> ColumnOrigin:
        return ColumnOrigin(self.text.dataset, self.name, self.text.column, read=self.raw is not None)

    def join(self, contents: list[RowText], rows: BatchRows, longest: int) -> dict[str, NDArray[Any]]:
        began = time.perf_counter()
        texts, encode = [content.text for content in contents], self.text.encoder.encode
        if self.kept is None:
            sequences = Sequences.of(encode(texts))
        else:
            numbers = np.fromiter((content.number for content in contents), np.int64, len(contents))
            sequences = self.kept.encoded(texts, numbers, encode)
        parts = self._parts(sequences, rows, longest)
        self.meter.add(time.perf_counter() - began, len(texts), sum(len(text.encode()) for text in texts))
        return {part_name(self.name, name): part for name, part in parts.items()}

    def _parts(self, sequences: Sequences, rows: BatchRows, longest: int) -> dict[str, NDArray[Any]]:
        length = self.text.padded(int(sequences.lengths.max(initial=longest)))
        columns = np.arange(length)
        ends = sequences.lengths[:, None]
        mask = columns >= length - ends if self.text.encoder.pads_left else columns < ends
        ids = np.full((len(sequences.lengths), length), self.text.pad_id, np.int64)
        ids[mask] = sequences.ids
        return {IDS: ids, MASK: mask}


def draw_captions(rows: BatchRows, counts: Ints) -> Ints:
    """Draw one of its captions for each row, uniform to within 2^-32 of the row's caption count.

    The draw depends only on the sample, its occurrence and the pass. Two fields with the same number of captions draw
    the same one, on every rank.
    """
    ids = rows.draw_ids
    counter = np.stack(
        [ids & 0xFFFF_FFFF, ids >> 32, rows.passes.astype(np.int64), np.full_like(ids, _STREAM)], axis=1
    ).astype(np.uint32)
    words = _core.philox(rows.key, counter)[:, 1].astype(np.int64)  # the upper half of the first draw
    return (words * counts) >> 32


PARTS = ("ids", "mask", "positions", "blocks", "boundaries")


class PackedTextContent(TextContent):
    """Text field with several texts per row."""

    def _parts(self, sequences: Sequences, rows: BatchRows, longest: int) -> dict[str, NDArray[Any]]:
        shared = rows.plan.rows
        assert shared is not None, "the plan has rows of tokens"
        row_of = shared.of(rows.positions)
        try:
            return packed(sequences, row_of, rows=shared.count, length=shared.length, pad_id=self.text.pad_id)
        except RowOverflowError as error:
            raise UsageError(
                f"field {self.name!r}: expected texts as long as they were when the loader was made, got {error}; the "
                "tokenizer has to give the same ids each time, so leave out what it draws (dropout), and make the "
                "loader afresh if texts have changed"
            ) from error


class RowOverflowError(ValueError):
    """Sequences that are longer than the row they share."""


def packed(sequences: Sequences, row_of: Ints, *, rows: int, length: int, pad_id: int) -> dict[str, NDArray[Any]]:
    """Return the parts of a packed field: B = `rows`, L = `length`, S sequences.

    "ids" int64 [B, L], `pad_id` at each row's end. "mask" bool [B, L], False in padding. "positions" int64 [B, L], from
    0 in each sequence; 0 in padding. "blocks" int64 [B, L], the number of the sequence among the S; -1 in padding.
    "boundaries" int32 [K + 1], ascending from 0 to B * L: the start of each sequence and of each row's padding in the
    joined rows, in the form that variable-length attention kernels take. A sequence without tokens is in no part.
    `row_of` [S] is ascending. Raises RowOverflowError for the first row that is too short for its sequences.
    """
    lengths = sequences.lengths
    before = np.cumsum(lengths) - lengths
    used = np.bincount(row_of, lengths, minlength=rows).astype(np.int64)
    if used.max(initial=0) > length:
        row = int((used > length).argmax())
        held = lengths[row_of == row].tolist()
        raise RowOverflowError(f"{used[row]} tokens of {len(held)} sequences ({held}) in a row of {length}")
    begins = np.arange(rows) * length
    starts = before + (begins - np.cumsum(used) + used)[row_of]
    total = int(lengths.sum())
    within = np.arange(total) - np.repeat(before, lengths)
    places = np.repeat(starts, lengths) + within
    ids, positions, blocks = (np.full(rows * length, fill, np.int64) for fill in (pad_id, 0, -1))
    ids[places] = sequences.ids
    positions[places] = within
    blocks[places] = np.repeat(np.arange(len(lengths)), lengths)
    edges = np.unique(np.concatenate([starts[lengths > 0], begins, begins + used, [rows * length]]))
    found = {"ids": ids, "mask": blocks >= 0, "positions": positions, "blocks": blocks}
    return {name: part.reshape(rows, length) for name, part in found.items()} | {"boundaries": edges.astype(np.int32)}
