"""`Pack`: texts that share rows of tokens."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from headrace.errors import UsageError

MOST_TOKENS = 1 << 20
"""Of a row: tables as long as one are made for a plan."""


@dataclass(frozen=True)
class Pack:
    """Rows of `length` tokens, each filled with as many whole texts as fit.

    `field`  the text field that is packed; it need not be named where there is only one
    """

    length: int
    _: KW_ONLY
    field: str | None = None

    def __post_init__(self) -> None:
        if type(self.length) is not int or not 1 <= self.length <= MOST_TOKENS:
            raise UsageError(
                f"Pack: expected length to be an int from 1 to {MOST_TOKENS:,} tokens, got {self.length!r}"
            )
        if self.field is not None and not isinstance(self.field, str):
            raise UsageError(f"Pack: expected field to be the name of a text field, got {self.field!r}")
