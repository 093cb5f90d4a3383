"""Texts and tokenizers, apart from any loader: what encodes, where texts come from, how long they are in tokens."""

from headrace.tokens.encoder import Encoder
from headrace.tokens.lengths import token_lengths
from headrace.tokens.resolving import resolve_tokenizer

__all__ = ["Encoder", "resolve_tokenizer", "token_lengths"]
