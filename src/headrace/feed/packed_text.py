"""Sequences of ids laid one after another in rows, and what tells a model where each of them begins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError
from headrace.feed.contents import Ints, Places
from headrace.fields.tokens import Sequences
from headrace.loader.decoding.texts import TextContent

PARTS = ("ids", "mask", "positions", "blocks", "boundaries")


class PackedTextContent(TextContent):
    """A text field whose texts share rows."""

    def _parts(self, sequences: Sequences, places: Places | None, longest: int) -> dict[str, NDArray[Any]]:
        assert places is not None, "the plan has rows"
        try:
            return packed(sequences, places.row_of, rows=places.rows, length=places.length, pad_id=self.text.pad_id)
        except RowOverflowError as error:
            raise UsageError(
                f"field {self.name!r}: expected texts as long as they were when the loader was made, got {error}; the "
                "tokenizer has to give the same ids each time, so leave out what it draws (dropout), and make the "
                "loader afresh if texts have changed"
            ) from error


class RowOverflowError(ValueError):
    """Sequences that are longer than the row they share."""


def packed(sequences: Sequences, row_of: Ints, *, rows: int, length: int, pad_id: int) -> dict[str, NDArray[Any]]:
    """The parts of a packed field, B = `rows`, L = `length`, S sequences.

    "ids" int64 [B, L], `pad_id` at each row's end. "mask" bool [B, L], False there. "positions" int64 [B, L], from 0 in
    each sequence; 0 in padding. "blocks" int64 [B, L], the number of the sequence among the S; -1 in padding.
    "boundaries" int32 [K + 1], ascending from 0 to B * L: where each sequence and each row's padding begins in the rows
    on end, as kernels for sequences of several lengths take it. A sequence without a token has no part in any.

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
