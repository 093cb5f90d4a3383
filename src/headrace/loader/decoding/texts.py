"""Texts of a batch: which caption of several, whether it can be used, and its ids."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import DecodeError, LimitError, SampleError
from headrace.feed.contents import Ints, Origin, Places, Raws, Rows
from headrace.feed.kept_tokens import KeptTokens
from headrace.feed.nesting import part_name
from headrace.fields.tokens import ResolvedText, Sequences
from headrace.loader.stats import StageStats
from headrace.tokens.texts import LongTextError, UnfitTextError, decoded

_STREAM = 254 << 8
"""Dataset 0, stage 254, draw 0: above every stage of a view (core/rng/stream.hpp)."""

IDS, MASK = "ids", "mask"


class TextMeter:
    """Counts what a pass's encoding takes. One thread's, read by others."""

    def __init__(self) -> None:
        self._busy_s = 0.0
        self._items = self._bytes = 0

    def add(self, busy_s: float, texts: Sequence[str]) -> None:
        self._busy_s += busy_s
        self._items += len(texts)
        self._bytes += sum(len(text.encode()) for text in texts)

    def stats(self) -> StageStats:
        return StageStats(self._busy_s, self._items, self._bytes)


class Taken(NamedTuple):
    """The text of a row."""

    text: str
    number: int
    """Of what the dataset holds, or the base id of the member's sample; in the field no other text has it."""


@dataclass(frozen=True)
class TextContent:
    """A text field of one pass."""

    text: ResolvedText
    raw: int | None
    """Its number among the recipe's raw fields; None where the dataset holds its texts."""
    meter: TextMeter
    kept: KeptTokens | None = None
    """None: each text is encoded each time."""

    @property
    def name(self) -> str:
        return self.text.name

    def take(self, rows: Rows, raws: Raws) -> list[Any]:
        numbers, found = self._held(rows) if self.raw is None else (rows.base_ids, raws[self.raw])
        return [
            self._usable(data, number, sample)
            for data, number, sample in zip(found, numbers.tolist(), rows.samples.tolist(), strict=True)
        ]

    def _held(self, rows: Rows) -> tuple[Ints, list[bytes | None]]:
        assert self.text.held is not None, "it is read"
        first, counts = self.text.held.ranges(rows.base_ids)
        if self.text.field.captions == "random" and len(counts) and counts.max() > 1:
            first = first + draw_captions(rows, counts)
        there = np.flatnonzero(counts)
        found: list[bytes | None] = [None] * len(counts)
        for row, data in zip(there.tolist(), self.text.held.take(first[there]), strict=True):
            found[row] = data
        return first, found

    def _usable(self, data: bytes | None, number: int, sample: int) -> Taken | SampleError:
        if data is None:
            return self._origin.error(DecodeError, "the sample has no text", sample)
        try:
            return Taken(decoded(data, self.text.field.most_bytes), number)
        except LongTextError as error:
            why = f"{error}; raise it with Text(max_bytes=…) if such texts are wanted"
            return self._origin.error(LimitError, why, sample)
        except UnfitTextError as error:
            return self._origin.error(DecodeError, str(error), sample)

    @property
    def _origin(self) -> Origin:
        return Origin(self.text.dataset, self.name, self.text.column, read=self.raw is not None)

    def join(
        self, contents: list[Taken], samples: Ints, places: Places | None, longest: int
    ) -> dict[str, NDArray[Any]]:
        began = time.perf_counter()
        texts = [content.text for content in contents]
        parts = self._parts(self._encoded(texts, contents), places, longest)
        self.meter.add(time.perf_counter() - began, texts)
        return {part_name(self.name, name): part for name, part in parts.items()}

    def _encoded(self, texts: list[str], contents: list[Taken]) -> Sequences:
        encode = self.text.encoder.encode
        if self.kept is None:
            return Sequences.of(encode(texts))
        numbers = np.fromiter((content.number for content in contents), np.int64, len(contents))
        return self.kept.encoded(texts, numbers, encode)

    def _parts(self, sequences: Sequences, places: Places | None, longest: int) -> dict[str, NDArray[Any]]:
        ids, mask = self._padded(sequences, longest)
        return {IDS: ids, MASK: mask}

    def _padded(self, rows: Sequences, longest: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        length = self.text.padded(int(rows.lengths.max(initial=longest)))
        places = np.arange(length)
        ends = rows.lengths[:, None]
        mask = places >= length - ends if self.text.encoder.pads_left else places < ends
        ids = np.full((len(rows.lengths), length), self.text.pad_id, np.int64)
        ids[mask] = rows.ids
        return ids, mask


def draw_captions(rows: Rows, counts: Ints) -> Ints:
    """Draw which of its captions each row takes, uniform but for 2^-32 of its count. A function of the sample, its
    occurrence and the pass alone: two fields of as many captions take the same one, on every rank."""
    ids = rows.draw_ids
    counter = np.stack(
        [ids & 0xFFFF_FFFF, ids >> 32, rows.passes.astype(np.int64), np.full_like(ids, _STREAM)], axis=1
    ).astype(np.uint32)
    words = _core.philox(rows.key, counter)[:, 1].astype(np.int64)  # the upper half of the first draw
    return (words * counts) >> 32
