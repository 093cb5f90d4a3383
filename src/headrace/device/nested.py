"""Tensors in nested batches: mappings, sequences, named tuples and dataclasses; their dense parts."""

from __future__ import annotations

import array
import copy
import dataclasses
import operator
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

Path: TypeAlias = tuple[str | int, ...]
"""Keys, field names and positions that lead to a tensor."""


def map_tensors(batch: Any, function: Callable[[Path, Tensor], Tensor], path: Path = ()) -> Any:
    """Return the batch with every tensor replaced by the result of `function`; other values pass through.

    Containers retain their type and attributes. A mapping or sequence that cannot be rebuilt from its items becomes a
    dict or list, as in torch's own `pin_memory`. A container in which nothing changes is returned itself.
    """

    def leaf(path: Path, part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            return function(path, part)
        return _packed(part, function, path) if isinstance(part, PackedSequence) else NO_LEAF

    return map_leaves(batch, leaf, path)


NO_LEAF = object()
"""Result of a leaf function for a part that `map_leaves` should descend into."""


def map_leaves(batch: Any, leaf: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """Map any part, as `map_tensors` does: `leaf` is called first, also for containers, and may return NO_LEAF."""
    new = leaf(path, batch)
    if new is not NO_LEAF:
        return new
    parts: dict[Any, Any]
    if isinstance(batch, Mapping):
        parts = dict(batch)
    elif isinstance(batch, tuple):
        parts = dict(zip(getattr(batch, "_fields", range(len(batch))), batch, strict=True))
    elif isinstance(batch, Sequence) and not isinstance(batch, _BYTES_OR_TEXT):
        parts = dict(enumerate(batch))
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        parts = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    else:
        return batch
    new = {key: map_leaves(part, leaf, (*path, key)) for key, part in parts.items()}
    return batch if all(new[key] is part for key, part in parts.items()) else _rebuilt(batch, new)


_BYTES_OR_TEXT = (str, bytes, bytearray, memoryview, array.array)


def _rebuilt(batch: Any, parts: dict[Any, Any]) -> Any:
    """Make a container like `batch` from these parts, or a plain one if its class cannot be built from them."""
    if isinstance(batch, tuple):
        return type(batch)(*parts.values()) if hasattr(batch, "_fields") else type(batch)(parts.values())
    if isinstance(batch, Mapping | Sequence) and not isinstance(batch, MutableMapping | MutableSequence):
        items = parts if isinstance(batch, Mapping) else list(parts.values())
        try:
            return type(batch)(items)  # type: ignore[call-arg]  # as most containers are made
        except TypeError:
            return items
    # A copy, since the constructors of defaultdict and of transformers' BatchEncoding take another first argument.
    new = copy.copy(batch)
    is_container = isinstance(batch, MutableMapping | MutableSequence)
    put: Callable[[Any, Any, Any], None] = operator.setitem if is_container else object.__setattr__  # frozen ones too
    for key, part in parts.items():  # not update(), which transformers' ModelOutput forbids
        put(new, key, part)
    return new


def _packed(batch: PackedSequence, function: Callable[[Path, Tensor], Tensor], path: Path) -> PackedSequence:
    """Map all but the batch sizes, which torch requires on the CPU."""

    def moved(name: str) -> Tensor | None:
        part = getattr(batch, name)
        return None if part is None else function((*path, name), part)

    return PackedSequence(moved("data"), batch.batch_sizes, moved("sorted_indices"), moved("unsorted_indices"))  # type: ignore[arg-type]


_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def dense_parts(tensor: Tensor) -> list[Tensor]:
    """Return the tensors that hold the content; a dense tensor is its own only part."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]  # indices() and values() require a coalesced tensor
    if tensor.layout in _ROWS:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in _COLUMNS:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_nested and tensor.layout is torch.strided:
        return [tensor.values()]
    return [tensor]


def bytes_of(tensor: Tensor) -> int:
    return sum(part.nbytes for part in dense_parts(tensor))
