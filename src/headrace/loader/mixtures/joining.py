"""Joining of several sources' parts to one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError
from headrace.fields import ResolvedText
from headrace.loader.batch_memory import BatchMemory, tensor_over
from headrace.loader.batch_values import SMALL_BYTES, PlainArray, RowLayout
from headrace.loader.decoding.texts import IDS, MASK

Rows = NDArray[np.int64]
Parts = Sequence[tuple[str, Rows, Any]]
"""Parts of a batch as (source, rows of the batch, values of these rows), for each source that has any."""


def join(parts: Parts, count: int, memory: BatchMemory) -> dict[str, Any]:
    """Join parts to a batch of `count` samples. Raises UsageError if fields do not stack."""
    return _join_dicts(parts, count, memory, "")


def _join_dicts(parts: Parts, count: int, memory: BatchMemory, within: str) -> dict[str, Any]:
    first, _, names = parts[0]
    for source, _, batch in parts[1:]:
        if set(batch) != set(names):
            raise UsageError(
                f"mixture: expected the same fields{within} of all sources, got {', '.join(map(str, names))} of "
                f"{first!r} and {', '.join(map(str, batch))} of {source!r}; make them alike, or take "
                "batches='one-source'"
            )
    return {
        name: _join_values([(source, rows, batch[name]) for source, rows, batch in parts], count, memory, str(name))
        for name in names
    }


def _join_values(parts: Parts, count: int, memory: BatchMemory, name: str) -> Any:
    values = [value for _, _, value in parts]
    if all(isinstance(value, Mapping) for value in values):
        return _join_dicts(parts, count, memory, f" in {name!r}")
    if all(isinstance(value, list) for value in values):
        # Use the first list's class, which may be one of values that never stack.
        joined: list[Any] = type(values[0])([None] * count)
        for _, rows, each in parts:
            for row, value in zip(rows.tolist(), each, strict=True):
                joined[row] = value
        return joined
    plain = [PlainArray.of(value) for value in values]
    arrays = [each for each in plain if each is not None and each.array.ndim]
    if len(arrays) < len(parts):
        raise UsageError(
            f"mixture: field {name!r}: expected arrays, lists or dicts of them, of one kind in all sources, got "
            f"{_of_each(parts, lambda value: type(value).__name__)}; take batches='one-source'"
        )
    firsts = [PlainArray(each.array[0], each.tensor) for each in arrays]
    layout = RowLayout.of(firsts[0])
    if not all(map(layout.fits, firsts)):
        raise UsageError(
            f"mixture: field {name!r}: expected rows of one type and shape of all sources, got "
            f"{_of_each(parts, _row)}; give each a view of the same size and the same dtype, or take "
            "batches='one-source'"
        )
    return _join_arrays([rows for _, rows, _ in parts], arrays, layout, count, memory)


def _join_arrays(rows: list[Rows], arrays: list[PlainArray], layout: RowLayout, count: int, memory: BatchMemory) -> Any:
    nbytes = count * layout.row_bytes
    block = np.empty(nbytes, np.uint8) if nbytes < SMALL_BYTES else memory.acquire(nbytes)
    lines = block[:nbytes].reshape(count, layout.row_bytes)
    back = (0, *(1 + dimension for dimension in layout.order))
    for at, part in zip(rows, arrays, strict=True):
        lying = np.ascontiguousarray(part.array.transpose(back))
        lines[at] = lying.reshape(len(at), -1).view(np.uint8).reshape(len(at), layout.row_bytes)
    if layout.tensor is None:
        return layout.batch(block, count).restore()
    import torch

    values = tensor_over(block)[:nbytes].view(getattr(torch, layout.tensor))
    tensor = values.view(count, *(layout.shape[dimension] for dimension in layout.order))
    return tensor.permute(0, *(int(at) for at in np.argsort(layout.order) + 1))


def _row(value: Any) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape[1:])}"


def _of_each(parts: Parts, of: Any) -> str:
    return " and ".join(f"{of(value)} of {source!r}" for source, _, value in parts)


def fill_up(parts: Parts, texts: Sequence[ResolvedText]) -> Parts:
    """Pad each of `texts` to the longest part's length; leave fields that `map` has changed.

    `texts` belong to one source: all sources pad alike.
    """
    for text in texts:
        lengths = [_length(batch.get(text.name)) for _, _, batch in parts]
        if None not in lengths and len(set(lengths)) > 1:
            longest = max(length for length in lengths if length is not None)
            parts = [
                (source, rows, {**batch, text.name: _filled(batch[text.name], longest, text)})
                for source, rows, batch in parts
            ]
    return parts


def _length(value: Any) -> int | None:
    """Return the row length of a padded text in tokens; None for any other value."""
    if not isinstance(value, Mapping) or set(value) != {IDS, MASK}:
        return None
    shapes = [tuple(getattr(part, "shape", ())) for part in value.values()]
    return int(shapes[0][1]) if shapes[0] == shapes[1] and len(shapes[0]) == 2 else None


def _filled(value: Mapping[str, Any], length: int, text: ResolvedText) -> dict[str, Any]:
    filled = {}
    for name, fill in ((IDS, text.pad_id), (MASK, 0)):
        plain = PlainArray.of(value[name])
        assert plain is not None, "a text's parts are numbers"
        more = length - plain.array.shape[1]
        widths = ((0, 0), (more, 0) if text.encoder.pads_left else (0, more))
        filled[name] = PlainArray(np.pad(plain.array, widths, constant_values=fill), plain.tensor).restore()
    return filled
