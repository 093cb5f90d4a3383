"""Texts as token ids: the columns that hold them, and the tokenizers that encode them."""

from __future__ import annotations

from headrace.fields.tokens.text_columns import ResolvedText, Sequences, resolve_texts, text_measured, token_lengths
from headrace.fields.tokens.tokenizers import Encoder, resolve_tokenizer

__all__ = [
    "Encoder",
    "ResolvedText",
    "Sequences",
    "resolve_texts",
    "resolve_tokenizer",
    "text_measured",
    "token_lengths",
]
