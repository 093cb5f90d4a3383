"""Fields without geometry: text, arrays, labels, raw bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias

from headrace.errors import UsageError

# -- from fields/text.py: `Text`: captions and documents as the ids of a tokenizer.


Pad: TypeAlias = Literal["batch", "max"] | int
Captions: TypeAlias = Literal["random", "first"]

CAPTIONS: tuple[Captions, ...] = ("random", "first")
MOST_LENGTH = 1 << 24

_LEAST_BYTES = 1 << 16
_BYTES_A_TOKEN = 64


@dataclass(frozen=True)
class Text:
    """A text a sample, tokenised by batch.

    In the batch: a dict of "ids", int64 [N, L], and "mask", bool [N, L], False where a row is filled up with `pad_id`.

    `tokenizer`  a `tokenizer.json`, a `tokenizers.Tokenizer`, a tokenizer of transformers, or a function that is given
                 a list of texts, once a batch, and returns a sequence of ids for each, or a dict of "input_ids" and
                 "attention_mask". It may pad its rows. No tokenizer is ever changed
    `max_length` in tokens, special ones included. Longer texts are cut as the tokenizer itself cuts them; what a
                 function returns is cut at its end
    `pad`        "batch": L is the longest of the batch, or the one length that a function pads all rows to; an int: the
                 longest, rounded up to a multiple of it; "max": `max_length`. L is at least 1. Rows are padded on the
                 side that the tokenizer says
    `source`     the column where it is not the field's own name: of texts, of lists of texts, or of members in UTF-8
    `captions`   which of a list is taken: "random" draws one a pass, the same on every rank and for every field of as
                 many texts; "first"
    `pad_id`     default: the tokenizer's own, or what its vocabulary shows (`[PAD]`, `<pad>`, a special
                 `<|endoftext|>`). A function needs it, unless its attention mask shows it
    `max_bytes`  of a text in UTF-8; a longer one is a bad sample. None: 64 for each token of `max_length`, at least
                 65,536
    `version`    what tells a function from another in files that are kept. None: nothing of it is kept

    A sample without a text, or with one that is not UTF-8, is bad. An empty text is none of these.
    """

    tokenizer: Any
    _: KW_ONLY
    max_length: int
    pad: Pad = "batch"
    source: str | None = None
    captions: Captions = "random"
    pad_id: int | None = None
    max_bytes: int | None = None
    version: str | None = None

    def __post_init__(self) -> None:
        check_max_length(self.max_length)
        if self.pad not in ("batch", "max") and not _is_count(self.pad, MOST_LENGTH):
            raise UsageError(f"Text: expected pad to be 'batch', 'max' or an int of at least 1, got {self.pad!r}")
        if self.captions not in CAPTIONS:
            raise UsageError(f"Text: expected captions to be one of {CAPTIONS}, got {self.captions!r}")
        if self.pad_id is not None and (type(self.pad_id) is not int or not 0 <= self.pad_id < 1 << 63):
            raise UsageError(f"Text: expected pad_id to be None or an int of at least 0, got {self.pad_id!r}")
        if self.max_bytes is not None and not _is_count(self.max_bytes, 1 << 40):
            raise UsageError(f"Text: expected max_bytes to be None or an int of at least 1, got {self.max_bytes!r}")
        if self.version is not None and not isinstance(self.version, str):
            raise UsageError(f"Text: expected version to be None or a text, got {self.version!r}")
        if not (isinstance(self.tokenizer, str | os.PathLike) or _encodes(self.tokenizer)):
            raise UsageError(
                "Text: expected tokenizer to be a path of a tokenizer.json, a tokenizer of tokenizers or transformers, "
                f"or a function of a list of texts, got {self.tokenizer!r}"
            )

    @property
    def most_bytes(self) -> int:
        """`max_bytes`, or what it is by default."""
        return most_bytes(self.max_length) if self.max_bytes is None else self.max_bytes


def check_max_length(max_length: object) -> None:
    """Raises UsageError unless it is a number of tokens."""
    if not _is_count(max_length, MOST_LENGTH):
        raise UsageError(f"Text: expected max_length to be an int from 1 to {MOST_LENGTH:,} tokens, got {max_length!r}")


def most_bytes(max_length: int) -> int:
    """Of a text that is to become so many tokens. A text is tokenised as a whole before it is cut, so what only its
    beginning is wanted of has to have a bound: a megabyte takes a second, and a hundred of them in memory."""
    return max(_LEAST_BYTES, _BYTES_A_TOKEN * max_length)


def _is_count(value: object, most: int) -> bool:
    return type(value) is int and 1 <= value <= most


def _encodes(tokenizer: object) -> bool:
    return callable(tokenizer) or hasattr(tokenizer, "encode_batch")


# -- from fields/array.py: `Array`: numbers that are no picture, such as embeddings, as they were saved.


ArrayDType: TypeAlias = Literal[
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128"
]

ARRAY_DTYPES: tuple[ArrayDType, ...] = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


@dataclass(frozen=True)
class Array:
    """An array a sample, stacked: [N, *shape].

    `source` is a column of `.npy` members or files, of `.npz` of one array each, of lists of numbers, or of numbers;
    None: the field's own name. `dtype` converts, from one kind of number to the same or a wider kind: floats do not
    become whole numbers, and what float16 cannot hold becomes infinite. None: as it was saved, all of a batch alike.

    A sample without an array, with a damaged one, one of Python objects, which are never unpickled, or of a kind that
    `dtype` does not take, is bad. So is one of another shape than `shape`, where that is given. Without, arrays of
    several shapes in one batch raise UsageError, and a rank that has no sample of a short last batch gets [0].
    """

    _: KW_ONLY
    source: str | None = None
    dtype: ArrayDType | None = None
    shape: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in ARRAY_DTYPES:
            raise UsageError(f"Array: expected dtype to be None or one of {ARRAY_DTYPES}, got {self.dtype!r}")
        if self.shape is None:
            return
        if not isinstance(self.shape, list | tuple) or not all(type(side) is int and side >= 0 for side in self.shape):
            raise UsageError(f"Array: expected shape to be None or whole numbers, such as (512,), got {self.shape!r}")
        object.__setattr__(self, "shape", tuple(self.shape))


# -- from fields/values.py: Fields that are no picture: a number a sample, or bytes as they are.


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
