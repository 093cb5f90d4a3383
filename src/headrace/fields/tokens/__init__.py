"""Texts and tokenizers, apart from any loader: what encodes, where texts come from, how long they are in tokens."""

from headrace.fields.tokens.text_columns import token_lengths
from headrace.tokens.encoder import Encoder
from headrace.tokens.resolved import ResolvedText, resolve_texts, text_measured
from headrace.tokens.resolving import resolve_tokenizer
from headrace.tokens.sequences import Sequences

__all__ = [
    "Encoder",
    "ResolvedText",
    "Sequences",
    "resolve_texts",
    "resolve_tokenizer",
    "text_measured",
    "token_lengths",
]
