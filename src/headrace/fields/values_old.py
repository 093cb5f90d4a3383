"""Fields that are no picture: a number a sample, or bytes as they are."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True)
class Label:
    """A number a sample, as int64 (or the column's own float type) [N].

    The class of a class folder, a value column, or a member of text that holds one whole number (`.cls`).
    """

    _: KW_ONLY
    source: str | None = None


@dataclass(frozen=True)
class Raw:
    """A column's bytes as they are: a list of N `bytes` (a value column: an array)."""

    _: KW_ONLY
    source: str | None = None
