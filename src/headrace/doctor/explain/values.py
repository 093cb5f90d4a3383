"""Explanation of numbers, texts and tokens of samples by sequences that the dataset holds."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headrace.doctor.explain.placements import Array

if TYPE_CHECKING:
    from headrace.doctor.explain.look import LookedCall

Kind = Literal["equal", "affixed", "class", "affine", "one-hot", "index", "constant"]


@dataclass(frozen=True)
class ValueExplanation:
    """Recipe of a number or text from a column's value for the sample."""

    kind: Kind
    """Relation of the leaf to the column's value.

    "equal": the same; "affixed": with a prefix and suffix; "class": its rank among the distinct values; "affine": scale
    * value + shift; "one-hot": the class as zeros and a one; "index": the sample's index; "constant".
    """
    column: str | None = None
    prefix: str = ""
    suffix: str = ""
    scale: float = 1.0
    shift: float = 0.0
    value: Any = None


def explain_value(
    leaves: Sequence[Any], indices: Sequence[int], columns: Mapping[str, Sequence[Any]]
) -> ValueExplanation | None:
    """Return the simplest relation that gives the leaves of the samples at `indices`; None if nothing fits.

    `columns` have an element per sample of the dataset. A rank or an affine function counts only with more values than
    it has degrees of freedom.
    """
    values = [_plain(leaf) for leaf in leaves]
    taken = {name: [_plain(column[index]) for index in indices] for name, column in columns.items()}
    if len({repr(value) for value in values}) == 1 and len(values) > 1:
        return ValueExplanation("constant", value=values[0])
    for name, its in taken.items():
        if all(map(_are_equal, values, its)):
            return ValueExplanation("equal", name)
    if values == list(indices):
        return ValueExplanation("index")
    for name, its in taken.items():
        found = _affixed(name, values, its) or _ranked(name, values, its, columns[name]) or _affine(name, values, its)
        if found is not None:
            return found
    return None


def _plain(value: Any) -> Any:
    """Return a 0D array or tensor as a Python number, and a flat array as a list."""
    to_list = getattr(value, "tolist", None)
    return value if to_list is None or getattr(value, "ndim", 0) > 1 else to_list()


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, bytes) != isinstance(other, bytes):
        one, other = (each.decode(errors="replace") if isinstance(each, bytes) else each for each in (one, other))
    if isinstance(one, float) and isinstance(other, int | float):
        return bool(np.isclose(one, other, rtol=1e-6, atol=0))
    return type(one) in (str, int, float, bool, bytes, list, type(None)) and bool(one == other)


def _affixed(name: str, values: Sequence[Any], its: Sequence[Any]) -> ValueExplanation | None:
    """Explain texts that contain the column's texts between a constant prefix and suffix, or the reverse."""
    if not all(
        isinstance(one, str) and isinstance(other, str) and other for one, other in zip(values, its, strict=True)
    ):
        return None
    shared: set[tuple[str, str]] = set.intersection(*map(_around, values, its))
    if not shared:
        return None
    prefix, suffix = max(shared, key=lambda each: len(each[0]))
    return ValueExplanation("affixed", name, prefix=prefix, suffix=suffix)


def _around(text: str, part: str) -> set[tuple[str, str]]:
    starts = [start for start in range(len(text) - len(part) + 1) if text.startswith(part, start)]
    return {(text[:start], text[start + len(part) :]) for start in starts}


def _ranked(name: str, values: Sequence[Any], its: Sequence[Any], column: Sequence[Any]) -> ValueExplanation | None:
    """Explain class indices by the order of a column's distinct values, and one-hot lists by them."""
    is_index = all(type(value) in (int, float) for value in values)
    if not is_index and not all(type(value) is list for value in values):
        return None
    try:
        classes = sorted({_plain(each) for each in column})
        ranks = [bisect.bisect_left(classes, each) for each in its]
    except TypeError:
        return None
    if len(classes) == len(column):
        return None  # any numbers in sample order would be ranks
    if is_index:
        return ValueExplanation("class", name) if values == ranks else None
    hot = [[float(place == rank) for place in range(len(classes))] for rank in ranks]
    return ValueExplanation("one-hot", name) if values == hot else None


