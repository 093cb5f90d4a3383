"""`Buckets`, `Budget` and `SequencePacking`: which samples share a batch, and the cost limit of a batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias

from headrace.errors import UsageError
from headrace.foreign_arguments import KnownArguments

By: TypeAlias = Literal["aspect", "orientation", "size", "length"] | Callable[[Mapping[str, Any]], Hashable]

KINDS = ("aspect", "orientation", "size", "length")
MOST_BUCKETS = 4096
DEFAULT_COUNT = 8
SHOWN_EDGES = 8
MOST_TOKENS = 1 << 20
"""Maximum tokens of a row: a plan builds tables of this length."""


TokensPerImage: TypeAlias = int | Callable[[int, int], int]
"""Tokens of each image, or a function of its height and width in pixels."""


def check_tokens_per_image(place: str, tokens: object) -> None:
    """Raise UsageError for anything but None, a whole number above 0 or a function."""
    if tokens is not None and not callable(tokens) and (type(tokens) is not int or not 1 <= tokens <= MOST_TOKENS):
        raise UsageError(
            f"{place}: expected tokens_per_image to be None, an int from 1 to {MOST_TOKENS:,} or a function of height "
            f"and width, got {tokens!r}"
        )


@dataclass(frozen=True)
class Buckets(KnownArguments):
    """Buckets of samples that may share a batch.

    `by`     "aspect" (width / height), "orientation" (landscape or portrait; a square is landscape), "size" (each
             height x width is a bucket; with `count` or `edges`, its pixels), "length" (of `source`), or a function.
             The length of a text field, or of its column, is its tokens, truncated to the field's length. For other
             columns it is the number, the UTF-8 bytes of the text, or the bytes of the member. The function is called
             once per sample with the values that the dataset holds (numbers, texts, "__key__", and the image's "height"
             and "width"). It returns a number if `count` or `edges` is given, else a hashable category
    `count`  number of buckets, each with about as many samples; default: 8 for "aspect" and "length" without `edges`.
             Edges are quantiles of at most 65,536 samples, drawn with the loader's seed
    `edges`  ascending boundaries between buckets; a value equal to an edge belongs above it
    `source` the column to measure (default for sizes: the image column that views are drawn from)
    `tokens_per_image`  with by="length": added to a sample's length for each of its images. A number, or a function of
             the height and width of the image's file, such as `lambda h, w: h // 28 * (w // 28)`

    Raises UsageError for arguments that do not go together.
    """

    by: By
    _: KW_ONLY
    count: int | None = None
    edges: Sequence[float] | None = None
    source: str | None = None
    tokens_per_image: TokensPerImage | None = None

    def __post_init__(self) -> None:
        check_tokens_per_image("Buckets", self.tokens_per_image)
        if self.tokens_per_image is not None and self.by != "length":
            raise UsageError(f"Buckets: expected by='length' with tokens_per_image=, got {self.by!r}; leave one out")
        if not callable(self.by) and self.by not in KINDS:
            raise UsageError(f"Buckets: expected by to be one of {KINDS} or a function of a sample, got {self.by!r}")
        if self.count is not None and self.edges is not None:
            raise UsageError(
                f"Buckets: expected count or edges, got count={self.count!r} and edges={self.edges!r}; leave one out"
            )
        if self.by == "orientation" and (self.count is not None or self.edges is not None):
            raise UsageError("Buckets: by='orientation' has two buckets; leave count and edges out, or use by='aspect'")
        if self.count is not None and (type(self.count) is not int or not 1 <= self.count <= MOST_BUCKETS):
            raise UsageError(f"Buckets: expected count to be an int from 1 to {MOST_BUCKETS}, got {self.count!r}")
        if self.edges is not None:
            self._check_edges(self.edges)
        if self.by == "length" and self.source is None:
            raise UsageError("Buckets: by='length' needs source=, the column whose lengths count, got None")
        if callable(self.by) and self.source is not None:
            raise UsageError(f"Buckets: a function is given all columns; leave source={self.source!r} out")

    def _check_edges(self, edges: Sequence[float]) -> None:
        numbers = isinstance(edges, list | tuple) and all(
            isinstance(edge, int | float) and not isinstance(edge, bool) and abs(edge) <= sys.float_info.max
            for edge in edges
        )
        if not numbers or not 1 <= len(edges) < MOST_BUCKETS or list(edges) != sorted(set(edges)):
            raise UsageError(
                f"Buckets: expected edges to be 1 to {MOST_BUCKETS - 1} ascending numbers, each once, got {edges!r}"
            )

    @property
    def ordered(self) -> bool:
        """True if buckets are ranges of numbers, so that each bucket has neighbours."""
        return self.by in ("aspect", "length") or self.count is not None or self.edges is not None

    def __str__(self) -> str:
        """Describe the buckets without their samples; short, as the text is part of a state."""
        parts = ["function" if callable(self.by) else str(self.by)]
        if self.edges is not None:
            parts.append(f"edges={list(self.edges) if len(self.edges) <= SHOWN_EDGES else len(self.edges)}")
        elif self.ordered:
            parts.append(f"count={self.count or DEFAULT_COUNT}")
        if self.source is not None:
            parts.append(f"of {self.source}")
        if self.tokens_per_image is not None:
            parts.append("with images")
        return " ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Budget(KnownArguments):
    """Upper bound on the cost of one rank's batch, instead of a number of samples.

    Give exactly one of the three:

    `pixels` height x width of the images in the batch, padding included
    `tokens` the longest length in the batch, times its samples: their tokens after padding. It needs
             `Buckets("length", source=…)` with lengths in tokens
    `bytes`  the same for lengths in bytes

    A batch has as many samples as fit in any case: each counts as the largest of its bucket at the batch's scale.

    The global batch is a multiple of `rank_multiple` (default: the world size). If you set it, a state resumes at every
    world size that divides it, as long as the budget of all ranks together is the same.
    """

    pixels: int | None = None
    tokens: int | None = None
    bytes: int | None = None
    rank_multiple: int | None = None

    def __post_init__(self) -> None:
        given = {name: value for name, value in self._amounts().items() if value is not None}
        if len(given) != 1:
            raise UsageError(f"Budget: expected one of pixels, tokens and bytes, got {given or 'none'}")
        for name, value in (*given.items(), ("rank_multiple", self.rank_multiple)):
            if value is not None and (type(value) is not int or not 1 <= value < 1 << 62):
                raise UsageError(f"Budget: expected {name} to be an int of at least 1, got {value!r}")

    def _amounts(self) -> dict[str, int | None]:
        return {"pixels": self.pixels, "tokens": self.tokens, "bytes": self.bytes}

    @property
    def unit(self) -> str:
        """Unit of the bound: "pixels", "tokens" or "bytes"."""
        return next(name for name, value in self._amounts().items() if value is not None)

    @property
    def amount(self) -> int:
        """Bound for one rank, in its unit."""
        return next(value for value in self._amounts().values() if value is not None)


@dataclass(frozen=True)
class SequencePacking(KnownArguments):
    """Rows of `length` tokens, each filled with as many whole texts as fit.

    `field`  the text field to pack; optional if there is only one
    `tokens_per_image`  tokens of a row that each image of a sample takes beside its text: a number, or a function of
             the height and width of the image's file. The row's ids are those of the texts alone
    """

    length: int
    _: KW_ONLY
    field: str | None = None
    tokens_per_image: TokensPerImage | None = None

    def __post_init__(self) -> None:
        check_tokens_per_image("SequencePacking", self.tokens_per_image)
        if type(self.length) is not int or not 1 <= self.length <= MOST_TOKENS:
            raise UsageError(
                f"SequencePacking: expected length to be an int from 1 to {MOST_TOKENS:,} tokens, got {self.length!r}"
            )
        if self.field is not None and not isinstance(self.field, str):
            raise UsageError(f"SequencePacking: expected field to be the name of a text field, got {self.field!r}")
