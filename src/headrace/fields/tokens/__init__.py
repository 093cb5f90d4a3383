"""Texts as token ids: the columns that hold them, and the tokenizers that encode them."""