def _affine(name: str, values: Sequence[Any], its: Sequence[Any]) -> ValueExplanation | None:
    numbers = (int, float, bool)
    if not all(type(one) in numbers and type(other) in numbers for one, other in zip(values, its, strict=True)):
        return None
    x, y = np.array(its, np.float64), np.array(values, np.float64)
    if len(np.unique(x)) < 3 or not np.isfinite(x).all() or not np.isfinite(y).all():
        return None
    scale, shift = np.polyfit(x, y, 1)
    if scale == 0 or np.abs(y - (scale * x + shift)).max() > 1e-5 * np.abs(y).max():
        return None
    return ValueExplanation("affine", name, scale=float(scale), shift=float(shift))


# Tokens of a text.


@dataclass(frozen=True)
class TokensExplanation:
    """Recipe of a leaf from the sample's text."""

    part: Literal["ids", "mask"]
    """The tokens, or the mask of tokens without padding."""
    column: str
    tokenizer: int
    length: int
    """Tokens per row, padding included."""
    pad_id: int | None
    """Padding token; None if no row was padded."""


@dataclass(frozen=True)
class CallExplanation:
    """Recipe of a leaf by a callable of the user's own from the sample's text."""

    call: LookedCall
    length: int
    pad_id: int
    """Last id of the row with most equal ids at its end."""


def explain_call(
    leaves: Sequence[Array], indices: Sequence[int], calls: Sequence[LookedCall]
) -> CallExplanation | None:
    """Return the callable that makes all leaves, one with a name to import if possible; None if none does."""
    if any(leaf.dtype.kind not in "iu" for leaf in leaves):
        return None
    for call in sorted(calls, key=lambda call: not call.name):
        rows = [call.rows.get(index) for index in indices]
        if all(row is not None and np.array_equal(leaf, row) for leaf, row in zip(leaves, rows, strict=True)):
            ends = [int(np.flatnonzero(leaf != leaf[-1]).max(initial=-1)) for leaf in leaves]
            return CallExplanation(call, len(leaves[0]), int(leaves[ends.index(min(ends))][-1]))
    return None


def tokenizers_of(texts: Sequence[str]) -> list[Any]:
    """Return tokenizers from their JSON; none if the library is not installed."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return []
    made = []
    for text in texts:
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        made.append(tokenizer)
    return made


def explain_tokens(
    leaves: Sequence[Array], indices: Sequence[int], columns: Mapping[str, Sequence[Any]], tokenizers: Sequence[Any]
) -> TokensExplanation | None:
    """Return the column of texts that become these rows of one length; None if no tokenizer produces them."""
    lengths = {leaf.shape for leaf in leaves}
    if len(lengths) > 1 or leaves[0].ndim != 1 or leaves[0].dtype.kind not in "iub":
        return None
    ((length,),) = lengths
    for name, column in columns.items():
        texts = [column[index] for index in indices]
        if not all(isinstance(text, str) for text in texts):
            continue
        for number, tokenizer in enumerate(tokenizers):
            rows = [_truncated(tokenizer, text, length) for text in texts]
            found = _padded(leaves, rows)
            if found is not None:
                return TokensExplanation(found[0], name, number, length, found[1])
    return None


def _truncated(tokenizer: Any, text: str, length: int) -> list[int]:
    tokenizer.enable_truncation(max_length=length)
    try:
        ids: list[int] = tokenizer.encode(text).ids
    finally:
        tokenizer.no_truncation()
    return ids


def _padded(leaves: Sequence[Array], rows: Sequence[Sequence[int]]) -> tuple[Literal["ids", "mask"], int | None] | None:
    """Return whether leaves are the tokens or their mask, and the padding token."""
    masks = [np.arange(len(leaf)) < len(row) for leaf, row in zip(leaves, rows, strict=True)]
    if all(np.array_equal(leaf, mask) for leaf, mask in zip(leaves, masks, strict=True)):
        return None if all(mask.all() for mask in masks) else ("mask", None)
    if not all(np.array_equal(leaf[: len(row)], row) for leaf, row in zip(leaves, rows, strict=True)):
        return None
    pads = {int(value) for leaf, mask in zip(leaves, masks, strict=True) for value in np.unique(leaf[~mask])}
    return ("ids", next(iter(pads), None)) if len(pads) <= 1 else None
