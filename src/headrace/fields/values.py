"""Fields without geometry: text, arrays, labels, raw bytes, and the samples' keys."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias, get_args

from headrace.errors import UsageError
from headrace.fields.image import check_choice, type_name
from headrace.foreign_arguments import KnownArguments

Pad: TypeAlias = Literal["batch", "max"] | int
Captions: TypeAlias = Literal["random", "first"]

KeyKind: TypeAlias = Literal["key", "path", "index"]

KEY_KINDS: tuple[KeyKind, ...] = get_args(KeyKind)
CAPTIONS: tuple[Captions, ...] = get_args(Captions)
MOST_LENGTH = 1 << 24

_LEAST_BYTES = 1 << 16
_BYTES_A_TOKEN = 64


@dataclass(frozen=True)
class Text(KnownArguments, of="field"):
    """Text per sample, tokenized by batch.

    In the batch: a dict of "ids", int64 [N, L], and "mask", bool [N, L], False where a row is padded with `pad_id`.

    `tokenizer`  a `tokenizer.json`, a `tokenizers.Tokenizer`, a transformers tokenizer, or a function. A function is
                 called once per batch with a list of texts and returns a sequence of ids for each, or a dict of
                 "input_ids" and "attention_mask". It may pad its rows. The tokenizer itself is never modified
    `max_length` in tokens, including special tokens. The tokenizer truncates longer texts by its own settings; rows of
                 a function are truncated at the end
    `pad`        "batch": L is the longest row of the batch, or the fixed length that a function pads to; an int: the
                 longest row, rounded up to a multiple of it; "max": `max_length`. L is at least 1. The tokenizer
                 decides on which side rows are padded
    `source`     the column, if it differs from the field's name: texts, lists of texts, or UTF-8 files
    `captions`   which text of a list to use: "random" draws one per pass, the same on every rank and for every field
                 with equally many texts; "first"
    `pad_id`     default: the tokenizer's own, or the pad token in its vocabulary (`[PAD]`, `<pad>`, a special
                 `<|endoftext|>`). Required for a function unless its attention mask reveals it
    `max_bytes`  maximum UTF-8 size; a longer text is a bad sample. None: 64 bytes per token of `max_length`, at least
                 65,536
    `version`    identity of a function in cached files. None: its results are not cached

    A sample without a text, or with invalid UTF-8, is bad. An empty text is valid.
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
        if not _is_count(self.max_length, MOST_LENGTH):
            raise UsageError(
                f"Text: expected max_length to be an int from 1 to {MOST_LENGTH:,} tokens, got {self.max_length!r}"
            )
        if self.pad not in ("batch", "max") and not _is_count(self.pad, MOST_LENGTH):
            raise UsageError(f"Text: expected pad to be 'batch', 'max' or an int of at least 1, got {self.pad!r}")
        check_choice(self, "captions", CAPTIONS)
        if self.pad_id is not None and (type(self.pad_id) is not int or not 0 <= self.pad_id < 1 << 63):
            raise UsageError(f"Text: expected pad_id to be None or an int of at least 0, got {self.pad_id!r}")
        if self.max_bytes is not None and not _is_count(self.max_bytes, 1 << 40):
            raise UsageError(f"Text: expected max_bytes to be None or an int of at least 1, got {self.max_bytes!r}")
        if self.version is not None and not isinstance(self.version, str):
            raise UsageError(f"Text: expected version to be None or a text, got {self.version!r}")
        known = isinstance(self.tokenizer, str | os.PathLike) or hasattr(self.tokenizer, "encode_batch")
        if not known and not callable(self.tokenizer):
            raise UsageError(
                "Text: expected tokenizer to be a path of a tokenizer.json, a tokenizer of tokenizers or transformers, "
                f"or a function of a list of texts, got {self.tokenizer!r}"
            )

    @property
    def most_bytes(self) -> int:
        """`max_bytes`, or its default.

        A text is tokenized completely before truncation, so its size needs a bound: a megabyte of text takes a second
        and 100 MB of memory.
        """
        default = max(_LEAST_BYTES, _BYTES_A_TOKEN * self.max_length)
        return default if self.max_bytes is None else self.max_bytes


def _is_count(value: object, most: int) -> bool:
    return type(value) is int and 1 <= value <= most


ArrayDType: TypeAlias = Literal[
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128"
]

ARRAY_DTYPES: tuple[ArrayDType, ...] = get_args(ArrayDType)


@dataclass(frozen=True)
class Array(KnownArguments, of="field"):
    """One array per sample, stacked: [N, *shape].

    `source` is a column of `.npy` files or members, of `.npz` with one array each, of lists of numbers, or of numbers;
    None: the field's own name. `dtype` converts to the same or a wider kind of number: floats do not become integers,
    and values beyond float16's range become infinite. None: the saved dtype, which must be the same within a batch.

    A sample is bad if its array is missing or corrupt, or holds Python objects (never unpickled). So is an array of a
    kind that `dtype` does not accept, or of another shape than a given `shape`. Without `shape`, arrays of several
    shapes in one batch raise UsageError, and a rank without a sample in a short last batch gets [0].
    """

    _: KW_ONLY
    source: str | None = None
    dtype: ArrayDType | None = None
    shape: Sequence[int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", type_name(self.dtype))
        if self.dtype is not None and self.dtype not in ARRAY_DTYPES:
            raise UsageError(f"Array: expected dtype to be None or one of {ARRAY_DTYPES}, got {self.dtype!r}")
        if self.shape is None:
            return
        if not isinstance(self.shape, list | tuple) or not all(type(side) is int and side >= 0 for side in self.shape):
            raise UsageError(f"Array: expected shape to be None or whole numbers, such as (512,), got {self.shape!r}")
        object.__setattr__(self, "shape", tuple(self.shape))


@dataclass(frozen=True)
class Label(KnownArguments, of="field"):
    """One number per sample, [N] of int64 or of the column's own float dtype.

    The number is the class of a class folder, a column's value, or the integer in a text file (`.cls`).
    """

    _: KW_ONLY
    source: str | None = None


@dataclass(frozen=True)
class Raw(KnownArguments, of="field"):
    """Undecoded column: a list of N `bytes` or `str` (for a column of numbers: an array).

    `text`   False: members and files are bytes, and texts of a manifest or of JSON are str. True: all are str, and a
             sample with invalid UTF-8 is bad
    `source` the column, if it differs from the field's name
    """

    _: KW_ONLY
    source: str | None = None
    text: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.text, bool):
            raise UsageError(f"Raw: expected text to be True or False, got {self.text!r}")


@dataclass(frozen=True)
class Key(KnownArguments, of="field"):
    """Identity of each sample: its key, its file, or its position.

    `what`   "key": a list of N str from `dataset.keys`. "path": a list of N str, the file that holds the sample's bytes
             (in an archive: the archive's path). "index": int64 [N], positions in `loader.dataset`
    `source` the column whose files "path" names; default: the column of the pixel field that views are drawn from

    A replacement for a bad sample reports its own identity. Samples in memory have no path.
    """

    what: KeyKind = "key"
    _: KW_ONLY
    source: str | None = None

    def __post_init__(self) -> None:
        check_choice(self, "what", KEY_KINDS)
        if self.source is not None and self.what != "path":
            raise UsageError(
                f"Key: expected source only with what='path', whose files it names, got source={self.source!r} with "
                f"what={self.what!r}; leave it out"
            )
