"""`Encoder`: texts to ids by one tokenizer, up to one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Encoder(Protocol):
    """What the rest of the package asks of a tokenizer, whatever it is."""

    @property
    def pad_id(self) -> int | None:
        """What the tokenizer fills up with; None where it does not say."""
        ...

    @property
    def pads_left(self) -> bool:
        """Whether it fills up before a text's ids, as models that generate want it."""
        ...

    @property
    def row_length(self) -> int | None:
        """The one length that the tokenizer itself pads all rows to; None where it does not."""
        ...

    @property
    def identity(self) -> str | None:
        """What tells it, and its greatest length, from any other; None where nothing does."""
        ...

    def encode(self, texts: list[str]) -> Sequence[Sequence[int]]:
        """The ids of each text, special ones included, at most so many as its greatest length. In one call, without
        the GIL where the tokenizer is native. Raises UsageError for what a function returns that is no ids."""
        ...
