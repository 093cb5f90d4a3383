"""Batches as people nest them: mappings, lists, tuples, named tuples and dataclasses of tensors."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

Path: TypeAlias = tuple[str | int, ...]
"""Keys, field names and positions that lead to a tensor."""


def map_tensors(batch: Any, function: Callable[[Path, Tensor], Tensor], path: Path = ()) -> Any:
    """The batch with every tensor replaced by what `function` makes of it; what is no tensor passes through.

    Containers keep their type and their attributes. One in which nothing changes is handed on as it is.
    """
    if isinstance(batch, torch.Tensor):
        return function(path, batch)
    if isinstance(batch, PackedSequence):
        return _packed(batch, function, path)
    if isinstance(batch, Mapping):
        return _rebuilt(batch, dict(batch), function, path, _mapping)
    if isinstance(batch, list):
        return _rebuilt(batch, dict(enumerate(batch)), function, path, _list)
    if isinstance(batch, tuple):
        names = getattr(batch, "_fields", range(len(batch)))
        return _rebuilt(batch, dict(zip(names, batch, strict=True)), function, path, _tuple)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        fields = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
        return _rebuilt(batch, fields, function, path, _object)
    return batch


def _rebuilt(
    batch: Any,
    parts: dict[Any, Any],
    function: Callable[[Path, Tensor], Tensor],
    path: Path,
    build: Callable[[Any, dict[Any, Any]], Any],
) -> Any:
    new = {key: map_tensors(part, function, (*path, key)) for key, part in parts.items()}
    return batch if all(new[key] is part for key, part in parts.items()) else build(batch, new)


def _mapping(batch: Any, parts: dict[Any, Any]) -> Any:
    if not isinstance(batch, MutableMapping):
        return type(batch)(parts)
    # A copy, since the constructors of defaultdict and of transformers' BatchEncoding take something else first.
    new = copy.copy(batch)
    for key, part in parts.items():  # not update(), which transformers' ModelOutput forbids
        new[key] = part
    return new


def _list(batch: Any, parts: dict[Any, Any]) -> Any:
    new = copy.copy(batch)
    new[:] = parts.values()
    return new


def _tuple(batch: Any, parts: dict[Any, Any]) -> Any:
    return type(batch)(*parts.values()) if hasattr(batch, "_fields") else type(batch)(parts.values())


def _object(batch: Any, parts: dict[Any, Any]) -> Any:
    new = copy.copy(batch)
    for name, part in parts.items():
        object.__setattr__(new, name, part)  # frozen ones too
    return new


def _packed(batch: PackedSequence, function: Callable[[Path, Tensor], Tensor], path: Path) -> PackedSequence:
    """All but the batch sizes, which torch wants on the CPU."""

    def moved(name: str) -> Tensor | None:
        part = getattr(batch, name)
        return None if part is None else function((*path, name), part)

    return PackedSequence(moved("data"), batch.batch_sizes, moved("sorted_indices"), moved("unsorted_indices"))  # type: ignore[arg-type]
