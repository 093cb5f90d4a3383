"""A loader's text fields, resolved: their columns, and what encodes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.data import Dataset
from headrace.errors import UsageError
from headrace.fields import Field, Text
from headrace.fields.tokens.text_columns import Lengths, encoded_lengths
from headrace.tokens.encoder import Encoder
from headrace.tokens.resolving import resolve_tokenizer
from headrace.tokens.texts import HeldTexts, texts_of


@dataclass(frozen=True)
class ResolvedText:
    """A text field of a dataset."""

    dataset: Dataset
    name: str
    field: Text
    column: str
    held: HeldTexts | None
    """What the dataset holds; None where members have to be read."""
    encoder: Encoder
    pad_id: int

    def lengths(self, threads: int | None) -> Lengths:
        """As `token_lengths` has them."""
        return encoded_lengths(
            self.dataset,
            self.column,
            self.encoder,
            captions=self.field.captions,
            max_bytes=self.field.most_bytes,
            threads=threads,
            cache=None,
            place=f"field {self.name!r}",
        )

    def padded(self, longest: int) -> int:
        """L of a batch whose longest text has so many tokens."""
        if self.field.pad == "max":
            return self.field.max_length
        if self.field.pad == "batch" and self.encoder.row_length is not None:
            return max(longest, self.encoder.row_length)
        multiple = 1 if self.field.pad == "batch" else self.field.pad
        return -(-max(longest, 1) // multiple) * multiple


def resolve_texts(dataset: Dataset, fields: Mapping[str, Field]) -> tuple[ResolvedText, ...]:
    """Raises UsageError for a column or a tokenizer that is none, and where nothing says what to fill up with."""
    return tuple(_resolved(dataset, name, field) for name, field in fields.items() if isinstance(field, Text))


def _resolved(dataset: Dataset, name: str, field: Text) -> ResolvedText:
    place = f"field {name!r}"
    column = name if field.source is None else field.source
    held = texts_of(dataset, column, place)
    encoder = resolve_tokenizer(
        field.tokenizer, max_length=field.max_length, pad_id=field.pad_id, version=field.version, place=place
    )
    pad_id = encoder.pad_id if field.pad_id is None else field.pad_id
    if pad_id is None:
        raise UsageError(
            f"{place}: expected to know what rows are filled up with, got a tokenizer without a pad token; give it one "
            "(tokenizer.pad_token = …, or enable_padding(pad_id=…) of tokenizers), or pass Text(pad_id=…). The mask "
            "is False there, whatever it is"
        )
    return ResolvedText(dataset, name, field, column, held, encoder, pad_id)


def text_measured(texts: Sequence[ResolvedText], source: str) -> ResolvedText | None:
    """The text field that `Buckets("length", source=…)` names, or whose column it names; None where there is none.

    Raises UsageError where several fields read that column, and none of them has its name.
    """
    found = [text for text in texts if text.name == source] or [text for text in texts if text.column == source]
    if len(found) > 1:
        names = ", ".join(repr(text.name) for text in found)
        raise UsageError(
            f"Buckets: expected source to name one field of text, got {source!r}, the column of {names}; name a field"
        )
    return found[0] if found else None
