"""One batch out of several sources' parts of it. Rows are copied once, without the GIL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError
from headrace.feed.memory import BatchMemory
from headrace.loader.batch_values import SMALL_BYTES, Layout, Plain

Rows = NDArray[np.int64]
Parts = Sequence[tuple[str, Rows, Any]]
"""(source, rows of the batch, values of these rows) of each source that has any."""


def join(parts: Parts, count: int, memory: BatchMemory) -> dict[str, Any]:
    """The batch of `count` samples, of which each part has its rows. Raises UsageError where fields do not stack."""
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
        return _join_lists(parts, count)
    plain = [Plain.of(value) for value in values]
    arrays = [each for each in plain if each is not None and each.array.ndim]
    if len(arrays) < len(parts):
        raise UsageError(
            f"mixture: field {name!r}: expected arrays, lists or dicts of them, of one kind in all sources, got "
            f"{_of_each(parts, lambda value: type(value).__name__)}; take batches='one-source'"
        )
    rows = [Plain(each.array[0], each.tensor) for each in arrays]
    layout = Layout.of(rows[0])
    if not all(map(layout.fits, rows)):
        raise UsageError(
            f"mixture: field {name!r}: expected rows of one type and shape of all sources, got "
            f"{_of_each(parts, _row)}; give each a view of the same size and the same dtype, or take "
            "batches='one-source'"
        )
    return _join_arrays([rows for _, rows, _ in parts], arrays, layout, count, memory)


def _join_lists(parts: Parts, count: int) -> list[Any]:
    """A list of the first one's class: of values that never stack, it may be one of its own."""
    joined: list[Any] = type(parts[0][2])([None] * count)
    for _, rows, values in parts:
        for row, value in zip(rows.tolist(), values, strict=True):
            joined[row] = value
    return joined


def _join_arrays(rows: list[Rows], arrays: list[Plain], layout: Layout, count: int, memory: BatchMemory) -> Any:
    nbytes = count * layout.row_bytes
    block = np.empty(nbytes, np.uint8) if nbytes < SMALL_BYTES else memory.acquire(nbytes)
    lines = block[:nbytes].reshape(count, layout.row_bytes)
    back = (0, *(1 + dimension for dimension in layout.order))
    for at, part in zip(rows, arrays, strict=True):
        lying = np.ascontiguousarray(part.array.transpose(back))
        lines[at] = lying.reshape(len(at), -1).view(np.uint8).reshape(len(at), layout.row_bytes)
    joined = layout.batch(block, count)
    return joined.restore() if layout.tensor is None else _tensor(block, layout, count)


def _tensor(block: NDArray[np.uint8], layout: Layout, count: int) -> Any:
    """Over the tensor that pinned memory was allocated as, so that torch's allocator learns of copies from it."""
    import torch

    whole = block.base if isinstance(block.base, torch.Tensor) else torch.from_numpy(block)
    assert layout.tensor is not None
    values = whole[: count * layout.row_bytes].view(getattr(torch, layout.tensor))
    lying = values.view(count, *(layout.shape[dimension] for dimension in layout.order))
    return lying.permute(0, *(int(at) for at in np.argsort(layout.order) + 1))


def _row(value: Any) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape[1:])}"


def _of_each(parts: Parts, of: Any) -> str:
    return " and ".join(f"{of(value)} of {source!r}" for source, _, value in parts)
