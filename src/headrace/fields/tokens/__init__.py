"""Texts as token ids: the columns that hold them, and the tokenizers that encode them."""

from __future__ import annotations

from headrace.fields.tokens.text_columns import (
    ABSENT,
    ENTRY_FORMAT,
    LongTextError,
    ResolvedText,
    Sequences,
    UnfitTextError,
    decode_text,
    find_column,
    from_entries,
    resolve_texts,
    text_measured,
    to_entries,
    token_lengths,
)
from headrace.fields.tokens.tokenizers import Encoder, resolve_tokenizer

__all__ = [
    "ABSENT",
    "ENTRY_FORMAT",
    "Encoder",
    "LongTextError",
    "ResolvedText",
    "Sequences",
    "UnfitTextError",
    "decode_text",
    "find_column",
    "from_entries",
    "resolve_texts",
    "resolve_tokenizer",
    "text_measured",
    "to_entries",
    "token_lengths",
]
