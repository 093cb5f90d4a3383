"""Explanation of integer arrays as the tokens of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headrace.doctor.explain.pictures import Array


@dataclass(frozen=True)
class TokensExplanation:
    """Recipe of a leaf from the sample's text."""

    part: Literal["ids", "mask"]
    """The tokens, or the mask of tokens without padding."""
    column: str
    tokenizer: int
    """Number of the tokenizer in the look."""
    length: int
    """Tokens per row, padding included."""
    pad_id: int | None
    """Padding token; None if no row was padded."""


def tokenizers_of(texts: Sequence[str]) -> list[Any]:
    """Return tokenizers from their JSON; none if the library is not installed."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return []
    made = []
    for text in texts:
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        made.append(tokenizer)
    return made


def explain_tokens(
    leaves: Sequence[Array], indices: Sequence[int], columns: Mapping[str, Sequence[Any]], tokenizers: Sequence[Any]
) -> TokensExplanation | None:
    """Return the column of texts that become these rows of one length; None if no tokenizer produces them."""
    lengths = {leaf.shape for leaf in leaves}
    if len(lengths) > 1 or leaves[0].ndim != 1 or leaves[0].dtype.kind not in "iub":
        return None
    ((length,),) = lengths
    for name, column in columns.items():
        texts = [column[index] for index in indices]
        if not all(isinstance(text, str) for text in texts):
            continue
        for number, tokenizer in enumerate(tokenizers):
            rows = [_truncated(tokenizer, text, length) for text in texts]
            found = _padded(leaves, rows)
            if found is not None:
                return TokensExplanation(found[0], name, number, length, found[1])
    return None


def _truncated(tokenizer: Any, text: str, length: int) -> list[int]:
    tokenizer.enable_truncation(max_length=length)
    try:
        ids: list[int] = tokenizer.encode(text).ids
    finally:
        tokenizer.no_truncation()
    return ids


def _padded(leaves: Sequence[Array], rows: Sequence[Sequence[int]]) -> tuple[Literal["ids", "mask"], int | None] | None:
    """Return whether leaves are the tokens or their mask, and the padding token."""
    masks = [np.arange(len(leaf)) < len(row) for leaf, row in zip(leaves, rows, strict=True)]
    if all(np.array_equal(leaf, mask) for leaf, mask in zip(leaves, masks, strict=True)):
        return None if all(mask.all() for mask in masks) else ("mask", None)
    if not all(np.array_equal(leaf[: len(row)], row) for leaf, row in zip(leaves, rows, strict=True)):
        return None
    pads = {int(value) for leaf, mask in zip(leaves, masks, strict=True) for value in np.unique(leaf[~mask])}
    return ("ids", next(iter(pads), None)) if len(pads) <= 1 else None
