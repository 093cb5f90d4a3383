"""Texts of several sources at one length: each source has padded its part of a batch to its own longest text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.fields.tokens import ResolvedText
from headrace.loader.batch_values import Plain
from headrace.loader.decoding.texts import IDS, MASK
from headrace.loader.mixtures.joining import Parts


def fill_up(parts: Parts, texts: Sequence[ResolvedText]) -> Parts:
    """The same parts, of which each of `texts` is as long in all as in the longest. `texts` are one source's: all
    sources pad alike. What `map` has made something else of stays as it is."""
    for text in texts:
        lengths = [_length(batch.get(text.name)) for _, _, batch in parts]
        if None not in lengths and len(set(lengths)) > 1:
            longest = max(length for length in lengths if length is not None)
            parts = [
                (source, rows, {**batch, text.name: _filled(batch[text.name], longest, text)})
                for source, rows, batch in parts
            ]
    return parts


def _length(value: Any) -> int | None:
    """Tokens of its rows; None for what is no padded text."""
    if not isinstance(value, Mapping) or set(value) != {IDS, MASK}:
        return None
    shapes = [tuple(getattr(part, "shape", ())) for part in value.values()]
    return int(shapes[0][1]) if shapes[0] == shapes[1] and len(shapes[0]) == 2 else None


def _filled(value: Mapping[str, Any], length: int, text: ResolvedText) -> dict[str, Any]:
    return {name: _widened(part, length, text, {IDS: text.pad_id, MASK: 0}[name]) for name, part in value.items()}


def _widened(part: Any, length: int, text: ResolvedText, fill: int) -> Any:
    plain = Plain.of(part)
    assert plain is not None, "a text's parts are numbers"
    more = (length - plain.array.shape[1], 0) if text.encoder.pads_left else (0, length - plain.array.shape[1])
    return Plain(np.pad(plain.array, ((0, 0), more), constant_values=fill), plain.tensor).restore()
